"""The TFRecord file format, with no TensorFlow.

A file is a run of frames, numbers little-endian:

  uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC

`jaxsyn.data.store.tfds_builder` writes such files, `jaxsyn.data.store.records` reads them
by offset. An offset is that of the frame, a length that of the payload.
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/tsl hash/crc32c.h.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c

from jaxsyn import files
from jaxsyn.errors import InputError

HEADER = 12  # bytes before a payload
FOOTER = 4  # bytes after it
REMEDY = (
  "Prepare the data again (python -m preprocess.build) or copy the file anew."
)


def masked_crc(data: bytes) -> int:
  """CRC-32C, rotated right by 15 bits and shifted by a constant.

  >>> hex(masked_crc(b"123456789"))  # the unmasked value is 0xe3069283
  '0xc78ab0e5'
  """
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Writer:
  """Writes a file under a temporary name; it appears when all went well.

  with Writer(path) as writer:
    offset, length = writer.write(payload)

  `size` and `sha256` are those of the file so far.
  """

  def __init__(self, path: os.PathLike[str] | str):
    self._publish = files.publish(path)

  def __enter__(self) -> Writer:
    self._file = self._publish.__enter__()
    self._digest = hashlib.sha256()
    self.size = 0
    return self

  @property
  def sha256(self) -> str:
    return self._digest.hexdigest()

  def write(self, payload: bytes) -> tuple[int, int]:
    """Appends one record; returns its (offset, length)."""
    offset, length = self.size, len(payload)
    header = struct.pack("<Q", length)
    header += struct.pack("<I", masked_crc(header))
    frame = header + payload + struct.pack("<I", masked_crc(payload))
    self._file.write(frame)
    self._digest.update(frame)
    self.size += len(frame)
    return offset, length

  def __exit__(self, *error: Any) -> bool | None:
    return self._publish.__exit__(*error)


def payload(frame: bytes, path: os.PathLike[str] | str, number: int) -> bytes:
  """The payload of one whole frame, its CRCs checked.

  Args:
    frame: header, payload and footer.
    path: file, for the message.
    number: which record of the file, from 0, for the message.

  Raises:
    InputError: the frame is too short, or a CRC differs.
  """
  length = _length(frame[:HEADER], path, number)
  end = HEADER + length
  if len(frame) < end + FOOTER:
    raise InputError(
      f"{path}: record {number} is truncated: {len(frame)} of its"
      f" {end + FOOTER} bytes are there. {REMEDY}"
    )
  data = frame[HEADER:end]
  if masked_crc(data) != int.from_bytes(frame[end : end + FOOTER], "little"):
    raise InputError(
      f"{path}: record {number} is damaged: its checksum differs. {REMEDY}"
    )
  return data


def scan(path: os.PathLike[str] | str) -> Iterator[tuple[int, bytes]]:
  """All (offset, payload) of a file in order, CRCs checked.

  Raises:
    InputError: the file is missing, truncated or damaged; the message gives
      the file, the record and its byte.
  """
  try:
    with open(path, "rb") as file:
      left = os.fstat(file.fileno()).st_size
      offset = number = 0
      while header := file.read(HEADER):
        length = _length(header, path, number)
        # No more than there is: whoever mends a checksum can ask for 2⁶⁴ bytes.
        frame = header + file.read(min(length + FOOTER, left))
        yield offset, payload(frame, path, number)
        offset += len(frame)
        number += 1
  except FileNotFoundError:
    raise InputError(f"{path} is missing. {REMEDY}") from None
  except OSError as error:
    raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def _length(header: bytes, path: os.PathLike[str] | str, number: int) -> int:
  if len(header) < HEADER:
    raise InputError(
      f"{path}: record {number} is truncated: {len(header)} of the {HEADER}"
      f" bytes of its header are there. {REMEDY}"
    )
  length, crc = struct.unpack("<QI", header)
  if masked_crc(header[:8]) != crc:
    raise InputError(
      f"{path}: record {number} is damaged: the checksum of its length differs."
      f" {REMEDY}"
    )
  return length
