"""First stage of preparation: cuts input files into chunks of lines and trees.

A task reads one stream (`preprocess.corpus.SplitInput`) from start to end and
writes a file for each chunk, so that later stages can read any chunk directly.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxsyn.data import schema
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.text import PAUSE, raw_lines
from jaxsyn.errors import InputError
from jaxsyn.preprocess.corpus import JobContext, SplitInput, stream_task
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.preprocess.readers import READERS, Source

_LINES = re.compile(r"([0-9]{1,15})-([0-9]{0,15})")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORD = re.compile(rb"\d+")
_CONTENT = {"brackets": "the tree", "alignments": "the links"}
_UNLIMITED = 1 << 60


def count(context: JobContext) -> int:
  return len(context.job.streams)


def _has_trees(stream: str) -> bool:
  return stream.startswith(("trees.", "alternatives."))


def read(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Reads one input stream and writes its chunks of lines or trees.

  Returns:
    "counts": number of lines in each file; and "lines": their sum.
  """
  split, stream = context.job.streams[number]
  if _has_trees(stream):
    _read_trees(context, split, stream, out)
    return {"counts": []}
  counts = _read_lines(split, stream, out)
  return {"counts": counts, "lines": sum(counts)}


def combine(context: JobContext, results: Sequence[Result]) -> Result:
  """Checks that files of a split have equally many lines; returns the counts.

  Returns:
    "counts": split -> stream -> number of lines in each file; and "lines", the
    start and stop index of each split's lines.

  Raises:
    InputError: line counts differ, or a split takes lines that do not exist.
  """
  counts: dict[str, dict[str, list[int]]] = {}
  for (split, stream), result in zip(context.job.streams, results):
    counts.setdefault(split.name, {})[stream] = result["counts"]
  ranges = []
  for split in context.job.splits:
    found = counts[split.name]
    _check_sides(split, found)
    total = sum(found["source"])
    for stream in split.streams:
      if not _has_trees(stream) and sum(found[stream]) != total:
        what = _CONTENT.get(stream, "the words")
        raise InputError(
          f"{split.file_names(stream)} has {sum(found[stream])} lines, but its"
          f" text has {total}. Line N must hold {what} of line N of the raw"
          " source file."
        )
    lines = line_range(split.lines, total, split.name)
    ranges.append((lines.start, lines.stop))
  return {"counts": counts, "lines": ranges}


def _check_sides(split: SplitInput, counts: dict[str, list[int]]) -> None:
  """Raises InputError if the two sides of a split differ in number of lines."""
  texts = [counts[side] for side in schema.SIDES]
  if sum(texts[0]) == sum(texts[1]):
    return
  names = [split.file_names(side) for side in schema.SIDES]
  ours, theirs = map(sum, texts)
  if len(texts[0]) == len(texts[1]):  # then the files that differ are known
    sources = [split.streams[side] for side in schema.SIDES]
    i = next(i for i, (a, b) in enumerate(zip(*texts)) if a != b)
    names = [str(of_side[i].path) for of_side in sources]
    ours, theirs = texts[0][i], texts[1][i]
  raise InputError(
    f"{names[0]} has {ours} lines, but {names[1]} has {theirs}: line N of one"
    " must be the translation of line N of the other. Look at line"
    f" {min(ours, theirs) + 1} of the longer file, and before."
  )


def line_range(lines: str, count: int, name: str) -> range:
  """Returns the indices of the lines that a split takes from its files.

  Args:
    lines: "FIRST-LAST", counted from 1 and both included; "FIRST-" to the last
      line; "" for all.
    count: number of pairs in the files.
    name: name of the split, for the message.

  Raises:
    InputError: the range is invalid or exceeds the files.
  """
  if not lines:
    return range(count)
  match = _LINES.fullmatch(lines)
  first, last = (int(n or count) for n in match.groups()) if match else (0, 0)
  if not 1 <= first <= last <= count:
    raise InputError(
      f"config.prepare.splits.{name}: the lines must be FIRST-LAST, or FIRST- to"
      f" the last, of 1 to {count} as the files have, got {lines!r}. Where the "
      "other splits take too many lines, give them fewer: with own.corpus, "
      "held_out=50."
    )
  return range(first - 1, last)


def _bounds(lines: str) -> tuple[int, int]:
  """Returns the start and stop index of a range of lines, "FIRST-LAST".

  An invalid range selects all lines; `line_range` raises its error later.
  """
  match = _LINES.fullmatch(lines)
  if not match or int(match[1]) < 1:
    return 0, _UNLIMITED
  return int(match[1]) - 1, int(match[2] or _UNLIMITED)


