"""Readers of dataset directories and of the examples in their splits.

The TFRecord shards are the only copy of the data: training, validation,
--verify and TFDS read the same bytes. Opening a split reads its index
(`jaxsyn.data.store.index`); records are read, checked and decoded a block at a
time. Only requested features are decoded.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import index, integrity, layout, manifests
from jaxsyn.data.store.index import Lengths
from jaxsyn.data.store.records import (
  FOOTER,
  HEADER,
  CorruptDatasetError,
  InvalidExampleError,
  check_frames,
  decode,
)
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.storage import files

# Number of records in a block. No file depends on it, but the order of a corpus
# that does not fit in memory does (`jaxsyn.data.loader.batch_sampler`). With
# 128 records, decoding is as slow as protobuf.
BLOCK = 4096
# Bytes of the first request to an object store; each block is another request.
_READ_AHEAD = 1 << 16


class Examples:
  """Base class of indexed examples that are read a block of records at a time.

  Attributes:
    lengths: Lengths of all examples.
    block_start: Index of the first example in each block of records, followed
      by the number of all examples.
  """

  lengths: Lengths
  block_start: np.ndarray

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Yields the examples in given blocks of records, one block at a time."""
    raise NotImplementedError

  def __len__(self) -> int:
    return int(self.block_start[-1])

  def rows(self, features: Sequence[str]) -> Iterator[Rows]:
    """Yields all examples in order, one block of records at a time."""
    return self.read_blocks(range(len(self.block_start) - 1), features)

  def select(self, ids: np.ndarray, features: Sequence[str]) -> Iterator[Rows]:
    """Yields the examples with given ascending indices, a block at a time."""
    cut = np.searchsorted(ids, self.block_start)
    blocks = np.flatnonzero(np.diff(cut)).tolist()
    for block, rows in zip(blocks, self.read_blocks(blocks, features)):
      local_ids = ids[cut[block] : cut[block + 1]] - self.block_start[block]
      yield rows if len(local_ids) == len(rows) else rows.take(local_ids)


def block_starts(shards: np.ndarray) -> np.ndarray:
  """Returns the index of the first example in each block of records.

  The number of all examples follows. No block has records of two shards.

  Args:
    shards: Index of the first example in each shard, followed by the number of
      all examples.
  """
  parts = [np.arange(a, b, BLOCK) for a, b in itertools.pairwise(shards)]
  return np.concatenate([*parts, shards[-1:]])


class Dataset:
  """Opened dataset directory, with its manifest, splits and vocabularies.

  Attributes:
    directory: Path of the directory.
    manifest: Content of its manifest.
    features: Names of the features of an example.
  """

  def __init__(self, directory: os.PathLike[str] | str):
    """Opens a dataset directory by reading its manifest.

    Args:
      directory: Path of the directory (config.data.directory).

    Raises:
      InputError: The path is not a dataset directory of this format.
    """
    self.manifest = manifests.read(directory)
    self.directory = files.path_of(directory)
    self.features = tuple(manifests.features(self.manifest))

  def split(self, name: str) -> Split:
    """Returns the opened split with the given name."""
    return Split(self, name)

  def vocabulary(self, side: str) -> Vocabulary:
    """Returns the vocabulary of a side, checked against the manifest."""
    return manifests.vocabulary(self.directory, self.manifest, side)


