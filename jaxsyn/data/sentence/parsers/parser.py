"""Base classes of parsers: `ParserSpec`, `Parser`, and the `Identity` of a parser.

A `ParserSpec` is the section of a config that selects a parser; `resolve` and `open`
make the `Parser`. Everything that all parsers share is here: blank lines, lines that
are too long, and output that is not a tree of the line. `preprocess` stores the output
of `conllu_all`, and `jaxsyn.translate` calls `parses` of the same parser, so both get
the same words. A new parser needs a spec and `_texts`, which returns CoNLL-U.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import MismatchError, before_composing, visible
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.text import normal
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import Choice, ConfigPath

# Parsing time grows faster than a line, and tree distances as its square. A longer
# line, in characters, is not a sentence and is kept as one unparsed word.
LONGEST_LINE = 5000

_TEXT = "# text = "
# Characters that end a line or a field in some format; parsers read blanks instead.
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclasses.dataclass(frozen=True)
class Identity:
  """Identifies a parser: manifests record it, and translation requires the same.

  Attributes:
    kind: Name in `jaxsyn.data.sentence.parsers.PARSERS`.
    model: Name of the model; compared only if there is no hash.
    sha256: Hash of the model's file or files; "" if there are none.
    version: Version of the software, for messages.
    options: Name -> value of the options that change trees.
  """

  kind: str
  model: str
  sha256: str = ""
  version: str = ""
  options: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @classmethod
  def of(cls, entry: Mapping[str, Any]) -> Identity:
    """Returns the parser in a side's entry of a manifest."""
    return cls(
      entry.get("kind", "udpipe"),
      entry.get("name", ""),
      entry.get("sha256", ""),
      entry.get("version", ""),
      entry.get("options", {}),
    )

  def entry(self) -> dict[str, Any]:
    """Returns the entry for the manifest."""
    return {
      "kind": self.kind,
      "name": self.model,
      "sha256": self.sha256,
      "version": self.version,
      "options": dict(self.options),
    }

  @property
  def key(self) -> str:
    """A string that is equal for parsers that make the same trees."""
    options = sorted(self.options.items())
    return json.dumps([self.kind, self.sha256 or self.model, options])

  @property
  def title(self) -> str:
    """Name of the model, with its kind unless the file ending is the kind."""
    has_suffix = self.model.endswith(f".{self.kind}")
    return self.model if has_suffix else f"{self.kind} {self.model}"

  def __str__(self) -> str:
    options = [f"{k} {v}" for k, v in sorted(self.options.items())]
    version = [self.version] if self.version else []
    sha256 = [f"SHA-256 {self.sha256}"] if self.sha256 else []
    return f"{self.title} ({', '.join([*version, *options, *sha256])})"


def sha256_texts(texts: Iterable[str]) -> str:
  """Returns one SHA-256 of several texts; it depends on their boundaries."""
  digest = hashlib.sha256()
  for text in texts:
    data = text.encode("utf-8")
    digest.update(len(data).to_bytes(8, "little") + data)
  return digest.hexdigest()


class Parser(abc.ABC):
  """A loaded parser, usable in its process and in forked ones."""

  @property
  @abc.abstractmethod
  def identity(self) -> Identity:
    """The parser's identity."""

  @property
  def key(self) -> str:
    """Key under which its trees are stored."""
    return self.identity.key

  def __call__(self, line: str) -> Parse:
    """Returns the parse of a line; `parsed` is False if it has no tree."""
    return self.parses([line])[0]

  def parses(self, lines: Sequence[str]) -> list[Parse]:
    """Returns the parse of each unchanged line, whatever the line contains.

    Raises:
      InputError: The parser itself failed.
    """
    texts = self._parse_lines(lines)
    return [_parse(text, line)[0] for text, line in zip(texts, lines)]

  def conllu(self, line: str, sentence_id: str) -> str:
    """Returns the parse of a line as CoNLL-U, for `jaxsyn.data.sentence.conllu`.

    It has several blocks if the parser splits the line into sentences. A line that
    cannot be parsed gives a block marked `# parsed = no`, an empty line gives "".

    Args:
      line: Raw text without its line end.
      sentence_id: Value of `# sent_id`.
    """
    return self.conllu_all([line], [sentence_id])[0]

  def conllu_all(
    self, lines: Sequence[str], sentence_ids: Sequence[str]
  ) -> list[str]:
    """Returns `conllu` of several lines, which a parser may process together."""
    results = []
    for text, line, name in zip(self._parse_lines(lines), lines, sentence_ids):
      parse, blocks = _parse(text, line)
      results.append(
        "".join(_with_id(block, name) for block in blocks)
        or conllu.to_text(parse, name, is_complete=True)
      )
    return results

  def _parse_lines(self, lines: Sequence[str]) -> list[str]:
    """Returns the parser's CoNLL-U of each line; "" if it cannot be parsed."""
    indices = [i for i, line in enumerate(lines) if _can_be_parsed(line)]
    texts = dict(zip(indices, self._texts([lines[i] for i in indices])))
    return [texts.get(i, "") for i in range(len(lines))]

  @abc.abstractmethod
  def _texts(self, lines: Sequence[str]) -> list[str]:
    """Returns CoNLL-U of each line: trees as `sentences` returns, or "".

    Args:
      lines: Lines with visible characters, without NUL, of at most LONGEST_LINE
        characters; the list may be empty.

    Raises:
      InputError: The parser failed.
    """


