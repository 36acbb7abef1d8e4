"""What a parser is: lines in, one parse of each out, whatever it is made of.

A `ParserSpec` is what a config says, a choice of
`jaxsyn.data.sentence.parsers.PARSERS`; `found` and `open` make the `Parser` of
it. All that every parser must do alike stands here: blank lines, lines that are
too long, answers that are no tree of the line. `preprocess` stores what
`conllu_all` gives, `jaxsyn.translate` asks the same parser for `parses`, so both
see the same words. A new parser is a spec and `_texts`, CoNLL-U of some lines.
"""

from __future__ import annotations

import abc
import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from jaxsyn.data.sentence import conllu, conllu_text
from jaxsyn.data.sentence.align import MismatchError, before_composing, visible
from jaxsyn.data.sentence.conllu_text import Parse
from jaxsyn.data.sentence.parser_identity import Identity
from jaxsyn.data.sentence.text import normal
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import Choice, ConfigPath

# A parser's time grows faster than a line, and tree distances as its square: a
# line of more characters is no sentence, and is kept as one unparsed word.
LONGEST_LINE = 5000

_TEXT = "# text = "
# What ends a line somewhere, or a field; blanks to all parsers.
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Parser(abc.ABC):
  """A parser that is loaded, in one process and in those that it forks."""

  @property
  @abc.abstractmethod
  def identity(self) -> Identity:
    """Which it is."""

  @property
  def key(self) -> str:
    """What stored trees of it are found by."""
    return self.identity.key

  def __call__(self, line: str) -> Parse:
    """The parse of a line; `parsed` is False where there is none."""
    return self.parses([line])[0]

  def parses(self, lines: Sequence[str]) -> list[Parse]:
    """The parse of each line, untouched; whatever it holds, it has one.

    Raises:
      InputError: the parser itself has failed.
    """
    texts = self._answers(lines)
    return [_parse(text, line)[0] for text, line in zip(texts, lines)]

  def conllu(self, line: str, sentence_id: str) -> str:
    """The parse of a line as CoNLL-U, to be tied to it by `conllu_text.match`.

    One block, or several if the parser sees several sentences. A line that
    cannot be parsed gives a block marked `# parsed = no`, an empty one nothing.

    Args:
      line: raw text without its line end.
      sentence_id: goes into `# sent_id`.
    """
    return self.conllu_all([line], [sentence_id])[0]

  def conllu_all(
    self, lines: Sequence[str], sentence_ids: Sequence[str]
  ) -> list[str]:
    """`conllu` of each of some lines, which a parser may take together."""
    conllu_blocks = []
    for text, line, name in zip(self._answers(lines), lines, sentence_ids):
      parse, blocks = _parse(text, line)
      conllu_blocks.append(
        "".join(_named(block, name) for block in blocks)
        or conllu_text.to_text(parse, name, is_complete=True)
      )
    return conllu_blocks

  def _answers(self, lines: Sequence[str]) -> list[str]:
    """What the parser says of each line; "" where it is not asked."""
    indices = [i for i, line in enumerate(lines) if _can_be_parsed(line)]
    texts = dict(zip(indices, self._texts([lines[i] for i in indices])))
    return [texts.get(i, "") for i in range(len(lines))]

  @abc.abstractmethod
  def _texts(self, lines: Sequence[str]) -> list[str]:
    """CoNLL-U of each line: one tree or more, as `sentences` gives; "": none.

    Args:
      lines: each has something to see, no NUL and LONGEST_LINE characters at
        most; maybe there is none at all.

    Raises:
      InputError: it cannot go on.
    """


@dataclasses.dataclass(frozen=True)
class ParserSpec(Choice):
  """What a config says of the parser of a side.

  A class has `kind`, its name in PARSERS.
  """

  kind: ClassVar[str]

  @property
  def named(self) -> bool:
    """Whether it says which parser, where trees are given too."""
    return True

  @property
  def file(self) -> pathlib.Path | None:
    """The one file that all of it is in, which runs have a copy of."""
    return None

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> ParserSpec:
    """The same with all that is needed to open it anywhere.

    Args:
      at: where it stands in the config, for messages.
      language: code of the side's language.
      directory: where downloaded files are kept and looked for.
      downloads: file name -> address.

    Raises:
      InputError: there is no such parser; says what to do.
    """
    return self

  def with_identity(self, identity: Identity) -> ParserSpec:
    """The same, of a config and of what `found` has made of it."""
    return self

  def at(self, place: str) -> ParserSpec:
    """Returns the spec with another location of its file or folder."""
    raise NotImplementedError

  def open(self, sha256: str = "") -> Parser:
    """Loads it.

    Args:
      sha256: of its file, if that is known.

    Raises:
      InputError: it is not there, or no parser.
    """
    raise NotImplementedError


def sentences(text: str) -> list[str]:
  """CoNLL-U cut into trees, each with one empty line at its end.

  Comments without words are left out.
  """
  blocks: list[str] = []
  rows: list[str] = []
  for line in [*text.split("\n"), ""]:
    if line := line.rstrip("\r"):
      rows.append(line)
    elif rows:
      if not rows[-1].startswith("#"):
        blocks.append("\n".join(rows) + "\n\n")
      rows = []
  return blocks


def on_one_line(line: str) -> str:
  """A line for what reads lines; the visible characters are the same."""
  return _BREAKS.sub(" ", line)


def not_installed(what: str, install: str) -> InputError:
  """The error of a package that is missing."""
  return InputError(
    f"parsing needs {what}, which is not installed ({install}). Without it, give"
    " CoNLL-U, or use a system that translates without trees."
  )


def _can_be_parsed(line: str) -> bool:
  # Programs written in C end a text at a NUL.
  short = len(line) <= LONGEST_LINE and "\0" not in line
  return short and bool(visible(line))


def _parse(text: str, line: str) -> tuple[Parse, list[str]]:
  """The parse of a line, and the blocks that say it, where they can stay."""
  try:
    trees = conllu.blocks_of_text(text, "the parser's answer")
    parse, composed = _attached(trees, line)
    if parse.parsed:
      return parse, [] if composed else text.split("\n\n")[:-1]
  except (InputError, MismatchError):  # characters changed, or no tree at all
    pass
  parse = conllu_text.unparsed(line)
  if len(line) > LONGEST_LINE and parse.head_W:
    ends = parse.start_W[:1], parse.end_W[-1:]
    parse = Parse(line, *ends, (0,), ("root",), parsed=False)
  return parse, []


def _attached(trees: list[conllu.Block], line: str) -> tuple[Parse, bool]:
  """Trees tied to a line, and whether their characters are its NFC."""
  try:
    return conllu_text.attach(trees, line), False
  except InputError:
    composed = normal(line)
    if composed == line:
      raise
  parse = conllu_text.attach(trees, composed)
  start_W, end_W = before_composing(line, parse.start_W, parse.end_W)
  return dataclasses.replace(
    parse, text=line, start_W=start_W, end_W=end_W
  ), True


def _named(block: str, sentence_id: str) -> str:
  """A block under a name; of its comments its text alone stays."""
  rows = block.split("\n")
  text_rows = [row for row in rows if row.startswith(_TEXT)][:1]
  if not text_rows:
    text_rows = [
      f"{_TEXT}{one.text}" for one in conllu.blocks_of_text(block, "a block")
    ]
  words = [row for row in rows if not row.startswith("#")]
  # In UDPipe's own order, so that what it has parsed before stays the same.
  return "\n".join([*text_rows, f"# sent_id = {sentence_id}", *words]) + "\n\n"
