"""Tests encoding of records against protobuf, and errors for corrupt ones."""

import struct

import numpy as np
import pytest
import toy_folders
from google.protobuf.message import DecodeError
from tensorflow_datasets.proto import tf_example_pb2

from jaxsyn.data import schema
from jaxsyn.data.schema import FEATURES, TEXTS, UTF8
from jaxsyn.data.store import records, tfrecord
from jaxsyn.data.store.rows import InvalidExampleError, Rows
from jaxsyn.data.store.tfrecord import check_frames
from jaxsyn.errors import InputError

LISTS = {0x0A: "bytes_list", 0x12: "float_list", 0x1A: "int64_list"}
STORED = tuple(schema.features({"sides": ["source"]}))
WANTED = (*STORED, *UTF8)
# A record has the texts, not their bytes; eigenvectors are in no record.
ALL = tuple(
  n for n in FEATURES if n not in UTF8 and n not in schema.COMPUTED_FROM
)
HARD = [0, 1, 127, 128, 300, 16_383, 16_384, 2**31 - 1, -1, -2, -(2**31)]
LINES = ["", "a", "é" * 70, "自" * 6000, "\u200b\r", "x" * 127, "\0"]
EXAMPLES = [toy_folders.example(i) for i in range(11)]


def payloads_of(examples, lines=LINES):
  texts = {
    name: [lines[(i + k) % len(lines)] for i in range(len(examples))]
    for k, name in enumerate(TEXTS)
  }
  return records.encode(Rows.of(examples, STORED), texts)


PAYLOADS = payloads_of(EXAMPLES)
SHORT = payloads_of(EXAMPLES, ["ab"])


def decoded(payloads, wanted=WANTED, stored=STORED, *, between=b""):
  """Decodes payloads that are in one array, with bytes between them."""
  size = np.array([len(payload) for payload in payloads], np.int64)
  begin = np.cumsum(size + len(between)) - size
  data = b"".join(between + payload for payload in payloads) + between
  return records.decode(data, begin, begin + size, stored=stored, wanted=wanted)


def same_as_protobuf(rows, payloads, wanted=WANTED):
  """Asserts that decoded features have the values that protobuf reads.

  Raises:
    DecodeError: A payload is invalid, or a feature missing or of another kind.
  """
  for i, payload in enumerate(payloads):
    proto = tf_example_pb2.Example.FromString(payload)
    for name in wanted:
      feature = proto.features.feature[UTF8.get(name, name)]
      kind = LISTS[records.kind_of(name)]
      if feature.WhichOneof("kind") != kind:
        raise DecodeError(name)
      values = getattr(feature, kind).value
      expected = (
        np.frombuffer(values[0], FEATURES[name].dtype)
        if kind == "bytes_list"
        else np.array(values, np.float32 if kind == "float_list" else np.int64)
      )
      found = rows.flat[name][slice(*rows.start[name][i : i + 2])]
      assert found.dtype == FEATURES[name].dtype
      np.testing.assert_array_equal(found, expected)


def arbitrary_example(rng, size):
  made = {}
  for name in ALL:
    dtype, axes = FEATURES[name].dtype, FEATURES[name].axes
    length = {"": 1, "WW": size * size}.get(axes, size)
    values = rng.choice(HARD, size=length)
    if dtype.kind == "f":
      values = rng.normal(size=length)
    elif dtype == np.uint8:
      values = rng.integers(256, size=length)
    made[name] = values.astype(dtype).reshape(-1 if axes else ())
  return made


def by_protobuf(example, texts):
  """One example serialized by protobuf, with the features sorted by name."""
  entries = {}
  for name in (*example, *texts):
    proto = entries[name] = tf_example_pb2.Example().features
    values = getattr(proto.feature[name], LISTS[records.kind_of(name)])
    values.SetInParent()  # also if there are no values
    if name in texts:
      values.value.append(texts[name].encode())
    elif FEATURES[name].axes == "WW":
      values.value.append(example[name].tobytes())
    else:
      values.value.extend(example[name].ravel().tolist())
  joined = b"".join(entries[n].SerializeToString() for n in sorted(entries))
  return field(0x0A, joined)


