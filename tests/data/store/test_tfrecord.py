"""TFRecord framing: known bytes, every kind of damage."""

import os

import pytest

from jaxsyn.data.store import tfrecord
from jaxsyn.errors import InputError

PAYLOADS = [b"first", b"", b"third" * 100]


@pytest.fixture
def path(tmp_path):
  path = tmp_path / "x.tfrecord"
  tfrecord.write(path, PAYLOADS)
  return path


def test_masked_crc():
  # CRC-32C of "123456789" is 0xE3069283 (RFC 3720, B.4 method). By hand:
  # >> 15: 0x1C60D; << 17: 0x25060000; or: 0x2507C60D; + 0xA282EAD8.
  assert tfrecord.masked_crc(b"123456789") == 0xC78AB0E5


def test_bytes_of_one_record(tmp_path):
  tfrecord.write(tmp_path / "x", [b"ab", b"c"])
  data = (tmp_path / "x").read_bytes()
  assert len(data) == 18 + 17
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


@pytest.mark.parametrize(("size", "record"), [(5, 0), (15, 0), (536, 2)])
def test_names_a_truncated_record(path, size, record):
  os.truncate(path, size)
  with pytest.raises(InputError, match=rf"record {record} is truncated\. Prep"):
    list(tfrecord.scan(path))


def test_names_a_missing_file(tmp_path):
  with pytest.raises(InputError, match=r"no.tfrecord is missing. Prepare"):
    list(tfrecord.scan(tmp_path / "no.tfrecord"))


@pytest.mark.parametrize("length", [600, 2**40, 2**63, 2**64 - 1])
def test_a_forged_length_does_not_allocate_memory(path, length):
  header = length.to_bytes(8, "little")
  data = bytearray(path.read_bytes())
  crc = tfrecord.masked_crc(header).to_bytes(4, "little")
  data[37:49] = header + crc  # of the third record
  path.write_bytes(data)
  with pytest.raises(InputError, match=r"record 2 is truncated\. Prepare"):
    list(tfrecord.scan(path))


def test_names_an_unreadable_file(tmp_path):
  with pytest.raises(InputError, match=r"cannot be read: Is a directory"):
    list(tfrecord.scan(tmp_path))
