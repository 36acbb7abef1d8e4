"""Base classes of dependency parsers.

A `ParserSpec` is the section of a config that selects a parser; `resolve` and `open`
make the `Parser`. A new parser needs a spec, an identity and `Parser._texts`, which
returns CoNLL-U. The base class handles blank lines, lines that are too long, and
output that is not a tree of the line. Preparation stores the output of `conllu_all`,
and translation calls `parses` of the same parser, so both get the same words.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import Choice, ConfigPath

# Parsing time grows faster than a line, and tree distances as its square. A longer
# line, in characters, is not a sentence and is kept as one unparsed word.
LONGEST_LINE = 5000

# Characters that end a line or a field in some format; parsers read spaces instead.
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclasses.dataclass(frozen=True)
class Identity:
  """Identity of a parser, recorded in manifests and verified for translation.

  Attributes:
    kind: Name in `jaxsyn.data.sentence.parsers.PARSERS`.
    name: Name of the model; compared only if there is no hash.
    sha256: Hash of the model's file or files; "" without files.
    version: Version of the software, for messages.
    options: Values of the options that change trees, by option name.
  """

  kind: str = "udpipe"
  name: str = ""
  sha256: str = ""
  version: str = ""
  options: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @classmethod
  def of(cls, entry: Mapping[str, Any]) -> Self:
    """Reads the parser identity from one side's entry in a manifest."""
    fields = {field.name for field in dataclasses.fields(cls)}
    return cls(**{key: entry[key] for key in entry if key in fields})

  def entry(self) -> dict[str, Any]:
    """Returns the parser identity as a dict for a manifest."""
    return dataclasses.asdict(self)

  @property
  def key(self) -> str:
    """String that is equal for parsers that produce equal trees."""
    options = sorted(self.options.items())
    return json.dumps([self.kind, self.sha256 or self.name, options])

  @property
  def title(self) -> str:
    """Model name, preceded by the parser type unless the name ends in it."""
    has_suffix = self.name.endswith(f".{self.kind}")
    return self.name if has_suffix else f"{self.kind} {self.name}"

  def __str__(self) -> str:
    details = [self.version] if self.version else []
    details += [f"{k} {v}" for k, v in sorted(self.options.items())]
    if self.sha256:
      details.append(f"SHA-256 {self.sha256}")
    return f"{self.title} ({', '.join(details)})"


class Parser(abc.ABC):
  """Base class of loaded dependency parsers, which remain usable after a fork.

  Attributes:
    identity: Identity of the parser: its software, model and options.
  """

  identity: Identity

  @property
  def key(self) -> str:
    """String that identifies the parser's trees in caches and hashes."""
    return self.identity.key

  @abc.abstractmethod
  def _texts(self, lines: Sequence[str]) -> list[str]:
    """Returns each line's trees as CoNLL-U text; "" for a line without trees.

    Args:
      lines: Lines with visible characters, without NUL, of at most LONGEST_LINE
        characters; the list may be empty.

    Raises:
      InputError: The parser failed.
    """

  def __call__(self, line: str) -> Parse:
    """Returns the parse of a raw line; `parsed` is False if it has no tree."""
    return self.parses([line])[0]

  def parses(self, lines: Sequence[str]) -> list[Parse]:
    """Returns the parse of each raw line, without a tree if parsing fails.

    Raises:
      InputError: The parser itself failed.
    """
    return [parse for parse, _ in self._parse(lines)]

  def conllu_all(
    self, lines: Sequence[str], sentence_ids: Sequence[str]
  ) -> list[str]:
    """Returns the parse of each raw line as CoNLL-U text.

    A line has several trees if the parser splits it into sentences. A line that
    cannot be parsed gives a sentence marked `# parsed = no`, an empty line gives "".

    Args:
      lines: Raw text without line ends.
      sentence_ids: Values of `# sent_id`.
    """
    return [
      "".join(_with_id(block, name) for block in blocks)
      or conllu.to_text(parse, name, is_complete=True)
      for (parse, blocks), name in zip(self._parse(lines), sentence_ids)
    ]

  def _parse(self, lines: Sequence[str]) -> list[tuple[Parse, list[str]]]:
    """Parses lines; returns their parses, and their trees as CoNLL-U texts."""
    # Programs written in C end a text at a NUL.
    indices = [
      i
      for i, line in enumerate(lines)
      if len(line) <= LONGEST_LINE and "\0" not in line and visible(line)
    ]
    texts = dict(zip(indices, self._texts([lines[i] for i in indices])))
    return [_checked(texts.get(i, ""), line) for i, line in enumerate(lines)]


@dataclasses.dataclass(frozen=True)
class ParserSpec(Choice, abc.ABC):
  """Config section that selects the dependency parser of source or target text.

  Attributes:
    kind: Name of the parser in PARSERS.
    location: Name of the option with the path of the model.
  """

  kind: ClassVar[str]
  location: ClassVar[str] = "model"

  @property
  def named(self) -> bool:
    """Whether the config explicitly names a parser, by its type or model."""
    return True

  @property
  def file(self) -> pathlib.Path | None:
    """Path of the model file; None if the model is not a single file."""
    return None

  @abc.abstractmethod
  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> Self:
    """Returns the spec with the complete name or path of its model.

    Args:
      at: Path of the spec in the config, for messages.
      language: Language code of the side.
      directory: Directory of downloaded files.
      downloads: Downloads by file name.

    Raises:
      InputError: There is no such parser; the message has the remedy.
    """

  def with_identity(self, identity: Identity) -> Self:
    """Returns the spec with the model name from a recorded parser identity."""
    return self

  def at(self, place: str) -> Self:
    """Returns a copy of the spec with another location of the model."""
    changes: dict[str, Any] = {self.location: place}
    return dataclasses.replace(self, **changes)

  @abc.abstractmethod
  def open(self, sha256: str = "") -> Parser:
    """Returns the loaded parser that the spec selects.

    Args:
      sha256: Hash of the model file, if known.

    Raises:
      InputError: The file is missing or not a parser.
    """


def on_one_line(line: str) -> str:
  """Replaces line breaks and control characters of a line with spaces."""
  return _BREAKS.sub(" ", line)


def not_installed(package: str, install: str) -> InputError:
  """Returns an error for a parser package that is not installed."""
  return InputError(
    f"parsing needs {package}, which is not installed ({install}). Without it, give"
    " CoNLL-U, or use a system that translates without trees."
  )


def _checked(text: str, line: str) -> tuple[Parse, list[str]]:
  """Checks a parser's output for a line; returns its parse and trees.

  Invalid output, such as changed characters, gives a parse without a tree.
  """
  try:
    trees = conllu.blocks_of_text(text, "the parser's answer")
    parse = conllu.attach(trees, line)
    if parse.parsed:
      return parse, text.split("\n\n")[:-1]
  except InputError:  # characters changed, or not a tree
    pass
  parse = conllu.unparsed(line)
  if len(line) > LONGEST_LINE and parse.head_W:
    span = parse.start_W[:1], parse.end_W[-1:]
    parse = Parse(line, *span, (0,), ("root",), parsed=False)
  return parse, []


def _with_id(block: str, sentence_id: str) -> str:
  """Sets `# sent_id` of a CoNLL-U tree; drops all comments except `# text`."""
  rows = block.split("\n")
  text_rows = [row for row in rows if row.startswith("# text = ")][:1]
  words = [row for row in rows if not row.startswith("#")]
  # UDPipe's order of comments, so that stored trees stay the same.
  return "\n".join([*text_rows, f"# sent_id = {sentence_id}", *words]) + "\n\n"
