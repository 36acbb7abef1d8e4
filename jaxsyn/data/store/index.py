"""Where each record of a split is, and how long its sentences are.

It lies beside the shards, index-SPLIT.npz, written with them. `Records` makes it
anew from them where it is not as the manifest has it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Self

import numpy as np

from jaxsyn import files
from jaxsyn.data.store import tfrecord


@dataclasses.dataclass(frozen=True)
class Index:
  """Entry i of each array is of record i of the split.

  Attributes:
    shard: int32, number of the file, from 0.
    offset: int64, byte of the frame in its file.
    length: int32, bytes of the payload.
    source_length: int32, source subwords, EOS included.
    target_length: int32, target subwords, EOS included.
    fingerprint: SHA-256 of the records that this is the index of.
  """

  shard: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  source_length: np.ndarray
  target_length: np.ndarray
  fingerprint: str

  @classmethod
  def of(cls, rows: Iterable[tuple[int, ...]], fingerprint: str) -> Self:
    """From (shard, length, source_length, target_length) of each record."""
    table = np.array(list(rows), np.int64).reshape(-1, 4)
    shard, length, source, target = table.astype(np.int32).T.copy()
    end = np.cumsum(table[:, 1] + tfrecord.HEADER + tfrecord.FOOTER)
    begin = np.append(0, end)[: len(end)]
    # Offsets begin anew with each file.
    offset = begin - begin[np.searchsorted(shard, shard)]
    return cls(shard, offset, length, source, target, fingerprint)

  def save(self, path: os.PathLike[str] | str) -> None:
    """Writes an .npz, whole or not at all; the same bytes always."""
    with files.publish(path) as file:
      np.savez(file, **dataclasses.asdict(self))

  @classmethod
  def load(cls, path: os.PathLike[str] | str) -> Self:
    """Reads a file that is as it was written."""
    with (
      files.open_read(path) as file,
      np.load(file, allow_pickle=False) as arrays,
    ):
      found = {
        field.name: arrays[field.name] for field in dataclasses.fields(cls)
      }
    return cls(**{**found, "fingerprint": str(found["fingerprint"])})
