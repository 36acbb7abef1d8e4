"""How long the examples of a split are, and where its columns have them.

SPLIT.lengths.arrow has a record batch for each block of the columns
(`jaxsyn.data.store.blocks`), of all shards in order: the lengths of its examples,
and in its metadata the shard, and where each column of the block is and its
CRC-32C. So a few columns of a block are read without the rest, and none of other
data is taken for them: the manifest has the checksum of the lengths, which are
read whole.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa

from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import REMEDY
from jaxsyn.errors import InputError

# What stands in a file follows from these, not from what pyarrow prefers.
OPTIONS = pa.ipc.IpcWriteOptions(
  metadata_version=pa.ipc.MetadataVersion.V5, use_threads=False
)

_OF_SIDE = ("W", "WW", "P", "X")  # axes of which each side has its own size


class Lengths(NamedTuple):
  """Subwords, EOS included, and words of each example.

  Integers; 0 words: the data has no trees there.
  """

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray

  def read_by(self, features: Collection[str]) -> Lengths:
    """Without the words of sides of whose words no feature is read."""
    of = {
      name.partition("_")[0]
      for name in features
      if FEATURES[name].axes in ("W", "WW")
    }
    none = np.zeros(len(self.source), np.uint8)
    words = (
      length if side in of else none for side, length in zip(SIDES, self[2:])
    )
    return Lengths(self.source, self.target, *words)

  def of(self, numbers: np.ndarray | slice) -> Lengths:
    """Those of some examples, as int64."""
    return Lengths(*(side[numbers].astype(np.int64) for side in self))

  def sizes(self, feature: str) -> np.ndarray | None:
    """How many values each example has of a feature, int64; None: not known."""
    source = feature.startswith("source")
    words = self.source_words if source else self.target_words
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
  """What says how many values an example has of a feature.

  Returns:
    its axes, and whose words or bytes: features with the same have as many.
  """
  axes = FEATURES[feature].axes
  return axes, feature.partition("_")[0] if axes in _OF_SIDE else ""


class Column(NamedTuple):
  """Where a column of a block is in its file.

  Attributes:
    offset: byte of its starts, int32, one more than examples; of its values,
      where each example has one.
    values: how many.
    crc32c: of starts and values, 8 hexadecimal digits.
  """

  offset: int
  values: int
  crc32c: str


_SCHEMA = pa.schema(
  [pa.field(name, pa.int32(), nullable=False) for name in Lengths._fields]
)


@dataclasses.dataclass(frozen=True)
class Block:
  """What the lengths say of a block.

  Attributes:
    lengths: of its examples.
    columns: feature -> where it is.
    shard: number of its file.
  """

  lengths: Lengths
  columns: Mapping[str, Column]
  shard: int = 0


def write_lengths(file: IO[bytes], shards: Iterable[Iterable[Block]]) -> None:
  """Writes the blocks of each shard, in order, to a file that stays open."""
  with pa.ipc.new_file(file, _SCHEMA, options=OPTIONS) as out:
    for shard, blocks in enumerate(shards):
      for block in blocks:
        columns = [pa.array(side, pa.int32()) for side in block.lengths]
        batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
        about = {"shard": str(shard), "columns": json.dumps(block.columns)}
        out.write_batch(batch, custom_metadata=about)


def read_lengths(file: IO[bytes], name: str) -> Iterator[Block]:
  """The blocks of a split in order.

  Args:
    file: open for reading, of which the checksum was compared.
    name: of the file, for messages.

  Raises:
    InputError: it is no such file.
  """
  try:
    reader = pa.ipc.open_file(file)
    if not reader.schema.equals(_SCHEMA):
      raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
    for i in range(reader.num_record_batches):
      batch, about = reader.get_batch_with_custom_metadata(i)
      columns = {
        feature: Column(*column)
        for feature, column in json.loads(about[b"columns"]).items()
      }
      lengths = Lengths(*(column.to_numpy() for column in batch.columns))
      yield Block(lengths, columns, int(about[b"shard"]))
  except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
    raise InputError(
      f"{name} is no file of lengths as this version writes it ({error}). "
      f"{REMEDY}"
    ) from None


def lengths_of(rows: Rows) -> Lengths:
  """The lengths of examples."""
  subwords = [rows.sizes(f"{side}_id") for side in SIDES]
  return Lengths(*subwords, *(_words(rows, side) for side in SIDES))


def _words(rows: Rows, side: str) -> np.ndarray:
  """Words of each example, from any feature that tells; else zeros."""
  for name in rows.start:
    axes = FEATURES[name].axes
    if name.startswith(side) and axes in ("W", "WW"):
      sizes = rows.sizes(name)
      return sizes if axes == "W" else np.sqrt(sizes).round().astype(np.int64)
  return np.zeros(len(rows), np.int64)
