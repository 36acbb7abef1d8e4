"""First stage of preparation: reads input files as chunks of lines or trees.

A task reads one stream (`preprocess.job.SplitInput`) from start to end. Chunk N
is part N of the output file, so that later stages can read any chunk. Given
trees are matched with their lines here, at about 10,000 sentences per second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.errors import InputError
from jaxsyn.preprocess.job import PrepareJob, SplitInput, pack_parses
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.preprocess.readers import READERS

_LINES = re.compile(r"([0-9]{1,15})-([0-9]{0,15})")

Item = TypeVar("Item")


def count(job: PrepareJob) -> int:
  return len(job.streams)


def _has_trees(stream: str) -> bool:
  return stream.startswith(("trees.", "alternatives."))


def read(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Reads one input stream and writes its chunks of lines or trees.

  Returns:
    "counts", the number of lines in each file, and "lines", their sum; {} for
    trees.
  """
  split, stream = job.streams[number]
  if _has_trees(stream):
    _read_trees(job, split, stream, out)
    return {}
  counts = [0] * len(split.streams[stream])
  lines = _lines(split, stream, counts)
  for index, part in enumerate(_chunks(lines, split)):
    out.write(str(index), "".join(f"{line}\n" for line in part).encode())
  for _ in lines:  # counts the lines after the range
    pass
  return {"counts": counts, "lines": sum(counts)}


def _chunks(items: Iterator[Item], split: SplitInput) -> Iterator[list[Item]]:
  """Yields chunks of the lines or trees that a split selects."""
  lines = selected(split.name, split.lines)
  items = itertools.islice(items, lines.start, lines.stop)
  while part := list(itertools.islice(items, split.chunk_lines)):
    yield part


def _lines(split: SplitInput, stream: str, counts: list[int]) -> Iterator[str]:
  """Yields all lines of a stream, and counts them.

  Args:
    split: Input files of a split.
    stream: Name of one of its streams.
    counts: Number of lines in each file; updated in place.
  """
  for i, source in enumerate(split.streams[stream]):
    for line in READERS[source.reader].texts(source):
      counts[i] += 1
      yield line


def _read_trees(
  job: PrepareJob, split: SplitInput, stream: str, out: TaskOutput
) -> None:
  """Reads a stream of CoNLL-U trees, and writes the parse of each line.

  Raises:
    InputError: The CoNLL-U is malformed or belongs to another text.
  """
  side = stream.split(".")[1]
  lines = _lines(split, side, [0] * len(split.streams[side]))
  blocks = itertools.chain.from_iterable(
    conllu.read(source.path) for source in split.streams[stream]
  )
  parses = conllu.match(blocks, lines, split.file_names(side))
  with_rows = bool(job.config.prepare.parse.annotations)
  for index, part in enumerate(_chunks(parses, split)):
    out.write_json(str(index), pack_parses(part, with_rows))
  if next(lines, None) is None:  # rejects trees after the last line
    next(parses, None)


def combine(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  """Checks that all input streams of a split have the same number of lines.

  Returns:
    "counts": split -> stream -> number of lines in each file; and "lines", the
    start and stop index of each split's lines.

  Raises:
    InputError: Line counts differ, or a split takes lines that do not exist.
  """
  counts: dict[str, dict[str, list[int]]] = {}
  for (split, stream), result in zip(job.streams, results):
    if result:
      counts.setdefault(split.name, {})[stream] = result["counts"]
  ranges = []
  for split in job.splits:
    by_stream = counts[split.name]
    _check_sides(split, by_stream)
    total = sum(by_stream["source"])
    for stream in by_stream:
      if sum(by_stream[stream]) != total:
        raise InputError(
          f"{split.file_names(stream)} has {sum(by_stream[stream])} lines, but its"
          f" text has {total}. Line N must belong to line N of the raw source"
          " file."
        )
    selection = selected(split.name, split.lines)
    lines = range(total)[selection]
    if split.lines and total < (selection.stop or selection.start + 1):
      raise InputError(
        f"config.prepare.splits.{split.name}: the files have {total} lines, got"
        f" {split.lines!r}. If the other splits take too many lines, give them"
        " fewer: with own.corpus, held_out=50."
      )
    ranges.append((lines.start, lines.stop))
  return {"counts": counts, "lines": ranges}


def _check_sides(split: SplitInput, counts: dict[str, list[int]]) -> None:
  """Raises InputError unless a split's sides have equally many lines."""
  texts = [counts[side] for side in schema.SIDES]
  lengths = [sum(of_side) for of_side in texts]
  if lengths[0] == lengths[1]:
    return
  names = [split.file_names(side) for side in schema.SIDES]
  if len(texts[0]) == len(texts[1]):  # then the files that differ are known
    i = next(i for i, (a, b) in enumerate(zip(*texts)) if a != b)
    names = [str(split.streams[side][i].path) for side in schema.SIDES]
    lengths = [of_side[i] for of_side in texts]
  raise unequal_error(names, lengths)


def unequal_error(names: Sequence[str], lines: Sequence[int]) -> InputError:
  """Returns an error for paired files with different numbers of lines.

  Args:
    names: Names of the two files.
    lines: Number of lines in each file.
  """
  return InputError(
    f"{names[0]} has {lines[0]} lines, but {names[1]} has {lines[1]}: line N of"
    " one must be the translation of line N of the other. Look at line"
    f" {min(lines) + 1} of the longer file, and before."
  )


def selected(name: str, lines: str) -> slice:
  """Returns the slice of the lines that a split takes from its files.

  Args:
    name: Name of the split, for the message.
    lines: Range "FIRST-LAST", counted from 1 and both included; "FIRST-" to the
      last line; "" for all.

  Raises:
    InputError: The range is invalid.
  """
  match = _LINES.fullmatch(lines or "1-")
  if not match or not 1 <= int(match[1]) <= int(match[2] or match[1]):
    raise InputError(
      f"config.prepare.splits.{name}: the lines must be FIRST-LAST, or FIRST- to"
      f" the last, counted from 1, got {lines!r}."
    )
  return slice(int(match[1]) - 1, int(match[2]) if match[2] else None)
