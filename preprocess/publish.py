"""Moves a new dataset into the dataset directory, with its manifest last."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote


def check_no_user_files(
  directory: pathlib.Path, name: str, used: Iterable[pathlib.Path]
) -> None:
  """Raises InputError if the new dataset would replace a file of the user.

  Args:
    directory: dataset directory; it may not exist.
    name: name of the dataset.
    used: input files of the dataset.

  Raises:
    InputError: a file of the user is in a folder for prepared files.
  """
  shard = r"(-\d{5}-of-\d{5})?"
  folders = {
    "conllu": rf".+\.(source|target){shard}\.conllu\.gz",
    "text": rf".+\.((source|target){shard}|drawn)\.gz",
    name: r"\d+\.\d+\.\d+",
  }
  for path in used:
    for folder in folders:
      place = _real(directory / folder)
      if _real(path).startswith(place + os.sep):
        raise _in_the_way(path, directory / folder)
  for folder, pattern in folders.items():
    for path in _inside(directory / folder):
      if not re.fullmatch(pattern, path.name):
        raise _in_the_way(path, directory / folder)


def _inside(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the visible paths directly in a folder, or the path of a file."""
  if remote.is_remote(folder):
    existing = {name.partition("/")[0] for name in files.names(folder)}
    yield from (folder / name for name in sorted(existing) if name[0] != ".")
  elif folder.is_dir():
    yield from (p for p in sorted(folder.iterdir()) if p.name[0] != ".")
  elif os.path.lexists(folder):
    yield folder


def _real(path: pathlib.Path) -> str:
  return str(path) if remote.is_remote(path) else os.path.realpath(path)


def _in_the_way(path: pathlib.Path, place: pathlib.Path) -> InputError:
  return InputError(
    f"{path} would be lost, for {place} is where prepared files go. Move it to"
    " another folder, or set config.data.directory to one."
  )


def publish(
  new: pathlib.Path, directory: pathlib.Path, manifest: Mapping[str, Any]
) -> None:
  """Moves a new dataset into its directory and writes the manifest last.

  The old manifest is removed first. A folder without a manifest is no dataset,
  so a mix of old and new files is never used, even after a loss of power.

  Args:
    new: folder of the new files, in `directory`.
    directory: dataset directory.
    manifest: manifest of the new files.
  """
  if remote.is_remote(directory):
    _publish_remote(new, directory, manifest)
    return
  files.flush_tree(new)
  (directory / manifests.FILE).unlink(missing_ok=True)
  files.flush_folder(directory)
  for path in sorted(new.iterdir()):
    place = directory / path.name
    if place.is_dir() and not place.is_symlink():
      shutil.rmtree(place)
    else:
      place.unlink(missing_ok=True)
    os.rename(path, place)
  files.flush_folder(directory)
  manifests.write(directory, manifest)


def _publish_remote(
  new: pathlib.Path, directory: pathlib.Path, manifest: Mapping[str, Any]
) -> None:
  """Moves a new dataset within an object store, which cannot move folders."""
  files.remove(directory / manifests.FILE)
  for name in sorted({name.partition("/")[0] for name in files.names(new)}):
    files.remove_folder(directory / name)
  manifests.write(new, manifest)
  remote.move(new, directory, last=manifests.FILE)
