"""Records that are decoded without protobuf: its values, or one error."""

import struct

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from tensorflow_datasets.proto import tf_example_pb2
from toy_folders import example

from jaxsyn.data import schema
from jaxsyn.data.schema import FEATURES, TEXTS, UTF8
from jaxsyn.data.store.decoding import (
  InvalidExampleError,
  check_frames,
  decode,
  kind_of,
)
from jaxsyn.data.store.encoding import serializer
from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import masked_crc

STORED = tuple(schema.features(("source",)))
EXAMPLES = [example(i) for i in range(11)]
LINES = ["", "a", "é" * 70, "自" * 6000, "\u200b\r", "x" * 127, "\0"]
WANTED = (*STORED, *UTF8)


def payloads_of(examples):
  texts = {
    name: [LINES[(i + k) % len(LINES)] for i in range(len(examples))]
    for k, name in enumerate(TEXTS)
  }
  return serializer(STORED)(Rows.of(examples, STORED), texts)


PAYLOADS = payloads_of(EXAMPLES)


def decoded(payloads, wanted=WANTED, stored=STORED, *, between=b""):
  """Decodes payloads that are in one array, with bytes between them."""
  size = np.array([*map(len, payloads)], np.int64)
  begin = np.cumsum(size + len(between)) - size
  data = b"".join(between + payload for payload in payloads) + between
  return decode(data, begin, begin + size, stored=stored, wanted=wanted)


def by_protobuf(payload, wanted=WANTED):
  """Decodes a payload with protobuf.

  Raises:
    DecodeError: It is none, or a feature is missing or has values of another kind.
  """
  proto = tf_example_pb2.Example.FromString(payload)
  found = {}
  for name in wanted:
    in_record = UTF8.get(name, name)
    kind = "bytes_list" if name in UTF8 else kind_of(FEATURES[name])
    feature = proto.features.feature
    if (
      in_record not in feature or feature[in_record].WhichOneof("kind") != kind
    ):
      raise DecodeError(in_record)
    values = getattr(feature[in_record], kind).value
    if kind == "bytes_list":
      (data,) = values
      found[name] = np.frombuffer(data, FEATURES[name].dtype)
    elif kind == "float_list":
      found[name] = np.array(values, FEATURES[name].dtype)
    else:
      found[name] = np.array(values, np.int64)
  return found


def same_as_protobuf(rows, payloads, wanted=WANTED):
  for i, payload in enumerate(payloads):
    for name, values in by_protobuf(payload, wanted).items():
      own = rows.flat[name][slice(*rows.start[name][i : i + 2])]
      assert own.dtype == FEATURES[name].dtype
      np.testing.assert_array_equal(own, values)


@pytest.mark.parametrize("between", [b"\n", b"\x80" * 16, b"\xff" * 100])
def test_values_do_not_depend_on_the_bytes_between_records(between):
  rows = decoded(PAYLOADS, between=between)
  assert tuple(rows.flat) == WANTED
  same_as_protobuf(rows, PAYLOADS)


@pytest.mark.parametrize("name", WANTED)
def test_decodes_one_feature_without_the_others(name):
  rows = decoded(PAYLOADS, [name])
  assert tuple(rows.flat) == (name,)
  same_as_protobuf(rows, PAYLOADS, [name])


def test_decodes_no_records():
  rows = decoded([])
  assert len(rows) == 0
  for name in WANTED:
    assert rows.flat[name].dtype == FEATURES[name].dtype
    assert rows.start[name].tolist() == [0]


def test_decodes_thousands_of_records():
  rng = np.random.default_rng(0)
  payloads = [PAYLOADS[i] for i in rng.integers(11, size=5000)]
  rows = decoded(payloads)
  every = [decoded([payload]) for payload in PAYLOADS]
  number = {payload: i for i, payload in enumerate(PAYLOADS)}
  expected = Rows.joined([every[number[payload]] for payload in payloads])
  for name in WANTED:
    np.testing.assert_array_equal(rows.flat[name], expected.flat[name])
    np.testing.assert_array_equal(rows.start[name], expected.start[name])


