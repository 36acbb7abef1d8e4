"""How a command ends: one clear message, and an exit status that is told.

Exit status:

  0    fine
  2    the world outside did not play along: wrong input, a file or folder that
       cannot be read or written, a full disk or file, no memory left, standard
       output closed. One message on standard error, no traceback.
  130  interrupted (SIGINT); 143 asked to end (SIGTERM), 129 (SIGHUP). What was
       answered on standard output stays; a file appears whole or not at all.
       Training and comparing save, say how to go on, and end with 0.
  141  the reader of standard output or standard error went away. No message.

Anything else is a fault of ours and keeps its traceback. An error of the system
that names a path counts as the world's, for all that is read or written has one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any, NoReturn

from jaxsyn.errors import InputError, StoreError
from jaxsyn.storage import remote

_ADVICE = {
  **dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT),
    "Free some space and run the same command again.",
  ),
  **dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS),
    "Change the permissions, or choose another place.",
  ),
  **dict.fromkeys(
    (errno.EEXIST, errno.ENOTDIR),
    "A file stands where a folder is needed; choose another place.",
  ),
  errno.EISDIR: "A folder stands where a file is needed; choose another name.",
  errno.EFBIG: "Files may not grow so large here: raise the limit (ulimit -f), "
  "or choose another place.",
  errno.ENAMETOOLONG: "Choose a shorter name.",
  errno.EMFILE: "Too many files are open: raise the limit (ulimit -n).",
  errno.ENFILE: "Too many files are open on this machine: end other programs.",
  errno.ENOMEM: "End other programs, or take a machine with more memory.",
  errno.EIO: "The disk, or the way to it, failed; look after it.",
}
# Without a path these are of standard output, or of the machine; any other
# error without one may as well be a fault of ours.
_PATHLESS = (
  *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
  *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),
)


# What threads are still at, though nobody waits for it, and cannot be told to end.
_abandoned: list[Future[Any]] = []


def abandon(work: Future[Any]) -> None:
  """Lets a command end although a thread may still be at this work.

  Python would wait for the thread: XLA's compilers take up to minutes.
  """
  if not work.done():
    _abandoned.append(work)


class TerminationSignal(BaseException):
  """A signal asked the process to end; no Exception, as KeyboardInterrupt."""

  def __init__(self, signal_number: int):
    super().__init__(signal_number)
    self.number = signal_number


def guarded(function: Callable[[], Any]) -> None:
  """Calls a function; what goes wrong is one message and an exit status."""
  try:
    with _signals():
      _check_streams()
      _log_plainly()
      function()
      sys.stdout.flush()
    _exit(0)
  except BaseException as error:
    known = error_message(error)
    if known is None:
      raise
    _stop(*known)


def error_message(error: BaseException) -> tuple[str, int] | None:
  """The message for what went wrong, and the exit status.

  None where it is a fault of ours, which keeps its traceback.
  """
  if isinstance(error, (InputError, StoreError)):
    return f"error: {error}", 2
  if isinstance(error, KeyboardInterrupt):
    return "interrupted", 130
  if isinstance(error, TerminationSignal):
    name = signal.Signals(error.number).name
    return f"ended by {name}", 128 + error.number
  if isinstance(error, BrokenPipeError):
    return "", 141
  if isinstance(error, MemoryError):
    return (
      "error: out of memory. End other programs, take less at a time "
      "(config.batch.tokens, config.decode.sentences, --buffer), or a machine "
      "with more.",
      2,
    )
  if not isinstance(error, OSError):
    return None
  path = error.filename2 or error.filename  # of a copy, the second is written
  if path is None and error.errno not in _PATHLESS:
    return None
  place = "" if path is None else f": {os.fsdecode(path)}"
  advice = _ADVICE.get(error.errno or 0, "Check the name, and what is there.")
  return f"error: {error.strerror or error}{place}. {advice}", 2


@contextlib.contextmanager
def _signals() -> Iterator[None]:
  """SIGTERM and SIGHUP end the block as Ctrl-C does: with what must be undone.

  Training and comparisons have their own way for as long as they run.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return

  def end(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise TerminationSignal(signal_number)

  old = {}
  for signal_number in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(signal_number) is signal.SIG_DFL:  # nohup's stays
      old[signal_number] = signal.signal(signal_number, end)
  try:
    yield
  finally:
    for signal_number, handler in old.items():
      signal.signal(signal_number, handler)


def _check_streams() -> None:
  """Makes the three standard streams safe to use, where they were closed."""
  # The next file to be opened would get a free number below 3, and whatever
  # C++ prints would go into it.
  while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
    pass
  os.close(descriptor)
  closed = sys.stdout is None
  # Without a stream print(file=sys.stderr) goes to standard output.
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:
      null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
      setattr(sys, name, null)
  if closed:
    raise InputError(
      "standard output is closed; send it somewhere, if only to /dev/null."
    )
  # What jaxsyn prints is UTF-8, whatever a terminal of old is set to.
  if hasattr(sys.stdout, "reconfigure"):
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


class _Plain(logging.Formatter):
  """Warnings look as errors do: "warning: ..."."""

  def format(self, record: logging.LogRecord) -> str:
    return f"{record.levelname.lower()}: {super().format(record)}"


def _log_plainly() -> None:
  """What absl and Orbax log is a plain warning, without a logger's name."""
  # A library has given the root a handler by now, or absl will at its first
  # line: "WARNING:absl:a checkpoint is damaged ...".
  logging.basicConfig()
  for handler in logging.root.handlers:
    handler.setFormatter(_Plain())


def check_target(
  path: str, flag: str, folder: bool = False, *, store: bool = False
) -> None:
  """Finds out that nothing can be written, before hours of work.

  Args:
    path: of a file ("-": standard output), or of a folder.
    flag: that named it, for the message.
    folder: it is to be one, made where it is not there.
    store: it may be on an object store.

  Raises:
    InputError: a folder stands where a file must, or the other way round; or
      permissions are lacking.
    StoreError: the store is not there, or refuses.
  """
  if path == "-" and not folder:
    return
  if remote.is_remote(path):
    if not store:
      raise InputError(
        f"{flag} {path}: this command writes to local folders alone; copy the "
        "folder there afterwards."
      )
    remote.check(path)
    return
  target = pathlib.Path(os.path.realpath(path))
  if target.is_dir() and not folder:
    raise InputError(f"{flag} {path} is a folder; name a file.")
  if target.exists() and folder and not target.is_dir():
    raise InputError(f"{flag} {path} is a file; name a folder.")
  existing = target
  if not folder and not (target.exists() and not target.is_file()):
    existing = target.parent  # files are renamed to their place
  while not existing.exists():
    existing = existing.parent
  if existing != target and not existing.is_dir():
    raise InputError(f"{flag} {path}: {existing} is a file, and no folder.")
  if not os.access(existing, os.W_OK | (os.X_OK if existing.is_dir() else 0)):
    raise InputError(
      f"{flag} {path}: nothing can be written to {existing}. "
      f"{_ADVICE[errno.EACCES]}"
    )


def _stop(message: str, status: int) -> None:
  """Says it, as far as anybody listens, and exits."""
  if message:
    with contextlib.suppress(OSError):
      print(message, file=sys.stderr, flush=True)
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except OSError:
      # Python flushes once more at exit, and would change the status; let what
      # is left go nowhere.
      os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
  _exit(status)
  sys.exit(status)


def _exit(status: int) -> None:
  """Ends the process if Python's own way would wait for `abandon`."""
  if all(work.done() for work in _abandoned):
    return
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError):
      stream.flush()
  os._exit(status)
