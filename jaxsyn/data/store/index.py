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
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.records import CorruptDatasetError, masked_crc
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote

_OF_SIDE = ("W", "WW", "P", "X")  # axes whose size differs between the sides


class Lengths(NamedTuple):
  """Numbers of subwords and words of each example on both sides.

  The arrays are integers. EOS is counted. A side without trees has 0 words.
  """

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray

  def read_by(self, features: Collection[str]) -> Lengths:
    """Returns the lengths that a model with given features needs.

    A side has 0 words if none of the features is of its words.
    """
    sides = {
      name.partition("_")[0]
      for name in features
      if FEATURES[name].axes in ("W", "WW")
    }
    none = np.zeros(len(self.source), np.uint8)
    words = (
      length if side in sides else none for side, length in zip(SIDES, self[2:])
    )
    return Lengths(self.source, self.target, *words)

  def of(self, numbers: np.ndarray | slice) -> Lengths:
    """Returns the lengths of the examples with given indices, as int64."""
    return Lengths(*(side[numbers].astype(np.int64) for side in self))

  def sizes(self, feature: str) -> np.ndarray | None:
    """Returns the number of a feature's values in each example, int64.

    Returns None if the lengths do not determine it.
    """
    is_source = feature.startswith("source")
    words = self.source_words if is_source else self.target_words
    match FEATURES[feature].axes:
      case "":
        return np.ones(len(self.source), np.int64)
      case "S":
        return self.source.astype(np.int64)
      case "T":
        return self.target.astype(np.int64)
      case "W":
        return words.astype(np.int64)
      case "WW":
        return words.astype(np.int64) ** 2
    return None


def measure(feature: str) -> tuple[str, str]:
  """Returns a key that is equal for features with equal numbers of values."""
  axes = FEATURES[feature].axes
  return axes, feature.partition("_")[0] if axes in _OF_SIDE else ""


def lengths_of(rows: Rows) -> Lengths:
  """Returns the subword and word counts of examples in memory."""
  subwords = [rows.sizes(f"{side}_id") for side in SIDES]
  return Lengths(*subwords, *(_words(rows, side) for side in SIDES))


def _words(rows: Rows, side: str) -> np.ndarray:
  """Returns the number of words on a side of each example; 0 if unknown."""
  for name in rows.start:
    axes = FEATURES[name].axes
    if name.startswith(side) and axes in ("W", "WW"):
      sizes = rows.sizes(name)
      return sizes if axes == "W" else np.sqrt(sizes).round().astype(np.int64)
  return np.zeros(len(rows), np.int64)


ENTRY = np.dtype(
  [
    ("bytes", "<u4"),
    ("crc", "<u4"),  # masked, as in the frame of the record
    *((name, "<u2") for name in Lengths._fields),
  ]
)


def entries(payloads: Sequence[bytes], rows: Rows) -> np.ndarray:
  """Returns the index entries of examples and their serialized records.

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


def save(path: os.PathLike[str] | str, parts: Iterable[np.ndarray]) -> None:
  """Writes the index file of a split from consecutive arrays of entries."""
  with files.publish(path) as file:
    np.save(file, np.concatenate([np.empty(0, ENTRY), *parts]))


def load(path: os.PathLike[str] | str, examples: int) -> np.ndarray:
  """Returns the index of a split, read from a file with a verified checksum.

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
