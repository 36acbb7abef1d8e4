"""One process at a time works in a folder; who it is stands in FOLDER/lock.

The lock is the kernel's, on an open file: it goes with its process, however
that ends, and what is left of the file is words alone. Where several processes
of one cluster train together, the first takes it for all.

On object stores, which have no such locks: `lease`.
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
from jaxsyn.storage import lease, remote

FILE = "lock"
ADVICE = (
  "Wait until it has ended or stop it (SIGTERM saves), then run the same "
  "command again; or use another --workdir."
)
_TRIES, _PAUSE = 20, 0.05  # how often another process is waited for; seconds
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)

_mine: set[str] = set()  # folders that this process has


@contextlib.contextmanager
def exclusive_lock(
  folder: os.PathLike[str] | str, wait: bool = False, advice: str = ADVICE
) -> Iterator[None]:
  """Nobody else works in the folder meanwhile.

  A process that has the folder may ask again. Where the file system knows no
  locks this is said, and the work goes on.

  Args:
    folder: made if it is not there.
    wait: until the other is done; else it is an error.
    advice: what the message of that error says to do.

  Raises:
    InputError: another process works there; the message says which.
  """
  if remote.is_remote(folder):
    with lease.exclusive_lock(os.fspath(folder), wait, advice):
      yield
    return
  folder = pathlib.Path(folder)
  name = os.path.realpath(folder)
  if name in _mine:
    yield
    return
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise InputError(
      f"{folder} is a file, or below one; name a folder (--workdir)."
    ) from None
  # Never deleted or replaced: who does that lets two others hold one each.
  with (folder / FILE).open("a+", encoding="utf-8", errors="replace") as file:
    _take(file, folder, wait=wait, advice=advice)
    _write_owner(file)
    _mine.add(name)
    try:
      yield
    finally:
      _mine.discard(name)


@contextlib.contextmanager
def shared_lock(
  folder: os.PathLike[str] | str, advice: str = ADVICE
) -> Iterator[None]:
  """Prevents `exclusive_lock` from taking a folder while any number of processes read it.

  The lock is on FOLDER/lock and not on the folder, which network file systems
  lock on one machine only. A folder that cannot be locked (no right to open the
  file, no locks, an object store) is read without.

  Args:
    folder: to be read.
    advice: remedy in the error message.

  Raises:
    InputError: another process has the folder alone; the message names it.
  """
  file = None if remote.is_remote(folder) else _open_to_share(folder)
  if file is None:
    yield
    return
  with file:
    _take_shared(file, folder, advice)
    yield


def lock_owner(folder: os.PathLike[str] | str) -> str:
  """Who has a folder, in its own words, which stay the same as long as it does.

  Raises:
    OSError: there is no lock.
  """
  if remote.is_remote(folder):
    return lease.Lease(os.fspath(folder)).signed()
  path = pathlib.Path(folder) / FILE
  return path.read_text(encoding="utf-8", errors="replace").strip()


@contextlib.contextmanager
def flock(
  folder: os.PathLike[str] | str, how: int, waiting: str = ""
) -> Iterator[None]:
  """The kernel's lock on a folder itself: nothing is written.

  Where the file system knows no locks there is none, and no word; so on an
  object store.

  Args:
    folder: is there.
    how: of flock(2): LOCK_SH or LOCK_EX, and LOCK_NB not to wait.
    waiting: what is said where another has it, and this process waits.

  Raises:
    BlockingIOError: another has it, with LOCK_NB.
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


def _take(
  file: TextIO, folder: pathlib.Path, *, wait: bool, advice: str
) -> None:
  # flock, not lockf: that one is lost as soon as any file object of this
  # process on the same file is closed.
  try:
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
  except BlockingIOError:
    raise InputError(
      f"{folder} is in use by {_holder(file)}. {advice}"
    ) from None
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    logging.warning(
      "the file system of %s has no locks (%s): see to it that no other "
      "process writes there",
      folder,
      error.strerror,
    )


def _open_to_share(folder: os.PathLike[str] | str) -> TextIO | None:
  """The lock file of a folder; None if it cannot be opened."""
  path = pathlib.Path(folder) / FILE
  for mode in ("a+", "r"):  # "r" for a folder that is read-only
    with contextlib.suppress(OSError):
      return path.open(mode, encoding="utf-8", errors="replace")
  return None


def _take_shared(
  file: TextIO, folder: os.PathLike[str] | str, advice: str
) -> None:
  for _ in range(_TRIES):
    # If nobody has it, the lines in it are of processes that ended.
    with contextlib.suppress(OSError):
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      file.truncate(0)
    try:
      fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      time.sleep(_PAUSE)  # another reader may have it alone for a moment
      continue
    except OSError:  # no locks
      return
    with contextlib.suppress(OSError):
      # Not buffered: on a full disk, closing the file would fail again.
      os.write(file.fileno(), _owner().encode())
    return
  raise InputError(f"{folder} is in use by {_holder(file)}. {advice}")


def _owner() -> str:
  since = time.strftime("%Y-%m-%d %H:%M:%S")
  return f"process {os.getpid()} on {socket.gethostname()} since {since}\n"


def _write_owner(file: TextIO) -> None:
  """Writes who has the lock, for the message that others get."""
  file.seek(0)
  file.truncate()
  file.write(_owner())
  file.flush()


def _holder(file: TextIO) -> str:
  for _ in range(_TRIES):  # it may have taken the lock, and not signed yet
    file.seek(0)
    if lines := file.read(1000).splitlines():
      return ", ".join(filter(_may_run, lines)) or "another process"
    time.sleep(_PAUSE)
  return "another process"


def _may_run(signature: str) -> bool:
  """Whether a process may still run: False if it ended on this machine."""
  match = re.match(r"process (\d+) on (\S+) since", signature)
  if match is None or match[2] != socket.gethostname():
    return True
  return os.path.exists(f"/proc/{match[1]}") or not os.path.exists("/proc/self")