@pytest.mark.parametrize("sizes", [[0], [0, 1, 2, 17, 60, 0, 200]])
def test_bytes_are_those_of_protobuf(sizes):
  rng = np.random.default_rng(0)
  examples = [arbitrary_example(rng, size) for size in sizes]
  texts = {name: [str(rng.choice(LINES)) for _ in sizes] for name in TEXTS}
  rows = Rows.of(examples, ALL)
  payloads = records.encode(rows, texts)
  for i, (example, payload) in enumerate(zip(examples, payloads, strict=True)):
    expected = {name: lines[i] for name, lines in texts.items()}
    assert payload == by_protobuf(example, expected)
  again = decoded(payloads, (*ALL, *UTF8), ALL)
  for utf8, name in UTF8.items():
    lines = [bytes(one[utf8]).decode() for one in again.examples()]
    assert lines == texts[name]
  for name, values in rows.flat.items():
    np.testing.assert_array_equal(again.flat[name], values)
    np.testing.assert_array_equal(again.start[name], rows.start[name])


@pytest.mark.parametrize("between", [b"", b"\x80" * 16, b"\xff" * 100])
def test_values_do_not_depend_on_the_bytes_between_records(between):
  rows = decoded(PAYLOADS, between=between)
  assert tuple(rows.flat) == WANTED
  same_as_protobuf(rows, PAYLOADS)
  for name in WANTED:
    rows = decoded(PAYLOADS, [name], between=between)
    assert tuple(rows.flat) == (name,)
    same_as_protobuf(rows, PAYLOADS, [name])
    none = decoded([], [name], between=between)
    assert len(none) == 0 and none.flat[name].dtype == FEATURES[name].dtype


@pytest.mark.parametrize(
  ("name", "values", "message"),
  [
    ("source_id", [1, 2**31, 3], "out of range"),
    ("source_id", [1, -(2**31) - 1, 3], "out of range"),
    ("source_id", [1, 2**63 - 1, 3], "out of range"),
    ("source_parsed", 256, "out of range"),
    ("source_parsed", -1, "out of range"),
    ("source_parsed", [], "must have one value"),
    ("line", [1, 2], "must have one value"),
  ],
)
def test_rejects_values_that_do_not_fit(name, values, message):
  rows = Rows.of([EXAMPLES[5]], STORED)
  array = np.ravel(np.array(values, np.int64))
  flat = {**rows.flat, name: array}
  start = {**rows.start, name: np.array([0, array.size])}
  (payload,) = records.encode(Rows(flat, start), dict.fromkeys(TEXTS, "a"))
  with pytest.raises(InvalidExampleError, match=f"{name}.*{message}") as error:
    decoded([*PAYLOADS[:5], payload, PAYLOADS[6]])
  assert error.value.index == 5
  decoded([payload], ["target_id"])  # the wrong feature is not read


def field(tag, content):
  size, _ = records.varints(np.array([len(content)]))
  return bytes([tag]) + size + content


def by_hand(change, before=b"", after=b""):
  """Returns example 5 after a change of its entries, name -> serialized values."""
  proto = tf_example_pb2.Example.FromString(PAYLOADS[5])
  features = sorted(proto.features.feature.items())
  entries = [(k, v.SerializeToString(deterministic=True)) for k, v in features]
  joined = b"".join(
    field(0x0A, field(0x0A, name.encode()) + field(0x12, values))
    for name, values in change(entries)
  )
  return before + field(0x0A, joined) + after


def without(name):
  return by_hand(lambda entries: [one for one in entries if one[0] != name])


def replaced(name, values):
  """Example 5 with other serialized values of a feature."""
  return by_hand(lambda entries: {**dict(entries), name: values}.items())


