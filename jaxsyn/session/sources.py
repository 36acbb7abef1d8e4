"""Reading of sentences to be translated, as `preprocess` read the training data.

NFC, subwords, trees and tags are those of the run. Large blocks are parsed by worker
processes, which do not load JAX.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Mapping,
  Sequence,
)
from concurrent.futures import Future
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import TREES, TreeControl
from jaxsyn.data.sentence.example import encode_all, tagged
from jaxsyn.data.sentence.parsers import Parser, recorded
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import Pieces, Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.workers import Workers, cores

# Blocks of at most so many lines are parsed in this process: starting workers
# takes as long.
FEW = 200
_BLOCK = 16  # lines per call of a worker
_DIED = (
  "a parser process died, perhaps out of memory: end other programs, or "
  "parse beforehand and translate CoNLL-U (--conllu)."
)


Example = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Fitted:
  """A source, and the part of it that is read.

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
  """Makes examples of raw lines and parses, for one run.

  Attributes:
    longest: Maximum number of subwords of a source, including EOS.
    features: Features of the source side that the model reads.
    vocabularies: Vocabularies of source and target.
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
    """Initializes the reader; the parser is opened at its first use.

    Args:
      folder: Run directory, for messages and the copy of the parser.
      manifest: Manifest of the data that the run was trained on.
      vocabularies: Vocabularies of source and target.
      features: Features that translation reads.
      tree: Tree type of the run, config.data.tree.
      seed: Seed of the run, for random trees.
      longest: Maximum number of subwords of a source, including EOS.
      tag: Id of the tag that selects translation; None without tags.
      parser: Path of the parser, if it is not in the run directory; see
        `recorded.spec`.

    Raises:
      InputError: The data lacks a feature.
    """
    self.longest, self.vocabularies = longest, vocabularies
    names = schema.features_for(manifest, features)
    self.features = tuple(name for name in names if name.startswith("source"))
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
    return {**self.__dict__, "_parser": None}  # a worker opens its own

  @property
  def tree(self) -> str:
    """Name of the tree that the model reads; "none" if it reads none.

    It is "parsed" unless config.data.tree replaces the parser's tree.
    """
    tree = self._encoding["tree"]
    if len(self.features) == 1:
      return "none"
    return TREES.name_of(tree) if tree.replaces else "parsed"

  def fit(self, source: Source) -> Fitted:
    """Normalizes a source, and cuts it if it is too long.

    Args:
      source: Raw line or parse.
    """
    full_text = source if isinstance(source, str) else source.text
    pieces = self.vocabularies[0].encode(full_text)
    is_cut = len(pieces.id) >= self.longest
    if is_cut:  # also a parse: the tree of a part is another one
      source = full_text[: pieces.end[self.longest - 2]]
    return Fitted(full_text, pieces, source, is_cut)

  @property
  def has_parser(self) -> bool:
    """Whether the run has a parser, which may fail to open."""
    return self._spec is not None

  def parse(self, line: str) -> Parse:
    """Returns the tree of a raw line by the parser of the run.

    Raises:
      InputError: There is no parser, or it is not the run's.
    """
    return self.parser(line)

  @property
  def parser(self) -> Parser:
    """The parser of the run, opened at its first use; raises like `parse`."""
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

  def example(self, source: Source) -> Example:
    """Returns the arrays that the model reads.

    Args:
      source: `Fitted.read` of a source.
    """
    return self._examples([source])[0]

  def _examples(self, sources: Sequence[Source]) -> list[Example]:
    source_list: list[Source] = [*sources]
    raw = {
      i: line for i, line in enumerate(source_list) if isinstance(line, str)
    }
    if self.tree == "none":
      source_list = [
        one if isinstance(one, str) else one.text for one in source_list
      ]
    elif raw:
      for i, parse in zip(raw, self.parser.parses([*raw.values()])):
        source_list[i] = parse
    if not source_list:
      return []
    numbers = [0] * len(source_list)
    examples = encode_all(
      source_list, None, lines=numbers, **self._encoding
    ).examples()
    if self._tag is None:
      return examples
    return [tagged(example, self._tag) for example in examples]

  def read(self, source: Source) -> tuple[Example, bool]:
    """Returns the arrays of a source, and whether it was cut."""
    fitted = self.fit(source)
    return self.example(fitted.read), fitted.is_cut

  def read_all(self, sources: Iterable[Source]) -> list[tuple[Example, bool]]:
    """Reads sources together, in a quarter of the time (parsing excluded)."""
    fitted = [self.fit(source) for source in sources]
    examples = self._examples([one.read for one in fitted])
    return [*zip(examples, (one.is_cut for one in fitted))]

  def opened(self) -> SourceReader:
    """Opens the parser, and returns this reader."""
    self._parser = self.parser
    return self

  def tree_of(self, line: str) -> Parse:
    """Returns the tree of a line, normalized like the training text."""
    return self.parse(self.fit(line).text)

  def open_parser(self) -> None:
    """Opens the parser, to check that it can be opened; raises like `parse`."""
    self.opened()


class EnsembleReader:
  """Makes one example of a source for each run of an ensemble.

  Each run has its own features, vocabulary, tags and control trees. Runs with the
  same parser and the same options of it share the parse of a sentence.

  Attributes:
    readers: Reader of each run.
  """

  def __init__(self, readers: Sequence[SourceReader]):
    self.readers = tuple(readers)

  @property
  def tree(self) -> str:
    """Name of the tree that the first run with trees reads; "none" if none does."""
    trees = (reader.tree for reader in self.readers)
    return next((tree for tree in trees if tree != "none"), "none")

  def fit(self, source: Source) -> Fitted:
    """Returns what the first run reads of a source."""
    return self.readers[0].fit(source)

  def read_all(
    self, sources: Iterable[Source]
  ) -> list[tuple[tuple[Example, ...], bool]]:
    """Returns the arrays of each source for each run, and whether it was cut."""
    source_list = list(sources)
    parses: dict[tuple[str, str], Parse] = {}
    each = [
      reader.read_all(_parsed(reader, source_list, parses))
      for reader in self.readers
    ]
    return [
      (
        tuple(example for example, _ in member_examples),
        any(cut for _, cut in member_examples),
      )
      for member_examples in zip(*each)
    ]

  @property
  def has_parser(self) -> bool:
    """Whether a run has a parser, which may fail to open."""
    return any(reader.has_parser for reader in self.readers)

  def tree_of(self, line: str) -> Parse:
    """Returns the tree of a raw line by the first parser of a run."""
    return self._first_with_parser.tree_of(line)

  def open_parser(self) -> None:
    """Opens the first parser of a run, or raises InputError."""
    self._first_with_parser.open_parser()

  @property
  def _first_with_parser(self) -> SourceReader:
    with_parser = (reader for reader in self.readers if reader.has_parser)
    return next(with_parser, self.readers[0])

  def opened(self) -> EnsembleReader:
    """Opens the parsers, and returns this reader."""
    for reader in self.readers:
      if reader.tree != "none":
        reader.opened()
    return self


class ParallelReader:
  """Reads blocks of sources, large ones with worker processes.

  Attributes:
    reader: Reader of a run or an ensemble.
  """

  def __init__(self, reader: SourceReader | EnsembleReader):
    self.reader = reader
    self._workers: Workers[Any] | None = None

  def begin(
    self, sources: Sequence[Source]
  ) -> Callable[[], list[tuple[Any, bool]]]:
    """Starts to read a block.

    More than FEW lines are parsed by workers, one per core, which run until
    `close`. Smaller blocks are read before this returns.

    Returns:
      A function that waits for the results of `SourceReader.read`, in order.

    Raises:
      InputError: There is no parser, or it is not the run's. The returned function
        raises it if a worker was killed.
    """
    lines = sum(isinstance(source, str) for source in sources)
    if self.reader.tree == "none" or lines <= FEW:
      read = self.reader.read_all(sources)
      return lambda: read
    if self._workers is None:
      make = self.reader.opened
      self._workers = Workers(make, cores(), died=_DIED)
    blocks: list[Future[Any]] = [
      self._workers.submit(type(self.reader).read_all, sources[i : i + _BLOCK])
      for i in range(0, len(sources), _BLOCK)
    ]
    return lambda: [one for block in blocks for one in block.result()]

  def close(self) -> None:
    """Ends the workers."""
    if self._workers is not None:
      self._workers.close()
      self._workers = None


def _parsed(
  reader: SourceReader,
  sources: Sequence[Source],
  parses: dict[tuple[str, str], Parse],
) -> list[Source]:
  """Replaces raw lines by parses, if a run reads trees.

  Args:
    reader: Reader of the run.
    sources: Lines and parses.
    parses: (key of a parser, line) -> parse; the new parses are added.
  """
  lines: dict[int, str] = {}
  if reader.tree != "none":
    for i, source in enumerate(sources):
      fitted = reader.fit(source)
      if isinstance(fitted.read, str) and not fitted.is_cut:
        lines[i] = fitted.read
  if not lines:
    return list(sources)
  parser, key = reader.parser, reader.parser.key
  # In one call, since some parsers process many lines at a time.
  new = [
    line for line in dict.fromkeys(lines.values()) if (key, line) not in parses
  ]
  parses.update(zip([(key, line) for line in new], parser.parses(new)))
  return [
    parses[key, lines[i]] if i in lines else source
    for i, source in enumerate(sources)
  ]
