"""Manifest of a dataset directory, with its contents and their origin.

`preprocess.build` writes manifest.json last, so a directory with a manifest is
complete. `jaxsyn.data.store.manifest_format` defines its fields.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.sentence.parsers.parser import sha256_texts as sha256_texts
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import fetch, manifest_format
from jaxsyn.data.store.manifest_format import FORMAT
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.storage import checksums, files, lock, remote

FILE = "manifest.json"


def read(directory: os.PathLike[str] | str) -> dict[str, Any]:
  """Returns the verified manifest of a dataset directory or run directory.

  Raises:
    InputError: The directory or its manifest does not exist, or the manifest is
      corrupt, has another format, or has an invalid field. The message names
      the field.
  """
  path = files.path_of(directory) / FILE
  prepare = "Run jaxsyn prepare --config FILE"
  try:
    document = files.read_json(path)
    version = document.get("format") if isinstance(document, dict) else None
    if version == FORMAT:
      manifest = checksums.verify_checksum(document)
      manifest_format.check(manifest)
      return manifest
  except (FileNotFoundError, NotADirectoryError):
    is_folder = os.path.isdir(path.parent)
    state = "is not a prepared folder" if is_folder else "is missing"
    raise InputError(
      f"{path.parent} {state}: there is no {path}. {prepare} (again, if it was"
      " interrupted), or set config.data.directory."
    ) from None
  except (OSError, ValueError) as error:
    reason = str(error).rstrip(".")
    raise InputError(
      f"{path} is corrupt ({reason}). {prepare} again."
    ) from None
  raise InputError(
    f"{path} has format {version!r}; this version reads {FORMAT}. {prepare} again."
  )


def write(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any]
) -> None:
  """Writes the manifest of a dataset directory atomically, with a checksum.

  Raises:
    InputError: The manifest has an invalid field.
  """
  document = checksums.add_checksum({**manifest, "format": FORMAT})
  manifest_format.check(checksums.verify_checksum(document))
  files.write_json(files.path_of(directory) / FILE, document)


@contextlib.contextmanager
def in_use(directories: Iterable[os.PathLike[str] | str]) -> Iterator[None]:
  """Locks dataset directories in a `with` block, so that they are not replaced.

  `jaxsyn prepare` fails for a locked directory. The locks end with their
  process. Directories on object stores have none.

  Raises:
    InputError: A directory is being prepared. The message names the process.
  """
  advice = "Wait until that has ended, then run the same command again."
  with contextlib.ExitStack() as stack:
    for directory in directories:
      if remote.is_remote(directory):
        continue
      if os.path.isfile(os.path.join(directory, FILE)):
        stack.enter_context(lock.shared_lock(directory, advice))
    yield


def split(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
  """Returns the manifest's entry for a split.

  Raises:
    InputError: There is no such split.
  """
  if name not in manifest["splits"]:
    raise InputError(
      f"data set {manifest['name']} has no split {name!r}. "
      f"{did_you_mean(name, manifest['splits'])}"
    )
  return manifest["splits"][name]


def vocabulary(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any], side: str
) -> Vocabulary:
  """Returns the loaded vocabulary of a side, checked against the manifest.

  The directory is a dataset directory or run directory.

  Raises:
    InputError: The vocabulary is missing, or not the one in the manifest.
  """
  entry = manifest["vocabulary"][side]
  path = files.path_of(directory) / entry["file"]
  loaded = Vocabulary(fetch.local(path, entry["sha256"]))
  check_vocabulary(manifest, loaded, side)
  return loaded


def check_vocabulary(
  manifest: Mapping[str, Any], vocabulary: Any, side: str = "source"
) -> None:
  """Raises InputError unless a dataset was prepared with the given vocabulary.

  Args:
    manifest: Manifest of the dataset.
    vocabulary: Vocabulary, with `path`, `sha256` and `size`.
    side: "source" or "target".
  """
  expected = manifest["vocabulary"][side]
  for name, key in (("SHA-256", "sha256"), ("number of ids", "size")):
    if (value := getattr(vocabulary, key)) != expected[key]:
      raise InputError(
        f"{vocabulary.path} is not the {side} vocabulary of data set"
        f" {manifest['name']}: its {name} is {value}, the manifest says"
        f" {expected[key]} ({expected['file']}). Use that file, or prepare the"
        " data again."
      )


def recorded_parser(manifest: Mapping[str, Any], side: str) -> Identity | None:
  """Returns the identity of the parser that made a side's trees.

  Returns None if there are no trees, or if they were imported from CoNLL-U
  files without the name of a parser.
  """
  entry = manifest["parser"].get(side)
  known = entry and (entry.get("name") or entry["sha256"])
  return Identity.of(entry) if entry and known else None


def check_parser(
  manifest: Mapping[str, Any], parser: Identity, side: str = "source"
) -> None:
  """Raises InputError unless a side was parsed with the given parser.

  Any parser is accepted if the manifest names none.
  """
  expected = recorded_parser(manifest, side)
  if expected and expected.key != parser.key:
    raise InputError(
      f"{parser} is not the {side} parser of data set {manifest['name']}, which"
      f" is {expected}. Use that one, or prepare the data again."
    )
