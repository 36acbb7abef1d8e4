"""Converts source sentences to examples, as in preprocessing.

Subwords, trees and tags are those of the run. Large blocks are parsed by worker
processes. They import this module, which therefore must not import JAX.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import TREES, TreeControl
from jaxsyn.data.sentence.example import encode_all, insert_tag
from jaxsyn.data.sentence.parsers import Parser, recorded
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import Pieces, Vocabulary
from jaxsyn.decode.examples import Example
from jaxsyn.errors import InputError
from jaxsyn.utils.workers import Workers, cores

# Blocks of at most this many lines are parsed in this process: starting workers
# takes as long.
FEW = 200
_BLOCK = 16  # lines per call of a worker
_DIED = (
  "a parser process died, perhaps out of memory: end other programs, or "
  "parse beforehand and translate CoNLL-U (--conllu)."
)

Parses = dict[tuple[str, str], Parse]  # (key of a parser, line) -> parse
ReadSource = tuple[Example, bool]  # arrays, and whether the source was cut
Pending = Sequence[Future[list[ReadSource]]]  # sources that are being read


@dataclasses.dataclass(frozen=True)
class Fitted:
  """Source sentence, and its beginning that fits the maximum length.

  Attributes:
    text: Complete text, normalized like the training text.
    pieces: Subwords of the complete text.
    read: Parse or raw line; the start of the line if it is too long.
    is_cut: Whether it is too long.
  """

  text: str
  pieces: Pieces
  read: Source
  is_cut: bool


class SourceReader:
  """Converter of raw lines and parses to the model inputs of one run.

  Attributes:
    longest: Maximum number of subwords of a source, including EOS.
    features: Source features that the model reads.
    vocabularies: Vocabularies of source and target.
    tree: Name of the tree that the model reads: "parsed" unless config.data.tree
      replaces the parser's tree; "none" if it reads no tree.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    manifest: Mapping[str, Any],
    vocabularies: tuple[Vocabulary, Vocabulary],
    *,
    features: Collection[str],
    tree: TreeControl,
    seed: int,
    longest: int,
    tag: int | None = None,
    parser: str | os.PathLike[str] = "",
  ):
    """Initializes the reader; the parser is opened when it is first used.

    Args:
      folder: Run directory, for messages and the copy of the parser.
      manifest: Manifest of the data that the run was trained on.
      vocabularies: Vocabularies of source and target.
      features: Source features that the model reads.
      tree: Tree type of the run, config.data.tree.
      seed: Seed of the run, for random trees.
      longest: Maximum number of subwords of a source, including EOS.
      tag: Id of the tag that selects translation; None without tags.
      parser: Path of the parser, if it is not in the run directory; see
        `recorded.spec`.
    """
    self.longest, self.features = longest, tuple(features)
    self.vocabularies = vocabularies
    self.tree = TREES.name_of(tree) if tree.replaces else "parsed"
    if len(self.features) == 1:
      self.tree = "none"
    self._folder, self._manifest, self._tag = folder, manifest, tag
    self._encoding = {
      **schema.encoding(manifest),
      "vocabularies": vocabularies,
      "tree": tree,
      "seed": seed,
    }
    self._spec = recorded.spec(folder, manifest, "source", os.fspath(parser))
    self._parser: Parser | None = None

  def __getstate__(self) -> dict[str, Any]:
    return {**self.__dict__, "_parser": None}  # each worker opens a parser

  @property
  def has_parser(self) -> bool:
    """Whether the run has a parser, which may fail to open."""
    return self._spec is not None

  @property
  def parser(self) -> Parser:
    """The parser of the run, opened when it is first used.

    Raises:
      InputError: There is no parser, or it is not the run's.
    """
    if self._parser is None:
      if not self._spec:
        raise InputError(
          f"{self._folder} has no parser: its trees came as CoNLL-U, or it "
          "has none. Give CoNLL-U (--conllu), or name a UDPipe model "
          "(--parser)."
        )
      self._parser = recorded.open_recorded(
        self._spec, self._manifest, "source"
      )
    return self._parser

  def fit(self, source: Source) -> Fitted:
    """Normalizes a raw line or a parse, and truncates it if it is too long."""
    full_text = source if isinstance(source, str) else source.text
    pieces = self.vocabularies[0].encode(full_text)
    is_cut = len(pieces.id) >= self.longest
    if is_cut:  # a parse becomes a raw line: the part has another tree
      source = full_text[: pieces.end[self.longest - 2]]
    return Fitted(full_text, pieces, source, is_cut)

  def example(self, source: Source) -> dict[str, Any]:
    """Converts one source, truncated by `fit`, to the model's input arrays."""
    return self.encode([source], {})[0]

  def encode(
    self, sources: Sequence[Source], parses: Parses
  ) -> list[dict[str, Any]]:
    """Converts sentences to the model's input arrays.

    Args:
      sources: `Fitted.read` of each source.
      parses: Known parses of raw lines; new ones are added.

    Raises:
      InputError: A line must be parsed, and there is no parser.
    """
    if not sources:
      return []
    if self.tree == "none":
      sources = [one if isinstance(one, str) else one.text for one in sources]
    elif any(isinstance(source, str) for source in sources):
      sources = self._parse_all(sources, parses)
    examples = encode_all(
      sources, None, lines=[0] * len(sources), **self._encoding
    ).examples()
    if self._tag is None:
      return examples
    return [insert_tag(example, self._tag) for example in examples]

  def _parse_all(
    self, sources: Sequence[Source], parses: Parses
  ) -> list[Source]:
    key = self.parser.key
    lines = [source for source in sources if isinstance(source, str)]
    # In one call, since some parsers process many lines at a time.
    new = [line for line in dict.fromkeys(lines) if (key, line) not in parses]
    if new:
      new_parses = self.parser.parses(new)
      parses.update(zip([(key, line) for line in new], new_parses, strict=True))
    return [
      parses[key, source] if isinstance(source, str) else source
      for source in sources
    ]


