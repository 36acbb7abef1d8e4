"""Cache directories that no other user can write to.

Cached data is trained on and cached programs are run, so a directory that
another user could have created or replaced is not used.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import shutil
import stat
import tempfile

_temporary: dict[int, pathlib.Path] = {}  # by process id


def user_folder() -> pathlib.Path:
  """Returns the user's cache directory, created with mode 0700 if needed.

  It is $XDG_CACHE_HOME/jaxsyn or ~/.cache/jaxsyn.

  Raises:
    OSError: It cannot be created, or other users can write to it.
  """
  base = os.environ.get("XDG_CACHE_HOME", "")
  try:
    # The XDG specification ignores relative paths.
    root = pathlib.Path(base if os.path.isabs(base) else "~/.cache")
    path = root.expanduser() / "jaxsyn"
  except RuntimeError as error:
    raise OSError(str(error)) from None
  path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  path.mkdir(mode=0o700, exist_ok=True)
  check_private(path)
  return path


def check_private(path: pathlib.Path) -> None:
  """Raises OSError if another user can write to a directory or replace it.

  The message names the directory, the reason and the remedy.
  """
  # A user who can write to the parent can replace the directory, unless the
  # sticky bit forbids renaming the files of other users.
  _check(path.parent, path.parent.stat(), {0, os.geteuid()}, stat.S_ISVTX)
  _check(path, path.lstat(), {os.geteuid()})


def temporary_folder() -> pathlib.Path:
  """Returns a temporary directory that is removed when this process ends."""
  owner = os.getpid()
  if owner not in _temporary:
    path = _temporary[owner] = pathlib.Path(tempfile.mkdtemp(prefix="jaxsyn-"))

    def remove() -> None:
      if os.getpid() == owner:  # not in a forked process
        shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
  return _temporary[owner]


def _check(
  path: pathlib.Path,
  status: os.stat_result,
  owners: set[int],
  protection: int = 0,
) -> None:
  """Raises OSError unless a directory is writable only by an allowed owner.

  Args:
    path: Path of the directory, for the message.
    status: Status of the directory.
    owners: User ids of the allowed owners.
    protection: Mode bits with which other users may have write permission.
  """
  if not stat.S_ISDIR(status.st_mode):
    raise OSError(f"{path} is not a folder, or is a link to one")
  if status.st_uid not in owners:
    raise OSError(
      f"{path} belongs to user {status.st_uid}: remove it, or choose another "
      "folder"
    )
  if status.st_mode & 0o022 and not status.st_mode & protection:
    raise OSError(f"{path} can be written to by others: chmod go-w {path}")
