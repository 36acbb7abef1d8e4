"""Where each record of a split is.

It lies beside the shards, index-SPLIT.arrow, written with them: an Arrow file with
a record batch a shard. `Records` makes it anew from them where it is not as the
manifest has it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Self

import numpy as np
import pyarrow as pa

from jaxsyn.data.store import tfrecord
from jaxsyn.storage import files

_SCHEMA = pa.schema(
  [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("length", pa.int32(), nullable=False),
  ]
)


@dataclasses.dataclass(frozen=True)
class Index:
  """Entry i of each array is of record i of the split.

  Attributes:
    shard: int32, number of the file, from 0.
    offset: int64, byte of the frame in its file.
    length: int32, bytes of the payload.
    fingerprint: SHA-256 of the records that this is the index of.
  """

  shard: np.ndarray
  offset: np.ndarray
  length: np.ndarray
  fingerprint: str

  @classmethod
  def of(cls, shards: Iterable[Iterable[int]], fingerprint: str) -> Self:
    """From the lengths of the payloads of each shard."""
    length = [np.fromiter(lengths, np.int32) for lengths in shards]
    frame = tfrecord.HEADER + tfrecord.FOOTER
    offset = [
      np.cumsum(np.append(0, lengths.astype(np.int64) + frame))[:-1]
      for lengths in length
    ]
    shard = np.repeat(np.arange(len(length)), [*map(len, length)])
    none = np.zeros(0, np.int32)
    return cls(
      shard.astype(np.int32),
      np.concatenate([none.astype(np.int64), *offset]),
      np.concatenate([none, *length]),
      fingerprint,
    )

  def save(self, path: os.PathLike[str] | str) -> None:
    """Writes the file, whole or not at all; the same bytes always."""
    schema = _SCHEMA.with_metadata({"fingerprint": self.fingerprint})
    last = self.shard.max(initial=-1)
    ends = np.searchsorted(self.shard, np.arange(last + 1), "right")
    with files.publish(path) as file, pa.ipc.new_file(file, schema) as arrow:
      for begin, end in zip([0, *ends], ends):
        arrays = [self.offset[begin:end], self.length[begin:end]]
        arrow.write_batch(
          pa.RecordBatch.from_arrays([*map(pa.array, arrays)], schema=schema)
        )

  @classmethod
  def load(cls, path: os.PathLike[str] | str) -> Self:
    """Reads a file that is as it was written."""
    with files.open_read(path) as file:
      arrow = pa.ipc.open_file(file)
      table = arrow.read_all()
      sizes = [
        arrow.get_batch(i).num_rows for i in range(arrow.num_record_batches)
      ]
    return cls(
      np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
      table["offset"].to_numpy(),
      table["length"].to_numpy(),
      arrow.schema.metadata[b"fingerprint"].decode(),
    )
