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
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import manifest as manifests
from jaxsyn.data import schema, tfrecord
from jaxsyn.errors import InputError

Example = dict[str, np.ndarray]


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
    types = (np.int32, np.int64, np.int32, np.int32, np.int32)
    columns = (table[:, i].astype(t) for i, t in enumerate(types))
    return cls(*columns, fingerprint)

  def save(self, path: os.PathLike | str) -> None:
    """Writes an .npz, whole or not at all."""
    path = pathlib.Path(path)
    temporary = path.with_name(path.name + ".partial")
    try:
      with open(temporary, "wb") as file:
        np.savez(file, **dataclasses.asdict(self))
      os.replace(temporary, path)
    finally:
      temporary.unlink(missing_ok=True)

  @classmethod
  def load(cls, path: os.PathLike | str) -> Index | None:
    """The index of a file; None if there is none, or it cannot be read."""
    try:
      with np.load(path) as arrays:
        values = {f.name: arrays[f.name] for f in dataclasses.fields(cls)}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
      return None
    return cls(**{**values, "fingerprint": str(values["fingerprint"])})


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
    features = manifests.features(self.manifest)
    self.features = tuple(features)
    self._paths = [folder / shard["file"] for shard in facts["shards"]]
    self._files: dict[int, int] = {}
    self._decode = decoder(features)
    self._check_sizes([shard["bytes"] for shard in facts["shards"]])
    path = folder / f"index-{split}.npz"
    index = Index.load(path)
    if index is None or index.fingerprint != self.fingerprint:
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
    """Example number i, in the order of the text; checksums checked."""
    if not 0 <= i < len(self):
      raise IndexError(f"record {i} of {len(self)}")
    shard = int(self.index.shard[i])
    size = tfrecord.HEADER + int(self.index.length[i]) + tfrecord.FOOTER
    frame = os.pread(self._file(shard), size, int(self.index.offset[i]))
    number = i - int(np.searchsorted(self.index.shard, shard))
    return self._decode(tfrecord.payload(frame, self._paths[shard], number))

  def __iter__(self) -> Iterator[Example]:
    """All examples in order, read file by file."""
    for path in self._paths:
      for _, payload in tfrecord.scan(path):
        yield self._decode(payload)

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
          f" {size}. Prepare the data again or copy the file anew."
        )

  def _rebuild(self) -> Index:
    rows = []
    for shard, path in enumerate(self._paths):
      for offset, payload in tfrecord.scan(path):
        example = self._decode(payload)
        sizes = len(example["source_id"]), len(example["target_id"])
        rows.append((shard, offset, len(payload), *sizes))
    return Index.of(rows, self.fingerprint)


def decoder(
  features: Mapping[str, schema.Feature],
) -> Callable[[bytes], Example]:
  """A function from a serialised tf.train.Example to its arrays.

  Does what `tfds.features.FeaturesDict.deserialize_example_np` does for these
  features, about six times as fast.
  """
  from tensorflow_datasets.proto import tf_example_pb2

  parse = tf_example_pb2.Example.FromString
  plan = [(name, f.dtype, f.axes) for name, f in features.items()]

  def decode(payload: bytes) -> Example:
    values = parse(payload).features.feature
    example = {}
    for name, dtype, axes in plan:
      if axes == "WW":  # bytes, so that nothing is converted
        raw = values[name].bytes_list.value[0]
        example[name] = np.frombuffer(raw, dtype)
        continue
      kind = "float_list" if dtype.kind == "f" else "int64_list"
      items = getattr(values[name], kind).value
      array = np.fromiter(items, dtype, len(items))
      example[name] = array if axes else array[0]
    return example

  return decode
