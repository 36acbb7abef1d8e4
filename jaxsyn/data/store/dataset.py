"""Readers of dataset directories: examples, raw text and parse trees.

The TFRecord shards are the only copy of the data: training, validation,
--verify and TFDS read the same bytes. Opening a split reads its index; records
are read, checked and decoded a block at a time. Only requested features are
decoded.

The manifest has the size and the CRC-32C of every file under "files", and a
checksum of its own content, so flipped bits, truncated files and partial copies
are detected.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import os
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.schema import FEATURES, stored_names
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests, tfrecord
from jaxsyn.data.store.records import decode
from jaxsyn.data.store.rows import (
  Example,
  InvalidExampleError,
  Lengths,
  Rows,
  check_sizes,
  measure,
)
from jaxsyn.data.store.tfrecord import FOOTER, HEADER, CorruptDatasetError
from jaxsyn.storage import checksums, files

# Number of records in a block. No file depends on it, but the order of a corpus
# that does not fit in memory does (`jaxsyn.data.loader.batch_sampler`). With
# 128 records, decoding is as slow as protobuf.
BLOCK = 4096
# Bytes of the first request to an object store; each block is another request.
_READ_AHEAD = 1 << 16


class Dataset:
  """Opened dataset directory, with its manifest, splits and vocabularies.

  Attributes:
    directory: Path of the directory.
    manifest: Content of its manifest.
    features: Names of the features of an example.
  """

  def __init__(self, directory: os.PathLike[str] | str):
    """Opens a dataset directory by reading its manifest.

    Raises:
      InputError: The path is not a dataset directory of this format.
    """
    self.manifest = manifests.read(directory)
    self.directory = files.path_of(directory)
    self.features = tuple(schema.features(self.manifest))

  def split(self, name: str) -> Split:
    """Returns the opened split with the given name."""
    return Split(self, name)

  def vocabulary(self, side: str) -> Vocabulary:
    """Returns the source or target vocabulary, checked against the manifest."""
    return manifests.vocabulary(self.directory, self.manifest, side)

  def corrupt_files(self, deep: bool = True) -> dict[str, str]:
    """Returns an error text for each file that differs from the manifest.

    Args:
      deep: Whether to read all files; otherwise only their sizes are compared.

    Returns: error text by name of the file.
    """
    errors = {n: self._error(n, deep) for n in self.manifest["files"]}
    return {name: error for name, error in errors.items() if error}

  def check(self, path: pathlib.Path, deep: bool = True) -> None:
    """Raises CorruptDatasetError if a file differs from the manifest.

    Args:
      path: Path of the file, relative to the directory.
      deep: Whether to read the file; otherwise only its size is compared.
    """
    if error := self._error(path.as_posix(), deep):
      raise CorruptDatasetError(error)

  def _error(self, name: str, deep: bool) -> str:
    entry = {name: self.manifest["files"][name]}
    return checksums.corrupt_files(self.directory, entry, lambda _: deep)

  def text(self, split: str, side: str) -> list[str]:
    """Returns the raw source or target lines of a split, one per record.

    Raises:
      CorruptDatasetError: A file differs from the manifest, or has another
        number of lines than the split has records.
    """
    shards = manifests.split(self.manifest, split)["shards"]
    lines: list[str] = []
    for shard, path in zip(shards, self._sentence_files("text", split, side)):
      try:
        data = gzip.decompress(files.read_bytes(path))
        *of_shard, end = data.decode("utf-8").split("\n")
      except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CorruptDatasetError(f"{path} cannot be read ({error})") from None
      if len(of_shard) != shard["examples"] or end:
        raise CorruptDatasetError(
          f"{path} has {len(of_shard)} lines, but the shard has "
          f"{shard['examples']} records"
        )
      lines += of_shard
    return lines

  def sentences(
    self, split: str, side: str
  ) -> Iterator[str] | Iterator[conllu.Parse]:
    """Yields a split's source or target parses, or raw lines if not parsed.

    Raises:
      CorruptDatasetError: A file with text or trees differs from the manifest.
    """
    lines = self.text(split, side)
    if side not in self.manifest["sides"]:
      return iter(lines)
    paths = self._sentence_files("conllu", split, side)
    blocks = itertools.chain.from_iterable(map(conllu.read, paths))
    texts = self._sentence_files("text", split, side)
    return conllu.match(blocks, lines, ", ".join(map(os.fspath, texts)))

  def trees(self, split: str, side: str) -> list[conllu.Parse] | None:
    """Returns the source or target parse trees of a split; None if unparsed."""
    if side not in self.manifest["sides"]:
      return None
    trees = self.sentences(split, side)
    return [parse for parse in trees if isinstance(parse, conllu.Parse)]

  def _sentence_files(
    self, kind: str, split: str, side: str
  ) -> list[pathlib.Path]:
    """Returns the verified files of a side's text or trees, one per shard."""
    names = manifests.sentence_files("", self.manifest, kind, split, side)
    for name in names:
      self.check(name)
    return [self.directory / name for name in names]