# Lists of int64 have the tag 0x1A, of floats 0x12, of bytes 0x0A.
OTHER_LAYOUTS = [
  (without("source_head"), "source_head is missing"),
  (without("target_text"), "target_text is missing"),
  (by_hand(lambda entries: []), "line is missing"),
  (by_hand(lambda entries: entries[::-1]), "line is missing"),
  (by_hand(lambda entries: [*entries, entries[-1]]), "it has more features"),
  (by_hand(lambda entries: [("aa", b""), *entries]), "line is missing"),
  (replaced("source_head", field(0x12, b"")), "source_head is missing or"),
  (replaced("source_head", b""), "source_head is missing or not stored as"),
  (replaced("source_parent_mid", field(0x1A, b"")), "parent_mid is missing"),
  (replaced("source_id", field(0x1A, b"\x08\x0a\x08\x03")), "id is missing"),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x0a") * 2)),
    "source_id is missing",
  ),
  # A length of six bytes, the last of which would be the value 0.
  (
    replaced("source_id", field(0x1A, b"\x0a\x82" + b"\x80" * 4 + b"\0\x03")),
    "source_id is missing",
  ),
  (replaced("source_tree_distance", field(0x0A, b"")), "distance is missing"),
  (
    replaced("source_text", field(0x0A, field(0x0A, b"a") * 2)),
    "source_text is missing",
  ),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x0a\x83"))),
    "source_id ends within a number",
  ),
  (
    replaced("source_id", field(0x1A, field(0x0A, b"\x83" * 10 + b"\0"))),
    "source_id has a number of over 64 bits",
  ),
  (
    replaced("source_parent_mid", field(0x12, field(0x0A, bytes(7)))),
    "source_parent_mid has a part of a value",
  ),
  (by_hand(list, after=b"\x0a\x00"), "one field"),
  (by_hand(list, before=b"\x12\0"), "one field"),
  *((data, "line is|it is") for data in (b"", b"\x0a", b"\xff" * 40)),
]


@pytest.mark.parametrize(("payload", "message"), OTHER_LAYOUTS)
def test_rejects_records_in_another_layout(payload, message):
  assert by_hand(list) == PAYLOADS[5]
  empty = replaced("source_id", field(0x1A, b""))  # is not rejected
  for others in ([], PAYLOADS[:5], [empty, empty]):
    with pytest.raises(InvalidExampleError, match=message) as error:
      decoded([*others, payload])
    assert error.value.index == len(others)


def check_decoded(batch, index, wanted=WANTED, **options):
  """Checks decoding of records of which one may be corrupt.

  Either all values equal those of protobuf, or an error names the record.

  Returns: whether the records were decoded.
  """
  try:
    rows = decoded(batch, wanted, **options)
  except InvalidExampleError as error:
    assert error.index == index
    assert str(error) == f"record {index}: {error.why}"
    return False
  try:
    same_as_protobuf(rows, batch, wanted)
  except DecodeError:
    assert wanted != WANTED  # features that are not read are not checked
  return True


def test_wrong_lengths_do_not_read_beyond_the_array():
  """Replaces each byte of a record, some of which are lengths."""
  payload = SHORT[4]
  for place in range(len(payload)):
    for length in (b"\x7f", b"\xff\xff\xff\xff\x7f"):
      broken = payload[:place] + length + payload[place + len(length) :]
      check_decoded([PAYLOADS[0], broken, PAYLOADS[1]], 1)


def corrupted(payload, rng):
  """Returns a payload with one or two changes of its bytes."""
  data = bytearray(payload)
  for _ in range(int(rng.integers(1, 3))):
    place = int(rng.integers(max(len(data), 1)))
    end = place + int(rng.integers(1, 4))
    kind = int(rng.integers(5))
    if kind == 0:
      data[place : place + 1] = rng.bytes(1)
    elif kind == 1:
      data[place:place] = rng.bytes(end - place)
    elif kind == 2:
      del data[place:end]
    elif kind == 3:
      del data[place:]
    else:
      data += rng.bytes(int(rng.integers(1, 20)))
  return bytes(data)