def _read_lines(split: SplitInput, stream: str, out: TaskOutput) -> list[int]:
  """Copies the lines of a stream into chunks; returns each file's line count."""
  counts: list[int] = []
  lines = _numbered_lines(split.streams[stream], counts)
  breaks: dict[Source, int] = {}
  selected = itertools.islice(lines, *_bounds(split.lines))
  index = 0
  while part := [*itertools.islice(selected, split.chunk_lines)]:
    texts, sections, last = list[str](), list[object](), None
    for row, (source, number, line) in enumerate(part):
      reader = READERS[source.reader]
      if source is not last:
        sections.append((row, str(source.path), reader.unit, number))
        last = source
      if reader.may_have_line_breaks and ("\n" in line or "\r" in line):
        line = re.sub(r"\r?\n|\r", " ", line)
        breaks[source] = breaks.get(source, 0) + 1
      texts.append(f"{line}\n")
    task = stream_task(split.name, stream, index)
    _write_chunk(out, task, "".join(texts).encode(), sections)
    index += 1
  for _ in lines:  # to count the lines after the range
    pass
  for source, number in breaks.items():
    out.messages.append(
      f"{source.path}: {number:,} texts have line breaks, which become blanks"
    )
  return counts


def _numbered_lines(
  sources: Iterable[Source], counts: list[int]
) -> Iterator[tuple[Source, int, str]]:
  """Yields the file, the line number from 1, and the text of each line.

  Args:
    sources: files of a stream.
    counts: list that gets the number of lines of each file at its end.
  """
  for source in sources:
    number = 0
    for number, line in enumerate(READERS[source.reader].texts(source), 1):
      yield source, number, line
    counts.append(number)


class _Tree(NamedTuple):
  """A sentence of a CoNLL-U file: its position, lines and visible characters."""

  file: str
  lines_before: int
  rows: list[bytes]
  size: int


def _read_trees(
  context: JobContext, split: SplitInput, stream: str, out: TaskOutput
) -> None:
  """Writes the CoNLL-U trees of a stream in the same chunks as their text."""
  sizes = _line_sizes(split, stream.split(".")[1])
  of_lines = _trees_of_lines(sizes, _trees(split.streams[stream]))
  selected = itertools.islice(of_lines, *_bounds(split.lines))
  index = 0
  while part := [*itertools.islice(selected, split.chunk_lines)]:
    data, sections = bytearray(), list[tuple[int, str, int]]()
    end = ("", 0)  # file, and lines before the tree to come
    for tree in itertools.chain.from_iterable(part):
      if end != (tree.file, tree.lines_before):
        sections.append((len(data), tree.file, tree.lines_before))
      data += b"\n".join([*tree.rows, b"", b""])
      end = (tree.file, tree.lines_before + len(tree.rows) + 1)
    _write_chunk(
      out, stream_task(split.name, stream, index), bytes(data), sections
    )
    index += 1


def _trees_of_lines(
  sizes: Iterable[int], trees: Iterator[_Tree]
) -> Iterator[list[_Tree]]:
  """Yields the trees of each line of text; the last line gets all that follow.

  A line gets as many trees as cover its visible characters. Later stages check
  that the trees match the lines.

  Args:
    sizes: number of visible characters in each line.
    trees: trees of all lines, in order.
  """
  missing, line_trees = 0, None
  for size in sizes:
    if line_trees is not None:
      yield line_trees
    missing, line_trees = missing + size, []
    while missing > 0 and (tree := next(trees, None)):
      line_trees.append(tree)
      missing -= tree.size
  if line_trees is not None:
    yield [*line_trees, *trees]


def _line_sizes(split: SplitInput, side: str) -> Iterator[int]:
  """Yields the number of visible characters in each text line of a side."""
  for source in split.streams[side]:
    for line in READERS[source.reader].texts(source):
      yield len(visible(line))


def _trees(sources: Sequence[Source]) -> Iterator[_Tree]:
  """Yields each sentence of CoNLL-U files."""
  for source in sources:
    rows: list[bytes] = []
    lines = (raw for raw in raw_lines(source.path) if raw is not PAUSE)
    for number, raw in enumerate(itertools.chain(lines, [b""]), 1):
      if number == 1:
        raw = raw.removeprefix(_BYTE_ORDER_MARK)
      if raw.rstrip(b"\r"):
        rows.append(raw)
      elif rows:
        before = number - 1 - len(rows)
        yield _Tree(str(source.path), before, rows, _tree_size(rows))
        rows = []


def _tree_size(rows: Sequence[bytes]) -> int:
  """Returns the number of visible characters in the words of a CoNLL-U tree."""
  forms, covered = [], 0
  for row in rows:
    columns = row.split(b"\t", 2)
    if row.startswith(b"#") or len(columns) < 3:
      continue
    word_id, form = columns[:2]
    low, _, high = word_id.partition(b"-")
    if _WORD.fullmatch(low) and (high or int(low) > covered):
      forms.append(form)
      covered = int(high) if _WORD.fullmatch(high) else int(low)
  return len(visible(b"".join(forms).decode("utf-8", "replace")))


def _write_chunk(
  out: TaskOutput, task: str, data: bytes, sections: Sequence[object]
) -> None:
  """Writes one chunk of a stream, and makes the stream's task depend on it.

  Args:
    out: output of the task that reads the stream.
    task: name of the chunk's output file.
    data: lines or trees of the chunk.
    sections: offset, file and line number where each file begins in the chunk.
  """
  chunk = TaskOutput(out.outputs, task)
  chunk.write("data", data)
  chunk.finish({"sections": sections})
  out.add_file(task)
