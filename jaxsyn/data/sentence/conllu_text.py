"""Trees tied to the characters of raw lines: what a sentence is from here on.

`match` ties the blocks of a file to lines, `to_text` writes them. The result,
`Parse`, is what `jaxsyn.data.sentence.example` turns into arrays.

Before this file: `conllu`. After it: `parser`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jaxsyn.data.annotations.annotation import HEAD, LEMMA, MISC
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import (
  MismatchError,
  shortened,
  spans,
  visible,
)
from jaxsyn.data.sentence.parse import Parse as Parse
from jaxsyn.errors import InputError

_NO_COLUMNS = "\t".join("_" * (HEAD - LEMMA))  # what annotations read
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def attach(blocks: Iterable[conllu.Block], text: str) -> Parse:
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
  except MismatchError as error:
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
  blocks: Iterable[conllu.Block],
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
  """A line without a tree: its blank-separated words, each its own root."""
  words = [(token,) for token in text.split() if visible(token)]
  start, end = map(tuple, spans(words, text))
  head, relation = tuple(range(len(words))), ("root",) * len(words)
  return Parse(text, start, end, head, relation, parsed=False)


def to_text(parse: Parse, sentence_id: str, is_complete: bool = False) -> str:
  """A parse as one CoNLL-U block, its blank line included.

  Reading the block back and attaching it to the same text gives the parse
  again. A parse without words has no CoNLL-U: "".

  Args:
    parse: what to write.
    sentence_id: its `# sent_id`.
    is_complete: with the columns that only annotations read, where it has them.
  """
  if not parse.head_W:
    return ""
  line = _one_line(parse.text)
  rows = [f"# sent_id = {sentence_id}", f"# text = {line}"]
  if not parse.parsed:
    rows.append(conllu.NOT_PARSED)
  words = zip(parse.start_W, parse.end_W, parse.head_W, parse.relation_W)
  row_W = parse.row_W if is_complete else ()
  for i, (start, end, head, relation) in enumerate(words):
    # A word that holds no character is written as one that cannot be seen.
    form = parse.text[start:end]
    form = (form if line == parse.text else _one_line(form)) or "\u200b"
    glued = i + 1 < len(parse.head_W) and parse.start_W[i + 1] == end
    between, misc = _NO_COLUMNS, "SpaceAfter=No" if glued else "_"
    if row_W:
      row = row_W[i]
      comments = [
        m for m in row[MISC].split("|") if not m.startswith("SpaceAfter=")
      ]
      between = "\t".join(row[LEMMA:HEAD])
      misc = "|".join(m for m in (*comments, misc) if m != "_") or "_"
    above = 0 if head == i else head + 1
    rows.append(f"{i + 1}\t{form}\t{between}\t{above}\t{relation}\t_\t{misc}")
  return "\n".join(rows) + "\n\n"


def _one_line(text: str) -> str:
  """Text that fits in a CoNLL-U field: no tabs, line ends or control codes."""
  return _CONTROL.sub("", " ".join(text.split()))
