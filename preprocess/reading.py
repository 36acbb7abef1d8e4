"""First stage of preparation: cuts input files into chunks of lines and trees.

A task reads one stream (`preprocess.corpus.SplitInput`) from start to end and
writes a file for each chunk, so that later stages can read any chunk directly.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from jaxsyn.data import schema
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.text import PAUSE, normal, raw_lines
from jaxsyn.errors import InputError
from jaxsyn.preprocess.corpus import JobContext, SplitInput, stream_task
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.preprocess.readers import READERS, Source

_LINES = re.compile(r"([0-9]{1,15})-([0-9]{0,15})")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORD = re.compile(rb"\d+")
_BESIDE = {"brackets": "the tree", "alignments": "the links"}
_UNLIMITED = 1 << 60


def count(context: JobContext) -> int:
  return len(context.job.streams)


def read(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Reads one input stream and writes its chunks of lines or trees.

  Returns:
    "counts": number of lines in each file; and "lines": their sum.

  Raises:
    InputError: a file is missing, corrupt or malformed; names FILE:LINE.
  """
  split, stream = context.job.streams[number]
  if stream.startswith(("trees.", "alternatives.")):
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
      what = _BESIDE.get(stream, "the words")
      is_beside = stream in _BESIDE or stream.startswith("words.")
      if is_beside and sum(found[stream]) != total:
        raise InputError(
          f"{split.file_names(stream)} has {sum(found[stream])} lines, but its"
          f" text has {total}. Line N must hold {what} of line N of the raw"
          " source file."
        )
    lines = line_range(split.lines, total, split.name)
    ranges.append((lines.start, lines.stop))
  return {"counts": counts, "lines": ranges}


class _Writer:
  """Writer of a stream's lines, which cuts them into chunks of lines."""

  def __init__(self, split: SplitInput, stream: str, out: TaskOutput):
    self._split, self._stream, self._out = split, stream, out
    self._lines: list[str] = []
    self._sections: list[tuple[int, str, str, int]] = []
    self._index = 0

  def add(self, line: str) -> None:
    self._lines.append(line)
    if len(self._lines) == self._split.chunk_lines:
      self.flush()

  def begin_file(self, source: Source, number: int) -> None:
    """Records the file and the line number (from 1) of the next line."""
    noun = READERS[source.reader].unit
    section = (len(self._lines), str(source.path), noun, number)
    self._sections.append(section)

  def flush(self) -> None:
    """Writes the collected lines to the output as one chunk of lines."""
    if not self._lines:
      return
    task = stream_task(self._split.name, self._stream, self._index)
    data = "".join(f"{line}\n" for line in self._lines).encode()
    _write_chunk(self._out, task, data, self._sections)
    _, file, noun, number = self._sections[-1]
    number += len(self._lines) - self._sections[-1][0]
    self._index, self._lines = self._index + 1, []
    self._sections = [(0, file, noun, number)]


def _read_lines(split: SplitInput, stream: str, out: TaskOutput) -> list[int]:
  """Writes the lines of a stream in chunks; returns each file's line count."""
  first, last = _bounds(split.lines)
  writer = _Writer(split, stream, out)
  counts, before = [], 0
  for source in split.streams[stream]:
    reader = READERS[source.reader]
    begin, end = first - before, last - before  # lines of this file
    found, breaks = 0, 0
    if end > 0:
      writer.begin_file(source, max(begin, 0) + 1)
    for line in reader.texts(source):
      if begin <= found < end:
        if reader.may_have_line_breaks and ("\n" in line or "\r" in line):
          line, breaks = without_line_breaks(line), breaks + 1
        writer.add(line)
      found += 1
    if breaks:
      out.messages.append(
        f"{source.path}: {breaks:,} texts have line breaks, which become blanks"
      )
    counts.append(found)
    before += found
  writer.flush()
  return counts


def without_line_breaks(text: str) -> str:
  return re.sub(r"\r?\n|\r", " ", text)


