"""Reads and writes a split's TFRecord shards and their index.

A TFRecord file is a sequence of frames, with little-endian numbers:

  uint64 length | uint32 masked CRC of the length | payload | uint32 masked CRC

index-SPLIT.npy is next to the shards and has one entry for each record, in
their order. Batches are planned from the lengths of sentences. The sizes locate
the records, which are contiguous in a shard. The checksums tie the records to
the index, so that a shard of other data is rejected, even if its records have
the same sizes. The index of a local dataset is memory-mapped.

Source: record_writer.h of tensorflow/core.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import struct
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c
import numpy as np

from jaxsyn.data.schema import SIDES
from jaxsyn.data.store.rows import Lengths, Rows, lengths_of, reject
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote
from jaxsyn.storage.checksums import CorruptFileError

HEADER = 12  # bytes before a payload
FOOTER = 4  # bytes after a payload
REMEDY = "Prepare the data again (jaxsyn prepare --config FILE) or copy the file again."

ENTRY = np.dtype(
  [
    ("bytes", "<u4"),
    ("crc", "<u4"),  # masked, as in the frame of the record
    *((name, "<u2") for name in Lengths._fields),
  ]
)


class CorruptDatasetError(CorruptFileError, InputError):
  """Error for a dataset file that is missing, unreadable or corrupt.

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
  """Returns a payload framed as a TFRecord, with its length and checksums."""
  length = struct.pack("<Q", len(payload))
  crcs = (struct.pack("<I", masked_crc(data)) for data in (length, payload))
  return b"".join((length, next(crcs), payload, next(crcs)))


def scan(path: os.PathLike[str] | str) -> Iterator[bytes]:
  """Yields all payloads of a TFRecord file in order after verifying CRCs.

  Raises:
    CorruptDatasetError: The file is missing, truncated or corrupt. The message
      names the record.
  """
  try:
    with files.open_read(path) as file:
      file_size = files.size_of(path)
      for number in itertools.count():
        header = file.read(HEADER)
        if not header:
          return
        # A corrupt length must not allocate 2⁶⁴ bytes.
        length = min(int.from_bytes(header[:8], "little"), file_size)
        data = header + file.read(length + FOOTER)
        if len(data) < HEADER + length + FOOTER:
          raise CorruptDatasetError(f"{path}: record {number} is truncated")
        payload = data[HEADER:-FOOTER]
        if data != frame(payload):
          raise CorruptDatasetError(
            f"{path}: record {number} is corrupt: its checksum differs"
          )
        yield payload
  except OSError as error:
    raise CorruptDatasetError(
      f"{path} cannot be read: {error.strerror or error}"
    ) from None


def check_frames(
  data: bytes, offset: np.ndarray, size: np.ndarray, crc: np.ndarray
) -> None:
  """Raises InvalidExampleError if TFRecords differ from index or checksums.

  The length in a frame is compared with the index, which detects more errors
  than the checksum of the length.

  Args:
    data: Bytes that hold the frames.
    offset: Byte offset of each frame, int64.
    size: Size of each payload in the index in bytes, int64.
    crc: Masked CRC-32C of each payload in the index, uint32.

  Raises:
    InvalidExampleError: A frame is corrupt, or the index belongs to other
      records.
  """
  array = np.frombuffer(data, np.uint8)
  expected = size.astype("<u8").view(np.uint8).reshape(-1, 8)
  different = (array[offset[:, None] + np.arange(8)] != expected).any(1)
  reject(different, "its size differs from the index")
  begin, end = offset + HEADER, offset + HEADER + size
  value = google_crc32c.value
  checksum = np.array(
    [value(data[a:b]) for a, b in zip(begin.tolist(), end.tolist())], np.uint64
  )
  # As in `masked_crc`.
  rotated = checksum >> np.uint64(15) | checksum << np.uint64(17)
  masked = (rotated + np.uint64(0xA282EAD8)) & np.uint64(0xFFFFFFFF)
  stored = array[end[:, None] + np.arange(FOOTER)].copy().view("<u4")[:, 0]
  reject(stored != masked, "its checksum differs")
  reject(masked != crc, "its checksum differs from the index")


def records_sha256(shards: Sequence[str]) -> str:
  """Combines the SHA-256 hashes of shards into one hash of a split."""
  return hashlib.sha256("".join(shards).encode()).hexdigest()


def index_entries(payloads: Sequence[bytes], rows: Rows) -> np.ndarray:
  """Creates the index entries of examples from their serialized records.

  Raises:
    InputError: A record or a sentence is too long for the index.
  """
  made = np.empty(len(payloads), ENTRY)
  made["crc"] = [masked_crc(payload) for payload in payloads]
  sizes = np.array([len(payload) for payload in payloads], np.int64)
  for name, values in {"bytes": sizes, **lengths_of(rows)._asdict()}.items():
    limit, largest = np.iinfo(ENTRY[name]).max, int(values.max(initial=0))
    if largest > limit:
      unit = name.replace("_", " ")
      unit += " subwords" if name in SIDES else ""
      raise InputError(
        f"an example has {largest:,} {unit}; at most {limit:,} are supported. "
        "Lower config.prepare.max_subwords."
      )
    made[name] = values
  return made


def save_index(
  path: os.PathLike[str] | str, parts: Iterable[np.ndarray]
) -> None:
  """Writes the index file of a split from consecutive arrays of entries."""
  with files.publish(path) as file:
    np.save(file, np.concatenate([np.empty(0, ENTRY), *parts]))


def load_index(path: os.PathLike[str] | str, examples: int) -> np.ndarray:
  """Reads the index of a split from a file, and checks its number of records.

  Args:
    path: Path of the index file.
    examples: Number of records in the split.

  Raises:
    CorruptDatasetError: The file is not an index with this number of records.
  """
  try:
    if remote.is_remote(path):
      index = np.load(io.BytesIO(files.read_bytes(path)))
    else:
      index = np.load(os.fspath(path), mmap_mode="r")
  except (OSError, ValueError, EOFError) as error:
    raise CorruptDatasetError(f"{path} cannot be read ({error})") from None
  if index.dtype != ENTRY or index.shape != (examples,):
    raise CorruptDatasetError(
      f"{path} is not the index of {examples:,} records"
    )
  return index
