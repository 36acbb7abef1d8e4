"""The static shapes of batches: few that waste little padding on the data.

Before this file: `windows`. After it: `batch_plan`.

Letters: I example; C cell: two lengths, and the pairs that have them; 2 source and
target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxsyn.data.store.lengths import Lengths


@dataclasses.dataclass(frozen=True)
class Shape:
  """A batch's static sizes: rows, subwords and words of source and target.

  Words have a size of their own, since they may outnumber the subwords.
  """

  rows: int
  source: int
  target: int
  source_words: int = 1
  target_words: int = 1

  @property
  def positions(self) -> int:
    return self.rows * (self.source + self.target)


# A shape costs a program, seven to ten processor seconds of a Transformer-Tiny,
# in which it trains on some 60,000 positions; one that does not save as many in
# ten epochs is not worth it.
MIN_GAIN = 6_000
MAX_SHAPES = 12  # of shapes, where their number is chosen
_BLOCK_LENGTHS = 1 << 19  # lengths looked at


def choose_shapes(
  counts: LengthCounts, rows: Callable[[int, int], int]
) -> list[tuple[int, int]]:
  """As many lengths as are worth their programs: few pairs fill few shapes.

  It minimises the positions of an epoch + WORTH · the number of shapes, up to
  MOST of them. Neither seeds nor the length of a run change it.

  Args:
    counts: rounded up.
    rows: of a batch, by its two lengths.
  """
  chosen = counts.greedy(MAX_SHAPES)
  candidates = [by_area(chosen[:count]) for count in range(1, len(chosen) + 1)]
  cost = [
    counts.positions(some, rows) + MIN_GAIN * len(some) for some in candidates
  ]
  return candidates[int(np.argmin(cost))]


def by_area(lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
  """From the smallest to the largest: of its own, a pair takes the first."""
  return sorted(lengths, key=lambda p: (p[0] + p[1], p))


class LengthCounts(NamedTuple):
  """How many pairs have which two lengths, and the most words they have."""

  length_C2: np.ndarray
  count_C: np.ndarray
  words_C2: np.ndarray

  @classmethod
  def of(cls, lengths: Lengths) -> LengthCounts:
    """Counts some at a time: their keys take eight times the lengths."""
    parts = []
    for begin in range(0, len(lengths.source), _BLOCK_LENGTHS):
      block = lengths.of(slice(begin, begin + _BLOCK_LENGTHS))
      length_I2 = np.stack(block[:2], 1)
      once_I = np.ones(len(length_I2), np.int64)
      parts.append(cls(length_I2, once_I, np.stack(block[2:], 1)).joined())
    return cls(*map(np.concatenate, zip(*parts))).joined()

  def joined(self) -> LengthCounts:
    """Those of the same lengths as one."""
    key_C = self.length_C2[:, 0] << 32 | self.length_C2[:, 1]
    key_C, group = np.unique(key_C, return_inverse=True)
    count_C = np.zeros(len(key_C), np.int64)
    np.add.at(count_C, group, self.count_C)
    words_C2 = np.zeros((len(key_C), 2), np.int64)
    for side in (0, 1):
      np.maximum.at(words_C2[:, side], group, self.words_C2[:, side])
    length_C2 = np.stack([key_C >> 32, key_C & (1 << 32) - 1], 1)
    return LengthCounts(length_C2, count_C, words_C2)

  def rounded(self, multiple: int) -> LengthCounts:
    """With lengths rounded up to a grid."""
    # At most 64 steps a side, so that long corpora stay cheap to plan for.
    longest_2 = self.length_C2.max(0)
    step = round_up(np.maximum(multiple, -(-longest_2 // 64)), multiple)
    return self._replace(length_C2=round_up(self.length_C2, step)).joined()

  def greedy(self, count: int) -> list[tuple[int, int]]:
    """Lengths as they are chosen: the one that holds every pair, then, one at
    a time, those that save most padded positions."""
    up_C2 = self.length_C2
    sides = [np.unique(up_C2[:, 0]), np.unique(up_C2[:, 1])]
    s, t = (side.ravel() for side in np.meshgrid(*sides, indexing="ij"))
    fits = (up_C2[:, :1] <= s) & (up_C2[:, 1:] <= t)  # cell, candidate
    area = np.where(fits, (s + t)[None, :], np.iinfo(np.int64).max)
    chosen = [int(np.argmax(s + t))]
    paid = area[:, chosen[0]]
    while len(chosen) < count:
      spared = np.maximum(paid[:, None] - area, 0) * self.count_C[:, None]
      saved = spared.sum(0)
      best = int(np.argmax(saved))
      if saved[best] == 0:
        break
      chosen.append(best)
      paid = np.minimum(paid, area[:, best])
    return [(int(s[i]), int(t[i])) for i in chosen]

  def positions(
    self, lengths: list[tuple[int, int]], rows: Callable[[int, int], int]
  ) -> int:
    """Of an epoch of `BatchPlan`, on average: a shape's last, unfilled batch
    moves on to larger ones, which is what many shapes cost few pairs."""
    left_C, total = self.count_C.astype(np.float64), 0
    for s, t in lengths:
      fitting_C = np.where((self.length_C2 <= (s, t)).all(1), left_C, 0.0)
      count, size = round(fitting_C.sum()), rows(s, t)
      last = (s, t) == lengths[-1]
      batches = -(-count // size) if last else count // size
      total += batches * size * (s + t)
      left_C -= fitting_C * min(1.0, batches * size / max(count, 1))
    return total


def round_up(length: Any, multiple: Any) -> Any:
  """The next multiple."""
  return -(-length // multiple) * multiple


def doubled(length: int, minimum: int) -> int:
  """The first of least, 2 · least, 4 · least, ... that holds a length.

  So that what comes in any length is padded to few.
  """
  while minimum < length:
    minimum *= 2
  return minimum


class ShapeTable(NamedTuple):
  """The first of some shapes that holds a pair, looked up by its lengths.

  Attributes:
    source: by length, which of the shapes' different lengths holds it.
    target: the same.
    shape: number of the shape by those two.
  """

  source: np.ndarray
  target: np.ndarray
  shape: np.ndarray

  @classmethod
  def of(cls, shapes: Sequence[Shape]) -> ShapeTable:
    size_2 = np.array([(shape.source, shape.target) for shape in shapes])
    sides = [np.unique(side) for side in size_2.T]
    place = [np.searchsorted(s, np.arange(s[-1] + 1)) for s in sides]
    s, t = np.meshgrid(*sides, indexing="ij")
    first = np.full(s.shape, -1)
    for position, (source, target) in reversed(list(enumerate(size_2))):
      first[(s <= source) & (t <= target)] = position
    return cls(place[0], place[1], first)

  def __call__(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    return self.shape[self.source[source], self.target[target]]