class SessionReader:
  """Converter of source sentences to the inputs of a session's models.

  Large blocks are converted by worker processes.

  An example is a tuple with one entry per run, each with the features, vocabulary,
  tags and control trees of its run. Runs with the same parser share the parse of a
  sentence.

  Attributes:
    readers: Reader of each run.
  """

  def __init__(self, readers: Sequence[SourceReader]):
    self.readers = tuple(readers)
    self._workers: Workers[SessionReader] | None = None

  def __getstate__(self) -> dict[str, Any]:
    return {"readers": self.readers, "_workers": None}

  @property
  def tree(self) -> str:
    """Tree type of the first run that reads trees; "none" if no run does."""
    trees = (reader.tree for reader in self.readers)
    return next((tree for tree in trees if tree != "none"), "none")

  def fit(self, source: Source) -> Fitted:
    """Normalizes and truncates a source sentence for the first run."""
    return self.readers[0].fit(source)

  def tree_of(self, line: str) -> Parse:
    """Parses a raw line with the first available parser."""
    reader = self._first_with_parser
    return reader.parser(reader.fit(line).text)

  def open_parser(self) -> None:
    """Opens the first available parser; raises InputError if that fails."""
    _ = self._first_with_parser.parser

  def opened(self) -> SessionReader:
    """Opens the parsers of all runs that read trees; returns this reader."""
    for reader in self.readers:
      if reader.tree != "none":
        _ = reader.parser
    return self

  def read_all(self, sources: Sequence[Source]) -> list[ReadSource]:
    """Converts sources to examples; marks those that were truncated.

    Raises:
      InputError: There is no parser, or it is not the run's.
    """
    parses: Parses = {}
    columns: list[list[dict[str, Any]]] = []
    is_cut = [False] * len(sources)
    for reader in self.readers:
      fitted = [reader.fit(source) for source in sources]
      is_cut = [cut or one.is_cut for cut, one in zip(is_cut, fitted)]
      columns.append(reader.encode([one.read for one in fitted], parses))
    return list(zip(zip(*columns), is_cut, strict=True))

  def read_async(self, sources: Sequence[Source]) -> Pending:
    """Starts `read_all`, and returns a future for each part of its result.

    More than FEW raw lines are parsed by worker processes, one per core, which
    run until `close`. Smaller blocks are read before this returns.
    """
    lines = sum(isinstance(source, str) for source in sources)
    if self.tree == "none" or lines <= FEW:
      future: Future[list[ReadSource]] = Future()
      try:
        future.set_result(self.read_all(sources))
      except InputError as error:
        future.set_exception(error)
      return [future]
    if self._workers is None:
      self._workers = Workers(self.opened, cores(), died=_DIED)
    return [
      self._workers.submit(SessionReader.read_all, sources[i : i + _BLOCK])
      for i in range(0, len(sources), _BLOCK)
    ]

  def close(self) -> None:
    """Ends the worker processes; later calls start new ones."""
    if self._workers is not None:
      self._workers.close()
      self._workers = None

  @property
  def _first_with_parser(self) -> SourceReader:
    with_parser = (reader for reader in self.readers if reader.has_parser)
    return next(with_parser, self.readers[0])
