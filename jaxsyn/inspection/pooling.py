"""Pools attention from subwords to words.

A unit is a row or column of a pooled map: a word, EOS or BOS. Words of the source
are the parser's. Words of a translation are separated by its spaces; without
spaces, as in Japanese, each subword is a word.

Letters: U unit.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxsyn.data.schema import BOS, EOS, NO_WORD, SPECIAL

END, BEGIN = SPECIAL[EOS], SPECIAL[BOS]


@dataclasses.dataclass(frozen=True)
class Units:
  """Units (words, EOS) that label the rows or columns of a pooled map.

  Attributes:
    labels: Label of each unit.
    unit_S: Unit of each subword.
    words: Index of each unit's word in the parse; -1 for EOS and BOS.
  """

  labels: tuple[str, ...]
  unit_S: tuple[int, ...]
  words: tuple[int, ...] = ()


class TargetUnits(NamedTuple):
  """Row and column labels of a translation's attention maps, and its subwords.

  Attributes:
    rows: Units of decoder and cross-attention: predicted words, then EOS.
    columns: Units of decoder self-attention: BOS, then the words read.
    subwords: Texts of the subwords, EOS last.
  """

  rows: Units
  columns: Units
  subwords: tuple[str, ...]


def source_units(words: Sequence[str], word_S: Sequence[int]) -> Units:
  """Returns the units of a parsed source: its words, then EOS.

  A word in which no subword begins has no unit.

  Args:
    words: Words of the parse.
    word_S: Word of each subword; -1 for EOS and tags.
  """
  present = sorted(set(word_S) - {NO_WORD})
  unit = {word: index for index, word in enumerate(present)}
  return Units(
    (*(words[w] for w in present), END),
    tuple(unit.get(w, len(present)) for w in word_S),
    (*present, -1),
  )


def target_units(
  ids: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> TargetUnits:
  """Returns the words and subwords that label a translation's attention maps.

  Args:
    ids: Subwords of the translation, without EOS.
    decode: Function of the target vocabulary. The text of a subword is the
      difference between decoding with and without it.
  """
  texts = [decode(ids[:i]) for i in range(len(ids) + 1)]
  added = [
    new[len(old) :] if new.startswith(old) else decode(ids[i : i + 1])
    for i, (old, new) in enumerate(itertools.pairwise(texts))
  ]
  has_spaces = any(character.isspace() for character in texts[-1].strip())
  labels: list[str] = []
  unit_T: list[int] = []
  is_start = True
  for piece in added:
    if is_start or not has_spaces or piece[:1].isspace():
      labels.append("")
    labels[-1] += piece.strip()
    unit_T.append(len(labels) - 1)
    is_start = piece[-1:].isspace() and not piece.isspace()
  names = tuple(label or "▁" for label in labels)
  rows = Units((*names, END), (*unit_T, len(labels)))
  columns = Units((BEGIN, *names), (0, *(unit + 1 for unit in unit_T)))
  return TargetUnits(rows, columns, (*added, END))


def pool(weight_HQM: np.ndarray, rows: Units, columns: Units) -> np.ndarray:
  """Returns attention pooled from subwords to units (words, EOS).

  The result has the axes (H, rows, columns). A row is the mean of its subwords'
  rows, and a column the sum of its subwords' columns. A row that sums to 1
  therefore still does.
  """
  row_QU, column_MU = (
    np.eye(len(units.labels))[list(units.unit_S)] for units in (rows, columns)
  )
  return np.einsum(
    "hqm,qr,mc->hrc",
    weight_HQM.astype(np.float64),
    row_QU / row_QU.sum(0),
    column_MU,
    optimize=True,
  )
