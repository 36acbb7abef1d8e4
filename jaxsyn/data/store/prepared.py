"""The examples of a split, read from its TFRecord shards, in blocks or one by one.

The shards are the only copy of the data: training, validation, --verify and TFDS read
the same bytes. The index (`jaxsyn.data.store.index`) is read when a split is opened;
records are read, checked and decoded when they are asked for, a block at a time and
only the wanted features of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data.store import index, integrity, layout, manifests
from jaxsyn.data.store.decoding import InvalidExampleError, check_frames, decode
from jaxsyn.data.store.lengths import Lengths
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.data.store.tfrecord import FOOTER, HEADER, REMEDY
from jaxsyn.errors import InputError
from jaxsyn.storage import files

# Examples of a block. No file depends on it, but the order of a corpus that does not
# fit in memory does (`jaxsyn.data.loader.windows`). With 128 decoding costs as much as
# protobuf does.
BLOCK = 4096
_READ_AHEAD = (
  1 << 16
)  # bytes of a request to an object store; a block is another one


def block_starts(shards: np.ndarray) -> np.ndarray:
  """Returns the first example of each block, and the number of examples at the end.

  A block does not extend over two shards.

  Args:
    shards: First example of each shard, and the number of examples at the end.
  """
  parts = [np.arange(a, b, BLOCK) for a, b in itertools.pairwise(shards)]
  return np.concatenate([*parts, shards[-1:]])


@dataclasses.dataclass(frozen=True)
class RecordFiles:
  """The shards of a split and their index.

  Attributes:
    paths: The shards.
    index: Entries of all records, of `index.ENTRY`.
    shards: First example of each shard, and the number of examples at the end.
    stored: Names of the features of a record, without texts.
  """

  paths: Sequence[pathlib.Path]
  index: np.ndarray
  shards: np.ndarray
  stored: Sequence[str]

  def __len__(self) -> int:
    return len(self.index)

  @functools.cached_property
  def lengths(self) -> Lengths:
    """Lengths of all examples, in the smallest unsigned types that hold them."""
    return Lengths(
      *(
        values.astype(np.min_scalar_type(values.max(initial=0)))
        for values in (self.index[name] for name in Lengths._fields)
      )
    )

  @functools.cached_property
  def start(self) -> np.ndarray:
    """First example of each block, and the number of examples at the end."""
    return block_starts(self.shards)

  @functools.cached_property
  def _offset(self) -> np.ndarray:
    """First byte of each block in its shard."""
    if not len(self):
      return np.zeros(0, np.int64)
    size = np.add.reduceat(self.index["bytes"], self.start[:-1], dtype=np.int64)
    size += np.diff(self.start) * (HEADER + FOOTER)
    before = np.cumsum(size) - size
    shard = self._shard(self.start[:-1])
    first = np.searchsorted(self.start, self.shards[:-1])
    return before - before[np.minimum(first, len(before) - 1)][shard]

  def _shard(self, example: np.ndarray | int) -> np.ndarray:
    return np.searchsorted(self.shards, example, "right") - 1

  def read(
    self, numbers: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Reads some blocks, in the given order.

    Raises:
      InputError: A shard is missing or corrupt; names it and the record.
    """
    by_shard = itertools.groupby(
      numbers, lambda number: int(self._shard(self.start[number]))
    )
    for shard, own in by_shard:
      with _opened(self.paths[shard]) as file:
        for number in own:
          yield self._read(file, shard, number, features)

  def _read(
    self, file: IO[bytes], shard: int, number: int, features: Sequence[str]
  ) -> Rows:
    begin, end = self.start[number : number + 2].tolist()
    path, first = self.paths[shard], begin - int(self.shards[shard])
    size = self.index["bytes"][begin:end].astype(np.int64)
    frame = size + HEADER + FOOTER
    try:
      file.seek(int(self._offset[number]))
      data = file.read(int(frame.sum()))
    except OSError as error:
      raise _cannot_read(path, error) from None
    if len(data) < frame.sum():
      record = first + int(
        np.searchsorted(np.cumsum(frame), len(data), "right")
      )
      raise InputError(f"{path}: record {record} is truncated. {REMEDY}")
    offset = np.cumsum(frame) - frame
    payload = offset + HEADER
    try:
      check_frames(data, offset, size, self.index["crc"][begin:end])
      rows = decode(
        data, payload, payload + size, stored=self.stored, wanted=features
      )
      self._check_sizes(rows, slice(begin, end))
    except InvalidExampleError as error:
      raise InputError(
        f"{path}: record {first + error.number} is corrupt, or of another data set: "
        f"{error.why}. {REMEDY}"
      ) from None
    return rows

  def _check_sizes(self, rows: Rows, examples: slice) -> None:
    """Compares decoded examples with the index, by which they are put in memory."""
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


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[IO[bytes]]:
  try:
    file = files.open_read(path, _READ_AHEAD)  # closed below
  except OSError as error:
    raise _cannot_read(path, error) from None
  with file:
    yield file


