"""Columns of examples that are not stored: made once, read as those that are.

Other trees, tags and second tasks (`jaxsyn.data.loader.examples`) give other
examples than prepare wrote. A folder holds them as `jaxsyn.data.store.blocks`
writes them, and a page with the sums of its files. What is cut, missing or of
another version is made again, and one line says so; so is what is damaged in
files that fit in memory. Larger ones are checked block by block as they are read.

Before this file: `examples`, which are written. After it: `held`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable

from jaxsyn.data.loader.examples import Counters
from jaxsyn.data.store.blocks import write_blocks
from jaxsyn.data.store.lengths import write_lengths
from jaxsyn.data.store.manifest_format import File, Number
from jaxsyn.data.store.prepared import ColumnFiles, PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.options import RESULT_MODE, ConfigPath, from_config
from jaxsyn.storage import checksums, files, lock, private, remote

RECORD_FILE = "columns.json"
FORMAT = 2
_COLUMNS, _LENGTHS = "columns.arrow", "lengths.arrow"
_PATIENCE = 4  # more looks for a file, a twentieth of a second apart
_STALE = 24 * 3600.0  # seconds after which what is unfinished was given up

Make = Callable[[Counters], Iterable[Rows]]


@dataclasses.dataclass(frozen=True)
class _CacheRecord:
  """What the page says."""

  format: int
  examples: Number
  files: dict[str, File]
  notes: dict[str, int]


def folder_of(
  records: PreparedSplit,
  features: Iterable[str],
  about: Iterable[str | int | None],
) -> pathlib.Path:
  """Folder for columns of a prepared split; its name tells what is in it.

  Args:
    records: the opened split.
    features: names of those to keep.
    about: all else that decides the examples.
  """
  identity = json.dumps([records.fingerprint, sorted(features), *about])
  name = hashlib.sha256(identity.encode()).hexdigest()[:16]
  if remote.is_remote(records.directory):
    # A store keeps what is prepared; what is derived, the machine that reads it.
    try:
      return private.folder(make=True) / "derived" / name
    except OSError:
      return private.temporary() / "derived" / name
  return records.directory / "work" / "derived" / name


def open_columns(
  make: Make,
  features: tuple[str, ...],
  cache: pathlib.Path,
  *,
  memory_gib: float,
) -> tuple[ColumnFiles, dict[str, int]]:
  """The columns of examples, from the cache or made now, and what was counted.

  Where the folder cannot be written to, or its disk is full, the cache is in
  one of the user's own (`jaxsyn.storage.private`).

  Args:
    make: gives all examples in order, some at a time, and counts in what it is
      given; called where there is no cache, or one that is not as it was
      written, and again where a place turns out to be full.
    features: names of those to keep.
    cache: of `folder_of`.
    memory_gib: columns that are larger are not read whole to be checked.

  Raises:
    InputError: no place can be written to.
  """
  corrupt = []
  places = (cache, *(_aside(root, cache) for root in private.existing()))
  for place in filter(os.path.lexists, places):
    try:
      return _load(place, features, memory_gib)
    except (OSError, ValueError) as error:
      why = str(error).rstrip(".")
      corrupt.append(f"{place} is made again from the examples: {why}.")
  # Not before: beside one that cannot be mended another may have been made.
  for line in corrupt:
    private.warn(line)
  rejected = []
  roots: tuple[Callable[[], pathlib.Path], ...] = (
    lambda: cache,
    lambda: _aside(private.folder(make=True), cache),
    lambda: _aside(private.temporary(), cache),
  )
  for root in roots:
    try:
      place = root()
      place.parent.mkdir(parents=True, exist_ok=True)
      waiting = (
        f"waiting for another process, which makes columns in {place.parent}"
      )
      with lock.flock(place.parent, fcntl.LOCK_EX, waiting):
        if os.path.lexists(place):
          # Of several processes that found none, one made it; others waited.
          with contextlib.suppress(OSError, ValueError):
            return _load(place, features, memory_gib)
        _write(make, features, place)
    except OSError as error:  # no rights, a disk that is full or read-only, ...
      rejected.append(str(error))
      continue
    if rejected:
      private.warn(f"columns are cached in {place}: {rejected[0]}.")
    try:
      return _load(place, features, memory_gib)
    except (OSError, ValueError) as error:
      rejected.append(f"{str(error).rstrip('.')}, though it was just written")
  raise InputError(
    "there is no place for the columns of the data set, which are made once and"
    f" then read: {'; '.join(rejected)}. Free some space, or set XDG_CACHE_HOME"
    " to a folder with more."
  )


def _aside(root: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
  return root / "columns" / cache.name


def _load(
  folder: pathlib.Path, features: tuple[str, ...], memory_gib: float
) -> tuple[ColumnFiles, dict[str, int]]:
  """The columns in a folder that is there; errors as of `_read`."""
  for _ in range(_PATIENCE):
    before = _identity(folder)
    try:
      return _read(folder, features, memory_gib)
    except (OSError, ValueError):
      # A file that is gone, or of another folder than its page: perhaps another
      # process puts its own, the same, in this place.
      if before and before == _identity(folder):
        raise
    time.sleep(0.05)
  return _read(folder, features, memory_gib)


def _identity(folder: pathlib.Path) -> tuple[int, int] | None:
  """What another folder of the same name has not; None where there is none."""
  try:
    now = folder.stat()
  except OSError:
    return None
  return now.st_ino, now.st_ctime_ns


def _read(
  folder: pathlib.Path, features: tuple[str, ...], memory_gib: float
) -> tuple[ColumnFiles, dict[str, int]]:
  """The columns in a folder.

  Raises:
    OSError: a file is not there, or cannot be read.
    ValueError: it is not as it was written.
  """
  record = checksums.verify_checksum(files.read_json(folder / RECORD_FILE))
  about = from_config(
    _CacheRecord, record, ConfigPath(RECORD_FILE), RESULT_MODE
  )
  if about.format != FORMAT or set(about.files) != {_COLUMNS, _LENGTHS}:
    raise ValueError(f"{RECORD_FILE} is of another version")
  small = about.files[_COLUMNS].bytes <= memory_gib * 2**30
  wrong = checksums.corrupt_files(
    folder, record["files"], lambda name: small or name == _LENGTHS
  )
  if wrong:
    raise ValueError(wrong)
  columns = ColumnFiles.open(
    [folder / _COLUMNS],
    folder / _LENGTHS,
    examples=about.examples,
    remedy=f"Remove {folder}: it is made again.",
  )
  if lacking := set(features) - set(
    columns.blocks[0][1] if columns.blocks else ()
  ):
    raise ValueError(f"it lacks {min(lacking)}")
  return columns, about.notes


def _write(make: Make, features: tuple[str, ...], folder: pathlib.Path) -> None:
  """Streams examples into the files of a folder, which appears whole."""
  _remove_stale(folder.parent)
  counters: Counters = collections.Counter()
  with files.publish_folder(folder) as new:
    with open(new / _COLUMNS, "wb") as file:
      blocks = write_blocks(file, features, make(counters))
    with open(new / _LENGTHS, "wb") as file:
      write_lengths(file, [blocks])
    record = {
      "format": FORMAT,
      "examples": sum(len(block.lengths.source) for block in blocks),
      "files": checksums.file_checksums(new, [_COLUMNS, _LENGTHS]),
      "notes": dict(counters),
    }
    files.write_json(new / RECORD_FILE, checksums.add_checksum(record))


def _remove_stale(folder: pathlib.Path) -> None:
  """Removes what killed processes left of caches."""
  for path in folder.glob(f".*{files.PARTIAL}"):
    with contextlib.suppress(OSError):  # another process removes it as well
      if time.time() - path.stat().st_mtime > _STALE:
        shutil.rmtree(path)
