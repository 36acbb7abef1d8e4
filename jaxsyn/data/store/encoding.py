"""Encoder of many examples at a time as serialized tf.train.Examples.

The features of each record are sorted by name, and the bytes are those that
protobuf writes for this order. `jaxsyn.data.store.decoding` relies on this
layout. All values of a feature are encoded together, in NumPy.

Source: protobuf.dev/programming-guides/encoding; example.proto and
feature.proto of tensorflow/core/example.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from jaxsyn.data.schema import FEATURES, TEXTS
from jaxsyn.data.store.decoding import kind_of
from jaxsyn.data.store.rows import Rows

# Field numbers of the list types in a tf.train.Feature.
_FIELDS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}

Serialize = Callable[[Rows, Mapping[str, Sequence[str]]], list[bytes]]


def serializer(names: Iterable[str]) -> Serialize:
  """Returns a function that serializes examples as tf.train.Examples.

  The function takes `Rows` and the texts of each example, by the names in
  `jaxsyn.data.schema.TEXTS`. Equal examples always give equal bytes. They are
  the bytes of ExampleSerializer in TFDS, except for the order of features,
  which is random in TFDS.

  Args:
    names: Names of the features in the rows.
  """
  stored_names = tuple(names)

  def serialize(rows: Rows, texts: Mapping[str, Sequence[str]]) -> list[bytes]:
    entries = {name: _values(rows, name) for name in stored_names}
    for name in TEXTS:
      entries[name] = [line.encode("utf-8") for line in texts[name]]
    parts = []
    for name in sorted(entries):
      kind = "bytes_list" if name in TEXTS else kind_of(FEATURES[name])
      parts.append([_before(name, kind, len(value)) for value in entries[name]])
      parts.append(entries[name])
    payloads = map(b"".join, zip(*parts, strict=True))
    return [_FEATURES + _varint(len(payload)) + payload for payload in payloads]

  return serialize


def _values(rows: Rows, name: str) -> list[bytes]:
  """Returns the serialized values of a feature for each example."""
  feature, flat, start = FEATURES[name], rows.flat[name], rows.start[name]
  kind = kind_of(feature)
  if kind == "int64_list":
    data, end = varints(flat)
    start = np.append(0, end)[start]
  else:
    data = flat.astype(feature.dtype.newbyteorder("<"), copy=False).tobytes()
    start = start * feature.dtype.itemsize
  ends = start.tolist()
  return [data[a:b] for a, b in itertools.pairwise(ends)]


def varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
  """Returns integers encoded as protobuf varints, with seven bits in a byte.

  Returns: the bytes of all varints, and the end offset of each. Negative
    numbers have ten bytes.
  """
  rest = values.astype(np.int64).view(np.uint64)
  size = np.ones(len(rest), np.int64)
  for bits in range(7, 64, 7):
    longer = rest >> np.uint64(bits) > 0
    if not longer.any():
      break
    size += longer
  end = np.cumsum(size)
  data = np.empty(size.sum(), np.uint8)
  place = end - size
  while len(rest):
    low, rest = rest.astype(np.uint8) & 127, rest >> np.uint64(7)
    more = rest > 0
    data[place] = low | more << 7
    rest, place = rest[more], place[more] + 1
  return data.tobytes(), end


def _tagged(field: int, size: int) -> bytes:
  """Returns the tag and length bytes of a length-delimited protobuf field."""
  return bytes([field << 3 | 2]) + _varint(size)


def _varint(value: int) -> bytes:
  data = bytearray()
  while value > 127:
    data.append(value & 127 | 128)
    value >>= 7
  data.append(value)
  return bytes(data)


@functools.lru_cache(1 << 16)
def _before(name: str, kind: str, size: int) -> bytes:
  """Returns the bytes before a feature's values in a tf.train.Example.

  Args:
    name: Name of the feature.
    kind: List type of its values.
    size: Size of the values in bytes.
  """
  # A list of numbers is packed; an empty one has no field.
  packed = _tagged(1, size) if size or kind == "bytes_list" else b""
  prefix = _tagged(_FIELDS[kind], len(packed) + size) + packed
  key = _tagged(1, len(name)) + name.encode("ascii")
  value = _tagged(2, len(prefix) + size) + prefix
  return _tagged(1, len(key) + len(value) + size) + key + value


_FEATURES = bytes([1 << 3 | 2])  # the one field of an Example
