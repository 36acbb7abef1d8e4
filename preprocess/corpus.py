"""Preparation jobs, the data that workers load for them, and chunks of lines.

The lines of a split are cut into chunks of consecutive line pairs. A task of a
stage (`preprocess.stages`) usually processes one chunk.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers import Parser, ParserSpec
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess.outputs import Outputs, Result
from jaxsyn.preprocess.readers import Source
from jaxsyn.storage import files

# A split has about 256 chunks, so that all workers are busy to the end; the
# bounds keep the overhead of a chunk, and its memory, in proportion.
_CHUNKS, MIN_LINES, MAX_LINES = 256, 1 << 10, 1 << 14
_BYTES_PER_LINE = 60


def chunk_lines(size: int) -> int:
  """Returns the number of lines in a chunk, given the text's size in bytes."""
  share = max(1, size // _BYTES_PER_LINE // _CHUNKS)
  return min(max(MIN_LINES, 1 << (share - 1).bit_length()), MAX_LINES)


# Name of a stream -> files, which have a line or tree for each pair.
Streams = dict[str, tuple[Source, ...]]


@dataclasses.dataclass(frozen=True)
class SplitInput:
  """Input files of a split, as streams with a line or tree for each pair.

  Attributes:
    name: name of the split.
    lines: range of lines to read: "FIRST-LAST", "FIRST-", or "" for all.
    streams: name of a stream -> its files: "source" and "target", the texts;
      "trees.SIDE", given trees; "alternatives.SIDE.N", further parses;
      "brackets", constituency trees; "alignments", links; "words.SIDE", words
      that were linked, if they are not those of the text.
    chunk_lines: number of lines in a chunk; the last chunk may have fewer.
  """

  name: str
  lines: str
  streams: Streams
  chunk_lines: int = MAX_LINES

  def alternatives(self, side: str) -> list[str]:
    """Returns the names of the streams with further parses of a side."""
    return [n for n in self.streams if n.startswith(f"alternatives.{side}.")]

  def file_names(self, stream: str) -> str:
    """Returns the file paths of a stream, joined with commas for messages."""
    return ", ".join(str(source.path) for source in self.streams[stream])

  @property
  def paths(self) -> list[pathlib.Path]:
    """Paths of all input files of the split, without duplicates."""
    sources = itertools.chain.from_iterable(self.streams.values())
    return list(dict.fromkeys(source.path for source in sources))

  @property
  def text_paths(self) -> list[pathlib.Path]:
    """Paths of the source text files, then of the target text files."""
    sources = self.streams["source"] + self.streams["target"]
    return [source.path for source in sources]

  @property
  def text_names(self) -> list[str]:
    """Names of the text files; a file that has both sides is listed once."""
    return [path.name for path in dict.fromkeys(self.text_paths)]

  def for_workers(self) -> SplitInput:
    """Returns the split with absolute paths and chunks that fit its size."""
    streams = {
      name: tuple(
        dataclasses.replace(source, path=files.absolute(source.path))
        for source in sources
      )
      for name, sources in self.streams.items()
    }
    size = sum(files.size_of(source.path) for source in streams["source"])
    return SplitInput(self.name, self.lines, streams, chunk_lines(size))


@dataclasses.dataclass(frozen=True)
class PrepareJob:
  """Picklable description of one dataset preparation, sent to workers.

  Attributes:
    config: options of the dataset.
    outputs: folder of task outputs.
    new: folder of the new dataset, until it is complete.
    retained: folder of parses and vocabularies that later runs use again.
    splits: inputs of all splits, the training split first.
    parsers: side -> specification and identity of its parser, for the sides
      whose lines are parsed.
  """

  config: DataConfig
  outputs: Outputs
  new: pathlib.Path
  retained: pathlib.Path
  splits: tuple[SplitInput, ...]
  parsers: Mapping[str, tuple[ParserSpec, Identity]]

  @property
  def streams(self) -> list[tuple[SplitInput, str]]:
    """Pairs of split and stream name, for all input streams of the job."""
    return [(split, name) for split in self.splits for name in split.streams]


class JobContext:
  """A preparation job with its loaded parsers, vocabularies and summaries.

  Attributes:
    job: job that is prepared.
    config: options of the dataset.
    outputs: folder of task outputs.
  """

  def __init__(self, job: PrepareJob):
    self.job, self.config, self.outputs = job, job.config, job.outputs

  @functools.cached_property
  def parsers(self) -> dict[str, Parser]:
    """Opened parser of each side whose lines are parsed."""
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
    """Loaded subword vocabulary of each side."""
    paths = self.outputs.summary("vocabulary")
    loaded = {path: Vocabulary(path) for path in set(paths.values())}
    return {side: loaded[paths[side]] for side in schema.SIDES}

  @functools.cached_property
  def manifest(self) -> Result:
    """Manifest entries that describe examples: sides, relations, labels etc."""
    return self.outputs.summary("trees")["manifest"]

  @functools.cached_property
  def shards(self) -> list[list[list[tuple[int, int, int]]]]:
    """Rows of chunks in each shard of a split (`preprocess.records`)."""
    return self.outputs.summary("encode")["shards"]

  @functools.cached_property
  def line_ranges(self) -> list[range]:
    """Range of line indices that each split takes from its files."""
    return [range(*pair) for pair in self.outputs.summary("read")["lines"]]

  @functools.cached_property
  def dropped(self) -> dict[str, dict[str, int]]:
    """Number of pairs that cleaning dropped: split -> reason -> count."""
    return self.outputs.summary("duplicates")["dropped"]

  @functools.cached_property
  def last_drawn(self) -> tuple[int, int]:
    """Highest random number in the random training subset, and its line."""
    rank, line = self.outputs.summary("duplicates")["last_drawn"]
    return rank, line

  @functools.cached_property
  def _ranges(self) -> dict[str, range]:
    """Indices of each split's chunks of lines, among all splits."""
    ranges, first = {}, 0
    for split, lines in zip(self.job.splits, self.line_ranges):
      count = -(-len(lines) // split.chunk_lines)
      ranges[split.name] = range(first, first + count)
      first += count
    return ranges

  def chunks(self, name: str) -> range:
    """Returns the indices of a split's chunks of lines, among all splits."""
    return self._ranges[name]

  @property
  def train_chunks(self) -> range:
    """Indices of the training split's chunks of lines."""
    return self.chunks(self.config.data.train)

  @property
  def chunk_count(self) -> int:
    """Number of chunks of lines in all splits."""
    return sum(map(len, self._ranges.values()))

  def chunk(self, number: int) -> Chunk:
    """Returns a chunk of lines, given its index among all splits."""
    for split, lines in zip(self.job.splits, self.line_ranges):
      chunks = self.chunks(split.name)
      if number in chunks:
        first = chunks.index(number) * split.chunk_lines
        part = lines[first : first + split.chunk_lines]
        return Chunk(self, split, chunks.index(number), part)
    raise IndexError(number)

  def is_train(self, split: SplitInput) -> bool:
    return split.name == self.config.data.train


def stream_task(split: str, stream: str, index: int) -> str:
  """Returns the name of the output file with one chunk of an input stream."""
  return f"streams/{split}.{stream}/{index}"


@dataclasses.dataclass(frozen=True)
class Chunk:
  """A chunk of lines: consecutive line pairs of a split.

  Attributes:
    context: preparation job and its loaded data.
    split: input files of the split.
    index: index of the chunk within the split.
    lines: range of line indices in the files of the split.
  """

  context: JobContext
  split: SplitInput
  index: int
  lines: range

  def texts(self, stream: str) -> list[str]:
    """Returns this chunk's lines of a stream, without line ends."""
    data = self.context.outputs.read(self._task(stream), "data")
    return data.decode("utf-8").split("\n")[:-1]

  def pairs(self) -> list[tuple[str, str]]:
    """Returns the line pairs of this chunk."""
    return list(zip(*map(self.texts, schema.SIDES), strict=True))

  def place(self, stream: str, row: int) -> str:
    """Returns the position FILE:LINE of a row in a stream, for messages."""
    return _place(self._sections(stream), row)

  def placed(self, stream: str) -> list[tuple[str, str]]:
    """Returns FILE:LINE and text for each line of a stream in this chunk."""
    sections, lines = self._sections(stream), self.texts(stream)
    return [(_place(sections, row), line) for row, line in enumerate(lines)]

  def trees(
    self, stream: str, side: str, lines: list[str]
  ) -> Iterator[conllu.Parse]:
    """Yields the parse of each given line of a side, from a stream of CoNLL-U.

    Args:
      stream: name of a stream of trees.
      side: side that the trees belong to.
      lines: lines of that side in the chunk.

    Raises:
      InputError: the CoNLL-U is malformed or belongs to another text.
    """
    counts = self.context.outputs.summary("read")["counts"]
    return conllu.match(
      self._blocks(stream),
      lines,
      self.split.file_names(side),
      first=self.lines.start + 1,
      last=self.lines.stop == sum(counts[self.split.name][side]),
    )

  def _blocks(self, stream: str) -> Iterator[conllu.Block]:
    task = self._task(stream)
    data = self.context.outputs.read(task, "data")
    sections = self._sections(stream)
    ends = [section[0] for section in sections[1:]] + [len(data)]
    for (begin, file, lines_before), end in zip(sections, ends):
      lines = data[begin:end].split(b"\n")
      yield from conllu.blocks_of_lines(lines, file, lines_before)

  def _sections(self, stream: str) -> list[Any]:
    return self.context.outputs.result(self._task(stream))["sections"]

  def _task(self, stream: str) -> str:
    return stream_task(self.split.name, stream, self.index)


def _place(sections: list[Any], row: int) -> str:
  """Returns the position FILE:LINE of a row in a stream.

  Args:
    sections: (first row, file, noun for a line, line number) for each file.
    row: index of the row in the chunk.
  """
  first, file, noun, number = next(
    section for section in reversed(sections) if section[0] <= row
  )
  number += row - first
  return f"{file}, {noun} {number}" if noun else f"{file}:{number}"
