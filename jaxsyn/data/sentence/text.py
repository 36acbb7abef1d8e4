"""Reads and writes plain text line by line, for corpora, input and output.

A line ends at "\\n" only, so that line N of one file corresponds to line N of
another. A byte order mark at the start is dropped, and so is one carriage return at
the end of a line. Data compressed with gzip or Zstandard is decompressed, and a test
set in SGML or XML becomes its segments.

Input that is translated as it arrives also has a PAUSE before each wait for a pipe,
and a Faulty for a line that is not text. Corpora must have no errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import os
import select
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from jaxsyn.data.sentence import sgml
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote

# Maximum bytes of a line. A longer line is no sentence, SentencePiece cannot
# process it, and /dev/zero would fill the memory.
LONGEST = 1 << 24
PAUSE = None  # among lines: no more data is available for now
# Milliseconds without data that count as a pause. With 0, 29,000 lines that sed
# wrote one by one took 5,188 batches instead of 57; with 5, still 104.
PATIENCE = 20

_BLOCK = 1 << 20
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks


@dataclasses.dataclass(frozen=True)
class Faulty:
  """Placeholder for an input line or tree that cannot be read.

  Attributes:
    message: Error message, with the location.
    name: The sent_id of a tree.
  """

  message: str
  name: str = ""


def read_lines(path: str | os.PathLike[str]) -> list[str]:
  """Returns all lines of a UTF-8 file; see `lines_of`."""
  return list(lines_of(path))


def lines_of(path: str | os.PathLike[str]) -> Iterator[str]:
  """Yields the lines of a UTF-8 file or standard input, without line ends.

  Raises:
    InputError: The file is missing, not compressed as its name claims, truncated or
      not UTF-8, or a line is longer than LONGEST; the message has the line.
  """
  return strict_items(arriving_lines(path, nul=True))


def arriving_lines(
  path: str | os.PathLike[str], nul: bool = False
) -> Iterator[str | Faulty | None]:
  """Yields an input's lines as they arrive, and the marker PAUSE before a wait.

  A line that is not UTF-8, has NUL or is too long yields a Faulty.

  Args:
    path: File, pipe, or "-" for standard input.
    nul: Whether NUL is allowed; otherwise it is an error, as a sign of UTF-16.
  """
  return _decoded(raw_lines(path), name_of(path), nul)


def _decoded(
  lines: Iterable[bytes | None], name: str, nul: bool
) -> Iterator[str | Faulty | None]:
  count = 0
  for raw in lines:
    if raw is PAUSE:
      yield PAUSE
      continue
    count += 1
    fault, line = decode_line(raw, nul)
    if count == 1:
      line = line.removeprefix("\ufeff")
    line = line.removesuffix("\r")
    yield Faulty(f"{name}:{count}: {fault}") if fault else line


def strict_items(items: Iterable[Any]) -> Iterator[Any]:
  """Yields items without PAUSE markers; raises InputError for invalid ones."""
  for item in items:
    if isinstance(item, Faulty):
      raise InputError(item.message)
    if item is not PAUSE:
      yield item


def decode_line(raw: bytes, nul: bool = True) -> tuple[str, str]:
  """Decodes a UTF-8 line; returns an (error message, text) pair of strings."""
  if len(raw) > LONGEST:
    fault = f"the line has more than {LONGEST:,} bytes; a line is a sentence."
    return fault, ""
  try:
    line = raw.decode("utf-8")
  except UnicodeDecodeError as error:
    likely = "utf-16" if raw.startswith(_UTF_16) else "latin1"
    return (
      f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8. Correct "
      f"the line, or convert the file: iconv -f {likely} -t utf-8 (or the "
      "encoding that it has)."
    ), ""
  if not nul and "\0" in line:
    return (
      f"character {line.index(chr(0)) + 1} is NUL. Correct the line; if all "
      "lines have it, the file may be UTF-16: iconv -f utf-16 -t utf-8."
    ), ""
  return "", line


def name_of(path: str | os.PathLike[str]) -> str:
  """Returns the name of an input file for messages."""
  name = os.fspath(path)
  return "standard input" if name == "-" else name


def raw_lines(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
  """Yields a file's lines as bytes, and the marker PAUSE before each wait.

  Lines have no "\\n". Lines of more than LONGEST bytes are cut after LONGEST + 1.

  Raises:
    InputError: The file is missing, not compressed as its name claims, or truncated.
  """
  # The incomplete line; whether the rest of a line that is too long is skipped.
  rest, passing = b"", False
  for block in _without_markup(_blocks(path), name_of(path)):
    if block is PAUSE:
      yield PAUSE
      continue
    *complete, last = block.split(b"\n")
    for line in complete:
      if not passing:
        yield (rest + line)[: LONGEST + 1]
      rest, passing = b"", False
    if passing:
      continue
    rest += last
    if len(rest) > LONGEST:  # before the line ends: /dev/zero is endless
      yield rest[: LONGEST + 1]
      rest, passing = b"", True
  if rest:
    yield rest


def _without_markup(
  blocks: Iterator[bytes | None], name: str
) -> Iterator[bytes | None]:
  """Yields blocks of bytes, with SGML test sets converted to lines of text."""
  start = next(blocks, b"") or b""
  if sgml.is_test_set(start):
    content = start + b"".join(block for block in blocks if block is not PAUSE)
    lines = strict_items(_decoded(content.split(b"\n"), name, nul=True))
    for segment in sgml.segments("\n".join(lines), name):
      yield f"{segment}\n".encode()
    return
  yield start
  yield from blocks


def _blocks(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
  name = os.fspath(path)
  try:
    with _open(name) as file:
      start = file.peek(len(_ZSTANDARD))
      if start.startswith(_ZSTANDARD):
        yield from _zstandard_blocks(file, name)
      elif start.startswith(_GZIP):
        unpacked = gzip.GzipFile(fileobj=file)
        yield from iter(lambda: unpacked.read(_BLOCK), b"")
      elif name.endswith((".gz", ".zst")):
        raise EOFError("it does not start as its name says")
      elif remote.is_remote(name):
        yield from iter(lambda: file.read(_BLOCK), b"")
      else:
        yield from _arriving(file)
  except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
    raise InputError(f"{name_of(path)} is missing or is not a file.") from None
  except (EOFError, gzip.BadGzipFile, zlib.error) as error:
    raise InputError(
      f"{name_of(path)} cannot be unpacked ({error}). Copy or fetch it again."
    ) from None


def _open(name: str) -> io.BufferedReader:
  if name != "-":
    return files.open_read(name)
  if sys.stdin is None:
    raise InputError("standard input is closed; name a file instead.")
  return open(sys.stdin.fileno(), "rb", closefd=False)


def _arriving(file: io.BufferedReader) -> Iterator[bytes | None]:
  """Yields a file's or pipe's bytes, and the marker PAUSE before each wait."""
  # No thread reads ahead: if it waited in a read at the end of the process, it
  # would hold the lock of the stream, and Python would abort.
  poller = select.poll()
  poller.register(file, select.POLLIN)
  # `read1` leaves the buffer empty, so polling the descriptor suffices.
  block = file.read1(_BLOCK)
  while block:
    yield block
    if not poller.poll(PATIENCE):
      yield PAUSE
    block = file.read1(_BLOCK)


def _zstandard_blocks(file: io.BufferedReader, name: str) -> Iterator[bytes]:
  try:
    import zstandard
  except ImportError:
    raise InputError(
      f"{name_of(name)} is packed by Zstandard: pip install -e '.[zstd]', or"
      " unpack it (zstd -d)."
    ) from None
  # Not `stream_reader`, which takes a truncated file for a complete one.
  unpack = zstandard.ZstdDecompressor().decompressobj()
  try:
    for block in iter(lambda: file.read(_BLOCK), b""):
      while block:
        if unpack.eof:  # another frame follows
          unpack = zstandard.ZstdDecompressor().decompressobj()
        yield unpack.decompress(block)
        block = unpack.unused_data if unpack.eof else b""
  except zstandard.ZstdError as error:
    raise EOFError(str(error)) from None
  if not unpack.eof:
    raise EOFError("it ends too early")


@contextlib.contextmanager
def writer(path: str | os.PathLike[str]) -> Iterator[Callable[[str], None]]:
  """Yields a function that writes lines to a file or to standard output ("-").

  A file gets its name when it is complete; standard output and pipes are flushed
  after each line, since the reader may wait for it.
  """
  with contextlib.ExitStack() as stack:
    file: IO[str] = sys.stdout
    is_flushed = os.fspath(path) == "-"
    if not is_flushed:
      file = stack.enter_context(files.publish(path, "w"))
      is_flushed = not file.seekable()

    def write(line: str) -> None:
      file.write(line + "\n")  # one call, so that a reader sees no half lines
      if is_flushed:
        file.flush()

    yield write