def with_lists(**values):
  """Example 5 as our serializer writes it, some features with other values."""
  wide = {
    name: np.array(own, (FEATURES[name].dtype.kind == "f" and "f4") or "i8")
    for name, own in values.items()
  }
  rows = Rows.of([EXAMPLES[5]], STORED)
  flat = {**rows.flat, **wide}
  start = rows.start | {
    name: np.array([0, own.size]) for name, own in wide.items()
  }
  flat |= {name: np.ravel(own) for name, own in wide.items()}
  (payload,) = serializer(STORED)(Rows(flat, start), dict.fromkeys(TEXTS, "a"))
  return payload


@pytest.mark.parametrize(
  ("name", "value"),
  [
    *(
      ("source_id", value) for value in (2**31, -(2**31) - 1, 2**40, 2**63 - 1)
    ),
    *(("source_parsed", value) for value in (256, -1)),
  ],
)
def test_rejects_numbers_that_do_not_fit_their_type(name, value):
  values = [1, value, 3] if name == "source_id" else value
  payload = with_lists(**{name: values})
  with pytest.raises(
    InvalidExampleError, match=rf"{name} .*out of range"
  ) as error:
    decoded([*PAYLOADS[:5], payload, PAYLOADS[6]])
  assert error.value.number == 5
  decoded([payload], ["target_id"])  # it is not read


@pytest.mark.parametrize(
  "value", [2**31 - 1, -(2**31), -1, 0, 127, 128, 16_383, 16_384]
)
def test_accepts_all_numbers_that_int32_holds(value):
  rows = decoded([with_lists(source_id=[value] * 3, line=value)])
  assert rows.flat["source_id"].tolist() == [value] * 3
  assert rows.flat["line"].tolist() == [value]


@pytest.mark.parametrize("values", [[], [1, 2]])
@pytest.mark.parametrize("name", ["line", "source_parsed"])
def test_rejects_several_or_no_values_of_a_number(name, values):
  with pytest.raises(InvalidExampleError, match=rf"{name} must have one value"):
    decoded([with_lists(**{name: values})])


def field(tag, content):
  size, length = len(content), bytearray()
  while size > 127:
    length.append(size & 127 | 128)
    size >>= 7
  return bytes([tag, *length, size]) + content


def entry(name, values, key=0x0A):
  return field(0x0A, field(key, name.encode()) + field(0x12, values))


def by_hand(change, **wrapping):
  """Example 5 whose entries, name -> serialized values, a function changed."""
  proto = tf_example_pb2.Example.FromString(PAYLOADS[5])
  entries = {
    name: feature.SerializeToString(deterministic=True)
    for name, feature in sorted(proto.features.feature.items())
  }
  assert record(entries) == PAYLOADS[5]
  return record(change(dict(entries)), **wrapping)


def record(entries, before=b"", after=b""):
  if isinstance(entries, dict):
    entries = entries.items()
  joined = b"".join(entry(name, values) for name, values in entries)
  return before + field(0x0A, joined) + after


def without(name):
  return lambda entries: {k: v for k, v in entries.items() if k != name}


def replaced(name, values):
  return lambda entries: entries | {name: values}


def in_other_order(entries):
  return list(entries.items())[::-1]


def twice(entries):
  return [*entries.items(), *list(entries.items())[-1:]]


