"""Plain text, line by line: for corpora, input and output.

A line ends at "\\n" and nowhere else, so that line N of one file belongs to
line N of another whatever the text holds. A byte order mark at the start is
dropped, and so is one carriage return at the end of a line. What is packed by
gzip or Zstandard is unpacked, by its content.

Input that is answered while it comes (`arriving_lines`) says where nothing more
is there for the moment, and what a line is that is no text; `treated` is what
becomes of that. Corpora must have no fault (`read_lines`, `lines_of`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import select
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from jaxsyn.data.sentence import sgml
from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote

# Bytes of a line. More is no sentence (nor would SentencePiece hold it), and
# /dev/zero would fill the memory.
LONGEST = 1 << 24
PAUSE = None  # among lines: nothing more is there for the moment
# Milliseconds before it is a pause. With 0, 29,000 lines that sed wrote one by
# one were answered in 5,188 batches instead of 57; with 5, still in 104.
PATIENCE = 20
ERRORS = ("strict", "replace", "skip")

_BLOCK = 1 << 20
_GZIP = 31  # zlib's number for gzip's format with the largest window
_MAGIC, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such a file begins


@dataclasses.dataclass(frozen=True)
class Faulty:
  """What stands in the place of input that cannot be read.

  Attributes:
    message: where it is, and what is wrong.
    text: what to take for it; None: nothing.
    name: of a tree, its sent_id.
  """

  message: str
  text: str | None = None
  name: str = ""


def read_lines(path: str | os.PathLike[str]) -> list[str]:
  """All lines of a UTF-8 file, plain or packed; raises as `lines_of`."""
  return list(lines_of(path))


def lines_of(path: str | os.PathLike[str]) -> Iterator[str]:
  """The lines of UTF-8 text, plain or packed, or of standard input ("-").

  Raises:
    InputError: the file is missing, not packed as it says, cut off, or not UTF-8, or a line
      is longer than LONGEST; the message gives the line.
  """
  return whole(arriving_lines(path, nul=True))


def arriving_lines(
  path: str | os.PathLike[str], nul: bool = False
) -> Iterator[str | Faulty | None]:
  """The same as they come, with a PAUSE wherever the writer makes one.

  A line that is not UTF-8, holds NUL or is too long is a Faulty, whose text has
  U+FFFD in the place of what cannot be read.

  Args:
    path: of a file, a pipe, or "-".
    nul: whether NUL is a character as others are, not the mark of UTF-16.

  Raises:
    InputError: the file is missing, not packed as it says, or cut off.
  """
  name = name_of(path)
  count = 0
  for raw in raw_lines(path):
    if raw is PAUSE:
      yield PAUSE
      continue
    count += 1
    fault, line = decoded(raw, nul)
    if count == 1:
      line = line.removeprefix("\ufeff")
    line = line.removesuffix("\r")
    if not fault:
      yield line
      continue
    yield Faulty(f"{name}:{count}: {fault}", line)


def treated(items: Iterable[Any], errors: str) -> Iterator[Any]:
  """The same items; what cannot be read becomes what is asked.

  Args:
    items: texts or trees, each a Faulty, and each PAUSE, among them.
    errors: "strict": raises. "replace": a Faulty has as text what can be read
      of it. "skip": it has none.

  Raises:
    InputError: with "strict", for the first Faulty; says where it is.
  """
  for item in items:
    if isinstance(item, Faulty):
      if errors == "strict":
        raise InputError(item.message)
      if errors == "skip":
        item = dataclasses.replace(item, text=None)
    yield item


def whole(items: Iterable[Any]) -> Iterator[Any]:
  """The items of input that must have no fault, without its pauses."""
  return (item for item in treated(items, "strict") if item is not PAUSE)


def decoded(raw: bytes, nul: bool = True) -> tuple[str, str]:
  """What is wrong with a line ("": nothing), and as much as can be read.

  Args:
    raw: of `raw_lines`.
    nul: whether NUL is a character as others are.
  """
  fault = ""
  if len(raw) > LONGEST:
    fault = f"the line has more than {LONGEST:,} bytes; a line is a sentence."
    raw = raw[:LONGEST]
  try:
    line = raw.decode("utf-8")
  except UnicodeDecodeError as error:
    line = raw.decode("utf-8", "replace")
    likely = "utf-16" if raw.startswith(_UTF_16) else "latin1"
    fault = fault or (
      f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8. Mend "
      f"the line, or convert the file: iconv -f {likely} -t utf-8 (say which "
      "encoding it has)."
    )
  if not nul and "\0" in line:
    fault = fault or (
      f"character {line.index(chr(0)) + 1} is NUL. Mend the line; if all are "
      "so, it may be UTF-16: iconv -f utf-16 -t utf-8."
    )
    line = line.replace("\0", "\ufffd")
  return fault, line


def name_of(path: str | os.PathLike[str]) -> str:
  """What messages call it."""
  name = os.fspath(path)
  return "standard input" if name == "-" else name


def raw_lines(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
  """The lines as bytes, without "\\n", unpacked; and a PAUSE where there is one.

  Of a line of more than LONGEST bytes LONGEST + 1 are given.

  Raises:
    InputError: the file is missing, not packed as it says, or cut off.
  """
  return _split(unpacked(path))


def unpacked(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
  """The same bytes in blocks as they come, with "\n"; raises as `raw_lines`.

  Of a test set in SGML or XML (`jaxsyn.data.sentence.sgml`) its segments.
  """
  return _without_markup(_bytes_of(path), name_of(path))


def _without_markup(
  blocks: Iterator[bytes | None], name: str
) -> Iterator[bytes | None]:
  """The same blocks; of a test set in SGML its segments, a line each."""
  head = b""
  for block in blocks:
    if block is PAUSE:
      yield PAUSE
      if not head.strip():  # a blank line wants its answer
        yield head
        break
      continue
    head += block
    markup = sgml.detect(head)
    if markup is False:
      yield head
      break
    if markup:
      content = bytearray(head)
      for block in filter(None, blocks):
        content += block
        if len(content) > sgml.LARGEST:
          raise InputError(
            f"{name} is XML or SGML of more than {sgml.LARGEST:,} bytes. Give"
            " plain text, a sentence a line."
          )
      lines = sgml.lines_of(bytes(content), name)
      yield "".join(f"{line}\n" for line in lines).encode()
      return
  else:
    yield head
  yield from blocks


def _bytes_of(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
  name = os.fspath(path)
  try:
    if name == "-":
      if sys.stdin is None:
        raise InputError("standard input is closed; name a file instead.")
      yield from _unpacked(_arriving(sys.stdin.fileno()), "")
      return
    if remote.is_remote(name):
      with files.open_read(name) as store:
        stored: Iterator[bytes | None] = iter(lambda: store.read(_BLOCK), b"")
        yield from _unpacked(stored, name)
      return
    with open(name, "rb", buffering=0) as file:
      yield from _unpacked(_arriving(file.fileno()), name)
  except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
    raise InputError(f"{name_of(path)} is missing or no file.") from None
  except (EOFError, zlib.error) as error:
    raise InputError(
      f"{name_of(path)} cannot be unpacked ({error}). Copy or fetch it again."
    ) from None


def packed_by(start: bytes, name: str) -> str:
  """How a file is packed: ".gz", ".zst", or "", which is not.

  Args:
    start: its first four bytes, or more.
    name: of it.
  """
  if start.startswith(_ZSTD) or name.endswith(".zst"):
    return ".zst"
  return ".gz" if start.startswith(_MAGIC) or name.endswith(".gz") else ""


def _arriving(file: int) -> Iterator[bytes | None]:
  """Blocks of bytes; before it waits for more, a PAUSE."""
  # No thread that reads ahead: one that waits in a read at the end of the
  # process would hold the lock of the stream, and Python aborts.
  poller = select.poll()
  poller.register(file, select.POLLIN)
  while True:
    if not poller.poll(PATIENCE):
      yield PAUSE
      poller.poll()
    block = os.read(file, _BLOCK)
    if not block:
      return
    yield block


def _unpacked(
  blocks: Iterator[bytes | None], name: str
) -> Iterator[bytes | None]:
  """The bytes of blocks, which may be packed.

  Args:
    name: of the file: by .gz and .zst it must be so.
  """
  head = b""
  for block in blocks:
    if block is PAUSE:
      yield PAUSE
      continue
    head += block
    if not (_MAGIC.startswith(head) or _ZSTD.startswith(head)):
      break  # else perhaps their first bytes
  stream = itertools.chain([head], blocks)
  packing = packed_by(head, name)
  if packing == ".gz" and not head.startswith(_MAGIC):
    raise zlib.error("it does not start as gzip does")
  if packing == ".zst":
    yield from _of_zstandard(stream, name)
  elif packing:
    yield from _of_gzip(stream)
  else:
    yield from stream


def _of_gzip(blocks: Iterable[bytes | None]) -> Iterator[bytes | None]:
  """The bytes of gzip's members one after another."""
  unpack = zlib.decompressobj(_GZIP)
  for block in blocks:
    if block is PAUSE:
      yield PAUSE
    while block:
      if unpack.eof:  # another member follows, or a tape's padding
        block = block.lstrip(b"\0")
        if not block:
          break
        unpack = zlib.decompressobj(_GZIP)
      yield unpack.decompress(block, _BLOCK)
      block = unpack.unused_data or unpack.unconsumed_tail
  yield unpack.flush()
  if not unpack.eof:
    raise EOFError("it ends too early")


