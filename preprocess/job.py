"""Preparation jobs, and chunks of lines.

The lines of a split are cut into chunks of consecutive line pairs. A task of a
stage (`preprocess.stages`) usually processes one chunk.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.parsers import Parser, ParserSpec
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess.outputs import FORMAT, Outputs, Result
from jaxsyn.preprocess.raw import Source
from jaxsyn.preprocess.readers import READERS
from jaxsyn.storage import files

# A split has about 256 chunks, so that all workers are busy to the end; the
# bounds keep the overhead of a chunk, and its memory, in proportion.
_CHUNKS, MIN_LINES, MAX_LINES = 256, 1 << 10, 1 << 14
_BYTES_PER_LINE = 60


def chunk_lines(sources: Iterable[Source]) -> int:
  """Chooses the number of lines per chunk from the size of one side's files."""
  size = sum(files.size_of(source.path) for source in sources)
  share = max(1, size // _BYTES_PER_LINE // _CHUNKS)
  return min(max(MIN_LINES, 1 << (share - 1).bit_length()), MAX_LINES)


# Name of a stream -> its files, which have a line or tree for each pair.
Streams = dict[str, tuple[Source, ...]]


@dataclasses.dataclass(frozen=True)
class SplitInput:
  """Input files of a split, as streams of one line or tree per pair.

  Attributes:
    name: Name of the split.
    lines: Range of lines to read: "FIRST-LAST", "FIRST-", or "" for all.
    streams: Name of a stream -> its files. "source" and "target" are the texts
      and "trees.SIDE" given trees; `preprocess.optional` defines the others.
    chunk_lines: Number of lines in a chunk; the last chunk may have fewer.
  """

  name: str
  lines: str
  streams: Streams
  chunk_lines: int = MAX_LINES

  def file_names(self, stream: str) -> str:
    """Returns the paths of a stream's files, joined by commas for messages."""
    return ", ".join(str(source.path) for source in self.streams[stream])

  @property
  def text_paths(self) -> list[pathlib.Path]:
    """Paths of the source text files, then of the target text files."""
    sources = self.streams["source"] + self.streams["target"]
    return [source.path for source in sources]


@dataclasses.dataclass(frozen=True, eq=False)
class PrepareJob:
  """A dataset to prepare: its options, its input, and results of its stages.

  Parsers, vocabularies and summaries of stages are loaded when they are first
  used. They are not pickled.

  Attributes:
    config: Options of the dataset.
    directory: Absolute path of the dataset directory.
    splits: Input files of all splits, the training split first.
    parser_specs: Side with trees -> specification and identity of its parser. If
      trees are given, the parser is for `jaxsyn.translate`; None if the config
      names no parser.
    sums: Path -> SHA-256 of each input file.
    key: Hash of all input and options that affect the dataset.
    left_out: Optional test split -> reason why it is left out.
  """

  config: DataConfig
  directory: pathlib.Path
  splits: tuple[SplitInput, ...]
  parser_specs: Mapping[str, tuple[ParserSpec, Identity] | None]
  sums: Mapping[pathlib.Path, str]
  key: str
  left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def __getstate__(self) -> dict[str, Any]:
    fields = dataclasses.fields(self)
    return {field.name: getattr(self, field.name) for field in fields}

  @property
  def work(self) -> pathlib.Path:
    """Folder of unfinished work, and of parses that later runs reuse."""
    return self.directory / "work"

  @property
  def outputs(self) -> Outputs:
    """Folder with the output files of finished tasks."""
    return Outputs(self.work / f"stages-{self.key[:16]}-{FORMAT}")

  @property
  def new(self) -> pathlib.Path:
    """Folder of the new dataset, until it is complete."""
    # Not in work/, which may be a link to another disk: moves must be atomic.
    return self.directory / f".new-{self.key[:16]}{files.PARTIAL}"

  @property
  def streams(self) -> list[tuple[SplitInput, str]]:
    """(split, stream name) pairs of all input streams of the job."""
    streams = []
    for split in self.splits:
      streams += [(split, name) for name in split.streams]
    return streams

  def is_train(self, split: SplitInput) -> bool:
    return split.name == self.config.data.train

  def has_trees(self, side: str) -> bool:
    """Returns whether a side's trees come from files, not from a parser."""
    return f"trees.{side}" in self.splits[0].streams

  @functools.cached_property
  def parsers(self) -> dict[str, Parser]:
    """Loaded parser of each side whose trees come from a parser."""
    opened = {}
    for side, parser in self.parser_specs.items():
      if not parser or self.has_trees(side):
        continue
      spec, identity = parser
      opened[side] = spec.open(identity.sha256)
      if opened[side].identity.key != identity.key:
        raise InputError(
          f"the {side} parser is {opened[side].identity}, but was {identity} when"
          " the preparation began: run the same command again."
        )
    return opened

  @functools.cached_property
  def vocabularies(self) -> dict[str, Vocabulary]:
    """Loaded subword vocabulary of each side."""
    paths = self.summary("vocabulary")
    loaded = {path: Vocabulary(path) for path in set(paths.values())}
    return {side: loaded[paths[side]] for side in schema.SIDES}

  def summary(self, stage: str) -> Result:
    """Returns the combined result of a finished stage; reads its file once."""
    if stage not in self._summaries:
      self._summaries[stage] = self.outputs.summary(stage)
    return self._summaries[stage]

  @functools.cached_property
  def _summaries(self) -> dict[str, Result]:
    return {}

  @property
  def manifest(self) -> Result:
    """Manifest entries that describe examples: sides, relations, labels etc."""
    return self.summary("trees")["manifest"]

  @functools.cached_property
  def line_ranges(self) -> list[range]:
    """Range of line indices that each split reads from its files."""
    return [range(*pair) for pair in self.summary("read")["lines"]]

  @functools.cached_property
  def all_chunks(self) -> list[Chunk]:
    """All chunks of lines, those of the training split first."""
    chunks = []
    for split, lines in zip(self.splits, self.line_ranges):
      size = split.chunk_lines
      for index, first in enumerate(range(0, len(lines), size)):
        chunks.append(Chunk(self, split, index, lines[first : first + size]))
    return chunks

  def chunk(self, number: int) -> Chunk:
    """Returns the chunk with the given index in the list of all chunks."""
    return self.all_chunks[number]

  def chunks(self, name: str) -> list[int]:
    """Returns the indices of the chunks that belong to a split."""
    return [
      i for i, one in enumerate(self.all_chunks) if one.split.name == name
    ]

  @property
  def train_chunks(self) -> list[int]:
    """Indices of the chunks that belong to the training split."""
    return self.chunks(self.config.data.train)


@dataclasses.dataclass(frozen=True)
class Chunk:
  """Chunk of consecutive line pairs of a split, which one task processes.

  Attributes:
    job: Preparation job.
    split: Input files of the split.
    index: Index of the chunk within the split.
    lines: Range of line indices in the files of the split.
  """

  job: PrepareJob
  split: SplitInput
  index: int
  lines: range

  @property
  def is_train(self) -> bool:
    return self.job.is_train(self.split)

  def texts(self, stream: str) -> list[str]:
    """Returns the chunk's lines from a stream, without line ends."""
    return self._read(stream).decode("utf-8").split("\n")[:-1]

  def pairs(self) -> list[tuple[str, str]]:
    """Returns the source and target lines of the chunk as pairs."""
    return list(zip(*map(self.texts, schema.SIDES), strict=True))

  def parses(self, stream: str, lines: list[str]) -> list[Parse]:
    """Returns the parse of each line of the chunk, read from a stream of trees.

    Args:
      stream: Name of a stream of trees.
      lines: Lines of its side in this chunk.
    """
    return unpack_parses(json.loads(self._read(stream)), lines)

  def place(self, stream: str, row: int) -> str:
    """Returns the location FILE:LINE of a row in a stream, for messages."""
    first = 0  # index of the first line of a file
    counts = self.job.summary("read")["counts"][self.split.name][stream]
    for source, count in zip(self.split.streams[stream], counts):
      number = self.lines[row] - first + 1
      if number <= count:
        unit = READERS[source.reader].unit
        return f"{source.path}{f', {unit} ' if unit else ':'}{number}"
      first += count
    raise IndexError(row)

  def _read(self, stream: str) -> bytes:
    number = self.job.streams.index((self.split, stream))
    return self.job.outputs.read(f"read/{number}", str(self.index))


def pack_parses(parses: Iterable[Parse], with_rows: bool) -> list[Any]:
  """Converts parses to JSON values, which are faster to read than CoNLL-U.

  Args:
    parses: Parses of lines; their texts are left out.
    with_rows: Whether to include the CoNLL-U rows, which annotations read.
  """
  return [
    (
      (parse.start_W, parse.end_W, parse.head_W, parse.relation_W),
      parse.parsed,
      parse.line_W if with_rows else (),
    )
    for parse in parses
  ]


def unpack_parses(packed: Sequence[Any], lines: Sequence[str]) -> list[Parse]:
  """Restores the parses that `pack_parses` converted, given their texts."""
  parses = []
  for line, (words, parsed, line_W) in zip(lines, packed, strict=True):
    start_W, end_W, head_W, relation_W = map(tuple, words)
    parses.append(
      Parse(line, start_W, end_W, head_W, relation_W, parsed, tuple(line_W))
    )
  return parses
