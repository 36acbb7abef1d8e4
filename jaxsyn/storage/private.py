"""A place for caches that nobody else can write to.

For what belongs to data in a folder that may only be read. What is in a cache
is trained on, so a place that another user could have made first will not do.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import shutil
import stat
import sys
import tempfile

_temporary: dict[int, pathlib.Path] = {}  # by process


def folder(make: bool) -> pathlib.Path:
  """The user's own cache folder: $XDG_CACHE_HOME/jaxsyn or ~/.cache/jaxsyn.

  Args:
    make: it, with mode 0700, if it is not there.

  Raises:
    OSError: it is not there and cannot be made, or others can write to it; says
      why.
  """
  base = os.environ.get("XDG_CACHE_HOME", "")
  try:
    # What is not absolute is to be ignored, says the XDG specification.
    root = pathlib.Path(base if os.path.isabs(base) else "~/.cache")
    path = root.expanduser() / "jaxsyn"
  except RuntimeError as error:
    raise OSError(str(error)) from None
  if make:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
  check(path)
  return path


def check(path: pathlib.Path) -> None:
  """Checks that nobody but this user can write to a folder or replace it.

  Raises:
    OSError: somebody can; says which folder, why, and the remedy.
  """
  # Who can write to the folder above can put another in its place, unless the
  # sticky bit forbids renaming what belongs to somebody else.
  _check(path.parent, path.parent.stat(), {0, os.geteuid()}, stat.S_ISVTX)
  _check(path, path.lstat(), {os.geteuid()})


def temporary() -> pathlib.Path:
  """A fresh folder of this process, the same at each call; removed at its end."""
  owner = os.getpid()
  if owner not in _temporary:
    path = _temporary[owner] = pathlib.Path(tempfile.mkdtemp(prefix="jaxsyn-"))

    def remove() -> None:
      if os.getpid() == owner:  # and not of a process that was forked off
        shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
  return _temporary[owner]


def existing() -> list[pathlib.Path]:
  """Those of the two that there are, without making any."""
  places = []
  with contextlib.suppress(OSError):
    places.append(folder(make=False))
  return places + [_temporary[pid] for pid in _temporary if pid == os.getpid()]


def _check(
  path: pathlib.Path,
  status: os.stat_result,
  owners: set[int],
  protection: int = 0,
) -> None:
  """Raises OSError unless it is a folder that only its owner can write to.

  Args:
    path: of the folder.
    status: of the folder.
    owners: user ids that may own it.
    protection: mode bits with which others may write to it.
  """
  if not stat.S_ISDIR(status.st_mode):
    raise OSError(f"{path} is no folder, or a link to one")
  if status.st_uid not in owners:
    raise OSError(
      f"{path} belongs to user {status.st_uid}: remove it, or choose another "
      "folder"
    )
  if status.st_mode & 0o022 and not status.st_mode & protection:
    raise OSError(f"{path} can be written to by others: chmod go-w {path}")


def warn(text: str) -> None:
  """One line for the user about a cache; standard output is for results."""
  print(text, file=sys.stderr, flush=True)
