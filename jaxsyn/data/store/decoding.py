"""Decoder of many serialized tf.train.Examples at a time, without protobuf.

`jaxsyn.data.store.encoding` writes the features of every record in one layout:
sorted by name, each once, numbers packed. Here that layout is parsed for all
records of a block in parallel, in NumPy: with 4,096 records at a time, decoding
takes 1 to 3 microseconds for an example, and protobuf takes 13. A record in any
other layout is rejected; features that are not requested are skipped by their
length.

Source: protobuf.dev/programming-guides/encoding; example.proto and
feature.proto of tensorflow/core/example.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import google_crc32c
import numpy as np

from jaxsyn.data.schema import FEATURES, TEXTS, UTF8, Feature
from jaxsyn.data.store.rows import Rows, runs
from jaxsyn.data.store.tfrecord import FOOTER, HEADER

_FIELD = (
  0x0A  # tag of field 1, length-delimited: Features, an entry, a key, values
)
_VALUE = 0x12  # of field 2: the value of an entry
_LISTS = {"bytes_list": 0x0A, "float_list": 0x12, "int64_list": 0x1A}


class InvalidExampleError(ValueError):
  """Error of a record that is not a valid example of its dataset.

  Attributes:
    number: Index of the record among the decoded records.
    why: Description of the error.
  """

  def __init__(self, index: int, why: str):
    super().__init__(f"record {index}: {why}")
    self.number, self.why = index, why


def kind_of(feature: Feature) -> str:
  """Returns the tf.train.Feature list type that stores a feature's values."""
  if feature.axes in ("WW", "X"):
    return "bytes_list"
  return "float_list" if feature.dtype.kind == "f" else "int64_list"


def check_frames(
  data: bytes, offset: np.ndarray, size: np.ndarray, crc: np.ndarray
) -> None:
  """Raises an error if TFRecord frames differ from their index or checksums.

  The length in a frame is compared with the index, which detects more errors
  than the checksum of the length.

  Args:
    data: Bytes that hold the frames.
    offset: Byte offset of each frame, int64.
    size: Size of each payload in the index in bytes, int64.
    crc: Masked CRC-32C of each payload in the index, uint32.

  Raises:
    InvalidExampleError: A frame is corrupt, or the index belongs to other
      records.
  """
  array = np.frombuffer(data, np.uint8)
  expected = size.astype("<u8").view(np.uint8).reshape(-1, 8)
  different = (array[offset[:, None] + np.arange(8)] != expected).any(1)
  _reject(different, "its size differs from the index")
  begin, end = offset + HEADER, offset + HEADER + size
  value = google_crc32c.value
  found = np.array(
    [value(data[a:b]) for a, b in zip(begin.tolist(), end.tolist())], np.uint64
  )
  # The mask of TFRecord; see `tfrecord.masked_crc`.
  rotated = found >> np.uint64(15) | found << np.uint64(17)
  masked = (rotated + np.uint64(0xA282EAD8)) & np.uint64(0xFFFFFFFF)
  stored = array[end[:, None] + np.arange(FOOTER)].copy().view("<u4")[:, 0]
  _reject(stored != masked, "its checksum differs")
  _reject(masked != crc, "its checksum differs from the index")


def decode(
  data: bytes,
  begin: np.ndarray,
  end: np.ndarray,
  *,
  stored: Collection[str],
  wanted: Sequence[str],
) -> Rows:
  """Returns the requested features of serialized examples.

  Args:
    data: Bytes that hold the records.
    begin, end: Byte offsets of each payload's begin and end, int64.
    stored: Names of all features of a record, without the texts.
    wanted: Names of the features to decode: from `stored` or `schema.UTF8`.

  Raises:
    InvalidExampleError: A record has other features or another layout.
  """
  array, view = np.frombuffer(data or b"\0", np.uint8), memoryview(data)
  names = sorted([*stored, *TEXTS])
  of_record = [UTF8.get(name, name) for name in wanted]
  places = _places(array, begin, end, names=names, wanted=set(of_record))
  flat, start = {}, {}
  for name, in_record in zip(wanted, of_record, strict=True):
    feature, (first, last) = FEATURES[name], places[in_record]
    size = last - first
    if kind_of(feature) == "int64_list":
      values, size = _integers(array, first, size, name)
      flat[name] = values.astype(feature.dtype)
      fits = flat[name] == values
      if not fits.all():
        record = np.repeat(np.arange(len(size)), size)[~fits][0]
        raise InvalidExampleError(
          int(record), f"{name} has a value out of range"
        )
    else:
      whole = size % feature.dtype.itemsize == 0
      _reject(~whole, f"{name} has a part of a value")
      parts = zip(first.tolist(), last.tolist())
      joined = b"".join([view[a:b] for a, b in parts])
      flat[name] = np.frombuffer(joined, feature.dtype.newbyteorder("<"))
      size = size // feature.dtype.itemsize
    if not feature.axes:
      _reject(size != 1, f"{name} must have one value")
    start[name] = np.append(0, np.cumsum(size))
  return Rows(flat, start)