def _of_zstandard(
  blocks: Iterable[bytes | None], name: str
) -> Iterator[bytes | None]:
  """The bytes of Zstandard's frames one after another."""
  try:
    import zstandard
  except ImportError:
    raise InputError(
      f"{name_of(name or '-')} is packed by Zstandard: pip install"
      " -e '.[zstd]', or unpack it (zstd -d)."
    ) from None
  unpack = zstandard.ZstdDecompressor().decompressobj()
  for block in blocks:
    if block is PAUSE:
      yield PAUSE
    while block:
      if unpack.eof:  # another frame follows
        unpack = zstandard.ZstdDecompressor().decompressobj()
      try:
        yield unpack.decompress(block)
      except zstandard.ZstdError as error:
        raise EOFError(str(error)) from None
      block = unpack.unused_data if unpack.eof else b""
  if not unpack.eof:
    raise EOFError("it ends too early")


def _split(blocks: Iterable[bytes | None]) -> Iterator[bytes | None]:
  """The lines of blocks."""
  rest, passing = b"", False  # a line begun; one that was given and goes on
  for block in blocks:
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
    if len(rest) > LONGEST:  # at once: /dev/zero has no end
      yield rest[: LONGEST + 1]
      rest, passing = b"", True
  if rest:
    yield rest


def normal(line: str) -> str:
  """The line in Unicode NFC, as config.prepare.clean.nfc makes it."""
  return unicodedata.normalize("NFC", line)


@contextlib.contextmanager
def writer(path: str | os.PathLike[str]) -> Iterator[Callable[[str], None]]:
  """A function that writes a line to a file, or to standard output ("-").

  A file gets its name when it is whole; standard output and pipes are flushed
  at each line, for whoever waits at the other end.
  """
  if os.fspath(path) == "-":
    yield lambda line: _answer(line, sys.stdout, True)
    return
  with files.publish(path, "w") as file:
    live = not file.seekable()
    yield lambda line: _answer(line, file, live)


def _answer(line: str, file: IO[str], live: bool) -> None:
  file.write(line + "\n")  # at once: a reader may take half a line for one
  if live:
    file.flush()
