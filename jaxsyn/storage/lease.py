"""One process at a time works in a folder on an object store.

A store has no locks that go with their process, but writes an object only if
there is none. So a holder makes FOLDER/lock-N, writes it anew every few seconds,
and takes it away in the end. Who finds one watches it: what changes is held, and
what stays as it is for LAPSE seconds was left by a process that was killed; then
lock-(N+1) is made, which one of several can. No clock is compared with another's.

A holder that could not renew in time, since the network was gone or the machine
slept, has lost the folder, finds out itself (`check`), and writes no more.

A store that overwrites in spite of the condition gives no lock: that is said.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator

from absl import logging

from jaxsyn.errors import InputError, StoreError
from jaxsyn.storage import remote

LAPSE = 60.0  # seconds without a sign of life
_TURNS = 4  # signs of life in that time

_mine: dict[str, Lease] = {}  # folders that this process has


@contextlib.contextmanager
def exclusive_lock(folder: str, wait: bool, advice: str) -> Iterator[None]:
  """As `lock.alone`, for a folder on an object store."""
  folder = folder.rstrip("/")
  if folder in _mine:
    yield
    return
  lease = Lease(folder)
  while not lease.take() and wait:
    time.sleep(LAPSE / _TURNS)
  if not lease.number:
    raise InputError(f"{folder} is in use by {lease.holder()}. {advice}")
  renewing = threading.Thread(target=lease.renew, name="lock", daemon=True)
  renewing.start()
  _mine[folder] = lease
  try:
    yield
  finally:
    del _mine[folder]
    lease.ended.set()
    renewing.join()
    lease.give_back()


def check(path: os.PathLike[str] | str) -> None:
  """Raises StoreError if this process has lost the folder it writes to.

  Args:
    path: of the folder, or of what is in it.
  """
  for folder, lease in _mine.items():
    if os.fspath(path).startswith(f"{folder}/") and lease.is_lost():
      raise StoreError(
        f"{folder}: the lock was not renewed for {LAPSE:.0f} seconds (the store "
        "was out of reach, or this machine slept), so another process may work "
        "there. Run the same command again."
      )


class Lease:
  """One process's claim on a folder.

  Attributes:
    folder: on an object store.
    number: of the lock; 0 as long as there is none.
    ended: the work in the folder is done.
  """

  def __init__(self, folder: str):
    self.folder, self.number = folder.rstrip("/"), 0
    self.ended = threading.Event()
    self._token, self._signs = secrets.token_hex(8), 0
    self._since = time.strftime("%Y-%m-%d %H:%M:%S")
    self._alive = 0.0  # when the last sign of life was sent
    self._lost = False

  def take(self) -> bool:
    """Takes the lock, unless another process holds it; may wait for LAPSE."""
    found = self._found()
    last = max(found, default=0)
    if last and not self._is_left(last, found[last]):
      return not self._found() and self.take()  # given back meanwhile
    began, content = _now(), self._content()
    if not remote.create(self._file(last + 1), content):
      # Where an answer was lost, the library asked again: it may be our own.
      with contextlib.suppress(FileNotFoundError):
        if remote.read(self._file(last + 1)) != content:
          return False
    elif remote.create(self._file(last + 1), content):
      logging.warning(
        "the store of %s writes although there is a file (If-None-Match): "
        "processes that begin there at one moment do not see each other",
        self.folder,
      )
    # What came between the last look and this: another lock, or a sign of life.
    now = self._found()
    is_newest = max(now, default=0) == last + 1
    if not is_newest or now.get(last) not in (None, found.get(last)):
      remote.remove(self.folder, [_name(last + 1)])
      return False
    remote.remove(self.folder, [_name(n) for n in now if n <= last])
    self.number, self._alive = last + 1, began
    return True

  def renew(self) -> None:
    """Sends signs of life until the work is done or the lock is lost."""
    while not self.ended.wait(LAPSE / _TURNS) and not self.is_lost():
      began = _now()
      try:
        remote.write(self._file(self.number), self._content())
        self._lost = max(self._found()) > self.number
        self._alive = began
      except Exception as error:  # told by `check`, if it goes on
        logging.warning("the lock could not be renewed: %s", error)

  def is_lost(self) -> bool:
    """Whether another process may have taken the folder."""
    return self._lost or _now() - self._alive > LAPSE * (1 - 1 / _TURNS)

  def give_back(self) -> None:
    """Takes the lock away; what cannot be is left, and lapses."""
    with contextlib.suppress(StoreError):
      remote.remove(self.folder, [_name(self.number)])

  def signed(self) -> str:
    """Who has the folder, as `lock.signed` says."""
    path = self._file(max(self._found(), default=0))
    return remote.read(path).decode(errors="replace").partition(",")[0]

  def holder(self) -> str:
    """Who has the folder, in words."""
    with contextlib.suppress(OSError):
      return self.signed()
    return "another process"

  def _is_left(self, number: int, tag: str) -> bool:
    """Watches a lock; whether nobody renewed it."""
    end = _now() + LAPSE
    said = False
    while (now := self._found()).get(number) == tag and max(now) == number:
      left = end - _now()
      if left <= 0:
        return True
      if not said:
        said = True
        print(
          f"{self.folder} was in use by {self.holder()}: watching for "
          f"{LAPSE:.0f} seconds whether it still is",
          file=sys.stderr,
          flush=True,
        )
      time.sleep(min(left, LAPSE / _TURNS / 2))
    return False

  def _found(self) -> dict[int, str]:
    """The locks that are there, number -> tag."""
    return {
      int(match[1]): tag
      for name, tag in remote.tags(self.folder, "lock-").items()
      if (match := re.fullmatch(r"lock-(\d+)", name))
    }

  def _file(self, number: int) -> str:
    return f"{self.folder}/{_name(number)}"

  def _content(self) -> bytes:
    self._signs += 1
    text = (
      f"process {os.getpid()} on {socket.gethostname()} since {self._since}, "
      f"{self._token} {self._signs}\n"
    )
    return text.encode()


def _name(number: int) -> str:
  return f"lock-{number}"


def _now() -> float:
  # Linux has a clock of its own that goes on while the machine sleeps.
  clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
  return time.clock_gettime(clock)