def _cannot_read(path: pathlib.Path, error: OSError) -> InputError:
  return InputError(
    f"{path} cannot be read: {error.strerror or error}. {REMEDY}"
  )


class PreparedSplit:
  """The examples of one split, by index or in order.

  Attributes:
    manifest: Manifest of the dataset directory.
    split: Name of the split.
    directory: The dataset directory.
    features: Names of the features of an example.
    fingerprint: SHA-256 that changes whenever an example does.
    records: The shards.
  """

  def __init__(self, directory: os.PathLike[str] | str, split: str):
    """Opens a split.

    Args:
      directory: Dataset directory (config.data.directory).
      split: Name of a split in the manifest.

    Raises:
      InputError: There is no such directory or split, a file is missing or has
        another size than in the manifest, or the index is corrupt.
    """
    self.manifest = manifests.read(directory)
    facts = manifests.split(self.manifest, split)
    self.split = split
    self.directory = files.path_of(directory)
    self.fingerprint = facts["records_sha256"]
    self.features = tuple(manifests.features(self.manifest))
    folder = layout.tfds_folder("", self.manifest)
    names = [folder / shard["file"] for shard in facts["shards"]]
    for name in names:
      integrity.check(directory, self.manifest, name, deep=False)
    name = layout.index_file("", self.manifest, split)
    integrity.check(directory, self.manifest, name)
    counts = [shard["examples"] for shard in facts["shards"]]
    self.records = RecordFiles(
      [self.directory / name for name in names],
      index.load(self.directory / name, facts["examples"]),
      np.cumsum([0, *counts]),
      self.features,
    )

  def __len__(self) -> int:
    return len(self.records)

  def __getitem__(self, i: int) -> Example:
    """Returns example i. It decodes the block around it: use `rows` for many."""
    if not 0 <= i < len(self):
      raise IndexError(f"example {i} of {len(self)}")
    start = self.records.start
    block = int(np.searchsorted(start, i, "right")) - 1
    (rows,) = self.records.read([block], self.features)
    begin = i - int(start[block])
    return rows.part(begin, begin + 1).examples()[0]

  def __iter__(self) -> Iterator[Example]:
    """Yields all examples in order."""
    for rows in self.rows():
      yield from rows.examples()

  def unparsed(self, side: str) -> int:
    """Returns the number of sentences of a side without a tree."""
    name = f"{side}_parsed"
    return sum(int((rows.flat[name] == 0).sum()) for rows in self.rows([name]))

  def rows(self, features: Sequence[str] | None = None) -> Iterator[Rows]:
    """Yields all examples, a block at a time; all features unless some are named.

    Raises:
      InputError: A shard is missing or corrupt; names it and the record.
    """
    blocks = range(len(self.records.start) - 1)
    return self.records.read(
      blocks, self.features if features is None else features
    )