# Serialized lists: of int64 0x1A, of floats 0x12, of bytes 0x0A.
LAYOUTS = [
  (without("source_head"), "it has no source_head where one is expected"),
  (without("line"), "it has no line where one is expected"),
  (without("target_text"), "target_text is not where|cut off|no target_text"),
  (without("source_text"), "it has no source_text where one is expected"),
  (lambda entries: {}, "line is not where it is expected|cut off|no line"),
  (in_other_order, "it has no line where one is expected"),
  (twice, "it has more features"),
  (lambda entries: {**entries, "zz": b""}, "it has more features"),
  (lambda entries: {"aa": b"", **entries}, "it has no line where"),
  (replaced("source_head", field(0x12, b"")), "source_head is not where it is"),
  (replaced("source_head", b""), "source_head"),
  (replaced("source_parent_mid", field(0x1A, b"")), "source_parent_mid is not"),
  (
    replaced("source_id", field(0x1A, b"\x08\x0a\x08\x03")),  # one by one
    "source_id is not where it is expected",
  ),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x0a") * 2)),
    "source_id is not packed",
  ),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x0a")) * 2),
    "source_id has values of another type",
  ),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x0a\x83"))),
    "source_id ends within a number",
  ),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x83" * 10 + b"\x00"))),
    "source_id has a number of over 64 bits",
  ),
  (
    replaced("source_parent_mid", field(0x12, field(0x0A, bytes(7)))),
    "source_parent_mid has a part of a value",
  ),
  (
    replaced("source_tree_distance", field(0x0A, b"")),
    "source_tree_distance has no value",
  ),
  (
    replaced("source_tree_distance", field(0x0A, field(0x0A, b"1") * 2)),
    "source_tree_distance is not packed",
  ),
  (replaced("source_text", field(0x0A, b"")), "source_text has no value"),
  (
    replaced("source_text", field(0x0A, field(0x0A, b"a") * 2)),
    "source_text is not packed",
  ),
]


@pytest.mark.parametrize(("change", "message"), LAYOUTS)
def test_rejects_records_in_another_layout(change, message):
  payload = by_hand(change)
  with pytest.raises(InvalidExampleError, match=message) as error:
    decoded([*PAYLOADS[:5], payload, *PAYLOADS[6:]])
  assert error.value.number == 5


@pytest.mark.parametrize(
  ("wrapping", "message"),
  [
    ({"after": b"\x0a\x00"}, "it has more than one field"),
    ({"after": b"\x00"}, "it has more than one field"),
    ({"before": b"\x0a\x00"}, "it has more than one field"),
    ({"before": b"\x12\x00"}, "Features is not where it is expected"),
  ],
)
def test_rejects_records_with_more_fields(wrapping, message):
  payload = by_hand(dict, **wrapping)
  with pytest.raises(InvalidExampleError, match=message) as error:
    decoded([PAYLOADS[0], payload])
  assert error.value.number == 1


@pytest.mark.parametrize("payload", [b"", b"\x0a", b"\x0a\x00", b"\xff" * 40])
@pytest.mark.parametrize("others", [[], PAYLOADS[:2]])
def test_rejects_short_records(payload, others):
  with pytest.raises(InvalidExampleError) as error:
    decoded([*others, payload])
  assert error.value.number == len(others)


@pytest.mark.parametrize("name", ["source_head", "target_id"])
def test_names_the_record_whose_list_has_a_length_of_many_bytes(name):
  """Records before it have an empty list, which has no length."""
  empty = replaced(name, field(0x1A, b""))
  broken = replaced(name, field(0x1A, b"\x0a" + b"\xff" * 6))
  payloads = [by_hand(empty), by_hand(empty), by_hand(broken)]
  with pytest.raises(InvalidExampleError, match=r"over 35 bits") as error:
    decoded(payloads)
  assert error.value.number == 2


def test_wrong_lengths_do_not_leave_the_array():
  """Every length of a record, in turn, is as large as it can be."""
  payload = PAYLOADS[4]
  for place in range(len(payload)):
    for lie in (b"\x7f", b"\xff\x7f", b"\xff\xff\xff\xff\x7f"):
      broken = payload[:place] + lie + payload[place + len(lie) :]
      for batch in ([broken], [PAYLOADS[0], broken, PAYLOADS[1]]):
        try:
          rows = decoded(batch)
        except InvalidExampleError as error:
          assert error.number == batch.index(broken)
        else:
          same_as_protobuf(rows, batch)
    if place > 3000:
      break


