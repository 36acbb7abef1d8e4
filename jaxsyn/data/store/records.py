"""The examples of a prepared split, in the order of its text.

`preprocess.build` writes the records with `jaxsyn.data.store.tfds_builder`; here
they are read back, checked and decoded, with neither TensorFlow nor JAX.
`jaxsyn.data.loader` loads all of a split and makes batches of it.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator

from jaxsyn.data.store import integrity, tfrecord
from jaxsyn.data.store import manifest as manifests
from jaxsyn.data.store.decoding import NotAnExample, decoder
from jaxsyn.data.store.example_check import Check
from jaxsyn.data.store.rows import TOGETHER, Example, Rows
from jaxsyn.errors import InputError


class Records:
  """The examples of one split.

  Attributes:
    manifest: of the prepared folder.
    split: its name.
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
    self._size = facts["examples"]
    self._shards = [(folder / s["file"], s) for s in facts["shards"]]
    self._decode = decoder(manifests.features(self.manifest))
    self._check = Check(self.manifest)
    for path, shard in self._shards:
      _check_size(path, shard["bytes"])

  def __len__(self) -> int:
    return self._size

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
    for path, shard in self._shards:
      payloads, number = tfrecord.scan(path), 0
      while waiting := list(itertools.islice(payloads, TOGETHER)):
        try:
          rows = self._decode(waiting)
          self._check(rows)
        except NotAnExample as error:
          raise InputError(
            f"{path}: record {number + error.number} is no example of this data"
            f" set: {error.why}. {tfrecord.REMEDY}"
          ) from None
        yield rows
        number += len(rows)
      # What is whole may still be of another data set of the same size. Not
      # before: of a damaged record its number is told.
      name = path.relative_to(self.directory)
      integrity.check(self.directory, self.manifest, name)
      if number != shard["examples"]:
        raise InputError(
          f"{path} holds {number} records, but the manifest says"
          f" {shard['examples']}. Prepare the data again."
        )


def _check_size(path: pathlib.Path, size: int) -> None:
  """Finds a missing or cut file now and not in the middle of training."""
  if not path.exists() or path.stat().st_size < size:
    for _ in tfrecord.scan(path):  # names the record where the file ends
      pass
  if path.stat().st_size != size:
    raise InputError(
      f"{path} has {path.stat().st_size} bytes, but the manifest says {size}."
      f" {tfrecord.REMEDY}"
    )
