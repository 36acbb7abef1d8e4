"""From subwords to words: who belongs together, and what their weights are.

A unit is what a picture has a row or a column for: a word, or a sign (the end
of a sentence, the beginning the decoder reads). Words of the source are the
parser's. Words of a translation are what stands between its blanks, or single
subwords where it has none, as in Japanese.

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
  """Rows or columns of a pooled map.

  Attributes:
    labels: one a unit.
    unit_S: unit of each subword.
    words: word of the parse that each unit is; -1 for a sign.
  """

  labels: tuple[str, ...]
  unit_S: tuple[int, ...]
  words: tuple[int, ...] = ()


class TargetUnits(NamedTuple):
  """Units of a translation, which has no parse.

  Attributes:
    rows: of decoder and cross-attention: words being predicted, EOS.
    columns: of decoder self-attention: the sign it begins with, words it read.
    subwords: their texts, EOS last.
  """

  rows: Units
  columns: Units
  subwords: tuple[str, ...]


def source_units(words: Sequence[str], word_S: Sequence[int]) -> Units:
  """Units of a parsed source: its words, then EOS.

  A word that no subword begins in (the model cannot tell it from another) has
  no unit.

  Args:
    words: of the parse.
    word_S: word of each subword, EOS, -1, last.
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
  """Units of a translation: words between its blanks, or else subwords.

  What a subword adds to the text is told by decoding with and without it, so
  the subwords are exactly those that the search found.

  Args:
    ids: subwords of the translation, without EOS.
    decode: of the target's vocabulary.
  """
  texts = [decode(ids[:i]) for i in range(len(ids) + 1)]
  # A text that is not its beginning and something more: not met so far, but
  # then the subword's own text will do.
  added = [
    new[len(old) :] if new.startswith(old) else decode(ids[i : i + 1])
    for i, (old, new) in enumerate(itertools.pairwise(texts))
  ]
  has_blanks = any(piece.isspace() for piece in texts[-1].strip())
  labels: list[str] = []
  unit_T: list[int] = []
  opens = True
  for piece in added:
    if opens or not has_blanks or piece[:1].isspace():
      labels.append("")
    labels[-1] += piece.strip()
    unit_T.append(len(labels) - 1)
    opens = piece[-1:].isspace() and not piece.isspace()
  names = tuple(label or "▁" for label in labels)
  rows = Units((*names, END), (*unit_T, len(labels)))
  columns = Units((BEGIN, *names), (0, *(unit + 1 for unit in unit_T)))
  return TargetUnits(rows, columns, (*added, END))


def pool(weight_HQM: np.ndarray, rows: Units, columns: Units) -> np.ndarray:
  """Attention between units.

  A row is the mean of its subwords' rows, a column the sum of its subwords'
  columns, so a row that sums to 1 still does.

  Args:
    weight_HQM: attention between subwords.
    rows, columns: units of the Q and M subwords.

  Returns: (H, rows, columns), float64.
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
