"""Directory locks that keep processes from disturbing each other's files.

A lock is a kernel lock (flock) on an open file, so it ends with its process,
however that ends. The text in DIRECTORY/lock only names the process with an
exclusive lock, for messages. If several processes train together, the main
process takes the lock. Object stores have no locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from absl import logging

from jaxsyn.errors import InputError
from jaxsyn.storage import remote
from jaxsyn.storage.remote import PathLike

FILE = "lock"
ADVICE = (
  "Wait until it has ended or stop it (SIGTERM saves), then run the same "
  "command again; or use another --workdir."
)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)

_locked: set[str] = set()  # directories that this process has locked


@contextlib.contextmanager
def exclusive_lock(
  folder: PathLike, wait: bool = False, advice: str = ADVICE
) -> Iterator[None]:
  """Locks a directory in a `with` block, so that no other process works in it.

  A process may lock a directory again that it has already locked. On a file
  system without locks, and on an object store, this only logs a warning.

  Args:
    folder: Path of the directory; it is created if it does not exist.
    wait: Whether to wait for another process instead of raising an error.
    advice: Remedy in the error message.

  Raises:
    InputError: Another process has an exclusive lock, and the message names it,
      or processes have shared locks.
  """
  name = os.path.realpath(folder)
  if remote.is_remote(folder):
    _warn_no_locks(f"object store of {folder}")
  if remote.is_remote(folder) or name in _locked:
    yield
    return
  try:
    os.makedirs(folder, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise InputError(
      f"{folder} is a file, or below one; name a folder (--workdir)."
    ) from None
  # Never deleted or replaced: otherwise two processes could each lock a file.
  with open(_path(folder), "a+", encoding="utf-8", errors="replace") as file:
    try:
      # flock, not lockf, whose lock ends when any file object of this process
      # on the same file is closed.
      fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
      raise _in_use_error(file, folder, advice) from None
    except OSError as error:
      if error.errno not in _NO_LOCKS:
        raise
      _warn_no_locks(f"file system of {folder}")
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    owner = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
    file.truncate(0)
    # Not buffered: on a full disk, closing the file would fail again.
    os.write(file.fileno(), owner.encode())
    _locked.add(name)
    try:
      yield
    finally:
      _locked.discard(name)


@contextlib.contextmanager
def shared_lock(folder: PathLike, advice: str = ADVICE) -> Iterator[None]:
  """Locks a directory for reading in a `with` block.

  Any number of processes may read it; no process can lock it exclusively. The
  lock is on DIRECTORY/lock, since network file systems lock directories on one
  machine only. A directory that cannot be locked (no write permission, a file
  system without locks, an object store) is read without a lock.

  Raises:
    InputError: Another process has an exclusive lock. The message names it.
  """
  file = None if remote.is_remote(folder) else _open_lock_file(folder)
  if file is None:
    yield
    return
  with file:
    try:
      fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      raise _in_use_error(file, folder, advice) from None
    except OSError:  # no locks
      pass
    yield


def lock_owner(folder: PathLike) -> str:
  """Describes the process that has an exclusive lock on a directory.

  Raises:
    OSError: There is no lock.
  """
  return _path(folder).read_text(encoding="utf-8", errors="replace").strip()


@contextlib.contextmanager
def flock(folder: PathLike, how: int, waiting: str = "") -> Iterator[None]:
  """Locks a directory in a `with` block without writing a lock file.

  On an object store or a file system without locks, this has no effect.

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


def _path(folder: PathLike) -> pathlib.Path:
  return pathlib.Path(folder) / FILE


def _warn_no_locks(storage: str) -> None:
  logging.warning(
    "the %s has no locks: make sure that no other process writes there", storage
  )


def _open_lock_file(folder: PathLike) -> TextIO | None:
  """Opens a directory's lock file; returns None if that is not possible."""
  for mode in ("a+", "r"):  # "r" for a read-only directory
    with contextlib.suppress(OSError):
      return open(_path(folder), mode, encoding="utf-8", errors="replace")
  return None


def _in_use_error(file: TextIO, folder: PathLike, advice: str) -> InputError:
  """Returns an error about the processes that lock a directory."""
  try:
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    owner = "processes that read it, such as training"
  except BlockingIOError:
    file.seek(0)
    # A process writes its line after it has locked the file.
    owner = file.read(1000).strip() or "another process"
  return InputError(f"{folder} is in use by {owner}. {advice}")
