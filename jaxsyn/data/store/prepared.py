"""The examples of a split, read from its columns: by block, or in order.

`preprocess.build` writes the columns (`jaxsyn.data.store.blocks`). What is known
at once is how long every example is, from the file of lengths, which is read
whole; of the rest, blocks and features are read as they are asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from jaxsyn.data.store import integrity, layout, manifests
from jaxsyn.data.store.blocks import BlockReader
from jaxsyn.data.store.lengths import Block, Column, Lengths, read_lengths
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.data.store.tfrecord import REMEDY
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote

_READ_AHEAD = (
  8 << 20
)  # bytes that a store is asked for at most, unless for more


@dataclasses.dataclass(frozen=True)
class ColumnFiles:
  """Columns that were opened.

  Attributes:
    paths: of the files, a shard each.
    lengths: of all examples, unsigned, as short as can be: of 40 million pairs
      there are 160 million.
    start: number of the first example of each block; and of all, at the end.
    blocks: shard and columns of each block.
    remedy: what to do where a file is damaged, for messages.
  """

  paths: Sequence[pathlib.Path]
  lengths: Lengths
  start: np.ndarray
  blocks: Sequence[tuple[int, Mapping[str, Column]]]
  remedy: str = REMEDY

  @classmethod
  def open(
    cls,
    paths: Sequence[pathlib.Path],
    lengths: pathlib.Path,
    *,
    examples: int,
    remedy: str = REMEDY,
  ) -> ColumnFiles:
    """Reads the lengths, of which the checksum was compared.

    Raises:
      InputError: it is no such file, or of another number of examples or files.
    """
    sides = [np.empty(examples, np.uint8) for _ in Lengths._fields]
    start, blocks = [0], []
    with files.open_read(lengths) as file:
      for block in read_lengths(file, str(lengths)):
        begin, end = start[-1], start[-1] + len(block.lengths.source)
        if end > examples or not 0 <= block.shard < len(paths):
          break
        for i, lengths_of_block in enumerate(block.lengths):
          kind = np.min_scalar_type(lengths_of_block.max(initial=0))
          if kind.itemsize > sides[i].itemsize:
            sides[i] = sides[i].astype(kind)
          sides[i][begin:end] = lengths_of_block
        start.append(end)
        blocks.append((block.shard, block.columns))
    if start[-1] != examples:
      raise InputError(
        f"{lengths} is not of these {examples:,} examples. {remedy}"
      )
    return cls(paths, Lengths(*sides), np.array(start), blocks, remedy)

  def __len__(self) -> int:
    return len(self.lengths.source)

  def read(
    self, numbers: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Some blocks, in the order asked for.

    Raises:
      InputError: a file is missing or damaged; names it and the feature.
    """
    of = itertools.groupby(numbers, lambda index: self.blocks[index][0])
    for shard, indices in of:
      path = self.paths[shard]
      # With 8 MiB at a time three times the bytes came of blocks out of order.
      read_ahead = self._widest if remote.is_remote(path) else _READ_AHEAD
      with _opened(path, read_ahead, self.remedy) as file:
        reader = BlockReader(file, features, name=str(path), remedy=self.remedy)
        for index in indices:
          yield reader.read(self._block(index))

  @functools.cached_property
  def _widest(self) -> int:
    """Bytes of the largest block: what a store is asked for at a time."""
    begins = [
      (shard, min(column.offset for column in columns.values()))
      for shard, columns in self.blocks
    ]
    sizes = (b - a for (i, a), (j, b) in itertools.pairwise(begins) if i == j)
    return min(max(sizes, default=_READ_AHEAD), _READ_AHEAD)

  def _block(self, index: int) -> Block:
    shard, columns = self.blocks[index]
    lengths = self.lengths.of(slice(*self.start[index : index + 2]))
    return Block(lengths, columns, shard)


@contextlib.contextmanager
def _opened(
  path: pathlib.Path, read_ahead: int, remedy: str
) -> Iterator[IO[bytes]]:
  try:
    file = files.open_read(path, read_ahead)  # closed below
  except OSError as error:
    raise InputError(
      f"{path} cannot be read: {error.strerror}. {remedy}"
    ) from None
  with file:
    yield file


class PreparedSplit:
  """The examples of one split, by number or in order.

  Attributes:
    manifest: of the prepared folder.
    split: its name.
    directory: the prepared folder.
    features: names of the arrays of an example.
    fingerprint: SHA-256 that changes whenever an example does.
    columns: where they are.
  """

  def __init__(self, directory: os.PathLike[str] | str, split: str):
    """Opens a split.

    Args:
      directory: the prepared folder (config.data.directory).
      split: a name of the manifest's splits.

    Raises:
      InputError: no such folder or split; a file is missing, of another size
        than the manifest says, or the lengths are damaged.
    """
    self.manifest = manifests.read(directory)
    facts = manifests.split(self.manifest, split)
    self.split = split
    self.directory = files.path_of(directory)
    self.fingerprint = facts["records_sha256"]
    self.features = tuple(manifests.features(self.manifest))
    names = layout.columns_files("", self.manifest, split)
    for name in names:
      integrity.check(directory, self.manifest, name, deep=False)
    lengths = layout.lengths_file("", split)
    integrity.check(directory, self.manifest, lengths)
    self.columns = ColumnFiles.open(
      [self.directory / name for name in names],
      self.directory / lengths,
      examples=facts["examples"],
    )

  def __len__(self) -> int:
    return len(self.columns)

  def __getitem__(self, i: int) -> Example:
    """Example number i."""
    if not 0 <= i < len(self):
      raise IndexError(f"example {i} of {len(self)}")
    block = int(np.searchsorted(self.columns.start, i, "right")) - 1
    (rows,) = self.columns.read([block], self.features)
    begin = i - int(self.columns.start[block])
    return rows.part(begin, begin + 1).examples()[0]

  def __iter__(self) -> Iterator[Example]:
    """All examples in order."""
    for rows in self.rows():
      yield from rows.examples()

  def unparsed(self, side: str) -> int:
    """Counts the sentences of a side without a tree; reads that feature only."""
    name = f"{side}_parsed"
    blocks = self.columns.read(range(len(self.columns.blocks)), [name])
    return sum(int((rows.flat[name] == 0).sum()) for rows in blocks)

  def rows(self) -> Iterator[Rows]:
    """The same, some thousands at a time; errors as of `ColumnFiles.read`."""
    return self.columns.read(range(len(self.columns.blocks)), self.features)
