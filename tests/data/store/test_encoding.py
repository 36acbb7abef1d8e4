"""Examples in bytes: those of protobuf, for values that hurt."""

import numpy as np
import pytest
from tensorflow_datasets.proto import tf_example_pb2

from jaxsyn.data import schema
from jaxsyn.data.store import decoding, encoding
from jaxsyn.data.store.rows import Rows

# A record has the texts, not their bytes; eigenvectors are in no record.
FEATURES = {
  n: f
  for n, f in schema.FEATURES.items()
  if n not in schema.UTF8 and n not in schema.MADE
}
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
  """The features sorted by name; protobuf sorts names that begin alike otherwise."""
  entries = {}
  for name, text in texts.items():
    entries[name] = tf_example_pb2.Example().features
    entries[name].feature[name].bytes_list.value.append(text.encode())
  for name, array in one.items():
    kind = decoding.kind_of(schema.FEATURES[name])
    entries[name] = tf_example_pb2.Example().features
    expected = getattr(entries[name].feature[name], kind)
    expected.SetInParent()  # where there are no values too
    expected.value.extend(
      [array.tobytes()] if kind == "bytes_list" else array.ravel().tolist()
    )
  data = b"".join(entries[name].SerializeToString() for name in sorted(entries))
  (size, _) = encoding.varints(np.array([len(data)]))
  return b"\x0a" + size + data


def decoded(payloads, wanted):
  size = np.array([*map(len, payloads)])
  end = np.cumsum(size)
  data = b"".join(payloads)
  return decoding.decode(
    data, end - size, end, stored=tuple(FEATURES), wanted=wanted
  )


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
  again = decoded(payloads, (*FEATURES, *schema.UTF8))
  for utf8, name in schema.UTF8.items():
    lines = [bytes(one[utf8]).decode() for one in again.examples()]
    assert lines == texts[name]
  for name, values in rows.flat.items():
    np.testing.assert_array_equal(again.flat[name], values)
    np.testing.assert_array_equal(again.start[name], rows.start[name])


def test_varints():
  # protobuf.dev/programming-guides/encoding: 150 is 96 01, and -2 ten bytes.
  data, end = encoding.varints(np.array([150, -2, 0]))
  assert data == b"\x96\x01" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00"
  assert end.tolist() == [2, 12, 13]


@pytest.mark.parametrize("text", schema.TEXTS)
def test_rejects_a_record_without_its_texts(text):
  one = example(np.random.default_rng(0), 2)
  right = dict.fromkeys(schema.TEXTS, "a")
  wrong = {name: "a" for name in right if name != text}
  whole = by_protobuf(one, right)
  decoded([whole], tuple(FEATURES))
  (utf8,) = (name for name, own in schema.UTF8.items() if own == text)
  with pytest.raises(
    decoding.InvalidExampleError, match=r"record 1: it has no"
  ):
    decoded([whole, by_protobuf(one, wrong)], (*FEATURES, utf8))
