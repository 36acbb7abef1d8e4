"""Sentences made into what each run of an ensemble reads.

Each has its own features, vocabulary, tags and control trees; where runs have the
same parser, with the same options, a sentence is parsed once for all of them.

Before this file: `sources`. After it: `jaxsyn.session`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.stream import Source
from jaxsyn.trained.sources import Example, Fitted, SourceReader


class EnsembleReader:
  """Makes examples of raw lines and parses, one for each run.

  Attributes:
    readers: of each run.
  """

  def __init__(self, readers: Sequence[SourceReader]):
    self.readers = tuple(readers)

  @property
  def tree(self) -> str:
    """Which tree a run reads; "none" where none of them does."""
    trees = (reader.tree for reader in self.readers)
    return next((tree for tree in trees if tree != "none"), "none")

  def fit(self, source: Source) -> Fitted:
    """What the first run reads of a source."""
    return self.readers[0].fit(source)

  def read_all(
    self, sources: Iterable[Source]
  ) -> list[tuple[tuple[Example, ...], bool]]:
    """The arrays of each source for each run, and whether it was too long."""
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
    """Whether one of the runs has a parser, which may not open."""
    return any(reader.has_parser for reader in self.readers)

  def tree_of(self, line: str) -> Parse:
    """The tree of a raw line, by the first parser that a run has."""
    return self._parses.tree_of(line)

  def open_parser(self) -> None:
    """Opens that; raises InputError where it cannot be."""
    self._parses.open_parser()

  @property
  def _parses(self) -> SourceReader:
    with_parser = (reader for reader in self.readers if reader.has_parser)
    return next(with_parser, self.readers[0])

  def opened(self) -> EnsembleReader:
    """The same reader; its parsers are open already."""
    for reader in self.readers:
      if reader.tree != "none":
        reader.opened()
    return self


def _parsed(
  reader: SourceReader,
  sources: Sequence[Source],
  parses: dict[tuple[str, str], Parse],
) -> list[Source]:
  """Sources with the parses that a run reads of them, where it reads some.

  Args:
    reader: of the run.
    sources: lines and parses.
    parses: key of a parser and line -> parse, of earlier runs; more come in.
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
  # All together: some parsers take many lines at a time.
  new = [
    line for line in dict.fromkeys(lines.values()) if (key, line) not in parses
  ]
  parses.update(zip([(key, line) for line in new], parser.parses(new)))
  return [
    parses[key, lines[i]] if i in lines else source
    for i, source in enumerate(sources)
  ]
