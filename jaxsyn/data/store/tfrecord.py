"""The TFRecord file format, with no TensorFlow.

A file is a run of frames, numbers little-endian:

  uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC

`jaxsyn.data.store.tfds_builder` writes such files, `jaxsyn.data.store.dataset` reads
them.
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/tsl hash/crc32c.h.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from typing import IO

import google_crc32c

from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote

HEADER = 12  # bytes before a payload
FOOTER = 4  # bytes after it
REMEDY = "Prepare the data again (jaxsyn prepare --config FILE) or copy the file again."


class CorruptFileError(InputError):
  """A file of a dataset directory is missing, unreadable or corrupt.

  Its message ends with the command that rebuilds the file.
  """

  def __init__(self, fault: str):
    super().__init__(f"{fault}. {REMEDY}")


def masked_crc(data: bytes) -> int:
  """CRC-32C, rotated right by 15 bits and shifted by a constant.

  >>> hex(masked_crc(b"123456789"))  # the unmasked value is 0xe3069283
  '0xc78ab0e5'
  """
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Writer:
  """Writes records to a file.

  Attributes:
    size, number: bytes and records so far.
    digest: of SHA-256, of the bytes so far.
  """

  def __init__(self, file: IO[bytes]):
    self._file, self.digest = file, hashlib.sha256()
    self.size = self.number = 0

  def write(self, payload: bytes) -> None:
    """Appends one record."""
    self.write_all([payload])

  def write_all(self, payloads: Sequence[bytes]) -> None:
    """Appends records."""
    data = b"".join(map(frame, payloads))
    self._file.write(data)
    self.digest.update(data)
    self.size += len(data)
    self.number += len(payloads)


def frame(payload: bytes) -> bytes:
  """A record as it stands in a file."""
  length = struct.pack("<Q", len(payload))
  of_length, of_payload = (
    struct.pack("<I", masked_crc(data)) for data in (length, payload)
  )
  return b"".join((length, of_length, payload, of_payload))


@contextlib.contextmanager
def writer(path: os.PathLike[str] | str) -> Iterator[Writer]:
  """Records for a file that appears when the block ends well."""
  with files.publish(path) as file:
    yield Writer(file)


def scan(path: os.PathLike[str] | str) -> Iterator[bytes]:
  """All payloads of a file in order, their CRCs checked.

  Raises:
    InputError: the file is missing, truncated or damaged; the message gives
      the file and the record.
  """
  with _open(path) as (file, file_size):
    count = 0
    while header := file.read(HEADER):
      yield _payload(file, header, file_size, f"{path}: record {count}")
      count += 1


def read(path: os.PathLike[str] | str, offset: int, index: int) -> bytes:
  """The payload of the frame at an offset; errors as of `scan`.

  Args:
    path: the file.
    offset: in bytes.
    index: which record it is, for messages.
  """
  with _open(path, read_ahead=1 << 16) as (file, file_size):
    file.seek(offset)
    return _payload(
      file, file.read(HEADER), file_size, f"{path}: record {index}"
    )


@contextlib.contextmanager
def _open(
  path: os.PathLike[str] | str, read_ahead: int = 8 << 20
) -> Iterator[tuple[IO[bytes], int]]:
  """A file and its size; what cannot be read is an InputError."""
  try:
    with files.open_read(path, read_ahead) as file:
      if remote.is_remote(path):
        yield file, files.size_of(path)
      else:
        yield file, os.fstat(file.fileno()).st_size
  except FileNotFoundError:
    raise InputError(f"{path} is missing. {REMEDY}") from None
  except OSError as error:
    raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def _payload(
  file: IO[bytes], header: bytes, file_size: int, which: str
) -> bytes:
  """The payload that a header announces.

  Args:
    file: at the payload.
    header: before it.
    file_size: bytes of the file.
    which: the record, for the message.
  """
  if len(header) < HEADER:
    raise InputError(
      f"{which} is truncated: {len(header)} of the {HEADER} bytes of its header"
      f" are there. {REMEDY}"
    )
  length, crc = struct.unpack("<QI", header)
  if masked_crc(header[:8]) != crc:
    raise InputError(
      f"{which} is damaged: the checksum of its length differs. {REMEDY}"
    )
  # No more than there is: whoever mends a checksum can ask for 2⁶⁴ bytes.
  rest = file.read(min(length + FOOTER, file_size))
  if len(rest) < length + FOOTER:
    raise InputError(
      f"{which} is truncated: {HEADER + len(rest)} of its"
      f" {HEADER + length + FOOTER} bytes are there. {REMEDY}"
    )
  if masked_crc(rest[:length]) != int.from_bytes(rest[length:], "little"):
    raise InputError(f"{which} is damaged: its checksum differs. {REMEDY}")
  return rest[:length]
