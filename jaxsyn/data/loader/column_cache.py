"""Columns on a disk: made once from the examples, checked whenever opened.

A folder holds two files a feature, its values and where each example's begin,
and a page with the sums of all files. What is damaged, cut or missing is made
again, and one line says so; nothing here can be wrong and used.

Before this file: `examples`, which are written. After it: `columns`, which are
read.
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
from typing import Any

import numpy as np

from jaxsyn import files, lock, private, remote
from jaxsyn.data.loader.columns import Columns
from jaxsyn.data.loader.examples import Notes
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.store.manifest_format import File
from jaxsyn.data.store.records import Records
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.options import MEASURED, At, from_config

PAGE = "columns.json"
STAMP = "checked.json"  # which mapped files were read whole, and by which boot
FORMAT = 1
_START = np.dtype("<i8")
_BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id")
_PATIENCE = 4  # more looks for a file, a twentieth of a second apart
_STALE = 24 * 3600.0  # seconds after which what is unfinished was given up

Make = Callable[[Notes], Iterable[Rows]]


@dataclasses.dataclass(frozen=True)
class _Page:
  """What the page says."""

  format: int
  files: dict[str, File]
  notes: dict[str, int]


def folder_of(
  records: Records, features: Iterable[str], about: Iterable[str | int | None]
) -> pathlib.Path:
  """Folder for columns of a prepared split; its name tells what is in it.

  Args:
    records: the opened split.
    features: names of those to keep.
    about: all else that decides the examples.
  """
  page = json.dumps([records.fingerprint, sorted(features), *about])
  name = hashlib.sha256(page.encode()).hexdigest()[:16]
  if remote.is_remote(records.directory):  # nothing there can be mapped
    try:
      return private.folder(make=True) / "columns" / name
    except OSError:
      return private.temporary() / "columns" / name
  return records.directory / "work" / "columns" / name


def open_columns(
  make: Make,
  features: tuple[str, ...],
  cache: pathlib.Path,
  *,
  memory_gib: float,
) -> Columns:
  """The columns of a split, from the cache or made now.

  Where the folder cannot be written to, or its disk is full, the cache is in
  one of the user's own (`jaxsyn.private`).

  Args:
    make: gives all examples in order, some at a time, and counts in what it is
      given; called where there is no cache, or one that is not as it was
      written, and again where a place turns out to be full.
    features: names of those to keep.
    cache: of `folder_of`.
    memory_gib: columns that are larger together are memory-mapped.

  Raises:
    InputError: no place can be written to.
  """
  damaged = []
  places = (cache, *(_aside(root, cache) for root in private.there()))
  for place in filter(os.path.lexists, places):
    try:
      return _load(place, features, memory_gib)
    except (OSError, ValueError) as error:
      why = str(error).rstrip(".")
      damaged.append(f"{place} is made again from the records: {why}.")
  # Not before: beside one that cannot be mended another may have been made.
  for line in damaged:
    private.tell(line)
  refused = []
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
      with lock.held(place.parent, fcntl.LOCK_EX, waiting):
        if os.path.lexists(place):
          # Of several processes that found none, one made it; others waited.
          with contextlib.suppress(OSError, ValueError):
            return _load(place, features, memory_gib)
        _write(make, features, place)
    except OSError as error:  # no rights, a disk that is full or read-only, ...
      refused.append(str(error))
      continue
    if refused:
      private.tell(f"columns are cached in {place}: {refused[0]}.")
    try:
      return _load(place, features, memory_gib)
    except (OSError, ValueError) as error:
      refused.append(f"{str(error).rstrip('.')}, though it was just written")
  raise InputError(
    "there is no place for the columns of the data set, which are made once and"
    f" then read: {'; '.join(refused)}. Free some space, or set XDG_CACHE_HOME"
    " to a folder with more."
  )


def _aside(root: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
  return root / "columns" / cache.name


def _load(
  folder: pathlib.Path, features: tuple[str, ...], memory_gib: float
) -> Columns:
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
) -> Columns:
  """The columns in a folder.

  Raises:
    OSError: a file is not there, or cannot be read.
    ValueError: it is not as it was written.
  """
  page = files.unsealed(files.read_json(folder / PAGE))
  about = from_config(_Page, page, At(PAGE), MEASURED)
  names = _names(features)
  if about.format != FORMAT or set(about.files) != set(names):
    raise ValueError(f"{PAGE} is of other columns, or of another version")
  size = sum(about.files[_values(feature)].bytes for feature in features)
  mapped = size > memory_gib * 2**30
  # From before they are read: what changes meanwhile is not what was checked.
  state = _state(folder, names) if mapped else None
  known = state is not None and _stamp(folder) == state
  if wrong := files.damaged(folder, page["files"], lambda name: not known):
    raise ValueError(wrong)
  flat, start = {}, {}
  for feature in features:
    dtype = FEATURES[feature].dtype
    flat[feature] = _array(folder / _values(feature), dtype, mapped=mapped)
    start[feature] = _array(folder / _begins(feature), _START)
    _check_starts(feature, start[feature], len(flat[feature]))
  if len({len(array) for array in start.values()}) > 1:
    raise ValueError("features have different numbers of examples")
  if state and not known:
    with contextlib.suppress(OSError):  # not ours: read again then
      files.write_json(folder / STAMP, files.sealed(state))
  return Columns(flat, start, about.notes)


def _values(feature: str) -> str:
  """The file of a feature's values."""
  return f"{feature}.bin"


