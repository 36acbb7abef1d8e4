"""The examples of a split as columns: Arrow files of blocks, and their lengths.

A file of columns (columns/SPLIT-00000-of-00002.arrow, one a shard) is an Arrow
IPC file whose record batches are blocks: at most 4,096 consecutive examples, a
column a feature, a list of values where the feature has axes. The CRC-32C of each
column stands in the block's custom metadata. SPLIT.lengths.arrow has a record
batch a block too, of all shards in order: how long each example is, and in its
metadata the shard, and where each column of the block is and its CRC-32C. So a
few columns of a block are read without the rest, and none of other data is taken
for them: the manifest has the checksum of the lengths, which are read whole.

To write (any binary file object that tells its position; the same bytes for the
same examples, however they are cut into `Rows`):

  with BlockWriter(file, features) as writer:      # one a shard
    writer.write(rows)                             # again and again
  writer.blocks                                    # then: of each block, Block

  with LengthsWriter(file) as lengths:             # one a split
    lengths.write(shard, writer.blocks)            # shard after shard

To read: `read_lengths`, then `BlockReader` of each shard.

Letters: I example; 4 the sides' subwords and words, as in LENGTHS.
"""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import IO, NamedTuple, Self

import google_crc32c
import numpy as np
import pyarrow as pa

from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import REMEDY
from jaxsyn.errors import InputError

LONGEST = 4096  # examples of a block
# Values of a feature in a block; more only where one example has more. So that
# distances of long sentences stay within what is held and counted at once.
MOST = 1 << 24
LENGTHS = ("source", "target", "source_words", "target_words")
_LENGTHS_SCHEMA = pa.schema(
  [pa.field(name, pa.int32(), nullable=False) for name in LENGTHS]
)
# What stands in a file follows from these, not from what pyarrow prefers.
_OPTIONS = pa.ipc.IpcWriteOptions(
  metadata_version=pa.ipc.MetadataVersion.V5, use_threads=False
)


class Column(NamedTuple):
  """Where a column of a block is in its file.

  Attributes:
    offset: byte of its starts, int32, one more than examples; of its values,
      where each example has one.
    values: how many.
    crc32c: of starts and values, 8 hexadecimal digits.
  """

  offset: int
  values: int
  crc32c: str


@dataclasses.dataclass(frozen=True)
class Block:
  """What the lengths say of a block.

  Attributes:
    length_I4: int32, of each example: subwords of the source and of the target,
      EOS included, and words of both; 0 words: the data has no trees there.
    columns: feature -> where it is.
    shard: number of its file.
  """

  length_I4: np.ndarray
  columns: Mapping[str, Column]
  shard: int = 0


def _schema(features: Iterable[str]) -> pa.Schema:
  fields = []
  for name in features:
    kind = pa.from_numpy_dtype(FEATURES[name].dtype)
    if FEATURES[name].axes:
      kind = pa.list_(pa.field("item", kind, nullable=False))
    fields.append(pa.field(name, kind, nullable=False))
  return pa.schema(fields)


class _Writer(abc.ABC):
  """Ends its file where the block ends well; else that is not published."""

  @abc.abstractmethod
  def close(self) -> None:
    """Writes what is left, and the end of the file."""

  def __enter__(self) -> Self:
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    if error is None:
      self.close()


