"""Index of a split, with the size, checksum and lengths of each record.

index-SPLIT.npy is next to the shards and has one entry for each record, in
their order. Batches are planned from the lengths of sentences. The sizes locate
the records, which are contiguous in a shard. The checksums tie the records to
the index, so that a shard of other data is rejected, even if its records have
the same sizes. The index of a local dataset is memory-mapped.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence

import numpy as np

from jaxsyn.data.store.lengths import Lengths
from jaxsyn.data.store.tfrecord import CorruptDatasetError, masked_crc
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote

ENTRY = np.dtype(
  [
    ("bytes", "<u4"),
    ("crc", "<u4"),  # masked, as in the frame of the record
    *((name, "<u2") for name in Lengths._fields),
  ]
)


def entries(payloads: Sequence[bytes], lengths: Lengths) -> np.ndarray:
  """Returns the index entries of serialized examples with the given lengths.

  Raises:
    InputError: A record or a sentence is too long for the index.
  """
  count = len(payloads)
  made = np.empty(count, ENTRY)
  made["crc"] = np.fromiter(map(masked_crc, payloads), np.uint32, count)
  columns = {"bytes": np.fromiter(map(len, payloads), np.int64, count)}
  columns |= lengths._asdict()
  for name, values in columns.items():
    limit = np.iinfo(ENTRY[name]).max
    largest = int(values.max(initial=0))
    if largest > limit:
      unit = name.replace("_", " ")
      unit += " subwords" if name in ("source", "target") else ""
      raise InputError(
        f"an example has {largest:,} {unit}; at most {limit:,} are supported. "
        "Lower config.prepare.max_subwords."
      )
    made[name] = values
  return made


def save(path: os.PathLike[str] | str, parts: Iterable[np.ndarray]) -> None:
  """Writes the index file of a split from consecutive arrays of entries."""
  with files.publish(path) as file:
    np.save(file, np.concatenate([np.empty(0, ENTRY), *parts]))


def load(path: os.PathLike[str] | str, examples: int) -> np.ndarray:
  """Returns the index of a split, read from a file.

  The caller has verified the checksum of the file.

  Args:
    path: Path of the index file.
    examples: Number of records in the split.

  Raises:
    CorruptDatasetError: The file is not an index with this number of records.
  """
  try:
    if remote.is_remote(path):
      found = np.load(io.BytesIO(files.read_bytes(path)))
    else:
      found = np.load(os.fspath(path), mmap_mode="r")
  except (OSError, ValueError, EOFError) as error:
    raise CorruptDatasetError(f"{path} cannot be read ({error})") from None
  if found.dtype != ENTRY or found.shape != (examples,):
    raise CorruptDatasetError(
      f"{path} is not the index of {examples:,} records"
    )
  return found
