"""Exit statuses, error messages and signal handling of commands.

Exit status:

  0    success; also training and comparing after SIGTERM or SIGINT, which save
       and print how to resume
  2    an error of the input or the environment: wrong input, a file that cannot
       be read or written, a full disk, no memory, closed standard output. One
       message on standard error, no traceback
  129  SIGHUP; 130 SIGINT; 143 SIGTERM. Results printed before remain, and files
       are complete or absent
  141  the reader of standard output or standard error closed it. No message

Any other exception is a bug in jaxsyn and keeps its traceback. A system error
that names a path is an error of the environment.
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

_FREE_SPACE = "Free some space and run the same command again."
_PERMISSIONS = "Change the permissions, or choose another place."
_FILE_IN_THE_WAY = (
  "There is a file where a folder is needed; choose another place."
)
# Remedies of errors of the machine, or of standard output if they name no path.
_MACHINE_ADVICE = {
  errno.ENOSPC: _FREE_SPACE,
  errno.EDQUOT: _FREE_SPACE,
  errno.EFBIG: "The file would exceed a size limit: raise it (ulimit -f), or "
  "choose another place.",
  errno.EIO: "The disk, or the connection to it, failed; check it.",
  errno.ENOMEM: "End other programs, or use a machine with more memory.",
  errno.EMFILE: "Too many files are open: raise the limit (ulimit -n).",
  errno.ENFILE: "Too many files are open on this machine: end other programs.",
}
# Remedies of errors of a path. Without a path, they may be bugs.
_PATH_ADVICE = {
  errno.EACCES: _PERMISSIONS,
  errno.EPERM: _PERMISSIONS,
  errno.EROFS: _PERMISSIONS,
  errno.EEXIST: _FILE_IN_THE_WAY,
  errno.ENOTDIR: _FILE_IN_THE_WAY,
  errno.EISDIR: "There is a folder where a file is needed; choose another name.",
  errno.ENAMETOOLONG: "Choose a shorter name.",
}

# Futures of threads that cannot be interrupted, whose results are not needed.
_abandoned: list[Future[Any]] = []


def abandon(work: Future[Any]) -> None:
  """Lets the process exit even if a thread is still computing a future.

  Python would wait for the thread; XLA may compile for minutes.
  """
  if not work.done():
    _abandoned.append(work)


class TerminationSignal(BaseException):
  """Exception raised in the main thread on SIGTERM or SIGHUP.

  Like KeyboardInterrupt, it is not an `Exception`.
  """

  def __init__(self, signal_number: int):
    super().__init__(signal_number)
    self.number = signal_number


def guarded(function: Callable[[], Any]) -> None:
  """Calls a command's function; prints a message and exits if it fails.

  Errors that indicate a bug are raised.
  """
  message, status = "", 0
  try:
    with _signals():
      _check_streams()
      _log_plainly()
      function()
      sys.stdout.flush()
  except BaseException as error:
    known = error_message(error)
    if known is None:
      raise
    message, status = known
  _exit(message, status)


def error_message(error: BaseException) -> tuple[str, int] | None:
  """Returns the message and exit status for an exception; None for a bug."""
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
      "error: out of memory. End other programs, process less at a time "
      "(config.batch.tokens, config.decode.sentences, --buffer), or use a machine "
      "with more.",
      2,
    )
  if not isinstance(error, OSError):
    return None
  path = error.filename2 or error.filename  # of a copy, the target
  if path is None and error.errno not in _MACHINE_ADVICE:
    return None
  place = "" if path is None else f": {os.fsdecode(path)}"
  advice = {**_MACHINE_ADVICE, **_PATH_ADVICE}.get(
    error.errno or 0, "Check the path."
  )
  return f"error: {error.strerror or error}{place}. {advice}", 2


@contextlib.contextmanager
def _signals() -> Iterator[None]:
  """Converts SIGTERM and SIGHUP to TerminationSignal in a `with` block.

  This allows cleaning up. Training and comparing install their own handlers.
  """

  def handle(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise TerminationSignal(signal_number)

  handled = []
  if threading.current_thread() is threading.main_thread():
    numbers = (signal.SIGTERM, signal.SIGHUP)
    # nohup ignores SIGHUP.
    handled = [n for n in numbers if signal.getsignal(n) is signal.SIG_DFL]
  for number in handled:
    signal.signal(number, handle)
  try:
    yield
  finally:
    for number in handled:
      signal.signal(number, signal.SIG_DFL)


def _check_streams() -> None:
  """Opens closed standard streams as /dev/null; sets stdout to UTF-8.

  Raises:
    InputError: Standard output is closed.
  """
  # The next opened file would get a free descriptor below 3, and receive what
  # C++ code prints.
  while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
    pass
  os.close(descriptor)
  is_closed = sys.stdout is None
  # print(file=None) writes to standard output.
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:
      null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
      setattr(sys, name, null)
  if is_closed:
    raise InputError(
      "standard output is closed; redirect it, for example to /dev/null."
    )
  if hasattr(sys.stdout, "reconfigure"):  # UTF-8 in any locale
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


class _PlainFormatter(logging.Formatter):
  """Formatter of log records in the style of error messages, "warning: ..."."""

  def format(self, record: logging.LogRecord) -> str:
    return f"{record.levelname.lower()}: {super().format(record)}"


def _log_plainly() -> None:
  """Sets a log format without logger names, also for absl and Orbax."""
  # Otherwise absl installs a handler at its first message, which prints
  # "WARNING:absl:skipped a corrupt checkpoint ...".
  logging.basicConfig()
  for handler in logging.root.handlers:
    handler.setFormatter(_PlainFormatter())


def check_target(
  path: str, flag: str, folder: bool = False, *, store: bool = False
) -> None:
  """Checks that an output path is writable before a long computation.

  Args:
    path: Path of a file ("-" for standard output) or directory.
    flag: Flag of the path, for the message.
    folder: Whether the path is a directory, which need not exist.
    store: Whether the path may be on an object store.

  Raises:
    InputError: A file is expected and a directory exists, or vice versa, or
      permissions are missing.
    StoreError: The store cannot be reached or denies access.
  """
  if path == "-" and not folder:
    return
  if remote.is_remote(path) and store:
    remote.check(path)
    return
  if remote.is_remote(path):
    raise InputError(
      f"{flag} {path}: this command only writes to local folders; copy the "
      "folder to the store afterwards."
    )
  target = pathlib.Path(os.path.realpath(path))
  if target.exists() and target.is_dir() != folder:
    kinds = ("file", "folder") if folder else ("folder", "file")
    raise InputError(f"{flag} {path} is a {kinds[0]}; name a {kinds[1]}.")
  # Files are written next to the target and renamed, but not special files.
  is_special = target.exists() and not target.is_file()
  existing = target if folder or is_special else target.parent
  while not existing.exists():
    existing = existing.parent
  if existing != target and not existing.is_dir():
    raise InputError(f"{flag} {path}: {existing} is a file, not a folder.")
  if not os.access(existing, os.W_OK | (os.X_OK if existing.is_dir() else 0)):
    raise InputError(
      f"{flag} {path}: no permission to write to {existing}. {_PERMISSIONS}"
    )


def _exit(message: str, status: int) -> None:
  """Prints a message to standard error, and exits if the status is not 0.

  With status 0, the process is not ended unless Python would wait for futures
  passed to `abandon`.
  """
  if message:
    with contextlib.suppress(OSError):
      print(message, file=sys.stderr, flush=True)
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except OSError:
      # Python flushes again at exit, which would change the status: discard the
      # remaining output.
      os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
  if not all(work.done() for work in _abandoned):
    os._exit(status)
  if status:
    sys.exit(status)
