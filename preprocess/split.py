"""A split on its way from its raw files to records."""

from __future__ import annotations

import dataclasses
import pathlib

from jaxsyn.data import schema
from jaxsyn.data.sentence.stream import is_conllu
from preprocess.raw import Pairs


@dataclasses.dataclass
class RawSplit:
  """What is known of a split; each step of `preprocess.build` adds to it.

  Attributes:
    name: of the split.
    pairs: the raw lines, all that the two files have.
    kept: numbers of the pairs that become records, from 0.
    dropped: reason -> number of pairs.
    given: side -> CoNLL-U of all lines, where trees are not to be parsed.
    conllu: side -> file of the trees of the kept lines.
    relations: side -> relation labels in these trees.
    brackets: file of constituency trees of all lines of the source; None: none.
  """

  name: str
  pairs: Pairs
  kept: list[int]
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  given: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
  conllu: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
  relations: dict[str, set[str]] = dataclasses.field(default_factory=dict)
  brackets: pathlib.Path | None = None

  def all_lines(self, side: str) -> list[str]:
    """The lines of a side, kept or not."""
    return getattr(self.pairs, side)

  def lines(self, side: str) -> list[str]:
    """The kept lines of a side."""
    lines = self.all_lines(side)
    return [lines[i] for i in self.kept]

  @property
  def numbers(self) -> list[int]:
    """Line numbers of the kept pairs in the raw file, from 1."""
    return [i + 1 for i in self.kept]

  def file(self, side: str) -> pathlib.Path:
    """The raw file of a side."""
    return self.pairs.files[schema.SIDES.index(side)]

  @property
  def files(self) -> list[pathlib.Path]:
    """All that it is made from: texts and trees."""
    brackets = [self.brackets] if self.brackets else []
    return [*self.pairs.files, *self.given.values(), *brackets]

  def place(self, side: str, number: int) -> str:
    """Where a line is, for messages; `number` is that of the line, from 1."""
    file = self.file(side)
    treebank = is_conllu(file)
    return f"{file}, sentence {number}" if treebank else f"{file}:{number}"
