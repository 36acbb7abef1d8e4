"""Opened dataset directories, and their splits as blocks of examples.

The TFRecord shards are the only copy of the data: training, validation, --verify and
TFDS read the same bytes. Opening a split reads its index (`jaxsyn.data.store.index`);
records are read, checked and decoded a block at a time, with the wanted features only.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import index, integrity, layout, manifests
from jaxsyn.data.store.decoding import InvalidExampleError, check_frames, decode
from jaxsyn.data.store.lengths import Lengths
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.data.store.tfrecord import FOOTER, HEADER, CorruptFileError
from jaxsyn.storage import files

# Examples in a block. No file depends on it, but the order of a corpus that does not
# fit in memory does (`jaxsyn.data.loader.batch_sampler`). With 128 examples, decoding
# is as slow as protobuf.
BLOCK = 4096
# Bytes of the first request to an object store; each block is another request.
_READ_AHEAD = 1 << 16


class Examples:
  """Examples that are read in blocks.

  Attributes:
    lengths: Lengths of all examples.
    block_start: First example of each block, and the number of examples at the end.
  """

  lengths: Lengths
  block_start: np.ndarray

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Reads blocks, in the given order."""
    raise NotImplementedError

  def __len__(self) -> int:
    return int(self.block_start[-1])

  def rows(self, features: Sequence[str]) -> Iterator[Rows]:
    """Reads all examples in order, a block at a time."""
    return self.read_blocks(range(len(self.block_start) - 1), features)

  def select(self, ids: np.ndarray, features: Sequence[str]) -> Iterator[Rows]:
    """Reads some examples, given in ascending order, a block at a time."""
    cut = np.searchsorted(ids, self.block_start)
    blocks = np.flatnonzero(np.diff(cut)).tolist()
    for block, rows in zip(blocks, self.read_blocks(blocks, features)):
      local_ids = ids[cut[block] : cut[block + 1]] - self.block_start[block]
      yield rows if len(local_ids) == len(rows) else rows.take(local_ids)


def block_starts(shards: np.ndarray) -> np.ndarray:
  """Returns the first example of each block, and the number of examples at the end.

  A block does not extend over two shards.

  Args:
    shards: First example of each shard, and the number of examples at the end.
  """
  parts = [np.arange(a, b, BLOCK) for a, b in itertools.pairwise(shards)]
  return np.concatenate([*parts, shards[-1:]])


class Dataset:
  """An opened dataset directory.

  Attributes:
    directory: Path of the directory.
    manifest: Its manifest.
    features: Names of the features of an example.
  """

  def __init__(self, directory: os.PathLike[str] | str):
    """Opens a dataset directory.

    Args:
      directory: Path of the directory (config.data.directory).

    Raises:
      InputError: The path is not a dataset directory of this format.
    """
    self.manifest = manifests.read(directory)
    self.directory = files.path_of(directory)
    self.features = tuple(manifests.features(self.manifest))

  def split(self, name: str) -> Split:
    """Opens a split; see `Split`."""
    return Split(self, name)

  def vocabulary(self, side: str) -> Vocabulary:
    """Loads the vocabulary of a side and checks it against the manifest."""
    return manifests.vocabulary(self.directory, self.manifest, side)


class Split(Examples):
  """The examples of one split, read by index or in order.

  Attributes:
    dataset: The opened dataset directory.
    name: Name of the split.
    features: Names of the features of an example.
    index: Entries of all records, of `index.ENTRY`.
  """

  def __init__(self, dataset: Dataset, name: str):
    """Opens a split.

    Args:
      dataset: Opened dataset directory.
      name: Name of a split in the manifest.

    Raises:
      InputError: There is no such split, a file is missing or has another size than
        in the manifest, or the index is corrupt.
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
    # First example of each shard, and the number of examples at the end.
    counts = [shard["examples"] for shard in facts["shards"]]
    self._shards = np.cumsum([0, *counts])
    self.block_start = block_starts(self._shards)

  @functools.cached_property
  def lengths(self) -> Lengths:  # type: ignore[override]  # computed on first use
    """Lengths of all examples, in the smallest unsigned types that hold them."""
    return Lengths(
      *(
        values.astype(np.min_scalar_type(values.max(initial=0)))
        for values in (self.index[name] for name in Lengths._fields)
      )
    )

  @functools.cached_property
  def _offset(self) -> np.ndarray:
    """First byte of each block in its shard."""
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
    """Reads blocks, in the given order.

    Raises:
      CorruptFileError: A shard is missing or corrupt; names it and the record.
    """
    by_shard = itertools.groupby(
      blocks, lambda block: int(self._shard_of(self.block_start[block]))
    )
    for shard, blocks_of_shard in by_shard:
      with _opened(self._paths[shard]) as file:
        for block in blocks_of_shard:
          yield self._read_block(file, shard, block, features)

  def _read_block(
    self, file: IO[bytes], shard: int, block: int, features: Sequence[str]
  ) -> Rows:
    begin, end = self.block_start[block : block + 2].tolist()
    path, first = self._paths[shard], begin - int(self._shards[shard])
    size = self.index["bytes"][begin:end].astype(np.int64)
    frame_end = np.cumsum(size + HEADER + FOOTER)
    try:
      file.seek(int(self._offset[block]))
      data = file.read(int(frame_end[-1]))
    except OSError as error:
      raise _cannot_read(path, error) from None
    if len(data) < frame_end[-1]:
      record = first + int(np.searchsorted(frame_end, len(data), "right"))
      raise CorruptFileError(f"{path}: record {record} is truncated")
    frame = frame_end - size - HEADER - FOOTER
    payload = frame + HEADER
    try:
      check_frames(data, frame, size, self.index["crc"][begin:end])
      rows = decode(
        data, payload, payload + size, stored=self.features, wanted=features
      )
      self._check_sizes(rows, slice(begin, end))
    except InvalidExampleError as error:
      raise CorruptFileError(
        f"{path}: record {first + error.number} is corrupt, or of another data set: "
        f"{error.why}"
      ) from None
    return rows

  def _check_sizes(self, rows: Rows, examples: slice) -> None:
    """Compares decoded examples with the lengths by which batches are planned."""
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
    """Returns example i. It decodes the block around it: use `rows` for many."""
    if not 0 <= i < len(self):
      raise IndexError(f"example {i} of {len(self)}")
    (rows,) = self.select(np.array([i]), self.features)
    return rows.examples()[0]

  def __iter__(self) -> Iterator[Example]:
    """Yields all examples in order."""
    for rows in self.rows(self.features):
      yield from rows.examples()

  def unparsed(self, side: str) -> int:
    """Returns the number of sentences of a side without a tree."""
    name = f"{side}_parsed"
    return sum(int((rows.flat[name] == 0).sum()) for rows in self.rows([name]))


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[IO[bytes]]:
  try:
    file = files.open_read(path, _READ_AHEAD)  # closed below
  except OSError as error:
    raise _cannot_read(path, error) from None
  with file:
    yield file


def _cannot_read(path: pathlib.Path, error: OSError) -> CorruptFileError:
  reason = error.strerror or error
  return CorruptFileError(f"{path} cannot be read: {reason}")