def _places(
  array: np.ndarray,
  begin: np.ndarray,
  end: np.ndarray,
  *,
  names: Sequence[str],
  wanted: Collection[str],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Returns the byte ranges of feature values in every record, by feature.

  Args:
    array: Bytes that hold the records.
    begin, end: Byte offsets of each payload's begin and end.
    names: Names of all features and texts of a record, in their order.
    wanted: Names of the features whose ranges are returned.
  """
  # Offsets in a corrupt record may be arbitrary. They are clipped, so that all
  # reads stay inside the array; the comparison of tags and ends rejects them.
  found = {}
  position, stop = _field(array, begin, _FIELD, "Features")
  _reject(stop != end, "it has more than one field")
  for name in names:
    key = np.frombuffer(
      bytes([_FIELD, len(name)]) + name.encode("ascii"), np.uint8
    )
    position, following = _field(array, position, _FIELD, name)
    _reject(following > end, f"{name} is cut off")
    if name in wanted:
      where = np.clip(position, 0, max(len(array) - len(key), 0))
      different = (runs(array, where, len(key)) != key).any(1)
      different |= position + len(key) > following
      _reject(different, f"it has no {name} where one is expected")
      text = name in TEXTS
      kind = "bytes_list" if text else kind_of(FEATURES[name])
      first, last = _field(array, position + len(key), _VALUE, name)
      first, last_of_list = _field(array, first, _LISTS[kind], name)
      _reject(
        (last != following) | (last_of_list != following),
        f"{name} has values of another type",
      )
      # An empty list of numbers has no field.
      some = np.flatnonzero(first < following)
      _reject(
        (first >= following) & (kind == "bytes_list"), f"{name} has no value"
      )
      last = first.copy()
      first[some], last[some] = _field(
        array, first[some], _FIELD, name, records=some
      )
      _reject(last != following, f"{name} is not packed")
      found[name] = first, last
    position = following
  _reject(position != end, "it has more features")
  return found


def _field(
  array: np.ndarray,
  position: np.ndarray,
  tag: int,
  name: str,
  records: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the byte range of a length-delimited protobuf field in each record.

  Args:
    array: Bytes that hold the records.
    position: Byte offset of the field in each record.
    tag: Expected tag of the field.
    name: Name of the field or feature, for messages.
    records: Indices of the records; None for all.

  Returns: byte offsets of the begin and end of the field's content.
  """
  last = len(array) - 1
  different = array[np.minimum(position, last)] != tag
  if different.any():
    first = int(np.argmax(different))
    record = first if records is None else int(records[first])
    raise InvalidExampleError(record, f"{name} is not where it is expected")
  position = position + 1
  byte = array[np.minimum(position, last)]
  length, position = (byte & 127).astype(np.int64), position + 1
  more, shift = np.flatnonzero(byte > 127), 7
  while len(more):
    if shift > 28:
      record = int((more if records is None else records[more])[0])
      raise InvalidExampleError(record, f"{name} has a length of over 35 bits")
    byte = array[np.minimum(position[more], last)]
    length[more] |= (byte & 127).astype(np.int64) << shift
    position[more] += 1
    more, shift = more[byte > 127], shift + 7
  return position, position + length


def _integers(
  array: np.ndarray, first: np.ndarray, size: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the decoded integers of a feature that is stored as packed varints.

  Args:
    array: Bytes that hold the records.
    first: Byte offset of each record's list of varints.
    size: Size of each list in bytes.
    name: Name of the feature.

  Returns: int64 values of all records, and the number of values in each record.
  """
  packed = _joined(array, first, size)
  is_last = packed < 128
  stop = np.cumsum(size)
  if len(packed):
    cut = np.zeros(len(size), bool)
    some = size > 0
    cut[some] = ~is_last[stop[some] - 1]
    _reject(cut, f"{name} ends within a number")
  last = np.flatnonzero(is_last)  # position of the last byte of each value
  count = np.diff(np.searchsorted(last, stop), prepend=0)
  # Nearly all values have one or two bytes. Index -1 makes the very last byte
  # the one before the first value; like the byte before any other value, it
  # ends one.
  value = packed[last].astype(np.int64)
  before = packed[last - 1]
  longer = np.flatnonzero(before > 127)
  value[longer] = value[longer] << 7 | before[longer] & 127
  longer = longer[packed[last[longer] - 2] > 127]
  if len(longer):
    begin = np.where(longer > 0, last[longer - 1] + 1, 0)
    length = last[longer] + 1 - begin
    if (length > 10).any():
      record = np.repeat(np.arange(len(count)), count)[longer[length > 10][0]]
      raise InvalidExampleError(
        int(record), f"{name} has a number of over 64 bits"
      )
    total = np.zeros(len(longer), np.int64)
    for k in range(int(length.max())):
      has = length > k
      byte = packed[begin[has] + k] & 127
      total[has] |= byte.astype(np.int64) << 7 * k
    value[longer] = total
  return value, count


def _joined(
  array: np.ndarray, first: np.ndarray, size: np.ndarray
) -> np.ndarray:
  """Returns the concatenated bytes of one list of values from each record."""
  longest = int(size.max(initial=0))
  if longest * len(size) > 8 * size.sum() + 4096:  # few long lists
    shift = np.repeat(first - np.cumsum(size) + size, size)
    return array[shift + np.arange(len(shift))]
  # Four times as fast.
  return runs(array, first, longest)[np.arange(longest) < size[:, None]]


def _reject(bad: np.ndarray, why: str) -> None:
  """Raises InvalidExampleError for the first bad record, if there is one."""
  if bad.any():
    raise InvalidExampleError(int(np.argmax(bad)), why)
