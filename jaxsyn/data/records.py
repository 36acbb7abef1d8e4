"""Random access to the TFRecords of a prepared split.

`preprocess.build` writes the records, `jaxsyn.data.tfds_builder` their index;
here they are read back, checked and decoded, with neither TensorFlow nor JAX.
`jaxsyn.data.columns` loads all of a split, `jaxsyn.data.batches` plans from
the index alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn import files
from jaxsyn.data import example_check, schema, tfrecord
from jaxsyn.data import manifest as manifests
from jaxsyn.errors import InputError

Example = dict[str, np.ndarray]

_TYPES = (np.int32, np.int64, np.int32, np.int32, np.int32)  # of an index
_TOGETHER = 512  # examples that are checked at a time


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
    return cls(*columns, fingerprint)

  def save(self, path: os.PathLike | str) -> None:
    """Writes an .npz, whole or not at all; the same bytes always."""
    with files.publish(path) as file:
      np.savez(file, **dataclasses.asdict(self))

  @classmethod
  def load(cls, path: os.PathLike | str) -> Index | None:
    """The index of a file; None if there is none, or it cannot be read."""
    fields = {field.name: None for field in dataclasses.fields(cls)}
    try:
      most = os.stat(path).st_size
      with np.load(path, allow_pickle=False) as arrays:
        for entry in arrays.zip.infolist():
          # Ours are not packed; what is may have any size when unpacked.
          if entry.compress_type or entry.file_size > most:
            return None
        for name in fields:
          fields[name] = arrays[name]
    except Exception:  # it is a cache: whatever is wrong, it is made again
      return None
    index = cls(**{**fields, "fingerprint": str(fields["fingerprint"])})
    same = all(
      array.dtype == dtype and array.shape == index.shard.shape
      for array, dtype in zip(index._columns, _TYPES)
    )
    return index if same else None

  @property
  def _columns(self) -> tuple[np.ndarray, ...]:
    return (
      *(self.shard, self.offset, self.length),
      *(self.source_length, self.target_length),
    )

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

  def __init__(self, directory: os.PathLike | str, split: str):
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
    self._set_up()
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
    example = self._decoded(tfrecord.payload(frame, path, number), path, number)
    self._check([example], path, number, i)
    return example

  def __iter__(self) -> Iterator[Example]:
    """All examples in order, read file by file; checked."""
    first = 0
    for path in self._paths:
      crc, waiting, number = files.Crc(), [], 0
      for _, payload in tfrecord.scan(path, crc):
        waiting.append(self._decoded(payload, path, number + len(waiting)))
        if len(waiting) == _TOGETHER:
          self._check(waiting, path, number, first + number)
          yield from waiting
          number += len(waiting)
          waiting.clear()
      self._check(waiting, path, number, first + number)
      first += number + len(waiting)
      name = path.relative_to(self.directory).as_posix()
      if crc.value != self.manifest["files"][name]["crc32c"]:
        raise InputError(
          f"{path} has another checksum than in the manifest: it is not what"
          " was prepared. Prepare the data again or copy the file anew."
        )
      yield from waiting

  def _decoded(
    self, payload: bytes, path: pathlib.Path, number: int
  ) -> Example:
    try:
      return self._decode(payload)
    except ValueError as error:
      raise self._fault(path, number, str(error)) from None

  def _check(
    self, examples: list[Example], path: pathlib.Path, number: int, i: int
  ) -> None:
    """Raises InputError unless examples are such of this data set.

    Args:
      examples: one after the other.
      path, number: the file of the first, and which of its records it is.
      i: number of the first in the split.
    """
    if found := self._checker.fault(examples):
      where, why = found
      raise self._fault(path, number + where, why)
    for name in ("source", "target"):
      lengths = getattr(self.index, f"{name}_length")[i : i + len(examples)]
      if lengths.tolist() != [len(e[f"{name}_id"]) for e in examples]:
        where = manifests.index_file(self.directory, self.manifest, self.split)
        raise InputError(
          f"{where} has other lengths than the records. Delete it: it is made"
          " again."
        )

  def _fault(self, path: pathlib.Path, number: int, why: str) -> InputError:
    return InputError(
      f"{path}: record {number} is no example of this data set: {why}. Prepare"
      " the data again (python -m preprocess.build) or copy the file anew."
    )

  def __getstate__(self) -> dict[str, Any]:
    return {**self.__dict__, "_files": {}, "_decode": None, "_checker": None}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    self._set_up()

  def _set_up(self) -> None:
    """Makes what cannot be pickled."""
    self._decode = decoder(manifests.features(self.manifest))
    self._checker = example_check.Check(self.manifest)

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
          f" {size}. Prepare the data again or copy the file anew."
        )

  def _rebuild(self) -> Index:
    rows = []
    for shard, path in enumerate(self._paths):
      for number, (offset, payload) in enumerate(tfrecord.scan(path)):
        example = self._decoded(payload, path, number)
        sizes = len(example["source_id"]), len(example["target_id"])
        rows.append((shard, offset, len(payload), *sizes))
    return Index.of(rows, self.fingerprint)


def decoder(
  features: Mapping[str, schema.Feature],
) -> Callable[[bytes], Example]:
  """A function from a serialised tf.train.Example to its arrays.

  Does what `tfds.features.FeaturesDict.deserialize_example_np` does for these
  features, about six times as fast. It raises ValueError for what has not just
  these features in their types; what their values may be is for
  `jaxsyn.data.example_check`.
  """
  from google.protobuf.message import DecodeError
  from tensorflow_datasets.proto import tf_example_pb2

  parse = tf_example_pb2.Example.FromString
  plan = [(name, f.dtype, f.axes) for name, f in features.items()]

  def decode(payload: bytes) -> Example:
    example = {}
    try:
      values = parse(payload).features.feature
      for name, dtype, axes in plan:
        value = values[name]  # makes what is not there: counted below
        if axes == "WW":  # bytes, so that nothing is converted
          kind, items = "bytes_list", value.bytes_list.value
          array = np.frombuffer(items[0] if len(items) == 1 else b"", dtype)
        else:
          kind = "float_list" if dtype.kind == "f" else "int64_list"
          items = getattr(value, kind).value
          array = np.fromiter(items, dtype, len(items))
        if len(items) != 1 and not (axes and axes != "WW"):
          raise ValueError(f"{name} has {len(items)} values, not one")
        if not items and value.WhichOneof("kind") not in (None, kind):
          raise ValueError(f"{name} has values of another type")
        example[name] = array if axes else array[0]
    except (DecodeError, OverflowError) as error:
      raise ValueError(str(error)) from None
    if len(values) != len(plan):
      raise ValueError(f"its features are not {', '.join(example)}")
    return example

  return decode