@dataclasses.dataclass(frozen=True)
class ParserSpec(Choice):
  """The parser of a side in a config; `kind` is its name in PARSERS."""

  kind: ClassVar[str]

  @property
  def named(self) -> bool:
    """Whether the config names a parser although it gives trees."""
    return True

  @property
  def file(self) -> pathlib.Path | None:
    """The model's only file, which runs keep a copy of; None if it has more."""
    return None

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> ParserSpec:
    """Returns the spec with everything that is needed to open it anywhere.

    Args:
      at: Path of the spec in the config, for messages.
      language: Language code of the side.
      directory: Directory of downloaded files.
      downloads: File name -> address.

    Raises:
      InputError: There is no such parser; says what to do.
    """
    return self

  def with_identity(self, identity: Identity) -> ParserSpec:
    """Returns the spec with the model of a recorded parser."""
    return self

  def at(self, place: str) -> ParserSpec:
    """Returns the spec with another location of its file or folder."""
    raise NotImplementedError

  def open(self, sha256: str = "") -> Parser:
    """Loads the parser.

    Args:
      sha256: Hash of its file, if known.

    Raises:
      InputError: The file is missing or not a parser.
    """
    raise NotImplementedError


def sentences(text: str) -> list[str]:
  """Splits CoNLL-U into trees, each with one empty line at its end.

  Comments without words are omitted.
  """
  blocks: list[str] = []
  rows: list[str] = []
  for line in [*text.split("\n"), ""]:
    line = line.rstrip("\r")
    if line:
      rows.append(line)
    elif rows:
      if not rows[-1].startswith("#"):
        blocks.append("\n".join(rows) + "\n\n")
      rows = []
  return blocks


def on_one_line(line: str) -> str:
  """Replaces line breaks and control characters by blanks."""
  return _BREAKS.sub(" ", line)


def not_installed(package: str, install: str) -> InputError:
  """Returns the error for a missing package."""
  return InputError(
    f"parsing needs {package}, which is not installed ({install}). Without it, give"
    " CoNLL-U, or use a system that translates without trees."
  )


def _can_be_parsed(line: str) -> bool:
  # Programs written in C end a text at a NUL.
  is_short = len(line) <= LONGEST_LINE and "\0" not in line
  return is_short and bool(visible(line))


def _parse(text: str, line: str) -> tuple[Parse, list[str]]:
  """Returns the parse of a line, and the parser's blocks if they match the line."""
  try:
    trees = conllu.blocks_of_text(text, "the parser's answer")
    parse, is_composed = _attach(trees, line)
    if parse.parsed:
      return parse, [] if is_composed else text.split("\n\n")[:-1]
  except (InputError, MismatchError):  # characters changed, or not a tree
    pass
  parse = conllu.unparsed(line)
  if len(line) > LONGEST_LINE and parse.head_W:
    span = parse.start_W[:1], parse.end_W[-1:]
    parse = Parse(line, *span, (0,), ("root",), parsed=False)
  return parse, []


def _attach(trees: list[conllu.Block], line: str) -> tuple[Parse, bool]:
  """Ties trees to a line; also returns whether they are trees of its NFC."""
  try:
    return conllu.attach(trees, line), False
  except InputError:
    composed = normal(line)
    if composed == line:
      raise
  parse = conllu.attach(trees, composed)
  start_W, end_W = before_composing(line, parse.start_W, parse.end_W)
  return dataclasses.replace(
    parse, text=line, start_W=start_W, end_W=end_W
  ), True


def _with_id(block: str, sentence_id: str) -> str:
  """Returns a block with a `# sent_id` and no other comment but its text."""
  rows = block.split("\n")
  text_rows = [row for row in rows if row.startswith(_TEXT)][:1]
  if not text_rows:
    text_rows = [
      f"{_TEXT}{tree.text}" for tree in conllu.blocks_of_text(block, "a block")
    ]
  words = [row for row in rows if not row.startswith("#")]
  # UDPipe's order of comments, so that stored trees stay the same.
  return "\n".join([*text_rows, f"# sent_id = {sentence_id}", *words]) + "\n\n"
