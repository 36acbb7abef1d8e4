"""The records of a prepared split, by number or in the order of its text.

`preprocess.build` writes the records with `jaxsyn.data.store.tfds_builder`; here
they are read back, checked and decoded, with neither TensorFlow nor JAX, to
verify a folder. Training reads the columns (`jaxsyn.data.store.prepared`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn.data.store import integrity, layout, manifests, tfrecord
from jaxsyn.data.store.decoding import InvalidExampleError, decoder
from jaxsyn.data.store.example_check import Check
from jaxsyn.data.store.index import Index
from jaxsyn.data.store.rows import TOGETHER, Example, Rows
from jaxsyn.errors import InputError, StoreError
from jaxsyn.storage import files


class Records:
  """The examples of one split, by number or in order; checked.

  Attributes: those of `jaxsyn.data.store.prepared.PreparedSplit`, but columns.
  """

  def __init__(self, directory: os.PathLike[str] | str, split: str):
    """Opens a split.

    Args:
      directory: the prepared folder (config.data.directory).
      split: a name of the manifest's splits.

    Raises:
      InputError: no such folder or split; a shard missing, truncated or of
        another size than the manifest says.
    """
    self.manifest = manifests.read(directory)
    facts = manifests.split(self.manifest, split)
    folder = layout.tfds_folder(directory, self.manifest)
    self.split = split
    self.directory = files.path_of(directory)
    self.fingerprint = facts["records_sha256"]
    self.features = tuple(manifests.features(self.manifest))
    self._size = facts["examples"]
    self._shards = [(folder / s["file"], s) for s in facts["shards"]]
    self._decode = decoder(manifests.features(self.manifest))
    self._check = Check(self.manifest)
    for path, shard in self._shards:
      _check_size(path, shard["bytes"])

  def __len__(self) -> int:
    return self._size

  def __getitem__(self, i: int) -> Example:
    """Example number i; checked."""
    if not 0 <= i < len(self):
      raise IndexError(f"record {i} of {len(self)}")
    shard = self.index.shard
    path, _ = self._shards[shard[i]]
    position = i - int(np.searchsorted(shard, shard[i]))
    payload = tfrecord.read(path, int(self.index.offset[i]), position)
    return self._decoded([payload], path, position).examples()[0]

  @functools.cached_property
  def index(self) -> Index:
    """Of the file or, where that is not as it was written, of the records."""
    name = layout.index_file("", self.manifest, self.split)
    path = self.directory / name
    try:
      integrity.check(self.directory, self.manifest, name)
      return Index.load(path)
    except InputError:
      sizes: list[list[int]] = [[] for _ in self._shards]
      for shard, _, lengths in self._read():
        sizes[shard] += lengths
      index = Index.of(sizes, self.fingerprint)
    # A folder that may only be read: then it is made each time.
    with contextlib.suppress(OSError, StoreError):
      index.save(path)
    return index

  def __iter__(self) -> Iterator[Example]:
    """All examples in order; checked."""
    for rows in self.rows():
      yield from rows.examples()

  def rows(self) -> Iterator[Rows]:
    """The same, some hundreds at a time.

    Raises:
      InputError: a file is not as it was written, or holds what are no examples
        of this data set; names the record.
    """
    for _, rows, _ in self._read():
      yield rows

  def _read(self) -> Iterator[tuple[int, Rows, list[int]]]:
    """Number of the shard, examples, and bytes of each."""
    for i, (path, shard) in enumerate(self._shards):
      payloads, count = tfrecord.scan(path), 0
      while waiting := list(itertools.islice(payloads, TOGETHER)):
        rows = self._decoded(waiting, path, count)
        yield i, rows, [*map(len, waiting)]
        count += len(rows)
      # What is whole may still be of another data set of the same size. Not
      # before: of a damaged record its number is told.
      name = path.relative_to(self.directory)
      integrity.check(self.directory, self.manifest, name)
      if count != shard["examples"]:
        raise InputError(
          f"{path} holds {count} records, but the manifest says"
          f" {shard['examples']}. Prepare the data again."
        )

  def _decoded(
    self, payloads: Sequence[bytes], path: pathlib.Path, first: int
  ) -> Rows:
    """Examples, the first of which is record `first` of a file; checked."""
    try:
      rows = self._decode(payloads)
      self._check(rows)
    except InvalidExampleError as error:
      raise InputError(
        f"{path}: record {first + error.number} is no example of this data set:"
        f" {error.why}. {tfrecord.REMEDY}"
      ) from None
    return rows


def _check_size(path: pathlib.Path, size: int) -> None:
  """Finds a missing or cut file now and not in the middle of training."""
  actual = files.size_of(path) if files.is_file(path) else -1
  if actual < size:
    for _ in tfrecord.scan(path):  # names the record where the file ends
      pass
  if actual != size:
    raise InputError(
      f"{path} has {actual} bytes, but the manifest says {size}."
      f" {tfrecord.REMEDY}"
    )