class Examples:
  """Base class of collections of examples, which are read block by block.

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
    """Yields the examples in the given blocks of records, block by block."""
    raise NotImplementedError

  def __len__(self) -> int:
    return int(self.block_start[-1])

  def rows(self, features: Sequence[str]) -> Iterator[Rows]:
    """Yields all examples in order, one block of records at a time."""
    return self.read_blocks(range(len(self.block_start) - 1), features)

  def select(self, ids: np.ndarray, features: Sequence[str]) -> Iterator[Rows]:
    """Yields the examples with the given ascending indices, block by block."""
    cut = np.searchsorted(ids, self.block_start)
    blocks = np.flatnonzero(np.diff(cut)).tolist()
    for block, rows in zip(blocks, self.read_blocks(blocks, features)):
      local_ids = ids[cut[block] : cut[block + 1]] - self.block_start[block]
      yield rows if len(local_ids) == len(rows) else rows.take(local_ids)

  def load(
    self,
    features: Sequence[str],
    ids: np.ndarray | None = None,
    buffer: Rows | None = None,
  ) -> Rows:
    """Loads the named features of all or selected examples into memory.

    Args:
      features: Names of features. For computed features, their inputs are read.
      ids: Indices of the examples, ascending, each once; None for all.
      buffer: Earlier result that is not used any more; its memory is reused.

    Raises:
      InputError: A file is missing or corrupt.
    """
    features = stored_names(features)
    ids = np.arange(len(self)) if ids is None else ids
    lengths = self.lengths.of(ids)
    flat, start = dict[str, np.ndarray](), dict[str, np.ndarray]()
    start_of_size: dict[tuple[str, bool], np.ndarray] = {}
    # The sizes of other features are found by reading; they are few and small.
    unknown: list[str] = []
    for name in features:
      size = lengths.sizes(name)
      if size is None:
        unknown.append(name)
        continue
      key = measure(name)
      if key not in start_of_size:  # one array for features of one size
        start_of_size[key] = np.cumsum(np.append(0, size))
      start[name] = start_of_size[key]
      # In its final size, since joining parts would take twice the memory.
      flat[name] = _allocate(buffer, name, int(start[name][-1]))
    parts, begin = [Rows.of([], unknown)], 0
    for rows in self.select(ids, features):
      for name, values in flat.items():
        place = start[name][begin]
        values[place : place + len(rows.flat[name])] = rows.flat[name]
      parts.append(rows.of_features(unknown))
      begin += len(rows)
    others = Rows.joined(parts)
    return Rows({**flat, **others.flat}, {**start, **others.start})


def _allocate(buffer: Rows | None, name: str, size: int) -> np.ndarray:
  """Returns an array for a feature's values, reusing memory if possible.

  Allocating new memory for every shuffling window takes up to a third of the
  time of reading.
  """
  memory = None if buffer is None else buffer.flat[name].base
  if memory is None or memory.size < size:
    # A little more than needed, since the next window may need it.
    memory = np.empty(size + size // 16, FEATURES[name].dtype)
  return memory[:size]


def block_starts(shards: np.ndarray) -> np.ndarray:
  """Returns the index of the first example in each block of records.

  The number of all examples follows. No block has records of two shards.

  Args:
    shards: Index of the first example in each shard, followed by the number of
      all examples.
  """
  parts = [np.arange(a, b, BLOCK) for a, b in itertools.pairwise(shards)]
  return np.concatenate([*parts, shards[-1:]])


class Split(Examples):
  """Stored examples of one dataset split, which are read by index or in order.

  Attributes:
    dataset: Opened dataset directory.
    name: Name of the split.
    features: Names of the features of an example.
    index: Index entry of every record, with the type `tfrecord.ENTRY`.
  """

  def __init__(self, dataset: Dataset, name: str):
    """Opens a split by reading its index and checking its files' sizes.

    Raises:
      InputError: There is no such split, a file is missing or has another size
        than in the manifest, or the index is corrupt.
    """
    directory, manifest = dataset.directory, dataset.manifest
    entry = manifests.split(manifest, name)
    self.dataset, self.name, self.features = dataset, name, dataset.features
    folder = manifests.tfds_folder("", manifest)
    shards = [folder / shard["file"] for shard in entry["shards"]]
    for shard in shards:
      dataset.check(shard, deep=False)
    index_file = manifests.index_file("", manifest, name)
    dataset.check(index_file)
    self.index = tfrecord.load_index(directory / index_file, entry["examples"])
    self._paths = [directory / shard for shard in shards]
    # Index of the first example in each shard, and the number of all examples.
    counts = [shard["examples"] for shard in entry["shards"]]
    self._shards = np.cumsum([0, *counts])
    self.block_start = block_starts(self._shards)

  @functools.cached_property
  def lengths(self) -> Lengths:  # type: ignore[override]  # computed on first use
    """Lengths of all examples, in the smallest unsigned types that suffice."""
    columns = [self.index[name] for name in Lengths._fields]
    types = [np.min_scalar_type(column.max(initial=0)) for column in columns]
    return Lengths(*(c.astype(dtype) for c, dtype in zip(columns, types)))

  @functools.cached_property
  def _offset(self) -> np.ndarray:
    """Byte offset of each block of records in its shard."""
    start = self.block_start
    size = np.add.reduceat(self.index["bytes"], start[:-1], dtype=np.int64)
    size += np.diff(start) * (HEADER + FOOTER)
    before = np.cumsum(size) - size
    first_block = np.searchsorted(start, self._shards)
    return before - before[first_block[self._shard_of(start[:-1])]]

  def _shard_of(self, example: np.ndarray | int) -> np.ndarray:
    return np.searchsorted(self._shards, example, "right") - 1

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Yields the examples in the given blocks of records, block by block.

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
      tfrecord.check_frames(data, frame, size, self.index["crc"][begin:end])
      rows = decode(
        data, payload, payload + size, stored=self.features, wanted=features
      )
      lengths = self.lengths.of(slice(begin, end))
      check_sizes(rows, lengths, "has another length than the index")
    except InvalidExampleError as error:
      raise CorruptDatasetError(
        f"{path}: record {first + error.index} is corrupt, or of another "
        f"dataset: {error.why}"
      ) from None
    return rows

  def __getitem__(self, i: int) -> Example:
    """Returns example i, decoding the complete block that contains it."""
    if not 0 <= i < len(self):
      raise IndexError(f"example {i} of {len(self)}")
    (rows,) = self.select(np.array([i]), self.features)
    return rows.examples()[0]

  def __iter__(self) -> Iterator[Example]:
    """Yields all examples of the split in order, with all features."""
    for rows in self.rows(self.features):
      yield from rows.examples()

  def unparsed(self, side: str) -> int:
    """Returns the number of source or target sentences without a parse tree."""
    name = f"{side}_parsed"
    return sum(int((rows.flat[name] == 0).sum()) for rows in self.rows([name]))