def harmed(payload, rng):
  """A payload with one or two changes of its bytes."""
  data = bytearray(payload)
  for _ in range(int(rng.integers(1, 3))):
    place = int(rng.integers(len(data))) if data else 0
    kind = int(rng.integers(7))
    if kind == 0 and data:
      data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1 and data:
      data[place] = int(rng.integers(256))
    elif kind == 2:
      del data[place:]
    elif kind == 3:
      data += rng.bytes(int(rng.integers(1, 20)))
    elif kind == 4 and data:
      other = int(rng.integers(len(data)))
      data[place], data[other] = data[other], data[place]
    elif kind == 5:
      data[place:place] = rng.bytes(int(rng.integers(1, 4)))
    else:
      del data[place : place + int(rng.integers(1, 4))]
  return bytes(data)


SHORT = serializer(STORED)(
  Rows.of(EXAMPLES, STORED),
  {name: ["ab"] * len(EXAMPLES) for name in TEXTS},
)


@pytest.mark.parametrize("begin", range(0, 6000, 1000))
def test_mutants_give_the_values_of_protobuf_or_one_error(begin):
  """Their checksums would be right: the frame is not looked at here."""
  accepted = 0
  for seed in range(begin, begin + 1000):
    rng = np.random.default_rng(seed)
    i = int(rng.integers(len(SHORT)))
    batch = SHORT[: int(rng.integers(3, 11))]
    i %= len(batch)
    batch[i] = harmed(batch[i], rng)
    wanted = WANTED if seed % 2 else tuple(rng.permutation(WANTED)[:3])
    try:
      rows = decoded(batch, wanted, between=b"\n" * int(rng.integers(20)))
    except InvalidExampleError as error:
      assert error.number == i, seed
      assert str(error) == f"record {i}: {error.why}"
      continue
    accepted += 1
    try:
      same_as_protobuf(rows, batch, wanted)
    except DecodeError:
      # What is not read may be anything.
      assert wanted != WANTED, seed
  assert accepted > 20


def frames(payloads):
  """TFRecord frames; first byte, payload size and checksum of each."""
  data, offset = b"", []
  for payload in payloads:
    offset.append(len(data))
    length = struct.pack("<Q", len(payload))
    data += length + struct.pack("<I", masked_crc(length))
    data += payload + struct.pack("<I", masked_crc(payload))
  sizes = np.array([*map(len, payloads)], np.int64)
  crc = np.array([*map(masked_crc, payloads)], np.uint32)
  return data, np.array(offset, np.int64), sizes, crc


def test_accepts_intact_frames():
  check_frames(*frames(PAYLOADS))
  check_frames(*frames([b"", b"a", bytes(70_000)]))
  check_frames(*frames([]))


def test_names_the_record_with_any_flipped_bit():
  """Except in the checksum of the length, as the length itself is compared."""
  data, offset, size, crc = frames(SHORT[:3])
  end = offset + size + 16
  for place in range(len(data)):
    record = int(np.searchsorted(end, place, "right"))
    in_frame = place - int(offset[record])
    for bit in range(8):
      broken = bytearray(data)
      broken[place] ^= 1 << bit
      if 8 <= in_frame < 12:
        check_frames(bytes(broken), offset, size, crc)
        continue
      with pytest.raises(InvalidExampleError) as error:
        check_frames(bytes(broken), offset, size, crc)
      assert error.value.number == record
      expected = "its size differs" if in_frame < 8 else "its checksum differs"
      assert error.value.why.startswith(expected)


def test_names_the_first_record_that_differs_from_the_index():
  """In size, or in content of the same size."""
  data, offset, size, crc = frames(SHORT[:3])
  other = bytes([SHORT[1][0] ^ 1]) + SHORT[1][1:]
  foreign, *_ = frames([SHORT[0], other, SHORT[2]])
  with pytest.raises(
    InvalidExampleError, match=r"record 1: its checksum differs from the index"
  ):
    check_frames(foreign, offset, size, crc)
  size[1:] += [1, -1]
  with pytest.raises(
    InvalidExampleError, match=r"record 1: its size differs from the index"
  ):
    check_frames(data, offset, size, crc)
