"""Chooses the examples and the shape of every batch.

It reads only the lengths of examples. Every host computes the same batches from
(seed, epoch) and these lengths, so a position in the data is a pair of
integers, and resuming is exact and immediate. Batches have a small set of
shapes, which bounds the number of compilations. Examples are shuffled together
if they all fit in memory, else within shuffling windows (`windows`).

Letters: I example in a shuffling window; 2 source and target; C lengths, as in
`batch_shapes`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from jaxsyn.data.loader.batch_shapes import (
  LengthCounts,
  choose_shapes,
  round_up,
)
from jaxsyn.data.loader.collate import Shape
from jaxsyn.data.loader.subword_sampling import ResampledSubwords
from jaxsyn.data.loader.windows import Window, Windows
from jaxsyn.data.store.rows import Lengths
from jaxsyn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Position:
  """Position of a training run in the data: epoch and next batch's index."""

  epoch: int = 0
  batch: int = 0


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
  """Shape and example indices of a batch, before its examples are read.

  Attributes:
    shape: Shape of the batch.
    ids: Indices of its examples, at most shape.rows; other rows are padding.
    window: Epoch, and index of the shuffling window that has the examples.
    after: Position after the batch, in training.
  """

  shape: Shape
  ids: np.ndarray
  window: Window = (0, 0)
  after: Position = Position()


