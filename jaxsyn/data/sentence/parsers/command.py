"""Any program that reads lines and writes CoNLL-U.

It is kept running: a line goes to its standard input, a tree comes from its
standard output, an empty line at its end, before the next line goes there (or
some, `batch`). A line may have several trees, one after the other: they are told
apart by their characters. What it says on its standard error is kept, and its
last line told where it fails.

A program has a group of processes of its own, with a watcher in it that kills
the group as soon as this process is no more, however it has ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import shortened, visible
from jaxsyn.data.sentence.parser_identity import Identity
from jaxsyn.data.sentence.parsers.parser import (
  Parser,
  ParserSpec,
  on_one_line,
  sentences,
  shared_out,
)
from jaxsyn.data.sentence.text import normal
from jaxsyn.data.store.fetch import Download
from jaxsyn.data.store.manifests import sha256_texts
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff, Range
from jaxsyn.storage import checksums, files

_BLOCK = 1 << 16
_MOST = 1 << 24  # bytes of a tree; a word takes some 100
_WATCH = "read -r _; kill -KILL 0"  # `read` ends when nobody has the other end


class Command(Parser):
  """A program that parses, started where it is first asked.

  Attributes:
    spec: its command line, and how it is asked.
  """

  def __init__(self, spec: CommandSpec):
    """Looks for the program.

    Raises:
      InputError: no command line, or no such program.
    """
    self.spec = spec
    self._words = _words(spec.line)
    if not shutil.which(self._words[0]):
      raise InputError(
        f"{self._words[0]!r}: there is no such program, of the parser's command"
        f" line {spec.line!r}."
      )
    self._program: _Program | None = None
    self._process = 0  # whose program it is

  @functools.cached_property
  def _identity(self) -> Identity:
    # A file is what is in it, wherever it lies.
    facts = [
      checksums.sha256_of(word) if os.path.isfile(word) else word
      for word in self._words
    ]
    version = {"version": self.spec.version} if self.spec.version else {}
    return Identity(
      self.spec.kind, self.spec.line, sha256_texts(facts), options=version
    )

  @property
  def identity(self) -> Identity:
    return self._identity

  def _texts(self, lines: Sequence[str]) -> list[str]:
    if not lines:
      return []
    if not self.spec.batch:
      return self._all_at_once(lines)
    found: list[str] = []
    while len(found) < len(lines):
      batch = lines[len(found) : len(found) + self.spec.batch]
      program = self._running()
      try:
        found += program.trees_of(batch)
      except BaseException:
        self._end()
        raise
      if program.lost:  # its answers are no longer those to our lines
        self._end()
    return found

  def _all_at_once(self, lines: Sequence[str]) -> list[str]:
    program = _Program(self.spec)
    try:
      trees = sentences(program.answer_to(lines))
    finally:
      program.end()
    try:
      if shares := shared_out(trees, lines):
        return shares
    except InputError as error:
      raise program.fault(f"wrote no CoNLL-U ({error})", lines[0]) from None
    if len(trees) == len(lines):  # of other characters
      return trees
    raise program.fault(
      f"wrote {len(trees)} trees for {len(lines)} lines, which are not theirs",
      lines[0],
    )

  def _running(self) -> _Program:
    # A process that was forked has a program of its own.
    if self._program is None or self._process != os.getpid():
      self._program, self._process = _Program(self.spec), os.getpid()
    return self._program

  def _end(self) -> None:
    if self._program is not None:
      self._program.end()
      self._program = None

  def __del__(self) -> None:
    program = getattr(self, "_program", None)
    if program is not None and self._process == os.getpid():
      program.end()


@dataclasses.dataclass(frozen=True)
class CommandSpec(ParserSpec):
  """Any program: lines on its standard input, CoNLL-U on its standard output."""

  kind: ClassVar[str] = "command"

  line: str = option(
    "",
    "Its command line, as a shell's but without one. It reads lines of UTF-8 and "
    "writes, for each, a tree as CoNLL-U and an empty line, at once (flushed). "
    "What files it names must be the same to translate.",
  )
  version: str = option(
    "", "Of the program, where its command line does not tell one from another."
  )
  batch: CountOrOff = option(
    1,
    "Given to it before it must answer. 0: it is started anew for some hundred "
    "lines and answers when its input ends.",
    unit="lines",
  )
  timeout: Annotated[float, Range(0.01, 86400)] = option(
    120.0,
    "Without a sign of life, the first included, until it is an error.",
    unit="seconds",
  )

  @property
  def side_effects(self) -> str:
    return f"starts the program {self.line!r}"

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> CommandSpec:
    if not self.line.strip():
      raise (at / "line").error(
        ' is empty: say the command line of the parser, as "python parse.py".'
      )
    return self

  def at(self, place: str) -> CommandSpec:
    return dataclasses.replace(self, line=place)

  def open(self, sha256: str = "") -> Command:
    return Command(self)


class _Program:
  """A program that runs.

  Attributes:
    lost: whether it is unknown which line it will answer next.
  """

  def __init__(self, spec: CommandSpec):
    self._spec, self.lost = spec, False
    self._said = tempfile.TemporaryFile()  # noqa: SIM115
    self._watcher = subprocess.Popen(
      ["sh", "-c", _WATCH],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      process_group=0,
    )
    try:
      self._process = subprocess.Popen(
        _words(spec.line),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=self._said,
        bufsize=0,
        process_group=self._watcher.pid,
      )
    except OSError as error:
      os.killpg(self._watcher.pid, signal.SIGKILL)
      self._watcher.wait()
      raise InputError(
        f"the parser {spec.line!r} cannot be started: {error}."
      ) from None
    assert self._process.stdin and self._process.stdout
    self._stdin, self._stdout = self._process.stdin, self._process.stdout
    os.set_blocking(self._stdin.fileno(), False)
    self._rest = b""  # read, but of no whole tree yet

  def end(self) -> None:
    """Kills it and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._watcher.pid, signal.SIGKILL)
    self._process.wait()
    self._watcher.wait()
    assert self._watcher.stdin
    for file in (self._stdin, self._stdout, self._said, self._watcher.stdin):
      with contextlib.suppress(OSError):
        file.close()

  def trees_of(self, lines: Sequence[str]) -> list[str]:
    """CoNLL-U of lines, in order; of fewer where it is `lost`.

    Raises:
      InputError: it dies, hangs, or writes what is no CoNLL-U of the lines.
    """
    found: list[str] = []
    wanted, share = visible(normal(lines[0])), ""
    for text in self._blocks(lines, found):
      line = lines[len(found)]
      for tree in sentences(text):
        seen = visible(normal(self._seen(tree, line)))
        if not seen:
          continue
        if seen != wanted and seen.startswith(wanted):
          raise self.fault("took it and the next line for one sentence", line)
        share += tree
        fits = wanted.startswith(seen)
        if fits and seen != wanted:
          wanted = wanted[len(seen) :]
          continue
        # One with other characters is the whole answer, or else who knows.
        self.lost = not fits and len(seen) < len(wanted)
        found.append(share if fits else "")
        if self.lost or len(found) == len(lines):
          break
        wanted, share = visible(normal(lines[len(found)])), ""
      if self.lost or len(found) == len(lines):
        break
    if self._rest.strip() and not self.lost:
      raise self.fault("wrote more trees than it has words for", lines[-1])
    return found

  def answer_to(self, lines: Sequence[str]) -> str:
    """All that it writes until it ends, which it does when its input ends."""
    written = b"".join(self._read(lines, [], close=True))
    status = self._process.wait()
    if status:
      raise self.fault(_ended(status), lines[0])
    return self._decoded(written, lines[0])

  def fault(self, what: str, line: str) -> InputError:
    """That something is wrong, and where it was."""
    said = files.last_line(self._said)
    tail = f" Its standard error ends: {said}" if said else ""
    return InputError(
      f"the parser {self._spec.line!r} {what}; at the line {shortened(line)}.{tail}"
    )

  def _seen(self, tree: str, line: str) -> str:
    try:
      (block,) = conllu.blocks_of_text(tree, "its answer")
    except InputError as error:
      raise self.fault(f"wrote no CoNLL-U ({error})", line) from None
    return block.visible

  def _decoded(self, data: bytes, line: str) -> str:
    try:
      return data.decode()
    except UnicodeDecodeError:
      raise self.fault("wrote what is no UTF-8", line) from None

  def _blocks(
    self, lines: Sequence[str], found: Sequence[str]
  ) -> Iterator[str]:
    """What it writes until an empty line, again and again."""
    for data in self._read(lines, found, close=False):
      self._rest = (self._rest + data).replace(b"\r\n", b"\n")
      while (end := self._rest.find(b"\n\n")) >= 0:
        text, self._rest = self._rest[:end], self._rest[end + 2 :]
        if text.strip():
          yield self._decoded(text + b"\n\n", lines[len(found)])
      if len(self._rest) > _MOST:
        raise self.fault(
          f"wrote {_MOST:,} bytes of one tree", lines[len(found)]
        )

  def _read(
    self, lines: Sequence[str], found: Sequence[str], *, close: bool
  ) -> Iterator[bytes]:
    """Writes lines and reads answers, whichever it is ready for.

    Args:
      lines: to be written.
      found: answers so far, which say the line that is waited for.
      close: end its input after them, and read to the end.
    """
    data = memoryview("".join(f"{on_one_line(x)}\n" for x in lines).encode())
    with selectors.DefaultSelector() as ready:
      ready.register(self._stdout, selectors.EVENT_READ)
      ready.register(self._stdin, selectors.EVENT_WRITE)
      deadline = time.monotonic() + self._spec.timeout
      while True:
        events = ready.select(max(0.0, deadline - time.monotonic()))
        if not events:
          raise self.fault(
            f"has not answered for {self._spec.timeout:g} s (does it write an"
            " empty line after each tree, and flush?)",
            lines[len(found)],
          )
        for key, _ in events:
          if key.fileobj is self._stdin:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
              data = data[os.write(key.fd, data[:_BLOCK]) :]
              deadline = time.monotonic() + self._spec.timeout
            if not data or self._process.poll() is not None:
              ready.unregister(self._stdin)
              if close:
                self._stdin.close()
          elif block := os.read(key.fd, _BLOCK):
            deadline = time.monotonic() + self._spec.timeout
            yield block
          elif close:
            return
          else:
            raise self.fault(_ended(self._process.wait()), lines[len(found)])


def _words(line: str) -> list[str]:
  """A command line as its words; InputError for quotes that are left open."""
  try:
    words = shlex.split(line)
  except ValueError as error:
    raise InputError(f"the parser's command line {line!r}: {error}.") from None
  if not words:
    raise InputError("the parser's command line is empty.")
  return words


def _ended(status: int) -> str:
  if status < 0:
    return f"was killed ({signal.Signals(-status).name})"
  return f"has ended with status {status}"
