"""What a data set is made of, and any chunk of it.

The lines of a split are cut into chunks: so many consecutive line pairs as
follow from their number alone. Each stage of `preprocess.stages` works on one
chunk at a time, and asks here for its texts; trees and brackets that are given
are found by the same numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parsers import Parser, ParserSpec
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.sentence.text import decoded, normal
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess import raw
from jaxsyn.preprocess.ranges import BOM, LineIndex, LineUnits
from jaxsyn.preprocess.work import Work

# Of a split there are some 256 chunks, so that all workers have some to the end;
# the bounds keep what is done for a chunk, and its memory, in proportion.
_CHUNKS, LEAST, MOST = 256, 1 << 10, 1 << 14


@dataclasses.dataclass(frozen=True)
class Split:
  """A split as its files have it.

  Attributes:
    name: of the split.
    lines: which it takes: "FIRST-LAST", "FIRST-" or "", all.
    texts: side -> its files, numbers in `Job.files`; of several the lines
      follow each other.
    trees: side -> files of the trees of all its lines, where they are given.
    alternatives: side -> files, each of further trees of all its lines.
    brackets: files of constituency trees of all lines of the source.
    alignments: files of the links of all lines.
    aligned: side -> files of the words that these link, where they are not
      those between the blanks of the text.
  """

  name: str
  lines: str
  texts: Mapping[str, tuple[int, ...]]
  trees: Mapping[str, tuple[int, ...]]
  alternatives: Mapping[str, tuple[int, ...]] = dataclasses.field(
    default_factory=dict
  )
  brackets: tuple[int, ...] = ()
  alignments: tuple[int, ...] = ()
  aligned: Mapping[str, tuple[int, ...]] = dataclasses.field(
    default_factory=dict
  )


@dataclasses.dataclass(frozen=True)
class PrepareJob:
  """All that a worker must be told; text is read from files alone.

  Attributes:
    config: of the data set.
    work: folder of the pieces.
    new: folder of what is made, until it is whole.
    kept: folder of what is used again from one call to the next: what is parsed,
      and vocabularies.
    files: all files that are read.
    packed: those of them that are packed, and where they are unpacked to.
    splits: the training split first.
    parsers: side -> what opens its parser, and which that must be, of the sides
      whose lines are to be parsed.
  """

  config: DataConfig
  work: Work
  new: pathlib.Path
  retained: pathlib.Path
  files: tuple[LineUnits, ...]
  packed: tuple[tuple[pathlib.Path, pathlib.Path], ...]
  splits: tuple[Split, ...]
  parsers: Mapping[str, tuple[ParserSpec, Identity]]


@dataclasses.dataclass(frozen=True)
class Cut:
  """How a split is cut into chunks.

  Attributes:
    first, last: its lines, from 0; last is the one behind.
    lines: of a chunk; the last has fewer.
  """

  first: int
  last: int
  lines: int

  @classmethod
  def of(cls, first: int, last: int) -> Cut:
    """As many lines a chunk as go with their number, a power of two."""
    share = -(-(last - first) // _CHUNKS)
    lines = min(max(LEAST, 1 << (share - 1).bit_length()), MOST)
    return cls(first, last, lines)

  @property
  def chunks(self) -> int:
    return -(-(self.last - self.first) // self.lines)

  def chunk(self, index: int) -> range:
    """The lines of a chunk, from 0."""
    first = self.first + index * self.lines
    return range(first, min(first + self.lines, self.last))


class Tools:
  """A job in the hands of a worker: what it has loaded for it stays.

  Attributes:
    job: what is to be done.
  """

  def __init__(self, job: PrepareJob):
    self.job = job

  @property
  def config(self) -> DataConfig:
    return self.job.config

  @property
  def work(self) -> Work:
    return self.job.work

  @functools.cached_property
  def parsers(self) -> dict[str, Parser]:
    opened = {}
    for side, (spec, identity) in self.job.parsers.items():
      opened[side] = spec.open(identity.sha256)
      if opened[side].identity.key != identity.key:
        raise InputError(
          f"the {side} parser is {opened[side].identity}, but was {identity} when"
          " the preparation began: run the same command again."
        )
    return opened

  @functools.cached_property
  def vocabularies(self) -> dict[str, Vocabulary]:
    paths = self.work.read_json("vocabularies.page")
    loaded = {path: Vocabulary(path) for path in set(paths.values())}
    return {side: loaded[paths[side]] for side in schema.SIDES}

  @functools.cached_property
  def known(self) -> Any:
    """What the manifest says of the examples: sides, relations and so on."""
    return self.work.read_json("known.page")

  @functools.cached_property
  def shards(self) -> list[list[list[tuple[int, int, int]]]]:
    """Of each split, see `preprocess.shards.plan`."""
    return self.work.read_json("shards.page")

  @functools.cached_property
  def ranges(self) -> list[tuple[int, range]]:
    """The ranges of all files, file after file."""
    return [
      (file, part)
      for file, units in enumerate(self.job.files)
      for part in units.ranges()
    ]

  @functools.cached_property
  def indices(self) -> list[LineIndex]:
    facts = self.work.read_json("indices.page")
    indices, first = [], 0
    for units, file_facts in zip(self.job.files, facts):
      indices.append(LineIndex(units, file_facts, first))
      first += len(file_facts)
    return indices

  @functools.cached_property
  def cuts(self) -> list[Cut]:
    """Of each split."""
    return [Cut(*cut) for cut in self.work.read_json("cuts.page")]

  @property
  def largest(self) -> int:
    """Lines of the largest chunks."""
    return max(cut.lines for cut in self.cuts)

  def chunk(self, index: int) -> Chunk:
    """The chunk of a number, counted through all splits."""
    for split, cut in zip(self.job.splits, self.cuts):
      if index < cut.chunks:
        return Chunk(self, split, cut.chunk(index))
      index -= cut.chunks
    raise IndexError(index)

  def chunks(self, name: str) -> range:
    """The numbers of a split's chunks."""
    first = 0
    for split, cut in zip(self.job.splits, self.cuts):
      if split.name == name:
        return range(first, first + cut.chunks)
      first += cut.chunks
    raise KeyError(name)

  def count(self, files: Sequence[int]) -> int:
    """How many units some files have together."""
    return sum(self.indices[file].count for file in files)

  def is_train(self, split: Split) -> bool:
    return split.name == self.config.data.train


