"""Examples in bytes: those of protobuf, for values that hurt."""

import numpy as np
import pytest
from tensorflow_datasets.proto import tf_example_pb2

from jaxsyn.data import schema
from jaxsyn.data.store import decoding, encoding
from jaxsyn.data.store.rows import Rows

# Records hold no others; and of names that begin alike protobuf has its own order.
FEATURES = {n: f for n, f in schema.FEATURES.items() if n not in schema.SPELT}
HARD = [0, 1, 127, 128, 300, 16_383, 16_384, 2**31 - 1, -1, -2, -(2**31)]


def example(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
  """Of arbitrary values, `size` of each that has axes."""
  made = {}
  for name, feature in FEATURES.items():
    length = {"": 1, "WW": size * size}.get(feature.axes, size)
    if feature.dtype.kind == "f":
      values = rng.normal(size=length)
    elif feature.dtype == np.uint8:
      values = rng.integers(256, size=length)
    else:
      values = rng.choice(HARD, size=length)
    array = values.astype(feature.dtype)
    made[name] = array if feature.axes else array[0]
  return made


def by_protobuf(one, texts) -> bytes:
  proto = tf_example_pb2.Example()
  for name, text in texts.items():
    proto.features.feature[name].bytes_list.value.append(text.encode())
  for name, array in one.items():
    kind = decoding.kind_of(schema.FEATURES[name])
    expected = getattr(proto.features.feature[name], kind)
    expected.SetInParent()  # where there are no values too
    expected.value.extend(
      [array.tobytes()] if kind == "bytes_list" else array.ravel().tolist()
    )
  return proto.SerializeToString(deterministic=True)


TEXTS = ["", "a", "é" * 70, "自" * 6000, "\u200b\r", "x" * 127, "\0"]


@pytest.mark.parametrize("sizes", [[0], [3], [0, 1, 2, 17, 60, 0, 200]])
def test_bytes_are_those_of_protobuf(sizes):
  rng = np.random.default_rng(0)
  examples = [example(rng, size) for size in sizes]
  texts = {
    name: [str(rng.choice(TEXTS)) for _ in examples] for name in schema.TEXTS
  }
  rows = Rows.of(examples, FEATURES)
  payloads = encoding.serializer(FEATURES)(rows, texts)
  for i, (one, payload) in enumerate(zip(examples, payloads, strict=True)):
    expected = {name: lines[i] for name, lines in texts.items()}
    assert payload == by_protobuf(one, expected)
  assert decoding.texts_of(payloads) == texts
  again = decoding.decoder(FEATURES)(payloads)
  for name, values in rows.flat.items():
    np.testing.assert_array_equal(again.flat[name], values)
    np.testing.assert_array_equal(again.start[name], rows.start[name])


def test_varints():
  # protobuf.dev/programming-guides/encoding: 150 is 96 01, and -2 ten bytes.
  data, end = encoding.varints(np.array([150, -2, 0]))
  assert data == b"\x96\x01" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00"
  assert end.tolist() == [2, 12, 13]


def test_a_record_without_its_texts_is_none():
  one = example(np.random.default_rng(0), 2)
  decode = decoding.decoder(FEATURES)
  right = dict.fromkeys(schema.TEXTS, "a")
  decode([by_protobuf(one, right)])
  with pytest.raises(
    decoding.InvalidExampleError, match=r"record 1: its features"
  ):
    decode([by_protobuf(one, right), by_protobuf(one, {})])
