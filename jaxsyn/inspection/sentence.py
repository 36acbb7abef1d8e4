"""A sentence with everything that was seen of it, and its page of JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.pooling import TargetUnits, Units, pool

PARSE = "parse"  # a kind: see `Map`
DIGITS = 6  # of a weight: the rows of a pooled map still sum to 1


@dataclasses.dataclass(frozen=True)
class ReadSource:
  """A source sentence as it was parsed and as the model reads it.

  Attributes:
    text: the line, as it was read.
    words, head_W, relation_W: of the parse; a root is its own parent.
    parsed: False if there is no tree; words are then the tokens between blanks.
    tree: name of the tree that the system reads, of config.data.tree: "parsed",
      or one that replaces it as "random" does; "none" without trees.
    given_head_W: the parents of that tree; None where it reads none.
    subwords: their texts, "▁" for a blank before them; EOS last.
    units: rows and columns of a pooled map.
    example: arrays of `jaxsyn.data.sentence.example.encode_all`.
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
    """Parent of each word that has subwords, among those words.

    One whose parent has none is its own parent, like a root.
    """
    words = self.units.words[:-1]
    unit = {word: index for index, word in enumerate(words)}
    return tuple(unit.get(self.head_W[word], unit[word]) for word in words)


@dataclasses.dataclass(frozen=True)
class Sentence:
  """What was seen of a sentence.

  Attributes:
    source: see `ReadSource`.
    translation: the model's own, best one.
    attention: encoder, then decoder, then cross, by layers; word-pooled.
    weightings: what the parts published, in subwords.
    found_head_W: parents of the source words as the model's own supervised
      head finds them; None where it has none.
  """

  source: ReadSource
  translation: str
  attention: tuple[Map, ...]
  weightings: tuple[Map, ...]
  found_head_W: tuple[int, ...] | None = None

  def find(self, place: str, layer: int, part: str = "") -> Map:
    """The attention of a layer, or what a part published there.

    Raises: KeyError if there is none.
    """
    for m in (*self.attention, *self.weightings):
      if (m.place, m.layer, m.part) == (place, layer, part):
        return m
    raise KeyError(f"nothing seen of {part or 'attention'}, {place} {layer}")


def gather(
  source: ReadSource,
  translation: str,
  target: TargetUnits,
  *,
  published: Iterable[Map],
) -> Sentence:
  """Pools what is attention and names the rows and columns of everything.

  Args:
    source: the sentence.
    translation: its text.
    target: units of the translation.
    published: of `maps.MapReader`.
  """
  units = {
    "encoder": (source.units, source.units),
    "decoder": (target.rows, target.columns),
    "cross": (target.rows, source.units),
  }
  read = (target.columns.labels[0], *target.subwords[:-1])
  labels = {
    "encoder": (source.subwords, source.subwords),
    "decoder": (target.subwords, read),
    "cross": (target.subwords, source.subwords),
  }
  places = [*units]
  attention, weightings = [], []
  for p in sorted(published, key=lambda p: (places.index(p.place), p.layer)):
    if p.is_attention:
      attention.append(pooled(p, *units[p.place]))
      continue
    rows, columns = labels[p.place]
    if p.kind == PARSE:  # told by subwords, whichever state parses them
      columns = rows
    weightings.append(dataclasses.replace(p, rows=rows, columns=columns))
  return Sentence(
    source,
    translation,
    attention=tuple(attention),
    weightings=tuple(weightings),
    found_head_W=_found_heads(source, weightings),
  )


def pooled(attention: Map, rows: Units, columns: Units) -> Map:
  """Attention between words."""
  return dataclasses.replace(
    attention,
    value_HQM=pool(attention.value_HQM, rows, columns),
    rows=rows.labels,
    columns=columns.labels,
  )


def _found_heads(
  source: ReadSource, weightings: Sequence[Map]
) -> tuple[int, ...] | None:
  """The parent of each source word that the highest supervised head finds.

  A word is asked at its last subword, as the validation's UAS asks
  (`jaxsyn.training.head_losses`); one without subwords is its own parent.
  """
  parses = [m for m in weightings if (m.place, m.kind) == ("encoder", PARSE)]
  if not parses:
    return None
  word_S = [source.units.words[unit] for unit in source.units.unit_S]
  last = {word: i for i, word in enumerate(word_S) if word >= 0}
  best_S = parses[-1].value_HQM[0].argmax(1)
  heads = {word: word_S[best_S[last[word]]] for word in last}
  word_range = range(len(source.words))
  return tuple(h if (h := heads.get(w, w)) >= 0 else w for w in word_range)


MATRICES = ("attention", "weightings")  # lists of matrices, among the fields


def to_json(seen: Sentence, index: int) -> str:
  """A sentence as JSON; `fields_of` says what, `page` how."""
  return render_json(fields_of(seen, index))


def fields_of(seen: Sentence, index: int) -> dict[str, Any]:
  """A sentence as JSON has it.

  `attention`: one entry for each place, layer and head, of a recurrent decoder
  for each window, which is among its `parts`. `weightings`: one for
  each matrix, with the heads it is for.

  Args:
    seen: the sentence.
    index: which of the input, from 1.
  """
  source = seen.source
  fields: dict[str, Any] = {
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
  }
  fields["attention"] = [
    {"place": m.place, "layer": m.layer, "head": head}
    | {"parts": m.parts[i]}
    | _matrix(m, i)
    for m in seen.attention
    for i, head in enumerate(m.heads)
  ]
  fields["weightings"] = [
    {"place": m.place, "layer": m.layer, "part": m.part, "kind": m.kind}
    | {"heads": heads}
    | _matrix(m, i)
    for m in seen.weightings
    for i, heads in enumerate(
      [m.heads] if m.is_one else [[head] for head in m.heads]
    )
  ]
  return fields


def render_json(fields: Mapping[str, Any]) -> str:
  """Fields of a sentence as JSON: a line a field, a line a matrix."""
  lines = []
  for name, value in fields.items():
    if name in MATRICES:
      # One at a time: other threads wait while JSON is made.
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