def _read_trees(
  context: JobContext, split: SplitInput, stream: str, out: TaskOutput
) -> None:
  """Writes the CoNLL-U trees of a stream in the same chunks as their text.

  A chunk gets as many trees as cover the visible characters of its lines. Later
  stages check that the trees match these lines.
  """
  side = stream.split(".")[1]
  first, last = _bounds(split.lines)
  sizes = _line_sizes(context, split, side)
  blocks = _blocks(split.streams[stream])
  behind = sum(itertools.islice(sizes, first))  # characters before the split
  block = next(blocks, None)
  while block is not None and behind > 0:
    behind -= block[3]
    block = next(blocks, None)
  missing, done, index = behind, first, 0
  while True:
    part = [*itertools.islice(sizes, min(split.chunk_lines, last - done))]
    if not part:
      return
    done, missing = done + len(part), missing + sum(part)
    following = next(sizes, None) if done < last else None
    is_end = following is None and next(sizes, None) is None
    if following is not None:
      sizes = itertools.chain([following], sizes)
    data, sections = bytearray(), list[tuple[int, str, int]]()
    end = ("", 0)  # file, and lines before the block to come
    while block is not None and (missing > 0 or is_end):
      file, lines_before, rows, size = block
      if end != (file, lines_before):
        sections.append((len(data), file, lines_before))
      data += b"".join(row + b"\n" for row in rows) + b"\n"
      end = (file, lines_before + len(rows) + 1)
      missing -= size
      block = next(blocks, None)
    task = stream_task(split.name, stream, index)
    _write_chunk(out, task, bytes(data), sections)
    index += 1


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


def _line_sizes(
  context: JobContext, split: SplitInput, side: str
) -> Iterator[int]:
  """Yields the number of visible characters in each text line of a side."""
  is_normalized = context.is_normalized(split, side)
  for source in split.streams[side]:
    for line in READERS[source.reader].texts(source):
      yield len(visible(normal(line) if is_normalized else line))


def _blocks(
  sources: Sequence[Source],
) -> Iterator[tuple[str, int, list[bytes], int]]:
  """Yields each sentence of CoNLL-U files: file, line index, lines and size.

  The size is the number of visible characters.
  """
  for source in sources:
    block: list[bytes] = []
    number = 0
    lines = (raw for raw in raw_lines(source.path) if raw is not PAUSE)
    for number, raw in enumerate(itertools.chain(lines, [b""]), 1):
      if number == 1:
        raw = raw.removeprefix(_BYTE_ORDER_MARK)
      if raw.rstrip(b"\r"):
        block.append(raw)
      elif block:
        before = number - 1 - len(block)
        yield str(source.path), before, block, _tree_size(block)
        block = []


def _tree_size(block: Sequence[bytes]) -> int:
  """Returns the number of visible characters in the words of a CoNLL-U tree."""
  forms, covered = [], 0
  for row in block:
    columns = row.split(b"\t", 2)
    if row.startswith(b"#") or len(columns) < 3:
      continue
    word_id, form = columns[:2]
    low, _, high = word_id.partition(b"-")
    if _WORD.fullmatch(low) and (high or int(low) > covered):
      forms.append(form)
      covered = int(high) if _WORD.fullmatch(high) else int(low)
  return len(visible(b"".join(forms).decode("utf-8", "replace")))


def _check_sides(split: SplitInput, counts: dict[str, list[int]]) -> None:
  """Raises InputError if the two sides of a split differ in number of lines."""
  texts = [counts[side] for side in schema.SIDES]
  if sum(texts[0]) == sum(texts[1]):
    return
  sources = [split.streams[side] for side in schema.SIDES]
  names = [split.file_names(side) for side in schema.SIDES]
  ours, theirs = sum(texts[0]), sum(texts[1])
  if len(texts[0]) == len(texts[1]):  # then the files that differ are known
    for source, target, a, b in zip(*sources, *texts):
      if a != b:
        names, ours, theirs = [str(source.path), str(target.path)], a, b
        break
  raise InputError(
    f"{names[0]} has {ours} lines, but {names[1]} has {theirs}: line N of one"
    " must be the translation of line N of the other. Look at line"
    f" {min(ours, theirs) + 1} of the longer file, and before."
  )


def _bounds(lines: str) -> tuple[int, int]:
  """Returns the start and stop index of a range of lines, "FIRST-LAST".

  An invalid range selects all lines; `line_range` raises its error later.
  """
  match = _LINES.fullmatch(lines)
  if not match or int(match[1]) < 1:
    return 0, _UNLIMITED
  return int(match[1]) - 1, int(match[2] or _UNLIMITED)


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
