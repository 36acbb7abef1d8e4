"""Batch sampler, which chooses the examples and the shape of every batch.

It reads only the lengths of examples. Every host computes the same batches from
(seed, epoch) and these lengths, so a position in the data is a pair of
integers, and resuming is exact and immediate. Batches have a small set of
shapes, which bounds the number of compilations.

If all examples fit into config.batch.memory_gib, they are shuffled together.
Otherwise each epoch shuffles the blocks of records and cuts them into shuffling
windows of half of that memory, since the next window is read while one is used;
examples are shuffled within a window. The memory of an example is counted with
all features of the dataset, so that all systems get the same batches.
`benchmarks.read_speed --order` compares this order with a uniform one.

Letters: I example in a shuffling window; U block of records; E block of records
that an epoch reads, maybe in part; 2 source and target; C lengths, as in
`batch_shapes`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator

import numpy as np

from jaxsyn.data.loader.batch_shapes import (
  LengthCounts,
  Shape,
  ShapeTable,
  by_area,
  choose_shapes,
  round_up,
)
from jaxsyn.data.loader.mixture import MixedExamples
from jaxsyn.data.loader.subword_sampling import ResampledSubwords
from jaxsyn.data.loader.transforms import Window
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.store.dataset import Examples
from jaxsyn.data.store.index import Lengths
from jaxsyn.errors import InputError

_BLOCKS_MEASURED_TOGETHER = 64


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
  """Shape and example indices of a batch whose examples are not read yet.

  Attributes:
    shape: Shape of the batch.
    ids: Indices of its examples, at most shape.rows; other rows are padding.
    window: Epoch, and index of the shuffling window that has the examples.
  """

  shape: Shape
  ids: np.ndarray
  window: Window = (0, 0)


@dataclasses.dataclass(frozen=True)
class Position:
  """Position of a training run in the data: its epoch and next batch."""

  epoch: int = 0
  batch: int = 0


class BatchSampler:
  """Sampler that groups example indices into the batches of every epoch.

  Attributes:
    shapes: Shapes of batches, smallest first.
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
    """Chooses the batch shapes from the lengths of all examples.

    Args:
      lengths: Lengths of all examples, in subwords and in words.
      windows: Shuffling windows of examples; None for all examples together.
      resampled: Transform that changes the lengths in each epoch; None for
        none.
      tokens: Budget of a batch: rows times the longer padded length.
      shapes: Largest number of shapes; 0 chooses it from the data.
      seed: Seed of the order; epoch e is shuffled by (seed, e).
      row_multiple: Factor of the rows of every shape.
      length_multiple: Factor of padded lengths.

    Raises:
      InputError: There is no example, or one that exceeds the budget.
    """
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
        f"{longest * row_multiple}, or lower config.batch.row_multiple, "
        "config.prepare.max_subwords or config.data.second.longest."
      )

    def rows(s: int, t: int) -> int:
      return max(1, tokens // max(s, t) // row_multiple) * row_multiple

    grid = expected.rounded(length_multiple)
    chosen = (
      by_area(grid.greedy(shapes)) if shapes else choose_shapes(grid, rows)
    )
    self.shapes = []
    for s, t in chosen:
      # Of all examples that fit, since examples move on to larger shapes.
      fits_C = (counts.length_C2 <= (s, t)).all(1)
      most_words = counts.words_C2[fits_C].max(0, initial=1)
      words = (int(round_up(side, length_multiple)) for side in most_words)
      self.shapes.append(Shape(rows(s, t), s, t, *words))
    self._table = ShapeTable.of(self.shapes)

  def epoch(self, index: int) -> list[PlannedBatch]:
    """Returns the batches of an epoch in order, with each example once."""
    return list(self._epoch(index))

  def _epoch(self, index: int) -> Iterator[PlannedBatch]:
    if self._windows is None:
      all_ids = np.arange(len(self._lengths.source))
      rng = np.random.default_rng([self._seed, index])
      yield from self._shuffled(all_ids, rng, (index, 0))
      return
    for window, ids in enumerate(self._windows.shuffled(index)):
      rng = np.random.default_rng([self._seed, index, 1 + window])
      yield from self._shuffled(ids, rng, (index, window))

  def _shuffled(
    self, id_I: np.ndarray, rng: np.random.Generator, window: Window
  ) -> list[PlannedBatch]:
    """Returns the batches of a shuffling window of examples in random order.

    Examples that do not fill a batch move on to a larger shape, so a window has
    few incomplete batches, usually one.
    """
    if self._resampled:
      source_I, target_I = self._resampled.sizes(window, id_I)
    else:
      source_I, target_I = (side[id_I] for side in self._lengths[:2])
    shape_I = self._table(source_I, target_I)
    batches: list[PlannedBatch] = []
    left = np.empty(0, np.int64)  # places in id_I
    for index, shape in enumerate(self.shapes):
      is_last = index == len(self.shapes) - 1
      fits = source_I[left] <= shape.source
      fits &= target_I[left] <= shape.target
      shuffled = rng.permutation(np.flatnonzero(shape_I == index))
      place = np.concatenate([left[fits], shuffled])
      left = left[~fits]
      full = len(place) if is_last else len(place) // shape.rows * shape.rows
      batches += [
        PlannedBatch(shape, id_I[place[i : i + shape.rows]], window)
        for i in range(0, full, shape.rows)
      ]
      left = np.concatenate([left, place[full:]])
    return [batches[i] for i in rng.permutation(len(batches))]

  def walk(self, start: Position) -> Iterator[tuple[Position, PlannedBatch]]:
    """Yields batches without end, each with the position after it."""
    for epoch in itertools.count(start.epoch):
      first = start.batch if epoch == start.epoch else 0
      batches = itertools.islice(self._epoch(epoch), first, None)
      planned, i = next(batches, None), first
      while planned:
        following = next(batches, None)
        i += 1
        after = Position(epoch, i) if following else Position(epoch + 1)
        yield after, planned
        planned = following

  def first_used(self, start: Position, batches: int) -> dict[Shape, int]:
    """Returns the number of batches before the first batch of each shape.

    Args:
      start: Position of the first batch that is considered.
      batches: Number of batches that are considered.

    Returns: counts by shape, in order of occurrence. If the batches extend past
      the next epoch, shapes that occur in neither of the two epochs have the
      count `batches`.
    """
    used: dict[Shape, int] = {}
    walk = itertools.islice(self.walk(start), batches)
    for n, (_, planned) in enumerate(walk):
      if planned.window[0] > start.epoch + 1:
        return used | {s: batches for s in self.shapes if s not in used}
      used.setdefault(planned.shape, n)
      if len(used) == len(self.shapes):
        break
    return used

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
    """Returns the source and target subword counts of a batch, unpadded."""
    if self._resampled:
      return self._resampled.subwords(planned.window, planned.ids)
    source, target = (
      int(side[planned.ids].sum()) for side in self._lengths[:2]
    )
    return source, target

  def padding(self, epoch: int = 0) -> float:
    """Returns the fraction of positions that is padding in an epoch's batches.

    Positions of both sides are counted.
    """
    positions = real = 0
    for planned in self._epoch(epoch):
      positions += planned.shape.positions
      real += sum(self.subwords(planned))
    return 1.0 - real / positions

  def in_order(self) -> list[PlannedBatch]:
    """Returns the batches for one evaluation pass, sorted by length.

    Each window of examples that fit in memory has its longest examples first.
    """
    if self._windows is None:
      return self._sorted(np.arange(len(self._lengths.source)), 0)
    windows = enumerate(self._windows.in_order())
    return [p for window, ids in windows for p in self._sorted(ids, window)]

  def _sorted(self, id_I: np.ndarray, window: int) -> list[PlannedBatch]:
    source, target = (side[id_I] for side in self._lengths[:2])
    shape_I = self._table(source, target)
    order = np.lexsort((target, source, shape_I))
    batches = []
    for index in range(len(self.shapes) - 1, -1, -1):
      ids = id_I[order[shape_I[order] == index]]
      shape = self.shapes[index]
      batches += [
        PlannedBatch(shape, ids[i : i + shape.rows], (0, window))
        for i in range(0, len(ids), shape.rows)
      ]
    return batches


@dataclasses.dataclass(frozen=True)
class Windows:
  """Shuffling windows of every epoch: sets of examples that fit in memory.

  Attributes:
    block_start: Index of the first example in each block of records, followed
      by the number of all examples.
    bytes_U: Memory of each block of records, in bytes.
    max_bytes: Memory for examples, in bytes.
    seed: Seed of the order; epoch e is shuffled by (seed, e).
    rate_U: Number of times an epoch reads each block of records, maybe
      fractional; None for once.
  """

  block_start: np.ndarray
  bytes_U: np.ndarray
  max_bytes: float
  seed: int
  rate_U: np.ndarray | None = None

  @classmethod
  def of(
    cls,
    examples: Examples,
    features: Collection[str],
    *,
    memory_gib: float,
    seed: int,
  ) -> Windows:
    """Returns the shuffling windows for a split's examples.

    `features` are those that count for the memory of an example.
    """
    rates = None
    if isinstance(examples, MixedExamples):
      rates = examples.block_rates
    bytes_U = _block_bytes(examples, features)
    return cls(examples.block_start, bytes_U, memory_gib * 2**30, seed, rates)

  @property
  def in_memory(self) -> bool:
    """Whether all examples of the split fit in memory together."""
    return bool(self.bytes_U.sum() <= self.max_bytes)

  @property
  def examples(self) -> float:
    """Number of examples that an epoch reads, with repetitions."""
    size_U = np.diff(self.block_start)
    return float((size_U * (1 if self.rate_U is None else self.rate_U)).sum())

  def shuffled(self, epoch: int) -> Iterator[np.ndarray]:
    """Yields the example indices of each shuffling window of an epoch.

    They are in ascending order. An index occurs several times if an epoch reads
    its corpus several times.
    """
    rng = np.random.default_rng([self.seed, epoch])
    size_U = np.diff(self.block_start)
    if self.rate_U is None:
      block_E, count_E = np.arange(len(size_U)), size_U
    else:
      block_E, count_E = self._sample_blocks(size_U, rng)
    if self.in_memory:
      order_E = np.arange(len(block_E))
    else:
      order_E = rng.permutation(len(block_E))
    for blocks in self._cut(block_E[order_E], count_E[order_E]):
      yield self._ids(blocks, epoch)

  def _sample_blocks(
    self, size_U: np.ndarray, rng: np.random.Generator
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the blocks of records that an epoch reads, with example counts.

    A block occurs several times if an epoch reads its corpus several times.
    """
    assert self.rate_U is not None
    all_U = np.arange(len(size_U))
    times_U = np.floor(self.rate_U).astype(np.int64)
    # The fractional rate of every block, with an error of the total below 1.
    end_U = np.cumsum((self.rate_U - times_U) * size_U)
    part_U = np.diff(np.floor(np.append(0, end_U) + rng.random()))
    block_E = np.concatenate([np.repeat(all_U, times_U), all_U])
    count_E = np.concatenate([np.repeat(size_U, times_U), part_U])
    some_E = count_E > 0
    return block_E[some_E], count_E[some_E].astype(np.int64)

  def _ids(self, blocks: list[tuple[int, int]], epoch: int) -> np.ndarray:
    """Returns example indices sampled for pairs (block, number to sample)."""
    parts = []
    for block, count in blocks:
      begin, end = self.block_start[block : block + 2]
      ids = np.arange(begin, end)
      if count < end - begin:
        rng_seed = np.random.SeedSequence(
          [self.seed, epoch], spawn_key=(block,)
        )
        rng = np.random.default_rng(rng_seed)
        ids = np.sort(rng.permutation(ids)[:count])
      parts.append(ids)
    return np.concatenate(parts)

  def in_order(self) -> Iterator[np.ndarray]:
    """Yields the example indices of each window, in the order of storage."""
    size_U = np.diff(self.block_start)
    for blocks in self._cut(np.arange(len(size_U)), size_U):
      yield self._ids(blocks, 0)

  def _cut(
    self, block_E: np.ndarray, count_E: np.ndarray
  ) -> Iterator[list[tuple[int, int]]]:
    """Yields the blocks of records of each shuffling window.

    Windows have about the same size in bytes.

    Yields: pairs (block, number of its examples), in ascending order of blocks.
    """
    size_U = np.diff(self.block_start)
    bytes_E = self.bytes_U[block_E] * count_E // size_U[block_E]
    count = 1
    if not self.in_memory:
      count = int(np.ceil(bytes_E.sum() / max(self.max_bytes / 2, 1)))
      count = min(max(count, 1), len(block_E))
    # Assigned by first bytes of blocks, so that the last window is not small.
    begin_E = np.cumsum(bytes_E) - bytes_E
    window_E = begin_E * count // max(int(bytes_E.sum()), 1)
    for window in range(count):
      selected = np.flatnonzero(window_E == window)
      if len(selected):
        selected = selected[np.argsort(block_E[selected], kind="stable")]
        yield list(zip(block_E[selected].tolist(), count_E[selected].tolist()))


def _block_bytes(examples: Examples, features: Collection[str]) -> np.ndarray:
  """Returns the memory that each block of examples needs, in bytes."""
  starts = examples.block_start
  bytes_U = np.zeros(len(starts) - 1, np.int64)
  for first in range(0, len(bytes_U), _BLOCKS_MEASURED_TOGETHER):
    some = slice(first, first + _BLOCKS_MEASURED_TOGETHER)
    begin_U = starts[:-1][some]
    begin, end = begin_U[0], starts[1:][some][-1]
    lengths = examples.lengths.of(slice(begin, end))
    for name in features:
      size = lengths.sizes(name)
      if size is None:  # counted as one value
        size = np.ones(end - begin, np.int64)
      bytes_U[some] += FEATURES[name].dtype.itemsize * np.add.reduceat(
        size, begin_U - begin
      )
  return bytes_U
