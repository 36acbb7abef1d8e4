"""Cache directory of compiled programs that no other user can write to.

Cached programs are run, so a directory that another user could have created or
replaced is not used.
"""

from __future__ import annotations

import os
import pathlib
import stat


def user_folder() -> pathlib.Path:
  """Returns the user's cache directory, created with mode 0700 if needed.

  It is $XDG_CACHE_HOME/jaxsyn or ~/.cache/jaxsyn.

  Raises:
    OSError: It cannot be created, or other users can write to it.
  """
  base = os.environ.get("XDG_CACHE_HOME", "")
  if not os.path.isabs(base):  # the XDG specification ignores relative paths
    base = os.path.expanduser("~/.cache")
  if not os.path.isabs(base):
    raise OSError("the home directory is unknown; set XDG_CACHE_HOME")
  path = pathlib.Path(base, "jaxsyn")
  path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  path.mkdir(mode=0o700, exist_ok=True)
  check_private(path)
  return path


def check_private(path: pathlib.Path) -> None:
  """Raises OSError if another user can write to a directory or replace it.

  The message names the directory, the reason and the remedy.
  """
  for folder in (path.parent, path):
    status = folder.stat() if folder != path else folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
      raise OSError(f"{folder} is not a folder, or is a link to one")
    if status.st_uid != os.geteuid() and (folder == path or status.st_uid):
      raise OSError(
        f"{folder} belongs to user {status.st_uid}: remove it, or choose "
        "another folder"
      )
    # A user who can write to the parent can replace the directory, unless the
    # sticky bit forbids renaming the files of other users.
    is_sticky = folder != path and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not is_sticky:
      raise OSError(
        f"{folder} can be written to by others: chmod go-w {folder}"
      )
