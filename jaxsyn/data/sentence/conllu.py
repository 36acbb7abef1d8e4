"""Trees as a file in CoNLL-U has them.

`read` turns a file into blocks (one tree each) and refuses what is malformed.
After it: `conllu_text`, which ties blocks to the raw lines that they are parses of.

A word is what UD calls a surface token: the German "zum" (two syntactic words)
is one word here, because it is one in the text. It hangs where that of its
members hangs that is nearest to the root.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator

from jaxsyn.data.sentence.align import (
  visible,
)
from jaxsyn.data.sentence.conllu_rows import COLUMNS, Row, joined
from jaxsyn.data.sentence.text import (
  LONGEST,
  PAUSE,
  Faulty,
  decoded,
  name_of,
  raw_lines,
  whole,
)
from jaxsyn.errors import InputError

NOT_PARSED = "# parsed = no"  # marks a block that is only cut at blanks

_SENTENCE = re.compile(r"#\s*(sent_id|text)\s*=")
_NAME = r"sent_id\s*=\s*(\S+)"


@dataclasses.dataclass(frozen=True)
class Block:
  """One tree of a CoNLL-U file, multi-word tokens joined.

  Attributes:
    file: name of the file, for messages.
    line: number of the block's first line, from 1.
    comments: the lines that start with "#", whole.
    form_W: surface tokens.
    head_W: parent of each, from 0; a root is its own.
    relation_W: dependency relation of each.
    space_after_W: whether a blank follows each in the text.
    line_W: the line of each; of its member nearest to the root.
  """

  file: str
  line: int
  comments: tuple[str, ...]
  form_W: tuple[str, ...]
  head_W: tuple[int, ...]
  relation_W: tuple[str, ...]
  space_after_W: tuple[bool, ...]
  line_W: tuple[str, ...]

  @property
  def name(self) -> str:
    """The sentence's `# sent_id`; "" if there is none."""
    return _comment_values(self.comments, _NAME)

  @property
  def parsed(self) -> bool:
    """Whether the block is a tree: not marked as only cut at blanks."""
    return NOT_PARSED not in self.comments

  @functools.cached_property
  def visible(self) -> str:
    """The visible characters of all words."""
    return visible("".join(self.form_W))

  @property
  def comment_text(self) -> str:
    """The sentence as its `# text` comment has it; "" if there is none."""
    return _comment_values(self.comments, r"text\s*=\s*(.*\S)")

  @property
  def text(self) -> str:
    """The sentence: from its `# text` comment, or else put together."""
    if self.comment_text:
      return self.comment_text
    blanks = (" " if space else "" for space in self.space_after_W)
    return "".join(map("".join, zip(self.form_W, blanks))).strip()


def read(path: str | os.PathLike[str]) -> Iterator[Block]:
  """The trees of a CoNLL-U file, plain or .gz.

  Empty nodes (8.1) are skipped; several roots are allowed.

  Raises:
    InputError: the file cannot be read, or a line is malformed; the message
      starts with FILE:LINE.
  """
  return whole(arriving(path))


def arriving(
  path: str | os.PathLike[str], replace: bool = False
) -> Iterator[Block | Faulty | None]:
  """The same as they come: a malformed block is a Faulty, and others follow.

  Args:
    path: of a file, a pipe, or "-".
    replace: bytes that are not UTF-8 are U+FFFD, not a fault.

  Raises:
    InputError: the file is missing, no gzip or cut off.
  """
  name = name_of(path)
  return _blocks(raw_lines(path), name, replace)


def blocks_of_text(text: str, name: str) -> list[Block]:
  """The trees of CoNLL-U in a string; `name` stands for the file in errors."""
  return list(blocks_of_lines(text.encode().split(b"\n"), name))


def blocks_of_lines(
  lines: Iterable[bytes], name: str, above: int = 0
) -> Iterator[Block]:
  """The trees of lines of a file, which begin with a sentence.

  Args:
    lines: without their ends.
    name: of the file, for messages.
    above: how many lines of the file come before.
  """
  return whole(_blocks(lines, name, above=above))


def _blocks(
  lines: Iterable[bytes | None],
  file: str,
  replace: bool = False,
  above: int = 0,
) -> Iterator[Block | Faulty | None]:
  """Blocks of lines without their ends, but for a carriage return."""
  first = above + 1  # line of the block
  block: list[bytes] = []
  for raw in itertools.chain(lines, [b""]):
    if raw is PAUSE:
      yield PAUSE
      continue
    if raw.endswith(b"\r"):
      raw = raw.rstrip(b"\r")
    if first == 1 and not block:
      raw = raw.removeprefix(b"\xef\xbb\xbf")  # byte order mark
    if raw:
      block.append(raw)
      continue
    if block and (parsed := _block(file, first, block, replace)):
      yield parsed
    first += len(block) + 1
    block = []


def _lost(file: str, first: int, comments: list[str]) -> str:
  """What is wrong with comments that have no words below them; "" if nothing.

  Those that tell of a sentence need it; others (# newdoc, a licence) may stand
  by themselves.
  """
  for line_number, comment in enumerate(comments, first):
    if match := _SENTENCE.match(comment):
      return (
        f"{file}:{line_number}: a sentence ({match[1]}) without words; give it its"
        " words, or remove the block."
      )
  return ""


def _block(
  file: str, first: int, lines: list[bytes], replace: bool
) -> Block | Faulty | None:
  """The tree of one sentence, or what is wrong with it.

  None for comments that stand by themselves.
  """
  comments: list[str] = []
  rows: list[Row] = []
  fault = ""
  for line_number, (wrong, line) in enumerate(_texts(lines), first):
    if wrong and not replace:
      fault = fault or f"{file}:{line_number}: {wrong}"
    if line.startswith("#"):
      comments.append(line)
      continue
    columns = line.count("\t") + 1
    if columns != COLUMNS:
      fault = fault or (
        f"{file}:{line_number}: {columns} columns, but CoNLL-U has"
        f" {COLUMNS}, separated by tabs; an empty line ends a sentence."
      )
    if not fault:
      rows.append((line_number, line))
  if not rows:
    fault = fault or _lost(file, first, comments)
    if not fault:
      return None
  if not fault:
    try:
      return Block(file, first, tuple(comments), *joined(file, rows))
    except InputError as error:
      fault = str(error)
  return Faulty(fault, name=_comment_values(comments, _NAME))


def _texts(lines: list[bytes]) -> list[tuple[str, str]]:
  """`decoded` of each line; at once, where there is nothing wrong."""
  block = b"\n".join(lines)
  try:
    if len(block) <= LONGEST:
      return [("", line) for line in block.decode("utf-8").split("\n")]
  except UnicodeDecodeError:
    pass
  return [decoded(raw) for raw in lines]


def _comment_values(comments: Iterable[str], pattern: str) -> str:
  """What the first comment of a pattern tells; "" if there is none."""
  matches = (re.match(rf"#\s*{pattern}", comment) for comment in comments)
  return next((match[1] for match in matches if match), "")
