"""Reader and writer of the TFRecord file format, without TensorFlow.

A file is a sequence of frames, with little-endian numbers:

  uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC

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
from jaxsyn.storage.checksums import CorruptFileError

HEADER = 12  # bytes before a payload
FOOTER = 4  # bytes after a payload
REMEDY = "Prepare the data again (jaxsyn prepare --config FILE) or copy the file again."


class CorruptDatasetError(CorruptFileError, InputError):
  """Error of a dataset file that is missing, unreadable or corrupt.

  The message ends with the command that rebuilds the file.
  """

  def __init__(self, fault: str):
    super().__init__(f"{fault}. {REMEDY}")


def masked_crc(data: bytes) -> int:
  """Returns the masked CRC-32C that the TFRecord format stores for data.

  The CRC is rotated right by 15 bits, and a constant is added.
  >>> hex(masked_crc(b"123456789"))  # the unmasked value is 0xe3069283
  '0xc78ab0e5'
  """
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordWriter:
  """Writer of TFRecord records to an open file.

  Attributes:
    size, number: Numbers of bytes and of records written so far.
    digest: SHA-256 of the bytes written so far.
  """

  def __init__(self, file: IO[bytes]):
    self._file, self.digest = file, hashlib.sha256()
    self.size = self.number = 0

  def write(self, payload: bytes) -> None:
    """Appends a record with the given payload to the file."""
    self.write_all([payload])

  def write_all(self, payloads: Sequence[bytes]) -> None:
    """Appends a record for each of the given payloads to the file."""
    data = b"".join(map(frame, payloads))
    self._file.write(data)
    self.digest.update(data)
    self.size += len(data)
    self.number += len(payloads)


def frame(payload: bytes) -> bytes:
  """Returns a payload framed as in TFRecord files, with its length and CRCs."""
  length = struct.pack("<Q", len(payload))
  of_length, of_payload = (
    struct.pack("<I", masked_crc(data)) for data in (length, payload)
  )
  return b"".join((length, of_length, payload, of_payload))


@contextlib.contextmanager
def writer(path: os.PathLike[str] | str) -> Iterator[RecordWriter]:
  """Returns a context manager that opens a new TFRecord file for writing.

  The file appears when the `with` block ends without an error.
  """
  with files.publish(path) as file:
    yield RecordWriter(file)


def scan(path: os.PathLike[str] | str) -> Iterator[bytes]:
  """Yields all payloads of a TFRecord file in order, and verifies their CRCs.

  Raises:
    CorruptDatasetError: The file is missing, truncated or corrupt. The message
      names the record.
  """
  with _open(path) as (file, file_size):
    count = 0
    while header := file.read(HEADER):
      yield _payload(file, header, file_size, f"{path}: record {count}")
      count += 1


@contextlib.contextmanager
def _open(path: os.PathLike[str] | str) -> Iterator[tuple[IO[bytes], int]]:
  """Returns a context manager for an open file and its size in bytes."""
  try:
    with files.open_read(path, 8 << 20) as file:
      if remote.is_remote(path):
        yield file, files.size_of(path)
      else:
        yield file, os.fstat(file.fileno()).st_size
  except FileNotFoundError:
    raise CorruptDatasetError(f"{path} is missing") from None
  except OSError as error:
    raise CorruptDatasetError(
      f"{path} cannot be read: {error.strerror or error}"
    ) from None


def _payload(
  file: IO[bytes], header: bytes, file_size: int, record: str
) -> bytes:
  """Returns the payload of the TFRecord record at the current file position.

  Args:
    file: File, positioned at the payload.
    header: Bytes before the payload, with its length.
    file_size: Size of the file in bytes.
    record: Name of the record, for messages.

  Raises:
    CorruptDatasetError: The record is truncated or corrupt.
  """
  if len(header) < HEADER:
    raise CorruptDatasetError(
      f"{record} is truncated: {len(header)} of the {HEADER} bytes of its header "
      "are there"
    )
  length, crc = struct.unpack("<QI", header)
  if masked_crc(header[:8]) != crc:
    raise CorruptDatasetError(
      f"{record} is corrupt: the checksum of its length differs"
    )
  # A length with a forged checksum must not allocate 2⁶⁴ bytes.
  rest = file.read(min(length + FOOTER, file_size))
  if len(rest) < length + FOOTER:
    raise CorruptDatasetError(
      f"{record} is truncated: {HEADER + len(rest)} of its "
      f"{HEADER + length + FOOTER} bytes are there"
    )
  if masked_crc(rest[:length]) != int.from_bytes(rest[length:], "little"):
    raise CorruptDatasetError(f"{record} is corrupt: its checksum differs")
  return rest[:length]