@dataclasses.dataclass(frozen=True)
class Chunk:
  """Consecutive line pairs of a split.

  Attributes:
    tools: to read them with.
    split: that they are of.
    lines: their numbers in the files of the split, from 0.
  """

  tools: Tools
  split: Split
  lines: range

  def normalised(self, side: str) -> bool:
    """Whether the text of a side is to be in NFC."""
    # References stay as they are: a score must not change with the option.
    trained = side == "source" or self.tools.is_train(self.split)
    return self.tools.config.prepare.clean.nfc and trained

  def texts(self, side: str) -> list[str]:
    """The lines of a side as the files have them."""
    return [
      text
      for file, part in self._parts(self.split.texts[side])
      for text in self._read(file, part)
    ]

  def pairs(self) -> list[tuple[str, str]]:
    """The line pairs, in NFC where that is wanted."""
    sides = []
    for side in schema.SIDES:
      lines = self.texts(side)
      sides.append([*map(normal, lines)] if self.normalised(side) else lines)
    return list(zip(*sides))

  def place(self, side: str, row: int) -> str:
    """Where the line of a row is, for messages."""
    return place(self.tools, self.split.texts[side], self.lines[row])

  def brackets(self) -> list[tuple[str, str]]:
    """Of the constituency tree of each line: where it is, and itself."""
    return self._placed(self.split.brackets)

  def alignments(self) -> list[tuple[str, str]]:
    """The same of the links of each line."""
    return self._placed(self.split.alignments)

  def aligned(self, side: str) -> list[tuple[str, str]]:
    """The same of the words that these link, where a side has such files."""
    return self._placed(self.split.aligned[side])

  def _placed(self, files: Sequence[int]) -> list[tuple[str, str]]:
    return [
      (f"{self.tools.job.files[file].file}:{line_number}", text)
      for file, part in self._parts(files)
      for line_number, text in enumerate(self._read(file, part), part.start + 1)
    ]

  def trees(
    self, side: str, lines: Sequence[str], files: Sequence[int]
  ) -> Iterator[conllu.Parse]:
    """The trees of the lines of a side that has some.

    Args:
      side: of the trees.
      lines: of that side, of the whole chunk.
      files: of the trees of all its lines.

    Raises:
      InputError: the CoNLL-U is malformed, or of another text.
    """
    indices = self.tools.indices
    missing = self._seen_before(side)
    blocks: list[Iterator[conllu.Block]] = []
    for file in files:
      if missing < indices[file].visible or file == files[-1]:
        blocks.append(
          indices[file].blocks_behind(self.tools.work, max(0, missing))
        )
      missing -= indices[file].visible
    texts = self.split.texts[side]
    return conllu.match(
      (block for some in blocks for block in some),
      lines,
      ", ".join(self.tools.job.files[file].file for file in texts),
      first=self.lines.start + 1,
      last=self.lines.stop == self.tools.count(texts),
    )

  def _seen_before(self, side: str) -> int:
    """Visible characters of a side's lines before the chunk."""
    before, total = self.lines.start, 0
    for file in self.split.texts[side]:
      index = self.tools.indices[file]
      if before >= index.count:
        total += index.visible
        before -= index.count
        continue
      first, seen = index.seen_before(self.tools.work, before)
      nfc = self.normalised(side)
      skipped = self._read(file, range(first, before))
      texts = (normal(text) if nfc else text for text in skipped)
      return total + seen + sum(len(visible(text)) for text in texts)
    return total

  def _parts(self, files: Sequence[int]) -> Iterator[tuple[int, range]]:
    """Which units of which files the chunk's are."""
    first, last = self.lines.start, self.lines.stop
    for file in files:
      count = self.tools.indices[file].count
      if first < count and last > 0:
        yield file, range(max(0, first), min(last, count))
      first, last = first - count, last - count

  def _read(self, file: int, part: range) -> list[str]:
    """Units of a file, as texts."""
    index = self.tools.indices[file]
    units, work = index.units, self.tools.work
    if units.form == "sentences":
      blocks = index.blocks_from(work, part.start)
      return [raw.sentence(block) for _, block in zip(part, blocks)]
    return _texts(units, index.lines_of(work, part.start, part.stop), part)