def _begins(feature: str) -> str:
  """The file of where each example's values begin."""
  return f"{feature}.start.bin"


def _names(features: Iterable[str]) -> list[str]:
  return [file(feature) for feature in features for file in (_values, _begins)]


def _array(
  path: pathlib.Path, dtype: np.dtype, *, mapped: bool = False
) -> np.ndarray:
  size = path.stat().st_size
  if size % dtype.itemsize:
    raise ValueError(f"{path} ends within a number")
  if mapped and size:  # nothing cannot be mapped
    return np.memmap(path, dtype, mode="r")
  return np.fromfile(path, dtype)


def _check_starts(feature: str, start: np.ndarray, size: int) -> None:
  if len(start) == 0 or start[0] != 0 or start[-1] != size:
    raise ValueError(f"{feature} begins or ends elsewhere than its values")
  if (np.diff(start) < 0).any():
    raise ValueError(f"an example of {feature} ends before it begins")


def _stamp(folder: pathlib.Path) -> dict[str, Any] | None:
  """The `_state` in which files were last read whole; None if they never were."""
  try:
    return files.unsealed(files.read_json(folder / STAMP))
  except (OSError, ValueError):
    return None


def _state(folder: pathlib.Path, names: Iterable[str]) -> dict[str, Any] | None:
  """What tells files from changed ones during this boot; None: no Linux.

  What is mapped is larger than what one wants to read before the first step of
  every run. A change by a program shows in a file's times, and a copy is
  another file; what a disk loses on its own shows at the next boot.
  """
  try:
    state: dict[str, Any] = {"boot": _BOOT.read_text()}
  except OSError:
    return None
  for name in names:
    now = os.stat(folder / name)
    state[name] = [now.st_dev, now.st_ino, now.st_mtime_ns, now.st_ctime_ns]
  return state


def _write(make: Make, features: tuple[str, ...], folder: pathlib.Path) -> None:
  """Streams examples into the files of a folder, which appears whole."""
  _remove_stale(folder.parent)
  notes: Notes = collections.Counter()
  with files.publish_folder(folder) as new:
    sizes: dict[str, list[np.ndarray]] = {feature: [] for feature in features}
    with contextlib.ExitStack() as stack:
      values = {
        feature: stack.enter_context(open(new / _values(feature), "wb"))
        for feature in features
      }
      for rows in make(notes):
        for feature, file in values.items():
          file.write(rows.flat[feature].data)
          sizes[feature].append(rows.sizes(feature))
    for feature, own in sizes.items():
      start = np.cumsum(np.concatenate([[0], *own]), dtype=_START)
      start.tofile(new / _begins(feature))
    sums = files.sums(new, _names(features))
    page = {"format": FORMAT, "files": sums, "notes": dict(notes)}
    files.write_json(new / PAGE, files.sealed(page))


def _remove_stale(folder: pathlib.Path) -> None:
  """Removes what killed processes left of caches."""
  for path in folder.glob(f".*{files.PARTIAL}"):
    with contextlib.suppress(OSError):  # another process removes it as well
      if time.time() - path.stat().st_mtime > _STALE:
        shutil.rmtree(path)
