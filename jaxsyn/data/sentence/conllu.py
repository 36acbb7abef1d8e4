"""Reads and writes CoNLL-U, and matches its trees with lines of raw text.

`read` yields the trees of a file, and `match` makes the `Parse` of each line from
them, which `jaxsyn.data.sentence.example` encodes. `to_text` writes a parse.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator

from jaxsyn.data.sentence.align import MismatchError, shortened, spans, visible
from jaxsyn.data.sentence.conllu_blocks import (
  COLUMNS,
  HEAD,
  LEMMA,
  MISC,
  NAME,
  Row,
  comment_value,
  joined,
)
from jaxsyn.data.sentence.conllu_blocks import (
  NOT_PARSED as NOT_PARSED,
)
from jaxsyn.data.sentence.conllu_blocks import (
  Block as Block,
)
from jaxsyn.data.sentence.text import (
  PAUSE,
  Faulty,
  decode_line,
  name_of,
  raw_lines,
  strict_items,
)
from jaxsyn.errors import InputError

_SENTENCE = re.compile(r"#\s*(sent_id|text)\s*=")
_NO_COLUMNS = "\t".join("_" * (HEAD - LEMMA))  # the columns of annotations
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclasses.dataclass(frozen=True)
class Parse:
  """Dependency parse of a raw line: its words, parents and relations.

  Attributes:
    text: The unchanged line.
    start_W: Offset in `text` of each word's first character.
    end_W: Offset after each word's last character.
    head_W: Parent of each word, from 0; a root is its own parent.
    relation_W: Dependency relation of each word.
    parsed: Whether there is a tree. Without one, the words are the
      whitespace-separated tokens, each its own root.
    line_W: CoNLL-U line of each word; empty without a tree.
  """

  text: str
  start_W: tuple[int, ...]
  end_W: tuple[int, ...]
  head_W: tuple[int, ...]
  relation_W: tuple[str, ...]
  parsed: bool = True
  # Not split into columns: Python's garbage collector took longer to traverse
  # these lists than reading them takes.
  line_W: tuple[str, ...] = dataclasses.field(default=(), compare=False)

  @property
  def row_W(self) -> tuple[list[str], ...]:
    """The ten CoNLL-U columns of each word; empty without a tree."""
    return tuple(line.split("\t") for line in self.line_W)


def read(path: str | os.PathLike[str]) -> Iterator[Block]:
  """Yields the sentences of a CoNLL-U file, which may be compressed.

  Empty nodes (8.1) are skipped; several roots are allowed.

  Raises:
    InputError: The file cannot be read, or a line is malformed; the message
      starts with `FILE:LINE:`.
  """
  return strict_items(blocks(raw_lines(path), name_of(path)))


def blocks_of_text(text: str, name: str) -> list[Block]:
  """Returns the trees in a CoNLL-U string.

  Args:
    text: CoNLL-U.
    name: File name for messages.
  """
  return list(strict_items(blocks(text.encode().split(b"\n"), name)))


def blocks(
  lines: Iterable[bytes | None], file: str
) -> Iterator[Block | Faulty | None]:
  """Yields the trees in CoNLL-U lines, and an error object per malformed tree.

  A PAUSE among the lines is yielded too.

  Args:
    lines: Lines and pauses from `text.raw_lines`.
    file: File name for messages.
  """
  first = 1  # first line of the sentence
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
    if block and (result := _block(file, first, block)):
      yield result
    first += len(block) + 1
    block = []


def _block(file: str, first: int, lines: list[bytes]) -> Block | Faulty | None:
  """Parses a sentence's CoNLL-U lines into a tree or an error object.

  The result is None if all lines are comments.
  """
  texts = [decode_line(raw) for raw in lines]
  comments = tuple(text for _, text in texts if text.startswith("#"))
  rows: list[Row] = []
  try:
    for line_number, (error, text) in enumerate(texts, first):
      if error:
        raise InputError(f"{file}:{line_number}: {error}")
      if text.startswith("#"):
        continue
      columns = text.split("\t")
      if len(columns) != COLUMNS:
        raise InputError(
          f"{file}:{line_number}: {len(columns)} columns, but CoNLL-U has"
          f" {COLUMNS}, separated by tabs; an empty line ends a sentence."
        )
      rows.append((line_number, columns))
    if rows:
      return joined(file, first, comments, rows)
    # Comments about a sentence require words; others (# newdoc) do not.
    for line_number, comment in enumerate(comments, first):
      match = _SENTENCE.match(comment)
      if match:
        raise InputError(
          f"{file}:{line_number}: a sentence ({match[1]}) without words; give it"
          " its words, or remove the block."
        )
  except InputError as invalid:
    return Faulty(str(invalid), name=comment_value(comments, NAME))
  return None


def attach(blocks: Iterable[Block], text: str) -> Parse:
  """Aligns CoNLL-U trees with a raw text line; returns the line's parse.

  Forms and text are compared as in `align.spans`. All roots are kept.

  Raises:
    InputError: Visible characters differ; the message has the location of the
      tree and the first difference.
  """
  blocks = [block for block in blocks if block.visible]
  try:
    forms = itertools.chain.from_iterable(block.form_W for block in blocks)
    start, end = spans([(form,) for form in forms], text)
  except MismatchError as error:
    of_word: list[Block] = []
    for block in blocks:
      of_word += [block] * len(block.form_W)
    near = of_word[: error.word + 1][-1:]  # the last if text is left over
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
  line = line if parsed else ()
  return Parse(text, tuple(start), tuple(end), head, relation, parsed, line)


def match(
  blocks: Iterable[Block],
  lines: Iterable[str],
  file: str,
  *,
  first: int = 1,
  last: bool = True,
) -> Iterator[Parse]:
  """Yields the parse of each line, joined from consecutive CoNLL-U trees.

  A line takes as many trees as its visible characters need; a line without
  visible characters takes no tree.

  Args:
    blocks: Trees in the order of the text.
    lines: Raw lines without line ends.
    file: Name of the text for messages.
    first: Number of the first line.
    last: Whether to reject trees after the last line.

  Raises:
    InputError: Text and trees differ, or one is longer; the message has the
      CoNLL-U file and line, the line of the text and the first difference.
  """
  # A tree without visible characters belongs to no line.
  trees = (block for block in blocks if block.visible)
  line_number = first - 1
  for line_number, line in enumerate(lines, start=first):
    missing, matched = len(visible(line)), []
    while missing > 0:
      block = next(trees, None)
      if block is None:
        raise InputError(
          f"{file}:{line_number}: the CoNLL-U has no tree for (the rest of) this"
          f" line, {shortened(line)}; it must have all lines, in order."
        )
      matched.append(block)
      missing -= len(block.visible)
    try:
      parse = attach(matched, line)
    except InputError as error:
      raise InputError(f"{error} (Line {line_number} of {file}.)") from None
    yield parse
  block = next(trees, None) if last else None
  if block is not None:
    raise InputError(
      f"{block.file}:{block.line}: this tree, {shortened(' '.join(block.form_W))},"
      f" comes after the last line ({line_number}) of {file}; the CoNLL-U must have"
      " the same lines, in order."
    )


def unparsed(text: str) -> Parse:
  """Returns a treeless parse: every whitespace-separated word is a root."""
  words = [(token,) for token in text.split() if visible(token)]
  start, end = map(tuple, spans(words, text))
  head, relation = tuple(range(len(words))), ("root",) * len(words)
  return Parse(text, start, end, head, relation, parsed=False)


def to_text(parse: Parse, sentence_id: str, is_complete: bool = False) -> str:
  """Returns a parse as CoNLL-U text, which ends in a blank line.

  Reading the text and attaching the tree to the same line gives the same parse. A
  parse without words gives "".

  Args:
    parse: The parse.
    sentence_id: Value of `# sent_id`.
    is_complete: Whether to include the columns that only annotations read.
  """
  if not parse.head_W:
    return ""
  line = _one_line(parse.text)
  rows = [f"# sent_id = {sentence_id}", f"# text = {line}"]
  if not parse.parsed:
    rows.append(NOT_PARSED)
  words = zip(parse.start_W, parse.end_W, parse.head_W, parse.relation_W)
  row_W = parse.row_W if is_complete else ()
  for i, (start, end, head, relation) in enumerate(words):
    # A word without characters is written as an invisible one.
    form = parse.text[start:end]
    form = (form if line == parse.text else _one_line(form)) or "\u200b"
    is_glued = i + 1 < len(parse.head_W) and parse.start_W[i + 1] == end
    between, misc = _NO_COLUMNS, "SpaceAfter=No" if is_glued else "_"
    if row_W:
      between = "\t".join(row_W[i][LEMMA:HEAD])
      values = row_W[i][MISC].split("|")
      values = [m for m in values if not m.startswith("SpaceAfter=")]
      misc = "|".join(m for m in (*values, misc) if m != "_") or "_"
    parent = 0 if head == i else head + 1
    rows.append(f"{i + 1}\t{form}\t{between}\t{parent}\t{relation}\t_\t{misc}")
  return "\n".join(rows) + "\n\n"


def _one_line(text: str) -> str:
  """Normalizes whitespace and removes control characters for CoNLL-U."""
  return _CONTROL.sub("", " ".join(text.split()))
