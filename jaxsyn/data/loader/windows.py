"""Which examples are in memory together, where a split has more than fit.

A split of at most config.batch.memory_gib is held whole, and shuffled whole. Of a
larger one an epoch shuffles the blocks and cuts them into windows of half of
that, since the next one is read while one is used; within a window all examples
are shuffled. How far from uniform that is: `benchmarks.read_speed --order`.

How much an example takes is counted with all features that the data set has, not
those that a system reads: so all systems get the same batches.

Before this file: `jaxsyn.data.store.prepared`. After it: `batch_shapes`.

Letters: U block; E entry, a block or a part of it, of an epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

import numpy as np

from jaxsyn.data.loader.examples import Blocks
from jaxsyn.data.loader.mixture import MixedCorpora
from jaxsyn.data.schema import FEATURES

_BLOCKS_READ = 64  # blocks of which lengths are looked at


@dataclasses.dataclass(frozen=True)
class Windows:
  """The windows of every epoch.

  Attributes:
    start: number of the first example of each block; and of all, at the end.
    bytes_U: of each block in memory.
    most: bytes that may be in memory.
    seed: of the order; epoch e is shuffled by (seed, e).
    rate_U: how often an epoch goes through each block; None: once.
  """

  start: np.ndarray
  bytes_U: np.ndarray
  max_examples: float
  seed: int
  rate_U: np.ndarray | None = None

  @classmethod
  def of(
    cls,
    files: Blocks,
    features: Collection[str],
    *,
    memory_gib: float,
    seed: int,
  ) -> Windows:
    """Of columns, counted with some features, all those of the data set."""
    return cls(
      files.start,
      _bytes(files, features),
      memory_gib * 2**30,
      seed,
      files.rate_U if isinstance(files, MixedCorpora) else None,
    )

  @property
  def in_memory(self) -> bool:
    """Whether all is held."""
    return bool(self.bytes_U.sum() <= self.max_examples)

  @property
  def examples(self) -> float:
    """How many an epoch has."""
    size_U = np.diff(self.start)
    return float((size_U * (1 if self.rate_U is None else self.rate_U)).sum())

  def shuffled(self, epoch: int) -> Iterator[np.ndarray]:
    """Numbers of the examples of each window, in the order of use of windows.

    Ascending in each; several times where an epoch goes through them again.
    """
    rng = np.random.default_rng([self.seed, epoch])
    size_U = np.diff(self.start)
    if self.rate_U is None:
      block_E, count_E = np.arange(len(size_U)), size_U
    else:
      block_E, count_E = self._sample_blocks(size_U, rng)
    if self.in_memory:
      order_E = np.arange(len(block_E))
    else:
      order_E = rng.permutation(len(block_E))
    for blocks in self._windows(block_E[order_E], count_E[order_E]):
      yield self._ids(blocks, epoch)

  def _sample_blocks(
    self, size_U: np.ndarray, rng: np.random.Generator
  ) -> tuple[np.ndarray, np.ndarray]:
    """Blocks, some of them several times, and how many examples of each."""
    assert self.rate_U is not None
    all_U = np.arange(len(size_U))
    times_U = np.floor(self.rate_U).astype(np.int64)
    # Of all blocks a part, with a sum that errs by one at most.
    end_U = np.cumsum((self.rate_U - times_U) * size_U)
    part_U = np.diff(np.floor(np.append(0, end_U) + rng.random()))
    block_E = np.concatenate([np.repeat(all_U, times_U), all_U])
    count_E = np.concatenate([np.repeat(size_U, times_U), part_U])
    some_E = count_E > 0
    return block_E[some_E], count_E[some_E].astype(np.int64)

  def _ids(self, blocks: list[tuple[int, int]], epoch: int) -> np.ndarray:
    """Numbers of so many examples of some blocks."""
    parts = []
    for block, count in blocks:
      begin, end = self.start[block : block + 2]
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
    """All examples once, in the order of the blocks."""
    size_U = np.diff(self.start)
    for blocks in self._windows(np.arange(len(size_U)), size_U):
      yield self._ids(blocks, 0)

  def _windows(
    self, block_E: np.ndarray, count_E: np.ndarray
  ) -> Iterator[list[tuple[int, int]]]:
    """Runs of about the same size: blocks, ascending, and examples of each."""
    size_U = np.diff(self.start)
    bytes_E = self.bytes_U[block_E] * count_E // size_U[block_E]
    count = 1
    if not self.in_memory:
      count = int(np.ceil(bytes_E.sum() / max(self.max_examples / 2, 1)))
      count = min(max(count, 1), len(block_E))
    # By where they begin, so that none is but a rest.
    begin_E = np.cumsum(bytes_E) - bytes_E
    window_E = begin_E * count // max(int(bytes_E.sum()), 1)
    for window in range(count):
      selected = np.flatnonzero(window_E == window)
      if len(selected):
        selected = selected[np.argsort(block_E[selected], kind="stable")]
        yield list(zip(block_E[selected].tolist(), count_E[selected].tolist()))


def _bytes(files: Blocks, features: Collection[str]) -> np.ndarray:
  """What each block takes in memory, without where each example begins."""
  bytes_U = np.zeros(len(files.start) - 1, np.int64)
  for first in range(0, len(bytes_U), _BLOCKS_READ):
    begin, *ends = files.start[first : first + _BLOCKS_READ + 1].tolist()
    lengths = files.lengths.of(slice(begin, ends[-1]))
    begin_U = np.array([begin, *ends[:-1]]) - begin
    for name in features:
      size = lengths.sizes(name)
      if size is None:  # counted as one
        size = np.ones(ends[-1] - begin, np.int64)
      size_of_blocks = bytes_U[first : first + _BLOCKS_READ]
      size_of_blocks += FEATURES[name].dtype.itemsize * np.add.reduceat(
        size, begin_U
      )
  return bytes_U
