"""Reader and writer of the TFRecord file format, without TensorFlow.

A file is a sequence of frames, with little-endian numbers:

  uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC

Source: tensorflow/core/lib/io/record_writer.h and tensorflow/tsl hash/crc32c.h.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator

import google_crc32c

from jaxsyn.errors import InputError
from jaxsyn.storage import files
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


def frame(payload: bytes) -> bytes:
  """Returns a payload framed as in TFRecord files, with its length and CRCs."""
  length = struct.pack("<Q", len(payload))
  of_length, of_payload = (
    struct.pack("<I", masked_crc(data)) for data in (length, payload)
  )
  return b"".join((length, of_length, payload, of_payload))


def write(path: os.PathLike[str] | str, payloads: Iterable[bytes]) -> None:
  """Writes a TFRecord file with the given payloads atomically."""
  with files.publish(path) as file:
    file.writelines(map(frame, payloads))


def scan(path: os.PathLike[str] | str) -> Iterator[bytes]:
  """Yields all payloads of a TFRecord file in order, and verifies their CRCs.

  Raises:
    CorruptDatasetError: The file is missing, truncated or corrupt. The message
      names the record.
  """
  try:
    with files.open_read(path) as file:
      file_size, count = files.size_of(path), 0
      while header := file.read(HEADER):
        record = f"{path}: record {count}"
        if len(header) < HEADER:
          raise CorruptDatasetError(f"{record} is truncated")
        length, crc = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != crc:
          raise CorruptDatasetError(
            f"{record} is corrupt: the checksum of its length differs"
          )
        # A length with a forged checksum must not allocate 2⁶⁴ bytes.
        rest = file.read(min(length + FOOTER, file_size))
        if len(rest) < length + FOOTER:
          raise CorruptDatasetError(f"{record} is truncated")
        if masked_crc(rest[:length]) != int.from_bytes(rest[length:], "little"):
          raise CorruptDatasetError(
            f"{record} is corrupt: its checksum differs"
          )
        yield rest[:length]
        count += 1
  except FileNotFoundError:
    raise CorruptDatasetError(f"{path} is missing") from None
  except OSError as error:
    raise CorruptDatasetError(
      f"{path} cannot be read: {error.strerror or error}"
    ) from None