class Split(Examples):
  """Stored examples of one dataset split, which are read by index or in order.

  Attributes:
    dataset: Opened dataset directory.
    name: Name of the split.
    features: Names of the features of an example.
    index: Index entry of every record, with the type `index.ENTRY`.
  """

  def __init__(self, dataset: Dataset, name: str):
    """Opens a split by reading its index and checking its files' sizes.

    Args:
      dataset: Opened dataset directory.
      name: Name of a split in the manifest.

    Raises:
      InputError: There is no such split, a file is missing or has another size
        than in the manifest, or the index is corrupt.
    """
    directory, manifest = dataset.directory, dataset.manifest
    facts = manifests.split(manifest, name)
    self.dataset, self.name, self.features = dataset, name, dataset.features
    folder = layout.tfds_folder("", manifest)
    shards = [folder / shard["file"] for shard in facts["shards"]]
    for shard in shards:
      integrity.check(directory, manifest, shard, deep=False)
    index_file = layout.index_file("", manifest, name)
    integrity.check(directory, manifest, index_file)
    self.index = index.load(directory / index_file, facts["examples"])
    self._paths = [directory / shard for shard in shards]
    # Index of the first example in each shard, and the number of all examples.
    counts = [shard["examples"] for shard in facts["shards"]]
    self._shards = np.cumsum([0, *counts])
    self.block_start = block_starts(self._shards)

  @functools.cached_property
  def lengths(self) -> Lengths:  # type: ignore[override]  # computed on first use
    """Lengths of all examples, in the smallest sufficient unsigned types."""
    return Lengths(
      *(
        values.astype(np.min_scalar_type(values.max(initial=0)))
        for values in (self.index[name] for name in Lengths._fields)
      )
    )

  @functools.cached_property
  def _offset(self) -> np.ndarray:
    """Byte offset of each block of records in its shard."""
    if not len(self):
      return np.zeros(0, np.int64)
    start = self.block_start
    size = np.add.reduceat(self.index["bytes"], start[:-1], dtype=np.int64)
    size += np.diff(start) * (HEADER + FOOTER)
    before = np.cumsum(size) - size
    first = np.searchsorted(start, self._shards[:-1])
    first_of_shard = before[np.minimum(first, len(before) - 1)]
    return before - first_of_shard[self._shard_of(start[:-1])]

  def _shard_of(self, example: np.ndarray | int) -> np.ndarray:
    return np.searchsorted(self._shards, example, "right") - 1

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Yields the examples in given blocks of records, one block at a time.

    Raises:
      CorruptDatasetError: A shard is missing or corrupt. The message names the
        shard and the record.
    """
    by_shard = itertools.groupby(
      blocks, lambda block: int(self._shard_of(self.block_start[block]))
    )
    for shard, blocks_of_shard in by_shard:
      path = self._paths[shard]
      try:
        with files.open_read(path, _READ_AHEAD) as file:
          for block in blocks_of_shard:
            yield self._read_block(file, shard, block, features)
      except OSError as error:
        raise CorruptDatasetError(
          f"{path} cannot be read: {error.strerror or error}"
        ) from None

  def _read_block(
    self, file: IO[bytes], shard: int, block: int, features: Sequence[str]
  ) -> Rows:
    begin, end = self.block_start[block : block + 2].tolist()
    path, first = self._paths[shard], begin - int(self._shards[shard])
    size = self.index["bytes"][begin:end].astype(np.int64)
    frame_end = np.cumsum(size + HEADER + FOOTER)
    file.seek(int(self._offset[block]))
    data = file.read(int(frame_end[-1]))
    if len(data) < frame_end[-1]:
      record = first + int(np.searchsorted(frame_end, len(data), "right"))
      raise CorruptDatasetError(f"{path}: record {record} is truncated")
    frame = frame_end - size - HEADER - FOOTER
    payload = frame + HEADER
    try:
      check_frames(data, frame, size, self.index["crc"][begin:end])
      rows = decode(
        data, payload, payload + size, stored=self.features, wanted=features
      )
      self._check_sizes(rows, slice(begin, end))
    except InvalidExampleError as error:
      raise CorruptDatasetError(
        f"{path}: record {first + error.number} is corrupt, or of another data set: "
        f"{error.why}"
      ) from None
    return rows

  def _check_sizes(self, rows: Rows, examples: slice) -> None:
    """Raises InvalidExampleError if examples and index differ in length."""
    lengths = self.lengths.of(examples)
    for name in rows.start:
      expected = lengths.sizes(name)
      if expected is None:
        continue
      different = rows.sizes(name) != expected
      if different.any():
        raise InvalidExampleError(
          int(np.argmax(different)), f"{name} has another length than the index"
        )

  def __getitem__(self, i: int) -> Example:
    """Returns example i, for which its complete block of records is decoded."""
    if not 0 <= i < len(self):
      raise IndexError(f"example {i} of {len(self)}")
    (rows,) = self.select(np.array([i]), self.features)
    return rows.examples()[0]

  def __iter__(self) -> Iterator[Example]:
    """Yields all examples of the split in order, with all features."""
    for rows in self.rows(self.features):
      yield from rows.examples()

  def unparsed(self, side: str) -> int:
    """Returns the number of sentences on a side that have no parse tree."""
    name = f"{side}_parsed"
    return sum(int((rows.flat[name] == 0).sum()) for rows in self.rows([name]))
