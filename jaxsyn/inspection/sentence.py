"""An inspected sentence, and its JSON document."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.pooling import Units

DIGITS = 6  # decimals of a weight: rows of pooled attention still sum to 1
_MATRICES = ("attention", "weightings")  # fields that are lists of matrices


@dataclasses.dataclass(frozen=True)
class ReadSource:
  """A source sentence with its parse and the arrays that the model reads.

  Attributes:
    text: Line of the input.
    words, head_W, relation_W: Words of the parse, their parents and relations.
    parsed: Whether there is a tree; without one, words are separated by spaces.
    tree: Name of the tree that the system reads, see config.data.tree: "parsed"
      or a control such as "random"; "none" without trees.
    given_head_W: Parents in that tree; None if the system reads no tree.
    subwords: Texts of the subwords, "▁" for a space before them; EOS last.
    units: Rows and columns of pooled attention.
    example: Arrays of `jaxsyn.data.sentence.example.encode_all`.
  """

  text: str
  words: tuple[str, ...]
  head_W: tuple[int, ...]
  relation_W: tuple[str, ...]
  parsed: bool
  tree: str
  given_head_W: tuple[int, ...] | None
  subwords: tuple[str, ...]
  units: Units
  example: Mapping[str, np.ndarray]

  def head_of_units(self) -> tuple[int, ...]:
    """Returns each pooled word's parent, as an index into the pooled words.

    A word whose parent has no unit is its own parent, like a root.
    """
    words = self.units.words[:-1]
    unit = {word: index for index, word in enumerate(words)}
    return tuple(unit.get(self.head_W[word], unit[word]) for word in words)


@dataclasses.dataclass(frozen=True)
class Sentence:
  """A sentence with its translation, attention and modifier outputs.

  Attributes:
    source: The source sentence.
    translation: Best translation of the model.
    attention: Word-pooled attention of encoder, decoder and cross-attention, by
      layer.
    weightings: Arrays exposed by modifiers, between subwords.
    found_head_W: Parents of the source words according to the model's
      supervised head; None without such a head.
  """

  source: ReadSource
  translation: str
  attention: tuple[Map, ...]
  weightings: tuple[Map, ...]
  found_head_W: tuple[int, ...] | None = None

  def find(self, place: str, layer: int, part: str = "") -> Map:
    """Returns a layer's attention map, or the output of one of its modifiers.

    Raises:
      KeyError: There is no such map.
    """
    for m in (*self.attention, *self.weightings):
      if (m.place, m.layer, m.part) == (place, layer, part):
        return m
    raise KeyError(f"no map of {part or 'attention'} in {place} {layer}")


def to_json(seen: Sentence, index: int) -> str:
  """Returns the JSON document of a sentence."""
  return render_json(fields_of(seen, index))


def fields_of(seen: Sentence, index: int) -> dict[str, Any]:
  """Returns the fields of a sentence's JSON document.

  "attention" has an entry per head (in a recurrent decoder, per window, which is
  in "parts"), "weightings" one per different matrix, with its heads.

  Args:
    seen: The sentence.
    index: Line of the input, from 1.
  """
  source = seen.source
  attention = []
  for m in seen.attention:
    for i, head in enumerate(m.heads):
      entry = {"place": m.place, "layer": m.layer, "head": head}
      attention.append(entry | {"parts": m.parts[i]} | _matrix(m, i))
  weightings = []
  for m in seen.weightings:
    entry = {"place": m.place, "layer": m.layer, "part": m.part, "kind": m.kind}
    groups = [m.heads] if m.is_one else [[head] for head in m.heads]
    for i, heads in enumerate(groups):
      weightings.append(entry | {"heads": heads} | _matrix(m, i))
  return {
    "number": index,
    "text": source.text,
    "translation": seen.translation,
    "words": source.words,
    "heads": source.head_W,
    "relations": source.relation_W,
    "parsed": source.parsed,
    "tree_read_by_the_system": source.tree,
    "heads_read_by_the_system": source.given_head_W,
    "heads_found_by_the_system": seen.found_head_W,
    "subwords": source.subwords,
    "word_of_subword": [source.units.words[u] for u in source.units.unit_S],
    "attention": attention,
    "weightings": weightings,
  }


def render_json(fields: Mapping[str, Any]) -> str:
  """Renders fields as JSON with one line per field and per matrix."""
  lines = []
  for name, value in fields.items():
    if name in _MATRICES:
      # One matrix at a time, since other threads wait while JSON is made.
      inner = ",\n".join(f"    {_json(entry)}" for entry in value)
      lines.append(f'  "{name}": [\n{inner}\n  ]')
    else:
      lines.append(f"  {_json(name)}: {_json(value)}")
  return "{\n" + ",\n".join(lines) + "\n}\n"


def _matrix(m: Map, index: int) -> dict[str, Any]:
  value_QM = np.round(m.value_HQM[index].astype(np.float64), DIGITS)
  weights = [
    [value if np.isfinite(value) else None for value in row]
    for row in value_QM.tolist()
  ]
  return {"rows": m.rows, "columns": m.columns, "weights": weights}


def _json(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False, allow_nan=False)