class BatchSampler:
  """Sampler that groups example indices into the batches of every epoch.

  Args:
    lengths: Lengths of all examples.
    windows: Shuffling windows of examples; None for all examples together.
    resampled: Transform that changes the lengths in each epoch, if any.
    tokens: Budget of a batch: rows times the longer padded length.
    shapes: Largest number of shapes; 0 chooses it from the data.
    seed: Seed of the order; epoch e is shuffled by (seed, e).
    row_multiple: Divisor of the number of rows in every shape.
    length_multiple: Divisor of the padded lengths.

  Attributes:
    shapes: Shapes of batches, smallest first.

  Raises:
    InputError: There is no example, or one that exceeds the budget.
  """

  def __init__(
    self,
    lengths: Lengths,
    windows: Windows | None = None,
    resampled: ResampledSubwords | None = None,
    *,
    tokens: int,
    shapes: int,
    seed: int,
    row_multiple: int,
    length_multiple: int,
  ):
    if len(lengths.source) == 0:
      raise InputError("the split has no examples; nothing to plan.")
    self._lengths, self._windows, self._seed = lengths, windows, seed
    self._resampled = resampled
    counts = LengthCounts.of(lengths)
    expected = LengthCounts.of(resampled.expected) if resampled else counts
    longest = int(expected.length_C2.max())
    if longest * row_multiple > tokens:
      raise InputError(
        f"config.batch.tokens={tokens} cannot hold {row_multiple} rows of the "
        f"longest side of {longest} subwords; raise it to "
        f"{longest * row_multiple}, or lower config.batch.row_multiple or "
        "config.prepare.max_subwords."
      )

    def rows(s: int, t: int) -> int:
      return max(1, tokens // max(s, t) // row_multiple) * row_multiple

    grid = expected.rounded(length_multiple)
    self.shapes = []
    for s, t in choose_shapes(grid, shapes, rows):
      # Of all examples that fit, since examples move on to larger shapes.
      fits_C = (counts.length_C2 <= (s, t)).all(1)
      most_words = counts.words_C2[fits_C].max(0, initial=1)
      words = (int(round_up(side, length_multiple)) for side in most_words)
      self.shapes.append(Shape(rows(s, t), s, t, *words))

  def epoch(self, index: int) -> list[PlannedBatch]:
    """Returns the planned batches of an epoch in training order.

    Each example occurs once, unless a mixture repeats or samples its corpus.
    """
    return list(self._epoch(index))

  def _epoch(self, index: int) -> Iterator[PlannedBatch]:
    if self._windows is None:
      rng = np.random.default_rng([self._seed, index])
      yield from self._shuffled(self._all_ids(), rng, (index, 0))
      return
    for window, ids in enumerate(self._windows.shuffled(index)):
      rng = np.random.default_rng([self._seed, index, 1 + window])
      yield from self._shuffled(ids, rng, (index, window))

  def _all_ids(self) -> np.ndarray:
    return np.arange(len(self._lengths.source))

  def _shapes_of(
    self, source_I: np.ndarray, target_I: np.ndarray
  ) -> np.ndarray:
    """Returns the index of the smallest batch shape that holds each example."""
    shape_I = np.zeros(len(source_I), np.int64)
    for index, shape in reversed(list(enumerate(self.shapes))):
      fits_I = (source_I <= shape.source) & (target_I <= shape.target)
      shape_I[fits_I] = index
    return shape_I

  def _shuffled(
    self, id_I: np.ndarray, rng: np.random.Generator, window: Window
  ) -> list[PlannedBatch]:
    """Groups a shuffling window's examples into batches in random order.

    Examples that do not fill a batch move on to a larger shape, so a window has
    few incomplete batches, usually one.
    """
    if self._resampled:
      source_I, target_I = self._resampled.sizes(window, id_I)
    else:
      source_I, target_I = (side[id_I] for side in self._lengths[:2])
    shape_I = self._shapes_of(source_I, target_I)
    batches: list[PlannedBatch] = []
    left = np.empty(0, np.int64)  # places in id_I
    for index, shape in enumerate(self.shapes):
      fits = source_I[left] <= shape.source
      fits &= target_I[left] <= shape.target
      shuffled = rng.permutation(np.flatnonzero(shape_I == index))
      place = np.concatenate([left[fits], shuffled])
      full = len(place) // shape.rows * shape.rows
      if index == len(self.shapes) - 1:
        full = len(place)
      batches += _cut(id_I[place[:full]], shape, window)
      left = np.concatenate([left[~fits], place[full:]])
    return [batches[i] for i in rng.permutation(len(batches))]

  def walk(self, start: Position) -> Iterator[PlannedBatch]:
    """Yields the planned batches of training endlessly, from a position."""
    for epoch in itertools.count(start.epoch):
      first = start.batch if epoch == start.epoch else 0
      batches = itertools.islice(self._epoch(epoch), first, None)
      planned, i = next(batches, None), first
      while planned:
        following = next(batches, None)
        i += 1
        after = Position(epoch, i) if following else Position(epoch + 1)
        yield PlannedBatch(planned.shape, planned.ids, planned.window, after)
        planned = following

  def first_used(self, start: Position, batches: int) -> dict[Shape, int]:
    """Returns how many batches precede the first use of each batch shape.

    Args:
      start: Position of the first batch that is considered.
      batches: Number of batches that are considered.

    Returns: counts by shape, in order of occurrence. If the batches extend past
      the next epoch, shapes that occur in neither of the two epochs have the
      count `batches`.
    """
    used: dict[Shape, int] = {}
    walk = itertools.islice(self.walk(start), batches)
    for n, planned in enumerate(walk):
      if planned.window[0] > start.epoch + 1:
        return used | {s: batches for s in self.shapes if s not in used}
      used.setdefault(planned.shape, n)
      if len(used) == len(self.shapes):
        break
    return used

  @property
  def examples_per_epoch(self) -> int:
    """Number of examples that an epoch reads, counting repetitions."""
    if self._windows is None:
      return len(self._lengths.source)
    return round(self._windows.examples)

  def batches_per_epoch(self) -> float:
    """Returns the number of batches in an epoch, estimated for large splits."""
    first = list(
      itertools.takewhile(lambda p: p.window == (0, 0), self._epoch(0))
    )
    if self._windows is None or self._windows.in_memory:
      return len(first)
    count = sum(len(planned.ids) for planned in first)
    return self._windows.examples / count * len(first)

  def subwords(self, planned: PlannedBatch) -> tuple[int, int]:
    """Returns a batch's source and target subword counts, without padding."""
    if self._resampled:
      return self._resampled.subwords(planned.window, planned.ids)
    source, target = (
      int(side[planned.ids].sum()) for side in self._lengths[:2]
    )
    return source, target

  def padding(self, epoch: int = 0) -> float:
    """Returns the fraction of positions in an epoch that are padding.

    Positions of both sides are counted.
    """
    positions = real = 0
    for planned in self._epoch(epoch):
      positions += planned.shape.positions
      real += sum(self.subwords(planned))
    return 1.0 - real / positions

  def in_order(self) -> list[PlannedBatch]:
    """Returns the planned batches of an evaluation pass, which is not shuffled.

    Each window of examples that fit in memory has its longest examples first.
    """
    windows = [self._all_ids()]
    if self._windows is not None:
      windows = list(self._windows.in_order())
    batches = []
    for window, id_I in enumerate(windows):
      source_I, target_I = (side[id_I] for side in self._lengths[:2])
      shape_I = self._shapes_of(source_I, target_I)
      order = np.lexsort((target_I, source_I, shape_I))
      for index in range(len(self.shapes) - 1, -1, -1):
        ids = id_I[order[shape_I[order] == index]]
        batches += _cut(ids, self.shapes[index], (0, window))
    return batches


def _cut(ids: np.ndarray, shape: Shape, window: Window) -> list[PlannedBatch]:
  return [
    PlannedBatch(shape, ids[i : i + shape.rows], window)
    for i in range(0, len(ids), shape.rows)
  ]
