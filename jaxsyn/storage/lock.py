"""Directory locks that keep processes from disturbing each other's files.

A lock is a kernel lock (flock) on an open file, so it ends with its process,
however that ends. The text in DIRECTORY/lock only names the owner, for
messages. If several processes train together, the main process takes the lock.
Object stores have no locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import socket
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from absl import logging

from jaxsyn.errors import InputError
from jaxsyn.storage import remote

FILE = "lock"
ADVICE = (
  "Wait until it has ended or stop it (SIGTERM saves), then run the same "
  "command again; or use another --workdir."
)
_TRIES, _PAUSE = 20, 0.05  # retries while another process is busy; seconds
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)

_locked: set[str] = set()  # directories that this process has locked


@contextlib.contextmanager
def exclusive_lock(
  folder: os.PathLike[str] | str, wait: bool = False, advice: str = ADVICE
) -> Iterator[None]:
  """Locks a directory in a `with` block, so that no other process works in it.

  A process may lock a directory again that it has already locked. On a file
  system without locks, and on an object store, this only logs a warning.

  Args:
    folder: Path of the directory; it is created if it does not exist.
    wait: Whether to wait for another process instead of raising an error.
    advice: Remedy in the error message.

  Raises:
    InputError: Another process has the lock. The message names the process.
  """
  if remote.is_remote(folder):
    _warn_no_locks(f"object store of {folder}")
    yield
    return
  folder = pathlib.Path(folder)
  name = os.path.realpath(folder)
  if name in _locked:
    yield
    return
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise InputError(
      f"{folder} is a file, or below one; name a folder (--workdir)."
    ) from None
  # Never deleted or replaced: otherwise two processes could each lock a file.
  with (folder / FILE).open("a+", encoding="utf-8", errors="replace") as file:
    _lock_exclusively(file, folder, wait=wait, advice=advice)
    file.seek(0)
    file.truncate()
    file.write(_signature())
    file.flush()
    _locked.add(name)
    try:
      yield
    finally:
      _locked.discard(name)


@contextlib.contextmanager
def shared_lock(
  folder: os.PathLike[str] | str, advice: str = ADVICE
) -> Iterator[None]:
  """Locks a directory for reading in a `with` block.

  Any number of processes may read it; none can lock it exclusively. The lock is
  on DIRECTORY/lock, since network file systems lock directories on one machine
  only. A directory that cannot be locked (no write permission, a file system
  without locks, an object store) is read without a lock.

  Args:
    folder: Path of the directory.
    advice: Remedy in the error message.

  Raises:
    InputError: Another process has an exclusive lock. The message names it.
  """
  file = None if remote.is_remote(folder) else _open_lock_file(folder)
  if file is None:
    yield
    return
  with file:
    _lock_shared(file, folder, advice)
    yield


def lock_owner(folder: os.PathLike[str] | str) -> str:
  """Returns a description of the process that locked a directory.

  Raises:
    OSError: There is no lock.
  """
  path = pathlib.Path(folder) / FILE
  return path.read_text(encoding="utf-8", errors="replace").strip()


@contextlib.contextmanager
def flock(
  folder: os.PathLike[str] | str, how: int, waiting: str = ""
) -> Iterator[None]:
  """Locks a directory in a `with` block without writing a lock file.

  On an object store or a file system without locks, this does nothing.

  Args:
    folder: Path of an existing directory.
    how: Operation of flock(2): LOCK_SH or LOCK_EX, with LOCK_NB not to wait.
    waiting: Message to print before waiting for another process.

  Raises:
    BlockingIOError: Another process has the lock, with LOCK_NB.
  """
  if remote.is_remote(folder):
    yield
    return
  file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    try:
      fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
      if how & fcntl.LOCK_NB:
        raise
      if waiting:
        print(waiting, file=sys.stderr, flush=True)
      fcntl.flock(file, how)
    except OSError:
      pass
    yield
  finally:
    os.close(file)


def _lock_exclusively(
  file: TextIO, folder: pathlib.Path, *, wait: bool, advice: str
) -> None:
  # flock, not lockf, whose lock ends when any file object of this process on
  # the same file is closed.
  try:
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
  except BlockingIOError:
    raise InputError(
      f"{folder} is in use by {_owners(file)}. {advice}"
    ) from None
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    _warn_no_locks(f"file system of {folder}")


def _warn_no_locks(storage: str) -> None:
  logging.warning(
    "the %s has no locks: make sure that no other process writes there", storage
  )


def _open_lock_file(folder: os.PathLike[str] | str) -> TextIO | None:
  """Returns a directory's opened lock file; None if it cannot be opened."""
  path = pathlib.Path(folder) / FILE
  for mode in ("a+", "r"):  # "r" for a read-only directory
    with contextlib.suppress(OSError):
      return path.open(mode, encoding="utf-8", errors="replace")
  return None


def _lock_shared(
  file: TextIO, folder: os.PathLike[str] | str, advice: str
) -> None:
  for _ in range(_TRIES):
    # If no process has the lock, its lines are from processes that have ended.
    with contextlib.suppress(OSError):
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      file.truncate(0)
    try:
      fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      time.sleep(_PAUSE)  # another reader may briefly have an exclusive lock
      continue
    except OSError:  # no locks
      return
    with contextlib.suppress(OSError):
      # Not buffered: on a full disk, closing the file would fail again.
      os.write(file.fileno(), _signature().encode())
    return
  raise InputError(f"{folder} is in use by {_owners(file)}. {advice}")


def _signature() -> str:
  since = time.strftime("%Y-%m-%d %H:%M:%S")
  return f"process {os.getpid()} on {socket.gethostname()} since {since}\n"


def _owners(file: TextIO) -> str:
  """Returns a description, for messages, of the processes that have a lock."""
  for _ in range(_TRIES):  # an owner may not have written its signature yet
    file.seek(0)
    if lines := file.read(1000).splitlines():
      return ", ".join(filter(_may_run, lines)) or "another process"
    time.sleep(_PAUSE)
  return "another process"


def _may_run(signature: str) -> bool:
  """Returns whether the process with a lock signature may still run.

  Processes on other machines may always run.
  """
  match = re.match(r"process (\d+) on (\S+) since", signature)
  if match is None or match[2] != socket.gethostname():
    return True
  return os.path.exists(f"/proc/{match[1]}") or not os.path.exists("/proc/self")