def _texts(units: LineUnits, lines: list[bytes], part: range) -> list[str]:
  """Lines as texts.

  Raises:
    InputError: one is not UTF-8, or has not two columns where it must.
  """
  if lines and not part.start:
    lines[0] = lines[0].removeprefix(BOM)
  try:
    texts = b"\n".join(lines).decode("utf-8").split("\n") if lines else []
  except UnicodeDecodeError:
    faults = [fault for fault, _ in map(decoded, lines)]
    bad = next(i for i, fault in enumerate(faults) if fault)
    line_number = part.start + bad + 1
    raise InputError(f"{units.file}:{line_number}: {faults[bad]}") from None
  texts = [text.removesuffix("\r") for text in texts]
  if units.column is None:
    return texts
  columns = [text.split("\t") for text in texts]
  for line_number, row in enumerate(columns, part.start + 1):
    if len(row) != 2:
      raise InputError(
        f"{units.file}:{line_number}: {len(row)} columns, but a pair has two, its"
        " source and its target, with a tab between them."
      )
  return [row[units.column] for row in columns]


def place(tools: Tools, files: Sequence[int], line: int) -> str:
  """Where a line is, for messages.

  Args:
    tools: of the job.
    files: that the line is of.
    line: its number in all of them together, from 0.
  """
  for index in files:
    count, units = tools.indices[index].count, tools.job.files[index]
    if line < count or index == files[-1]:
      treebank = units.form == "sentences"
      where = f", sentence {line + 1}" if treebank else f":{line + 1}"
      return f"{units.file}{where}"
    line -= count
  raise IndexError(line)
