"""TFRecord framing: known bytes, every kind of damage."""

import os
import resource
import signal

import pytest

from jaxsyn.data.store import tfrecord
from jaxsyn.errors import InputError

PAYLOADS = [b"first", b"", b"third" * 100]


@pytest.fixture
def path(tmp_path):
  path = tmp_path / "x.tfrecord"
  with tfrecord.writer(path) as writer:
    for payload in PAYLOADS:
      writer.write(payload)
  return path


def test_masked_crc():
  # CRC-32C of "123456789" is 0xE3069283 (RFC 3720, B.4 method). By hand:
  # >> 15: 0x1C60D; << 17: 0x25060000; or: 0x2507C60D; + 0xA282EAD8.
  assert tfrecord.masked_crc(b"123456789") == 0xC78AB0E5


def test_bytes_of_one_record(tmp_path):
  with tfrecord.writer(tmp_path / "x") as writer:
    writer.write(b"ab")
    writer.write(b"c")
  assert writer.number == 2
  data = (tmp_path / "x").read_bytes()
  assert len(data) == writer.size == 18 + 17
  assert data[:8] == b"\x02" + bytes(7)  # length, little-endian
  assert data[12:14] == b"ab"


def test_reads_what_was_written(path):
  assert list(tfrecord.scan(path)) == PAYLOADS


def test_every_flipped_bit_is_found(path):
  data = path.read_bytes()
  for byte in range(60):
    broken = bytearray(data)
    broken[byte] ^= 0x10
    path.write_bytes(broken)
    with pytest.raises(InputError, match=r"x.tfrecord: record [012] is"):
      list(tfrecord.scan(path))


@pytest.mark.parametrize(
  ("size", "message"),
  [
    (5, "record 0 is truncated: 5 of the 12 bytes of its header"),
    (15, "record 0 is truncated: 15 of its 21 bytes"),
    (536, "record 2 is truncated: 499 of its 516"),
  ],
)
def test_names_a_truncated_record(path, size, message):
  os.truncate(path, size)
  with pytest.raises(InputError, match=message):
    list(tfrecord.scan(path))


def test_names_a_missing_file(tmp_path):
  with pytest.raises(InputError, match=r"no.tfrecord is missing. Prepare"):
    list(tfrecord.scan(tmp_path / "no.tfrecord"))


def test_leaves_no_file_after_an_error(tmp_path):
  with (
    pytest.raises(RuntimeError),
    tfrecord.writer(tmp_path / "x") as writer,
  ):
    writer.write(b"half")
    raise RuntimeError
  assert list(tmp_path.iterdir()) == []


def test_leaves_no_file_on_a_full_disk(tmp_path):
  """A limit on the size of files, which says when the last bytes are written."""
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
  try:
    with (
      pytest.raises(OSError, match=r"File too large"),
      tfrecord.writer(tmp_path / "x") as writer,
    ):
      writer.write(b"a")
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [600, 2**40, 2**63, 2**64 - 1])
def test_a_forged_length_does_not_allocate_memory(path, length):
  header = length.to_bytes(8, "little")
  data = bytearray(path.read_bytes())
  crc = tfrecord.masked_crc(header).to_bytes(4, "little")
  data[37:49] = header + crc  # of the third record
  path.write_bytes(data)
  message = rf"record 2 is truncated: 516 of its {length + 16} bytes"
  with pytest.raises(InputError, match=message):
    list(tfrecord.scan(path))


def test_names_an_unreadable_file(tmp_path):
  with pytest.raises(InputError, match=r"cannot be read: Is a directory"):
    list(tfrecord.scan(tmp_path))