class BlockWriter(_Writer):
  """Writes a file of columns.

  Attributes:
    blocks: those written so far; all of them after `close`.
  """

  def __init__(self, file: IO[bytes], features: Iterable[str]):
    """Begins a file.

    Args:
      file: open for writing; stays open.
      features: names of the columns, in the order of `jaxsyn.data.schema`.
    """
    self._features = tuple(features)
    self._schema = _schema(self._features)
    self._file = file
    self._arrow = pa.ipc.new_file(file, self._schema, options=_OPTIONS)
    self._waiting: list[Rows] = []
    self._count = 0
    self._values = dict.fromkeys(self._features, 0)
    self.blocks: list[Block] = []

  def write(self, rows: Rows) -> None:
    """Appends examples, with values in the features' types, as `Rows.of` has.

    They may have more features than the file, of which the lengths are taken.
    """
    begin = 0
    while begin < len(rows):
      end = min(len(rows), begin + LONGEST - self._count)
      for name in self._features:
        start = rows.start[name]
        room = start[begin] + MOST - self._values[name]
        fits = int(np.searchsorted(start, room, "right")) - 1
        end = min(end, max(fits, begin))
      if end == begin:
        if self._count:
          self._flush()
          continue
        end = begin + 1  # a single example that has more
      part = rows.part(begin, end)
      self._waiting.append(part)
      self._count += len(part)
      for name in self._features:
        self._values[name] += len(part.flat[name])
      begin = end
      if self._count == LONGEST:
        self._flush()

  def _flush(self) -> None:
    rows = Rows.joined(self._waiting)
    sums = {
      name: _checksum(rows.start[name], rows.flat[name])
      for name in self._features
    }
    arrays = [_array(rows, name) for name in self._features]
    batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
    self._arrow.write_batch(batch, custom_metadata=sums)
    sizes = {name: _bytes(rows, name) for name in self._features}
    # Arrow ends a batch with its columns, one after the other.
    offset = self._file.tell() - sum(map(sum, sizes.values()))
    columns = {}
    for name, size in sizes.items():
      columns[name] = Column(offset, len(rows.flat[name]), sums[name])
      offset += sum(size)
    self.blocks.append(Block(lengths_of(rows), columns))
    self._waiting, self._count = [], 0
    self._values = dict.fromkeys(self._features, 0)

  def close(self) -> None:
    if self._count:
      self._flush()
    self._arrow.close()


class LengthsWriter(_Writer):
  """Writes the lengths of a split, block by block."""

  def __init__(self, file: IO[bytes]):
    """Begins a file, open for writing; it stays open."""
    self._file = pa.ipc.new_file(file, _LENGTHS_SCHEMA, options=_OPTIONS)

  def write(self, shard: int, blocks: Iterable[Block]) -> None:
    """Appends the blocks of a shard; shards come in order."""
    for block in blocks:
      columns = [pa.array(column) for column in block.length_I4.T.copy()]
      batch = pa.RecordBatch.from_arrays(columns, schema=_LENGTHS_SCHEMA)
      about = {"shard": str(shard), "columns": json.dumps(block.columns)}
      self._file.write_batch(batch, custom_metadata=about)

  def close(self) -> None:
    self._file.close()


def read_lengths(file: IO[bytes], name: str) -> Iterator[Block]:
  """The blocks of a split in order.

  Args:
    file: open for reading, of which the checksum was compared.
    name: of the file, for messages.

  Raises:
    InputError: it is no such file.
  """
  try:
    reader = pa.ipc.open_file(file)
    if not reader.schema.equals(_LENGTHS_SCHEMA):
      raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
    for i in range(reader.num_record_batches):
      batch, about = reader.get_batch_with_custom_metadata(i)
      columns = {
        feature: Column(*column)
        for feature, column in json.loads(about[b"columns"]).items()
      }
      lengths = [column.to_numpy() for column in batch.columns]
      yield Block(np.stack(lengths, 1), columns, int(about[b"shard"]))
  except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
    raise InputError(
      f"{name} is no file of lengths as this version writes it ({error}). "
      f"{REMEDY}"
    ) from None


