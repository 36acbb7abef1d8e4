"""Sentences made into what each run of an ensemble reads.

Each has its own features, vocabulary, tags and control trees; where runs have the
same parser, with the same options, a sentence is parsed once for all of them.

Before this file: `sources`. After it: `session`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxsyn.data.sentence.conllu_text import Parse
from jaxsyn.data.sentence.stream import Source
from jaxsyn.sources import Example, Fitted, SourceReader


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
    given = list(sources)
    parses: dict[tuple[str, int, str], Parse] = {}
    each = [
      reader.read_all([_parsed(reader, source, parses) for source in given])
      for reader in self.readers
    ]
    return [
      (tuple(example for example, _ in own), any(cut for _, cut in own))
      for own in zip(*each)
    ]

  def opened(self) -> EnsembleReader:
    """The same reader; its parsers are open already."""
    for reader in self.readers:
      if reader.tree != "none":
        reader.opened()
    return self


def _parsed(
  reader: SourceReader,
  source: Source,
  parses: dict[tuple[str, int, str], Parse],
) -> Source:
  """The parse that a run reads of a line; the line where it reads none."""
  if reader.tree == "none" or not isinstance(source, str):
    return source
  fitted = reader.fit(source)
  if fitted.is_cut or not isinstance(fitted.read, str):
    return source
  key = reader.parser.sha256, reader.parser.beam, fitted.read
  if key not in parses:
    parses[key] = reader.parse(fitted.read)
  return parses[key]
