"""Which examples are in memory together, where a split has more than fit.

A split of at most config.batch.memory_gib is held whole, and shuffled whole. Of a
larger one an epoch shuffles the blocks and cuts them into windows of half of
that, since the next one is read while one is used; within a window all examples
are shuffled. How far from uniform that is: `benchmarks.read_speed --order`.

How much an example takes is counted with all features that the data set has, not
those that a system reads: so all systems get the same batches.

Before this file: `jaxsyn.data.store.prepared`. After it: `batch_shapes`.

Letters: K block.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator

import numpy as np

from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.prepared import ColumnFiles, Lengths


@dataclasses.dataclass(frozen=True)
class Windows:
  """The windows of every epoch.

  Attributes:
    start: number of the first example of each block; and of all, at the end.
    bytes_K: of each block in memory.
    most: bytes that may be in memory.
    seed: of the order; epoch e is shuffled by (seed, e).
  """

  start: np.ndarray
  bytes_K: np.ndarray
  most: float
  seed: int

  @classmethod
  def of(
    cls,
    files: ColumnFiles,
    features: Collection[str],
    *,
    memory_gib: float,
    seed: int,
  ) -> Windows:
    """Of columns, counted with some features, all those of the data set."""
    bytes_K = [
      _bytes(files.lengths.of(slice(begin, end)), features)
      for begin, end in itertools.pairwise(files.start)
    ]
    return cls(
      files.start, np.array(bytes_K, np.int64), memory_gib * 2**30, seed
    )

  @property
  def whole(self) -> bool:
    """Whether all is held."""
    return bool(self.bytes_K.sum() <= self.most)

  def shuffled(self, epoch: int) -> Iterator[np.ndarray]:
    """Numbers of the examples of each window, ascending; in the order of use."""
    rng = np.random.default_rng([self.seed, epoch])
    yield from self._windows(rng.permutation(len(self.bytes_K)))

  def in_order(self) -> Iterator[np.ndarray]:
    """The same, in the order of the blocks."""
    yield from self._windows(np.arange(len(self.bytes_K)))

  def _windows(self, block_K: np.ndarray) -> Iterator[np.ndarray]:
    """Runs of some blocks, of about the same size."""
    bytes_K = self.bytes_K[block_K]
    count = int(np.ceil(bytes_K.sum() / max(self.most / 2, 1)))
    count = min(max(count, 1), len(block_K))
    # By where they begin, so that none is but a rest.
    begin_K = np.cumsum(bytes_K) - bytes_K
    number_K = begin_K * count // max(int(bytes_K.sum()), 1)
    for window in range(count):
      own = np.sort(block_K[number_K == window])
      if len(own):
        yield np.concatenate(
          [np.arange(self.start[k], self.start[k + 1]) for k in own]
        )


def _bytes(lengths: Lengths, features: Collection[str]) -> int:
  """What examples take in memory, without where each begins."""
  total = 0
  words = dict(zip(SIDES, (lengths.source_words, lengths.target_words)))
  for name in features:
    feature = FEATURES[name]
    own = words.get(name.partition("_")[0], lengths.source)
    number = {
      "S": lengths.source,
      "T": lengths.target,
      "W": own,
      "WW": own**2,
    }.get(feature.axes, np.ones(len(lengths.source)))
    total += feature.dtype.itemsize * int(number.sum())
  return total