class BlockReader:
  """Reads blocks of a file of columns.

  Not by Arrow, which believes what a file says of itself: a flipped bit there
  ended the process. The lengths say where everything is.
  """

  def __init__(
    self,
    file: IO[bytes],
    features: Iterable[str],
    *,
    name: str,
    remedy: str = REMEDY,
  ):
    """Takes a file.

    Args:
      file: open for reading; it must stay so.
      features: names of those to read; of others nothing is read.
      name: of the file, for messages.
      remedy: what to do if it is damaged, for messages.
    """
    self._file, self._features = file, tuple(features)
    self._name, self._remedy = name, remedy

  def read(self, block: Block) -> Rows:
    """The examples of a block.

    Raises:
      InputError: it is not as it was written, or not the one of these lengths.
    """
    flat, start = {}, {}
    for name in self._features:
      flat[name], start[name] = self._column(block, name)
    return Rows(flat, start)

  def _column(self, block: Block, name: str) -> tuple[np.ndarray, np.ndarray]:
    if name not in block.columns:
      raise self._error(name, "it is not there")
    offset, values, crc32c = block.columns[name]
    number, dtype = len(block.length_I4), FEATURES[name].dtype
    # Whoever mends checksums gets no further: what reads the columns relies on
    # these lengths, and on no more than their sum being read.
    due = _sizes(block.length_I4, name)
    if due is not None and due.sum() != values:
      raise self._error(name, f"it has {values:,} values, not {due.sum():,}")
    starts = _padded(4 * (number + 1)) if FEATURES[name].axes else 0
    size = starts + values * dtype.itemsize
    try:
      self._file.seek(offset)
      data = self._file.read(size)
    except (OSError, ValueError, OverflowError) as error:
      raise self._error(name, str(error)) from None
    if len(data) < size:
      raise self._error(name, f"the file ends within it, at {offset:,} bytes")
    flat = np.frombuffer(data, dtype, values, starts)
    start = np.arange(number + 1, dtype=np.int32)
    if starts:
      start = np.frombuffer(data, "<i4", number + 1)
    if _checksum(start, flat) != crc32c:
      raise self._error(name, f"its checksum at {offset:,} bytes differs")
    if (
      start[0] != 0
      or start[-1] != values
      or (due is not None and not np.array_equal(np.diff(start), due))
    ):
      raise self._error(name, "its examples have other lengths")
    return flat, start

  def _error(self, feature: str, why: str) -> InputError:
    return InputError(
      f"{self._name}: {feature} is damaged, or of another data set: {why}. "
      f"{self._remedy}"
    )


def _sizes(length_I4: np.ndarray, name: str) -> np.ndarray | None:
  """How many values each example has of a feature; None: not known."""
  source, target, *words = length_I4.T
  words_I = words[SIDES.index(name.partition("_")[0])] if "_" in name else 0
  return {
    "": np.ones(len(length_I4), np.int64),
    "S": source,
    "T": target,
    "W": words_I,
    "WW": words_I**2,
  }.get(FEATURES[name].axes)


def _padded(size: int) -> int:
  """Bytes of a buffer in an Arrow file."""
  return -(-size // 8) * 8


def _bytes(rows: Rows, name: str) -> tuple[int, int]:
  """Of the starts and of the values of a column in an Arrow file."""
  starts = 4 * len(rows.start[name]) if FEATURES[name].axes else 0
  return _padded(starts), _padded(rows.flat[name].nbytes)


def _array(rows: Rows, name: str) -> pa.Array:
  values = pa.array(rows.flat[name])
  if not FEATURES[name].axes:
    return values
  field = _schema([name]).field(0)
  start = pa.array(rows.start[name].astype(np.int32))
  return pa.ListArray.from_arrays(start, values, type=field.type)


def _checksum(start: np.ndarray, flat: np.ndarray) -> str:
  """Of the starts and the values of a column."""
  start = np.ascontiguousarray(start, np.dtype("<i4"))
  # As Arrow's buffers: of NumPy's own arrays the library would want a copy.
  crc = google_crc32c.value(pa.py_buffer(start))
  crc = google_crc32c.extend(crc, pa.py_buffer(np.ascontiguousarray(flat)))
  return f"{crc:08x}"


def lengths_of(rows: Rows) -> np.ndarray:
  """length_I4 of examples; see `Block`."""
  subwords = [rows.sizes(f"{side}_id") for side in SIDES]
  words = [_words(rows, side) for side in SIDES]
  return np.stack([*subwords, *words], 1).astype(np.int32)


def _words(rows: Rows, side: str) -> np.ndarray:
  """Words of each example, from any feature that tells; else zeros."""
  for name in rows.start:
    axes = FEATURES[name].axes
    if name.startswith(side) and axes in ("W", "WW"):
      sizes = rows.sizes(name)
      return sizes if axes == "W" else np.sqrt(sizes).round()
  return np.zeros(len(rows))
