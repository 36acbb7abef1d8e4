"""The examples of a split as columns: Arrow files of blocks.

A file of columns (columns/SPLIT-00000-of-00002.arrow, one a shard) is an Arrow
IPC file whose record batches are blocks: at most 4,096 consecutive examples, a
column a feature, a list of values where the feature has axes. The CRC-32C of each
column stands in the block's custom metadata. Where a block and its columns are,
`jaxsyn.data.store.lengths` says.

`write_blocks` writes such a file, the same bytes for the same examples, however
they are cut into `Rows`; `BlockReader` reads blocks of one.

Before this file: `rows`, `lengths`. After it: `prepared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, NamedTuple, Self

import google_crc32c
import numpy as np
import pyarrow as pa

from jaxsyn.data.schema import FEATURES
from jaxsyn.data.store.lengths import (
  OPTIONS,
  Block,
  Column,
  lengths_of,
  measure,
)
from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import REMEDY
from jaxsyn.errors import InputError

LONGEST = 4096  # examples of a block
# Values of a feature in a block; more only where one example has more. So that
# distances of long sentences stay within what is held and counted at once.
MAX_BLOCK = 1 << 24


def write_blocks(
  file: IO[bytes], features: Iterable[str], examples: Iterable[Rows]
) -> list[Block]:
  """Writes a file of columns.

  Args:
    file: open for writing, tells its position; stays open.
    features: names of the columns, in the order of `jaxsyn.data.schema`.
    examples: some at a time, with values in the features' types, as `Rows.of`
      has. They may have more features than the file, of which the lengths are
      taken.

  Returns:
    what the lengths are to say of each block.
  """
  names = tuple(features)
  with pa.ipc.new_file(file, _schema(names), options=OPTIONS) as arrow:
    return [_written(file, arrow, r, names) for r in _blocks(examples, names)]


def _blocks(parts: Iterable[Rows], names: Sequence[str]) -> Iterator[Rows]:
  """The same examples, those of a block at a time."""
  waiting: list[Rows] = []
  for rows in parts:
    begin = 0
    while begin < len(rows):
      end = _end(waiting, rows, begin, names)
      if end == begin:
        yield Rows.joined(waiting)
        waiting = []
      else:
        waiting.append(rows.part(begin, end))
        begin = end
  if waiting:
    yield Rows.joined(waiting)


def _end(
  waiting: Sequence[Rows], rows: Rows, begin: int, names: Sequence[str]
) -> int:
  """Up to which example rows from `begin` on fit a block beside others."""
  end = min(len(rows), begin + LONGEST - sum(map(len, waiting)))
  for name in names:
    start = rows.start[name]
    size = sum(len(part.flat[name]) for part in waiting)
    fits = np.searchsorted(start, start[begin] + MAX_BLOCK - size, "right") - 1
    end = min(end, int(fits))
  # A single example may have more than a block.
  return max(end, begin if waiting else begin + 1)


def _written(
  file: IO[bytes],
  arrow: pa.ipc.RecordBatchFileWriter,
  rows: Rows,
  names: Sequence[str],
) -> Block:
  sums = {
    name: f"{_crc32c(rows.flat[name], _Starts.of(rows.start[name]).crc32c):08x}"
    for name in names
  }
  arrays = [_array(rows, name) for name in names]
  batch = pa.RecordBatch.from_arrays(arrays, schema=_schema(names))
  arrow.write_batch(batch, custom_metadata=sums)
  sizes = {name: _bytes(rows, name) for name in names}
  # Arrow ends a batch with its columns, one after the other.
  offset = file.tell() - sum(map(sum, sizes.values()))
  columns = {}
  for name, size in sizes.items():
    columns[name] = Column(offset, len(rows.flat[name]), sums[name])
    offset += sum(size)
  return Block(lengths_of(rows), columns)


def _schema(features: Iterable[str]) -> pa.Schema:
  fields = []
  for name in features:
    kind = pa.from_numpy_dtype(FEATURES[name].dtype)
    if FEATURES[name].axes:
      kind = pa.list_(pa.field("item", kind, nullable=False))
    fields.append(pa.field(name, kind, nullable=False))
  return pa.schema(fields)


class BlockReader:
  """Reads blocks of a file of columns.

  Not by Arrow, which believes what a file says of itself: a flipped bit there
  ended the process. The lengths say where everything is; they say the starts of
  the values too, which are then not read, but are in the checksum.
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
    known: dict[tuple[str, str], _Starts] = {}
    for name in self._features:
      if name not in block.columns:
        raise self._error(name, "it is not there")
      if (size := measure(name)) not in known:
        known[size] = self._starts(block, name)
      start[name] = known[size].place
      flat[name] = self._values(block.columns[name], name, known[size])
    return Rows(flat, start)

  def _starts(self, block: Block, name: str) -> _Starts:
    """Where values begin: as the lengths say or, where those do not, the file."""
    due = block.lengths.sizes(name)
    if due is not None:
      return _Starts.of(np.cumsum(np.append(0, due)))
    count = len(block.lengths.source) + 1
    data = self._read(block.columns[name].offset, 4 * count, name)
    starts = _Starts.of(np.frombuffer(data, "<i4", count))
    if starts.place[0] != 0:
      raise self._error(name, "its examples have other lengths")
    return starts

  def _values(self, column: Column, name: str, starts: _Starts) -> np.ndarray:
    offset, values, crc32c = column
    # Whoever mends checksums gets no further: what reads the columns relies on
    # these lengths, and on no more than their sum being read.
    if values != starts.end:
      raise self._error(name, f"it has {values:,} values, not {starts.end:,}")
    dtype = FEATURES[name].dtype
    if FEATURES[name].axes:
      offset += _padded(starts.place.nbytes)
    data = self._read(offset, values * dtype.itemsize, name)
    flat = np.frombuffer(data, dtype, values)
    if f"{_crc32c(flat, starts.crc32c):08x}" != crc32c:
      raise self._error(name, f"its checksum at {offset:,} bytes differs")
    return flat

  def _read(self, offset: int, size: int, name: str) -> bytes:
    try:
      self._file.seek(offset)
      data = self._file.read(size)
    except (OSError, ValueError, OverflowError) as error:
      raise self._error(name, str(error)) from None
    if len(data) < size:
      raise self._error(name, f"the file ends within it, at {offset:,} bytes")
    return data

  def _error(self, feature: str, why: str) -> InputError:
    return InputError(
      f"{self._name}: {feature} is damaged, or of another data set: {why}. "
      f"{self._remedy}"
    )


class _Starts(NamedTuple):
  """Where the values of each example begin.

  Attributes:
    place: int32; and where those of the last one end.
    end: the last of these, before it was int32.
    crc32c: of `place`.
  """

  place: np.ndarray
  end: int
  crc32c: int

  @classmethod
  def of(cls, start: np.ndarray) -> Self:
    place = start.astype("<i4", copy=False)
    return cls(place, int(start[-1]), _crc32c(place))


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


def _crc32c(values: np.ndarray, before: int = 0) -> int:
  """Of values, after those of which a sum is given."""
  # As Arrow's buffer: of NumPy's own arrays the library would want a copy.
  data = pa.py_buffer(np.ascontiguousarray(values))
  return google_crc32c.extend(before, data)