def test_corrupt_records_give_the_values_of_protobuf_or_an_error():
  """Their checksums would be right: frames are not checked here."""
  accepted = 0
  for seed in range(1200):
    rng = np.random.default_rng(seed)
    batch = SHORT[: int(rng.integers(3, 11))]
    i = int(rng.integers(len(batch)))
    batch[i] = corrupted(batch[i], rng)
    wanted = WANTED if seed % 2 else tuple(rng.permutation(WANTED)[:3])
    between = b"\n" * int(rng.integers(20))
    accepted += check_decoded(batch, i, wanted, between=between)
  assert accepted > 20


def frames(payloads):
  """Returns TFRecord frames; offset, payload size and checksum of each."""
  sizes = np.array([len(payload) for payload in payloads], np.int64)
  crcs = [tfrecord.masked_crc(payload) for payload in payloads]
  offset = np.cumsum(sizes + 16) - sizes - 16
  data = b"".join(map(tfrecord.frame, payloads))
  return data, offset, sizes, np.array(crcs, np.uint32)


def test_masked_crc_and_frame():
  # CRC-32C of "123456789" is 0xE3069283 (RFC 3720, B.4 method). By hand:
  # >> 15: 0x1C60D; << 17: 0x25060000; or: 0x2507C60D; + 0xA282EAD8.
  assert tfrecord.masked_crc(b"123456789") == 0xC78AB0E5
  length = struct.pack("<Q", 2)
  crcs = [struct.pack("<I", tfrecord.masked_crc(d)) for d in (length, b"ab")]
  assert tfrecord.frame(b"ab") == length + crcs[0] + b"ab" + crcs[1]


@pytest.mark.parametrize("payloads", [PAYLOADS, [b"", b"a", bytes(70_000)], []])
def test_accepts_intact_frames(payloads, tmp_path):
  check_frames(*frames(payloads))
  toy_folders.write_shard(tmp_path / "x", payloads)
  assert list(tfrecord.scan(tmp_path / "x")) == payloads


def test_names_the_record_with_a_flipped_bit_in_any_byte(tmp_path):
  """Except in the checksum of the length, as the length itself is compared."""
  path = tmp_path / "x.tfrecord"
  data, offset, size, crc = frames(SHORT[:3])
  for place in range(offset[1], offset[2]):
    broken = bytearray(data)
    broken[place] ^= 1 << place % 8
    path.write_bytes(broken)
    message = "x.tfrecord: record 1 is (corrupt|truncated)"
    with pytest.raises(InputError, match=message):
      list(tfrecord.scan(path))
    if 8 <= place - offset[1] < 12:
      check_frames(bytes(broken), offset, size, crc)
      continue
    what = "size" if place - offset[1] < 8 else "checksum"
    with pytest.raises(InvalidExampleError, match=f"its {what} diff") as error:
      check_frames(bytes(broken), offset, size, crc)
    assert error.value.index == 1


def test_names_a_truncated_record_and_an_unreadable_file(tmp_path):
  path = tmp_path / "x"
  frames = tfrecord.frame(b"first") + tfrecord.frame(b"third" * 100)
  contents = [(frames[:5], 0), (frames[:15], 0), (frames[:-1], 1)]
  for length in (600, 2**40, 2**64 - 1):  # must not allocate memory
    header = struct.pack("<Q", length)
    crc = struct.pack("<I", tfrecord.masked_crc(header))
    contents.append((tfrecord.frame(b"a") + header + crc + b"third", 1))
  for content, record in contents:
    path.write_bytes(content)
    message = rf"record {record} is truncated\. Prepare"
    with pytest.raises(InputError, match=message):
      list(tfrecord.scan(path))
  path.unlink()
  for other, reason in ((tmp_path, "Is a"), (path, "No such file")):
    with pytest.raises(InputError, match=rf"cannot be read: {reason}.*Prepare"):
      list(tfrecord.scan(other))
