"""The first stages: files are unpacked, looked through, and cut into chunks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jaxsyn.data import schema
from jaxsyn.errors import InputError
from jaxsyn.preprocess import ranges as of_bytes
from jaxsyn.preprocess.corpus import Cut, Split, Tools
from jaxsyn.preprocess.readers import READERS
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import files

_LINES = re.compile(r"([0-9]{1,15})-([0-9]{0,15})")


def conversions(tools: Tools) -> int:
  return len(tools.job.converted)


def convert(tools: Tools, index: int, out: Output) -> Facts:
  """Copies the lines of a source as plain text.

  Raises:
    InputError: the file is missing, corrupt or malformed.
  """
  source, target = tools.job.converted[index]
  with files.publish(target, flush=False) as file:
    broken = READERS[source.reader].copy(source, file)
  if broken:
    out.said.append(
      f"{source.path}: {broken:,} texts have line breaks, which become blanks"
    )
  out.add(target)
  return {"lines": 0}


def ranges(tools: Tools) -> int:
  return len(tools.ranges)


def index(tools: Tools, file_index: int, out: Output) -> Facts:
  """Where the units begin of a range of bytes of a file."""
  file, part = tools.ranges[file_index]
  facts, arrays = of_bytes.index(tools.job.files[file], part)
  out.write_arrays("units", arrays)
  return facts


def cut(tools: Tools, facts: Sequence[Facts]) -> None:
  """Counts the lines of all files and cuts the splits into chunks.

  Raises:
    InputError: the sides of a split differ in their number of lines, or it
      takes lines that are not there.
  """
  facts_found: list[list[Facts]] = [[] for _ in tools.job.files]
  for (file, _), fact in zip(tools.ranges, facts):
    facts_found[file].append(fact)
  tools.work.write_json("indices.page", facts_found)
  cuts = []
  for split in tools.job.splits:
    _check_sides(tools, split)
    count = tools.count(split.texts["source"])
    _check_beside(tools, split.brackets, count, "the tree")
    _check_beside(tools, split.alignments, count, "the links")
    for words in split.aligned.values():
      _check_beside(tools, words, count, "the words")
    lines = line_range(split.lines, count, split.name)
    made = Cut.of(lines.start, lines.stop)
    cuts.append((made.first, made.last, made.lines))
  tools.work.write_json("cuts.page", cuts)


def _names(tools: Tools, numbers: Sequence[int]) -> str:
  return ", ".join(tools.job.files[index].file for index in numbers)


def _check_beside(
  tools: Tools, files: Sequence[int], count: int, what: str
) -> None:
  """Raises InputError unless files, if any, have a line for each pair."""
  if files and (other := tools.count(files)) != count:
    raise InputError(
      f"{_names(tools, files)} has {other} lines, but its text has {count}."
      f" Line N must hold {what} of line N of the raw source file."
    )


def _check_sides(tools: Tools, split: Split) -> None:
  """Raises InputError unless both sides have as many lines."""
  texts = [split.texts[side] for side in schema.SIDES]
  if tools.count(texts[0]) == tools.count(texts[1]):
    return
  pairs = [tuple(texts)]
  if len(texts[0]) == len(texts[1]):  # then the files that differ are known
    pairs = [((a,), (b,)) for a, b in zip(*texts)]
  for source, target in pairs:
    ours, theirs = tools.count(source), tools.count(target)
    if ours != theirs:
      raise InputError(
        f"{_names(tools, source)} has {ours} lines, but {_names(tools, target)}"
        f" has {theirs}: line N of one must be the translation of line N of the"
        f" other. Look at line {min(ours, theirs) + 1} of the longer file, and"
        " before."
      )


def line_range(lines: str, count: int, name: str) -> range:
  """Numbers of the pairs of a split, from 0.

  Args:
    lines: "FIRST-LAST", from 1 and both included; "FIRST-" to the last line;
      "" for all.
    count: pairs that the files have.
    name: of the split.
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
