"""Plain text, line by line and strictly: for corpora, input and output.

A line ends at "\\n" and nowhere else, so that line N of one file belongs to
line N of another whatever the text holds. A byte order mark at the start is
dropped, and so is one carriage return at the end of a line.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator

from jaxsyn.errors import InputError


def read_lines(path: str | os.PathLike) -> list[str]:
  """All lines of a UTF-8 file, plain or .gz; raises as `lines_of`."""
  return list(lines_of(path))


def lines_of(path: str | os.PathLike) -> Iterator[str]:
  """The lines of a UTF-8 file, plain or .gz, or of standard input ("-").

  Raises:
    InputError: the file is missing, no gzip, cut off, or not UTF-8; the
      message gives the line.
  """
  name = os.fspath(path)
  if name == "-":
    yield from _decode(iter(sys.stdin.buffer.readline, b""), "standard input")
    return
  try:
    with open(name, "rb") as file:
      packed = file.peek(2)[:2] == b"\x1f\x8b"
      if name.endswith(".gz") and not packed:
        raise gzip.BadGzipFile("it does not start as gzip does")
      unpacked = gzip.GzipFile(fileobj=file) if packed else file
      yield from _decode(unpacked, name)
  except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
    raise InputError(f"{name} is missing or no file.") from None
  except (gzip.BadGzipFile, EOFError, zlib.error) as error:
    raise InputError(
      f"{name} cannot be unpacked ({error}). Copy or fetch it again."
    ) from None


def _decode(raw: Iterable[bytes], name: str) -> Iterator[str]:
  for number, line in enumerate(raw, start=1):
    try:
      decoded = line.decode("utf-8")
    except UnicodeDecodeError as error:
      raise InputError(
        f"{name}:{number}: byte {error.start + 1} (0x{line[error.start]:02x}) "
        "is not UTF-8. Mend the line, or convert the file: iconv -f latin1 -t "
        "utf-8 (say which encoding it has)."
      ) from None
    if number == 1:
      decoded = decoded.removeprefix("\ufeff")
    yield decoded.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def writer(path: str | os.PathLike) -> Iterator[Callable[[str], None]]:
  """A function that writes a line to a file, or to standard output ("-").

  A file gets its name when it is whole; standard output is flushed at each
  line, for whoever waits at the other end.
  """
  name = os.fspath(path)
  if name == "-":
    yield lambda line: print(line, flush=True)
    return
  temporary = pathlib.Path(name + ".partial")
  temporary.parent.mkdir(parents=True, exist_ok=True)
  try:
    with temporary.open("w", encoding="utf-8", newline="\n") as file:
      yield lambda line: print(line, file=file)
    os.replace(temporary, name)
  finally:
    temporary.unlink(missing_ok=True)
