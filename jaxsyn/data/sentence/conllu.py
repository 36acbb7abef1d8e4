"""CoNLL-U in and out: parser output tied to the characters of raw lines.

`read` turns a file into blocks (one tree each) and refuses what is malformed;
`match` ties blocks to the raw lines they are parses of. The result, `Parse`,
is what `jaxsyn.data.sentence.example` turns into arrays.

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

from jaxsyn.data.annotations.annotation import HEAD, LEMMA, MISC
from jaxsyn.data.sentence.align import (
  Mismatch,
  shortened,
  spans,
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
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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
    return _told(self.comments, _NAME)

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
    return _told(self.comments, r"text\s*=\s*(.*\S)")

  @property
  def text(self) -> str:
    """The sentence: from its `# text` comment, or else put together."""
    if self.comment_text:
      return self.comment_text
    blanks = (" " if space else "" for space in self.space_after_W)
    return "".join(map("".join, zip(self.form_W, blanks))).strip()


@dataclasses.dataclass(frozen=True)
class Parse:
  """A raw line and the words, heads and relations found in it.

  Attributes:
    text: the line, untouched.
    start_W: offset in `text` of each word's first character.
    end_W: offset after each word's last character.
    head_W: parent of each word, from 0; a root is its own.
    relation_W: dependency relation of each word.
    parsed: False if there is no tree: the words are then the tokens between
      blanks, each its own root.
    line_W: what CoNLL-U has of each word; empty without a tree.
  """

  text: str
  start_W: tuple[int, ...]
  end_W: tuple[int, ...]
  head_W: tuple[int, ...]
  relation_W: tuple[str, ...]
  parsed: bool = True
  # Not columns: to look through all these lists took Python's garbage collector
  # longer than to read them.
  line_W: tuple[str, ...] = dataclasses.field(default=(), compare=False)

  @property
  def row_W(self) -> tuple[list[str], ...]:
    """The ten columns of each word; empty without a tree."""
    return tuple(line.split("\t") for line in self.line_W)


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


def attach(blocks: Iterable[Block], text: str) -> Parse:
  """Ties trees to the line they are parses of, in order.

  Forms and text are compared as in `align.spans`. All roots are kept.

  Raises:
    InputError: other characters differ; names the block and the first
      difference.
  """
  blocks = [block for block in blocks if block.visible]
  try:
    words = [(form,) for block in blocks for form in block.form_W]
    start, end = spans(words, text)
  except Mismatch as error:
    of_word = [block for block in blocks for _ in block.form_W]
    near = of_word[: error.word + 1][-1:]  # where text is left over: the last
    where = "".join(f"{block.file}:{block.line}: " for block in near)
    raise InputError(
      f"{where}{error}; parse the same text that is given."
    ) from None
  head: tuple[int, ...] = ()
  relation: tuple[str, ...] = ()
  line: tuple[str, ...] = ()
  for block in blocks:
    before = len(head)
    head += tuple(h + before for h in block.head_W) if before else block.head_W
    relation += block.relation_W
    line += block.line_W
  parsed = bool(blocks) and all(block.parsed for block in blocks)
  return Parse(
    text,
    start_W=tuple(start),
    end_W=tuple(end),
    head_W=head,
    relation_W=relation,
    parsed=parsed,
    line_W=line if parsed else (),
  )


def match(
  blocks: Iterable[Block],
  lines: Iterable[str],
  file: str,
  *,
  first: int = 1,
  last: bool = True,
) -> Iterator[Parse]:
  """Ties the trees of a file to the lines of a text; one Parse a line.

  A line takes as many trees as its visible characters need, none if it has
  none.

  Args:
    blocks: trees in the order of the text.
    lines: raw lines, without their ends.
    file: name of the text, for messages.
    first: number of the first line.
    last: no tree may come after them.

  Raises:
    InputError: text and trees differ, or one is longer; names the CoNLL-U
      file and line, the line of the text and the first difference.
  """
  # A tree without visible characters belongs to no line.
  trees = (block for block in blocks if block.visible)
  number = first - 1
  for number, line in enumerate(lines, start=first):
    missing, taken = len(visible(line)), []
    while missing > 0:
      block = next(trees, None)
      if block is None:
        raise InputError(
          f"{file}:{number}: the CoNLL-U has no tree for (the rest of) this"
          f" line, {shortened(line)}; it must have all lines, in order."
        )
      taken.append(block)
      missing -= len(block.visible)
    try:
      parse = attach(taken, line)
    except InputError as error:
      raise InputError(f"{error} (Line {number} of {file}.)") from None
    yield parse
  block = next(trees, None) if last else None
  if block is not None:
    raise InputError(
      f"{block.file}:{block.line}: this tree, {shortened(' '.join(block.form_W))},"
      f" comes after the last line ({number}) of {file}; the CoNLL-U must have"
      " the same lines, in order."
    )


def unparsed(text: str) -> Parse:
  """A line without a tree: its blank-separated words, each its own root."""
  words = [(token,) for token in text.split() if visible(token)]
  start, end = map(tuple, spans(words, text))
  head, relation = tuple(range(len(words))), ("root",) * len(words)
  return Parse(text, start, end, head, relation, parsed=False)


NO_COLUMNS = "\t".join("_" * (HEAD - LEMMA))  # what annotations read


def to_text(parse: Parse, sentence_id: str, whole: bool = False) -> str:
  """A parse as one CoNLL-U block, its blank line included.

  Reading the block back and attaching it to the same text gives the parse
  again. A parse without words has no CoNLL-U: "".

  Args:
    parse: what to write.
    sentence_id: its `# sent_id`.
    whole: with the columns that only annotations read, where it has them.
  """
  if not parse.head_W:
    return ""
  line = _one_line(parse.text)
  rows = [f"# sent_id = {sentence_id}", f"# text = {line}"]
  if not parse.parsed:
    rows.append(NOT_PARSED)
  words = zip(parse.start_W, parse.end_W, parse.head_W, parse.relation_W)
  row_W = parse.row_W if whole else ()
  for i, (start, end, head, relation) in enumerate(words):
    # A word that holds no character is written as one that cannot be seen.
    form = parse.text[start:end]
    form = (form if line == parse.text else _one_line(form)) or "\u200b"
    glued = i + 1 < len(parse.head_W) and parse.start_W[i + 1] == end
    between, misc = NO_COLUMNS, "SpaceAfter=No" if glued else "_"
    if row_W:
      row = row_W[i]
      kept = [
        m for m in row[MISC].split("|") if not m.startswith("SpaceAfter=")
      ]
      between = "\t".join(row[LEMMA:HEAD])
      misc = "|".join(m for m in (*kept, misc) if m != "_") or "_"
    above = 0 if head == i else head + 1
    rows.append(f"{i + 1}\t{form}\t{between}\t{above}\t{relation}\t_\t{misc}")
  return "\n".join(rows) + "\n\n"


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
    if block and (found := _block(file, first, block, replace)):
      yield found
    first += len(block) + 1
    block = []


def _lost(file: str, first: int, comments: list[str]) -> str:
  """What is wrong with comments that have no words below them; "" if nothing.

  Those that tell of a sentence need it; others (# newdoc, a licence) may stand
  by themselves.
  """
  for number, comment in enumerate(comments, first):
    if found := _SENTENCE.match(comment):
      return (
        f"{file}:{number}: a sentence ({found[1]}) without words; give it its"
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
  for number, (wrong, line) in enumerate(_texts(lines), first):
    if wrong and not replace:
      fault = fault or f"{file}:{number}: {wrong}"
    if line.startswith("#"):
      comments.append(line)
      continue
    columns = line.count("\t") + 1
    if columns != COLUMNS:
      fault = fault or (
        f"{file}:{number}: {columns} columns, but CoNLL-U has"
        f" {COLUMNS}, separated by tabs; an empty line ends a sentence."
      )
    if not fault:
      rows.append((number, line))
  if not rows:
    fault = fault or _lost(file, first, comments)
    if not fault:
      return None
  if not fault:
    try:
      return Block(file, first, tuple(comments), *joined(file, rows))
    except InputError as error:
      fault = str(error)
  return Faulty(fault, name=_told(comments, _NAME))


def _texts(lines: list[bytes]) -> list[tuple[str, str]]:
  """`decoded` of each line; at once, where there is nothing wrong."""
  block = b"\n".join(lines)
  try:
    if len(block) <= LONGEST:
      return [("", line) for line in block.decode("utf-8").split("\n")]
  except UnicodeDecodeError:
    pass
  return [decoded(raw) for raw in lines]


def _told(comments: Iterable[str], pattern: str) -> str:
  """What the first comment of a pattern tells; "" if there is none."""
  found = (re.match(rf"#\s*{pattern}", comment) for comment in comments)
  return next((match[1] for match in found if match), "")


def _one_line(text: str) -> str:
  """Text that fits in a CoNLL-U field: no tabs, line ends or control codes."""
  return _CONTROL.sub("", " ".join(text.split()))
