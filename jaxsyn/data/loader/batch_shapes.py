"""Chooses a few static batch shapes that need little padding.

Letters: I example; C distinct pair of source and target length; 2 source and
target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxsyn.data.store.rows import Lengths

# Compiling a shape for a Transformer-Tiny takes seven to ten processor seconds,
# in which it trains on about 60,000 positions. A shape must save as many in ten
# epochs.
MIN_GAIN = 6_000  # positions in an epoch
MAX_SHAPES = 12  # where their number is chosen from the data
_COUNTED_TOGETHER = 1 << 19  # examples


def choose_shapes(
  counts: LengthCounts, limit: int, rows: Callable[[int, int], int]
) -> list[tuple[int, int]]:
  """Returns (source, target) lengths of batch shapes with little padding.

  The result does not depend on seeds or on the length of a run.

  Args:
    counts: Counts of rounded lengths.
    limit: Maximum number of shapes. 0 minimizes the positions of an epoch plus
      MIN_GAIN times the number of shapes, which is at most MAX_SHAPES.
    rows: Function from two lengths to the rows of a batch.

  Returns: pairs of lengths, sorted by their sums.
  """
  chosen = counts.greedy(limit or MAX_SHAPES)
  fewest = len(chosen) if limit else 1
  candidates = [
    sorted(chosen[:count], key=lambda pair: (sum(pair), pair))
    for count in range(fewest, len(chosen) + 1)
  ]
  cost = [
    counts.positions(some, rows) + MIN_GAIN * len(some) for some in candidates
  ]
  return candidates[int(np.argmin(cost))]


class LengthCounts(NamedTuple):
  """Number of examples with each pair of source and target lengths.

  Attributes:
    length_C2: Pairs of lengths in subwords.
    count_C: Number of examples with each pair.
    words_C2: Largest word counts of the examples with each pair.
  """

  length_C2: np.ndarray
  count_C: np.ndarray
  words_C2: np.ndarray

  @classmethod
  def of(cls, lengths: Lengths) -> LengthCounts:
    """Counts the examples with each pair of lengths.

    Examples are counted in groups, since the keys for sorting take eight times
    the memory of the lengths.
    """
    parts = []
    for begin in range(0, len(lengths.source), _COUNTED_TOGETHER):
      block = lengths.of(slice(begin, begin + _COUNTED_TOGETHER))
      length_I2 = np.stack(block[:2], 1)
      once_I = np.ones(len(length_I2), np.int64)
      parts.append(cls(length_I2, once_I, np.stack(block[2:], 1)).merged())
    return cls(*map(np.concatenate, zip(*parts))).merged()

  def merged(self) -> LengthCounts:
    """Merges equal pairs of lengths and sums their numbers of examples."""
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
    """Rounds the lengths of all examples up to multiples of a number.

    There are at most 64 distinct lengths for each side, since more would make
    planning slow for corpora with long sentences.
    """
    longest_2 = self.length_C2.max(0)
    step = round_up(np.maximum(multiple, -(-longest_2 // 64)), multiple)
    return self._replace(length_C2=round_up(self.length_C2, step)).merged()

  def greedy(self, count: int) -> list[tuple[int, int]]:
    """Returns up to `count` pairs of lengths for batch shapes, chosen greedily.

    The first pair holds every example. Each further pair is the one that saves
    most padding.
    """
    up_C2 = self.length_C2
    sides = [np.unique(up_C2[:, 0]), np.unique(up_C2[:, 1])]
    s, t = (side.ravel() for side in np.meshgrid(*sides, indexing="ij"))
    fits = (up_C2[:, :1] <= s) & (up_C2[:, 1:] <= t)  # entry, candidate
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
    """Estimates the number of batch positions per epoch, padding included.

    The examples of an incomplete batch move on to larger shapes, as in
    `BatchSampler`, so many shapes cost padding if there are few examples.
    """
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
  """Returns the smallest multiple of `multiple` that is at least `length`."""
  return -(-length // multiple) * multiple


def doubled(length: int, minimum: int) -> int:
  """Doubles `minimum` until it is at least `length`, and returns the result.

  Padding to such lengths bounds the number of shapes of arbitrary inputs.
  """
  while minimum < length:
    minimum *= 2
  return minimum
