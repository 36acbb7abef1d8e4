"""A sentence with everything that was seen of it, and its page of JSON.

Letters: R unit of the rows; C unit of the columns.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.inspection.maps import SentenceMap
from jaxsyn.inspection.pooling import Units, pool

DIGITS = 6  # of a weight: the rows of a pooled map still sum to 1


@dataclasses.dataclass(frozen=True)
class Source:
  """A source sentence as it was parsed and as the model reads it.

  Attributes:
    text: the line, as it was read.
    words, head_W, relation_W: of the parse; a root is its own parent.
    parsed: False if there is no tree; words are then the tokens between blanks.
    tree: which tree the system reads: "parsed", the control "linear" or
      "random", or "none".
    given_head_W: the parents of that tree; None where it reads none.
    subwords: their texts, "▁" for a blank before them; the end sign last.
    units: rows and columns of a pooled map.
    example: arrays of `jaxsyn.data.sentence.example.encode`.
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
    unit = {word: number for number, word in enumerate(words)}
    return tuple(unit.get(self.head_W[word], unit[word]) for word in words)


@dataclasses.dataclass(frozen=True)
class Map:
  """Matrices of some heads, with the names of their rows and columns.

  Attributes:
    place, layer, part, kind, heads, parts: see `jaxsyn.inspection.maps.SentenceMap`.
    rows, columns: words (attention) or subwords (what parts publish), and
      signs; in decoder and cross-attention a row is the word being predicted.
    weight_HQM: the matrices.
  """

  place: str
  layer: int
  part: str
  kind: str
  heads: tuple[int, ...]
  rows: tuple[str, ...]
  columns: tuple[str, ...]
  weight_HQM: np.ndarray
  parts: tuple[tuple[str, ...], ...] = ()

  @property
  def is_attention(self) -> bool:
    """Whether its weights are those under which values are summed."""
    return self.kind == "weight"

  @property
  def is_one(self) -> bool:
    """Whether all heads have the same matrix."""
    return bool((self.weight_HQM == self.weight_HQM[:1]).all())


@dataclasses.dataclass(frozen=True)
class Sentence:
  """What was seen of a sentence.

  Attributes:
    source: see `Source`.
    translation: the model's own, best one.
    attention: encoder, then decoder, then cross, by layers; word-pooled.
    weightings: what the parts published, in subwords.
    found_head_W: parents of the source words as the model's own supervised
      head finds them; None where it has none.
  """

  source: Source
  translation: str
  attention: tuple[Map, ...]
  weightings: tuple[Map, ...]
  found_head_W: tuple[int, ...] | None = None

  def find(self, place: str, layer: int, part: str = "") -> Map:
    """The attention of a layer, or what a part published there.

    Raises: KeyError if there is none.
    """
    for found in (*self.attention, *self.weightings):
      if (found.place, found.layer, found.part) == (place, layer, part):
        return found
    raise KeyError(f"nothing seen of {part or 'attention'}, {place} {layer}")


def sentence(
  source: Source,
  translation: str,
  target: tuple[Units, Units, tuple[str, ...]],
  published: list[SentenceMap],
) -> Sentence:
  """Pools what is attention and names the rows and columns of everything.

  Args:
    source: the sentence.
    translation: its text.
    target: of `pooling.target_units`.
    published: of `maps.MapReader`.
  """
  rows, columns, subwords = target
  units = {
    "encoder": (source.units, source.units),
    "decoder": (rows, columns),
    "cross": (rows, source.units),
  }
  labels = {
    "encoder": (source.subwords, source.subwords),
    "decoder": (subwords, (columns.labels[0], *subwords[:-1])),
    "cross": (subwords, source.subwords),
  }
  attention, weightings = [], []
  for p in sorted(published, key=lambda p: ([*units].index(p.place), p.layer)):
    head = (p.place, p.layer, p.part, p.kind, p.heads)
    names = labels[p.place]
    if p.kind == "parse":  # told by subwords, whichever state parses them
      names = (names[0], names[0])
    found = Map(*head, *names, p.value_HQM, p.parts)
    if found.is_attention:
      rows, columns = (unit.labels for unit in units[p.place])
      weight_HRC = pool(p.value_HQM, *units[p.place])
      attention.append(Map(*head, rows, columns, weight_HRC, p.parts))
    else:
      weightings.append(found)
  return Sentence(
    source,
    translation,
    tuple(attention),
    tuple(weightings),
    _found_heads(source, weightings),
  )


def _found_heads(
  source: Source, weightings: Sequence[Map]
) -> tuple[int, ...] | None:
  """The parent of each source word that the highest supervised head finds.

  A word is asked at its last subword, as the validation's UAS asks
  (`jaxsyn.training.head_losses`); one without subwords is its own parent.
  """
  parses = [m for m in weightings if (m.place, m.kind) == ("encoder", "parse")]
  if not parses:
    return None
  word_S = [source.units.words[unit] for unit in source.units.unit_S]
  last = {word: i for i, word in enumerate(word_S) if word >= 0}
  parse_QM = parses[-1].weight_HQM[0]
  found = []
  for word in range(len(source.words)):
    best = word_S[int(parse_QM[last[word]].argmax())] if word in last else word
    found.append(best if best >= 0 else word)
  return tuple(found)


def to_json(seen: Sentence, number: int) -> str:
  """A sentence as JSON: a line a field, a line a matrix.

  `attention`: one entry for each place, layer and head, of a recurrent decoder
  for each window, which is among its `parts`. `weightings`: one for
  each matrix, with the heads it is for.

  Args:
    seen: the sentence.
    number: which of the input, from 1.
  """
  source = seen.source
  fields: dict[str, Any] = {
    "number": number,
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
  lines = [f"  {_json(name)}: {_json(value)}" for name, value in fields.items()]
  attention = [
    {
      **{"place": m.place, "layer": m.layer, "head": head},
      **{"parts": m.parts[number]},
      **_matrix(m, number),
    }
    for m in seen.attention
    for number, head in enumerate(m.heads)
  ]
  weightings = [
    {
      **{"place": m.place, "layer": m.layer, "part": m.part, "kind": m.kind},
      **{"heads": heads},
      **_matrix(m, number),
    }
    for m in seen.weightings
    for number, heads in enumerate(
      [m.heads] if m.is_one else [[head] for head in m.heads]
    )
  ]
  for name, entries in (("attention", attention), ("weightings", weightings)):
    inner = ",\n".join(f"    {_json(entry)}" for entry in entries)
    lines.append(f'  "{name}": [\n{inner}\n  ]')
  return "{\n" + ",\n".join(lines) + "\n}\n"


def _matrix(found: Map, number: int) -> dict[str, Any]:
  weight_QM = np.round(found.weight_HQM[number].astype(np.float64), DIGITS)
  weights = [
    [value if np.isfinite(value) else None for value in row]
    for row in weight_QM.tolist()
  ]
  return {"rows": found.rows, "columns": found.columns, "weights": weights}


def _json(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False, allow_nan=False)
