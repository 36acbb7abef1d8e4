"""Random access to the TFRecords of a prepared split.

`preprocess.build` writes the records, `jaxsyn.data.store.tfds_builder` their index;
here they are read back, checked and decoded, with neither TensorFlow nor JAX.
`jaxsyn.data.loader` loads all of a split and makes batches of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn import files
from jaxsyn.data import schema
from jaxsyn.data.store import integrity, tfrecord
from jaxsyn.data.store import manifest as manifests
from jaxsyn.data.store.decoding import NotAnExample, decoder
from jaxsyn.data.store.example_check import Check
from jaxsyn.data.store.rows import TOGETHER, Example, Rows
from jaxsyn.errors import InputError

# Of an index.
_COLUMNS = ("shard", "offset", "length", "source_length", "target_length")
_TYPES = (np.int32, np.int64, np.int32, np.int32, np.int32)


@dataclasses.dataclass(frozen=True)
class Index:
  """Where each record of a split is, and how long its sentences are.

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

  def __len__(self) -> int:
    return len(self.shard)

  @classmethod
  def of(cls, rows: Sequence[Sequence[int]], fingerprint: str) -> Index:
    """From rows (shard, offset, length, source_length, target_length)."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    columns = (table[:, i].astype(t) for i, t in enumerate(_TYPES))
    return cls(**dict(zip(_COLUMNS, columns)), fingerprint=fingerprint)

  def save(self, path: os.PathLike[str] | str) -> None:
    """Writes an .npz, whole or not at all; the same bytes always."""
    with files.publish(path) as file:
      np.savez(file, **dataclasses.asdict(self))

  @classmethod
  def load(cls, path: os.PathLike[str] | str) -> Index | None:
    """The index of a file; None if there is none, or it cannot be read."""
    arrays: dict[str, Any] = {}
    try:
      most = os.stat(path).st_size
      with np.load(path, allow_pickle=False) as file:
        for entry in file.zip.infolist():
          # Ours are not packed; what is may have any size when unpacked.
          if entry.compress_type or entry.file_size > most:
            return None
        for name in (*_COLUMNS, "fingerprint"):
          arrays[name] = file[name]
    except Exception:  # it is a cache: whatever is wrong, it is made again
      return None
    index = cls(**{**arrays, "fingerprint": str(arrays["fingerprint"])})
    same = all(
      array.dtype == dtype and array.shape == index.shard.shape
      for array, dtype in zip(index._columns, _TYPES)
    )
    return index if same else None

  @property
  def _columns(self) -> tuple[np.ndarray, ...]:
    return tuple(getattr(self, name) for name in _COLUMNS)

  def fits(self, shards: Sequence[Mapping[str, Any]]) -> bool:
    """Whether its records fill the files, one after the other.

    Args:
      shards: of the manifest: "examples" and "bytes" of each file.
    """
    counts = np.array([shard["examples"] for shard in shards], np.int64)
    if self.shard.ndim != 1 or len(self) != counts.sum():
      return False
    if any(least < 0 for least in map(_least, self._columns[:3])):
      return False
    if any(least < 1 for least in map(_least, self._columns[3:])):  # EOS
      return False
    frame = self.length.astype(np.int64) + tfrecord.HEADER + tfrecord.FOOTER
    ends = np.append(0, np.cumsum(frame))
    borders = np.append(0, np.cumsum(counts))
    first = np.repeat(ends[borders[:-1]], counts)
    return (
      np.array_equal(self.shard, np.repeat(np.arange(len(counts)), counts))
      and np.array_equal(self.offset, ends[:-1] - first)
      and np.diff(ends[borders]).tolist() == [s["bytes"] for s in shards]
    )


def _least(array: np.ndarray) -> int:
  return int(array.min(initial=np.iinfo(array.dtype).max))


class Records:
  """The examples of one split, by number or in order.

  Attributes:
    manifest: of the prepared folder.
    index: an `Index`; taken from the file, or made from the records where that
      is missing or belongs to other records.
    directory: the prepared folder.
    features: names of the arrays of an example.
    fingerprint: SHA-256 that changes whenever a record does.
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
    folder = manifests.tfds_folder(directory, self.manifest)
    self.split = split
    self.directory = pathlib.Path(directory)
    self.fingerprint = facts["records_sha256"]
    self.features = tuple(manifests.features(self.manifest))
    self._paths = [folder / shard["file"] for shard in facts["shards"]]
    self._files: dict[int, int] = {}
    self._decode = decoder(manifests.features(self.manifest))
    self._check = Check(self.manifest)
    self._check_sizes([shard["bytes"] for shard in facts["shards"]])
    path = manifests.index_file(directory, self.manifest, split)
    index = Index.load(path)
    if (
      index is None
      or index.fingerprint != self.fingerprint
      or not index.fits(facts["shards"])
    ):
      index = self._rebuild()
      # A folder that may only be read: then the index is made each time.
      with contextlib.suppress(OSError):
        index.save(path)
    if len(index) != facts["examples"]:
      raise InputError(
        f"{folder}: split {split} holds {len(index)} records, but the manifest"
        f" says {facts['examples']}. Prepare the data again."
      )
    self.index = index

  def __len__(self) -> int:
    return len(self.index)

  def __getitem__(self, i: int) -> Example:
    """Example number i, in the order of the text; checked."""
    if not 0 <= i < len(self):
      raise IndexError(f"record {i} of {len(self)}")
    shard = int(self.index.shard[i])
    path = self._paths[shard]
    size = tfrecord.HEADER + int(self.index.length[i]) + tfrecord.FOOTER
    try:
      frame = os.pread(self._file(shard), size, int(self.index.offset[i]))
    except OSError as error:
      raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    number = i - int(np.searchsorted(self.index.shard, shard))
    payload = tfrecord.payload(frame, path, number)
    rows = self._decoded([payload], path, number)
    self._check_lengths(rows, i)
    return rows.examples()[0]

  def __iter__(self) -> Iterator[Example]:
    """All examples in order, read file by file; checked."""
    for rows in self.rows():
      yield from rows.examples()

  def rows(self) -> Iterator[Rows]:
    """The same, some hundreds at a time."""
    first = 0
    for rows, _ in self._read():
      self._check_lengths(rows, first)
      first += len(rows)
      yield rows

  def _read(self) -> Iterator[tuple[Rows, list[tuple[int, int, int]]]]:
    """Examples, and (shard, offset, length) of each, some hundreds at a time."""
    for shard, path in enumerate(self._paths):
      # What is whole may still be of another data set of the same size.
      name = path.relative_to(self.directory)
      frames, number = tfrecord.scan(path), 0
      while waiting := list(itertools.islice(frames, TOGETHER)):
        payloads = [payload for _, payload in waiting]
        rows = self._decoded(payloads, path, number)
        yield rows, [(shard, offset, len(data)) for offset, data in waiting]
        number += len(waiting)
      integrity.check(self.directory, self.manifest, name)

  def _decoded(
    self, payloads: list[bytes], path: pathlib.Path, number: int
  ) -> Rows:
    """Decodes examples, the first of which is record `number` of a file.

    Raises:
      InputError: they are no examples of this data set.
    """
    try:
      rows = self._decode(payloads)
      self._check(rows)
    except NotAnExample as error:
      raise InputError(
        f"{path}: record {number + error.number} is no example of this data set:"
        f" {error.why}. {tfrecord.REMEDY}"
      ) from None
    return rows

  def _check_lengths(self, rows: Rows, first: int) -> None:
    """Raises InputError unless the index has the lengths of these examples."""
    for side in schema.SIDES:
      found = getattr(self.index, f"{side}_length")[first : first + len(rows)]
      if not np.array_equal(found, rows.size[f"{side}_id"]):
        path = manifests.index_file(self.directory, self.manifest, self.split)
        raise InputError(
          f"{path} has other lengths than the records. Delete it: it is made"
          " again."
        )

  def __getstate__(self) -> dict[str, Any]:
    return {**self.__dict__, "_files": {}, "_decode": None}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._decode = decoder(manifests.features(self.manifest))

  def _file(self, shard: int) -> int:
    if shard not in self._files:
      file = self._files[shard] = os.open(self._paths[shard], os.O_RDONLY)
      weakref.finalize(self, os.close, file)
    return self._files[shard]

  def _check_sizes(self, expected: Sequence[int]) -> None:
    """Finds a missing or cut file now and not in the middle of training."""
    for path, size in zip(self._paths, expected):
      if not path.exists() or path.stat().st_size < size:
        for _ in tfrecord.scan(path):  # names the record where the file ends
          pass
      if path.stat().st_size != size:
        raise InputError(
          f"{path} has {path.stat().st_size} bytes, but the manifest says"
          f" {size}. {tfrecord.REMEDY}"
        )

  def _rebuild(self) -> Index:
    found = []
    for rows, places in self._read():
      lengths = zip(*(rows.size[f"{side}_id"] for side in schema.SIDES))
      found += [(*place, *own) for place, own in zip(places, lengths)]
    return Index.of(found, self.fingerprint)
