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

# Tags of length-delimited fields 1 (Features, entry, key, values) and 2 (value).
_FIELD, _VALUE = 0x0A, 0x12
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


def reject(bad: np.ndarray, why: str) -> None:
  """Raises InvalidExampleError for the first bad record, if there is one."""
  if bad.any():
    raise InvalidExampleError(int(np.argmax(bad)), why)


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
  reject(different, "its size differs from the index")
  begin, end = offset + HEADER, offset + HEADER + size
  value = google_crc32c.value
  found = np.array(
    [value(data[a:b]) for a, b in zip(begin.tolist(), end.tolist())], np.uint64
  )
  # The mask of TFRecord; see `tfrecord.masked_crc`.
  rotated = found >> np.uint64(15) | found << np.uint64(17)
  masked = (rotated + np.uint64(0xA282EAD8)) & np.uint64(0xFFFFFFFF)
  stored = array[end[:, None] + np.arange(FOOTER)].copy().view("<u4")[:, 0]
  reject(stored != masked, "its checksum differs")
  reject(masked != crc, "its checksum differs from the index")


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
  in_record = {name: UTF8.get(name, name) for name in wanted}
  # All ranges before all values: in turns, the records leave the CPU cache.
  ranges = _value_ranges(
    array, begin, end, [*stored, *TEXTS], set(in_record.values())
  )
  flat, start = {}, {}
  for name in wanted:
    feature, (first, last) = FEATURES[name], ranges[in_record[name]]
    size = last - first
    if kind_of(feature) == "int64_list":
      values, size = _integers(_joined(array, first, size), size, name)
      flat[name] = values.astype(feature.dtype)
      fits = flat[name] == values
      if not fits.all():
        wrong = int(np.argmin(fits))
        record = int(np.searchsorted(np.cumsum(size), wrong, "right"))
        raise InvalidExampleError(record, f"{name} has a value out of range")
    else:
      itemsize = feature.dtype.itemsize
      reject(size % itemsize > 0, f"{name} has a part of a value")
      parts = zip(first.tolist(), last.tolist())
      joined = b"".join([view[a:b] for a, b in parts])
      flat[name] = np.frombuffer(joined, feature.dtype.newbyteorder("<"))
      size = size // itemsize
    if not feature.axes:
      reject(size != 1, f"{name} must have one value")
    start[name] = np.append(0, np.cumsum(size))
  return Rows(flat, start)


def _value_ranges(
  array: np.ndarray,
  begin: np.ndarray,
  end: np.ndarray,
  names: Sequence[str],
  wanted: Collection[str],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Returns the byte range of each wanted feature's values in every record.

  Args:
    array: Bytes that hold the records.
    begin, end: Byte offsets of each payload's begin and end.
    names: Names of all features and texts of a record.
    wanted: Names of the features and texts whose ranges are returned.
  """
  # Offsets in a corrupt record may be arbitrary. They are clipped, so that all
  # reads stay inside the array; the comparison of tags and ends rejects them.
  position, stop = _field(array, begin, _FIELD, "Features")
  reject(stop != end, "it has more than one field")
  ranges = {}
  for name in sorted(names):
    position, following = _field(array, position, _FIELD, name)
    reject(following > end, f"{name} is cut off")
    if name in wanted:
      ranges[name] = _values_of(array, position, following, name)
    position = following
  reject(position != end, "it has more features")
  return ranges


def _values_of(
  array: np.ndarray, position: np.ndarray, end: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the byte range of a feature's values in each record.

  Args:
    array: Bytes that hold the records.
    position, end: Byte offsets of the begin and end of the feature's map entry.
    name: Name of the feature or text.
  """
  key = bytes([_FIELD, len(name)]) + name.encode("ascii")
  where = np.clip(position, 0, max(len(array) - len(key), 0))
  found = runs(array, where, len(key))
  different = (found != np.frombuffer(key, np.uint8)).any(1)
  different |= position + len(key) > end
  reject(different, f"it has no {name} where one is expected")
  kind = "bytes_list" if name in TEXTS else kind_of(FEATURES[name])
  first, last = _field(array, position + len(key), _VALUE, name)
  first, last_of_list = _field(array, first, _LISTS[kind], name)
  reject(
    (last != end) | (last_of_list != end), f"{name} has values of another type"
  )
  reject((first >= end) & (kind == "bytes_list"), f"{name} has no value")
  last = first.copy()
  present = np.flatnonzero(first < end)  # an empty list of numbers has no field
  try:
    first[present], last[present] = _field(array, first[present], _FIELD, name)
  except InvalidExampleError as error:
    raise InvalidExampleError(int(present[error.number]), error.why) from None
  reject(last != end, f"{name} is not packed")
  return first, last


def _field(
  array: np.ndarray, position: np.ndarray, tag: int, name: str
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the byte range of a length-delimited protobuf field in each record.

  Args:
    array: Bytes that hold the records.
    position: Byte offset of the field in each record.
    tag: Expected tag of the field.
    name: Name of the field or feature, for messages.

  Returns: byte offsets of the begin and end of the field's content.
  """
  final = len(array) - 1
  different = array[np.minimum(position, final)] != tag
  reject(different, f"{name} is not where it is expected")
  byte = array[np.minimum(position + 1, final)]
  length, begin = (byte & 127).astype(np.int64), position + 2
  more, shift = np.flatnonzero(byte > 127), 7
  while len(more):
    if shift > 28:
      raise InvalidExampleError(
        int(more[0]), f"{name} has a length of over 35 bits"
      )
    byte = array[np.minimum(begin[more], final)]
    length[more] |= (byte & 127).astype(np.int64) << shift
    begin[more] += 1
    more, shift = more[byte > 127], shift + 7
  return begin, begin + length


def _integers(
  packed: np.ndarray, size: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the decoded integers of a feature that is stored as packed varints.

  Args:
    packed: Varints of all records, uint8.
    size: Size of each record's varints in bytes.
    name: Name of the feature.

  Returns: int64 values of all records, and the number of values in each record.
  """
  is_last = packed < 128  # a byte that ends a value
  stop = np.cumsum(size)
  if len(packed):
    is_cut = (size > 0) & ~is_last[np.maximum(stop, 1) - 1]
    reject(is_cut, f"{name} ends within a number")
  last = np.flatnonzero(is_last)
  count = np.diff(np.searchsorted(last, stop), prepend=0)
  value = packed[last].astype(np.int64)
  # Nearly all values have one or two bytes. Longer ones are read backwards. The
  # byte before the first value is the last of all, which also ends a value.
  byte, size_so_far = packed[last - 1], 1
  longer = np.flatnonzero(byte > 127)
  byte = byte[longer]
  while len(longer):
    size_so_far += 1
    if size_so_far > 10:
      record = int(np.searchsorted(stop, last[longer[0]], "right"))
      raise InvalidExampleError(record, f"{name} has a number of over 64 bits")
    value[longer] = value[longer] << 7 | byte & 127
    byte = packed[last[longer] - size_so_far]
    is_longer = byte > 127
    longer, byte = longer[is_longer], byte[is_longer]
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
