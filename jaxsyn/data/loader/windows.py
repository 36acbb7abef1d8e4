"""Shuffling windows: sets of examples that fit in memory together.

Each epoch shuffles the blocks of records and cuts them into windows of half of
config.batch.memory_gib, since the next window is read while one is used. The
memory of an example is counted with all features of the dataset, so that all
systems get the same batches. docs/large_data.md compares this order with a
uniform one.

Letters: U block of records; E block of records that an epoch reads, maybe in
part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

import numpy as np

from jaxsyn.data.schema import FEATURES
from jaxsyn.data.store.dataset import Examples

# Index of an epoch, and index of a shuffling window of examples in it.
Window = tuple[int, int]

_BLOCKS_MEASURED_TOGETHER = 64


@dataclasses.dataclass(frozen=True)
class Windows:
  """Division of each epoch's examples into memory-sized shuffling windows.

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
    rate_U: np.ndarray | None = None,
  ) -> Windows:
    """Creates the shuffling windows for the examples of a split.

    `features` are those that count for the memory of an example.
    """
    bytes_U = _block_bytes(examples, features)
    return cls(examples.block_start, bytes_U, memory_gib * 2**30, seed, rate_U)

  @property
  def in_memory(self) -> bool:
    """Whether all examples of the split fit in memory at the same time."""
    return bool(self.bytes_U.sum() <= self.max_bytes)

  @property
  def examples(self) -> float:
    """Number of examples that an epoch reads, counting repetitions."""
    size_U = np.diff(self.block_start)
    return float((size_U * (1 if self.rate_U is None else self.rate_U)).sum())

  def shuffled(self, epoch: int) -> Iterator[np.ndarray]:
    """Yields the example indices of each shuffling window of an epoch.

    They are in ascending order. An index occurs several times if an epoch reads
    its corpus several times.
    """
    rng = np.random.default_rng([self.seed, epoch])
    size_U = np.diff(self.block_start)
    block_E, count_E = np.arange(len(size_U)), size_U
    if self.rate_U is not None:
      block_E, count_E = _sample_blocks(size_U, self.rate_U, rng)
    if not self.in_memory:
      order_E = rng.permutation(len(block_E))
      block_E, count_E = block_E[order_E], count_E[order_E]
    return self._cut(block_E, count_E, epoch)

  def in_order(self) -> Iterator[np.ndarray]:
    """Yields the example indices of each window, in storage order."""
    size_U = np.diff(self.block_start)
    return self._cut(np.arange(len(size_U)), size_U, 0)

  def _cut(
    self, block_E: np.ndarray, count_E: np.ndarray, epoch: int
  ) -> Iterator[np.ndarray]:
    """Yields example indices, cut into windows of about equal size in bytes."""
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
        blocks = zip(block_E[selected].tolist(), count_E[selected].tolist())
        yield np.concatenate([self._ids(*block, epoch) for block in blocks])

  def _ids(self, block: int, count: int, epoch: int) -> np.ndarray:
    """Returns all example indices of a block, or a random sample of `count`."""
    begin, end = self.block_start[block : block + 2]
    ids = np.arange(begin, end)
    if count == end - begin:
      return ids
    key = np.random.SeedSequence([self.seed, epoch], spawn_key=(block,))
    return np.sort(np.random.default_rng(key).permutation(ids)[:count])


def _sample_blocks(
  size_U: np.ndarray, rate_U: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
  """Samples an epoch's blocks of records, and how many examples each provides.

  A block occurs several times if an epoch reads its corpus several times.
  """
  all_U, times_U = np.arange(len(size_U)), np.floor(rate_U).astype(np.int64)
  # The fractional rate of every block, with an error of the total below 1.
  end_U = np.cumsum((rate_U - times_U) * size_U)
  part_U = np.diff(np.floor(np.append(0, end_U) + rng.random()))
  block_E = np.concatenate([np.repeat(all_U, times_U), all_U])
  count_E = np.concatenate([np.repeat(size_U, times_U), part_U])
  some_E = count_E > 0
  return block_E[some_E], count_E[some_E].astype(np.int64)


def _block_bytes(examples: Examples, features: Collection[str]) -> np.ndarray:
  """Returns the memory size in bytes of each block of examples."""
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
