"""Any lines or sentences of a large file, without reading what is before them.

A file is looked at once, range of bytes by range, each by whoever is free:
where every 256th unit begins. A unit is a line, or a tree of CoNLL-U. So any
run of units is a run of bytes, whoever asks. What is packed was unpacked before
(`preprocess.corpus`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal

import numpy as np

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.text import LONGEST, normal
from jaxsyn.errors import InputError
from jaxsyn.preprocess.work import Facts, Work
from jaxsyn.storage import files

RANGE = 1 << 24  # bytes
_STRIDE = 256  # units
_BLOCK = 1 << 20
_SMALL_BLOCK = 1 << 16
BOM = b"\xef\xbb\xbf"
_BLANK = re.compile(rb"(\A|\n)\r*\n\Z")
_WORD = re.compile(rb"\d+")


@dataclasses.dataclass(frozen=True)
class LineUnits:
  """A file as a row of units.

  Attributes:
    file: as messages name it.
    path: path of the same text as plain lines.
    form: whether units are lines, or trees of CoNLL-U.
    noun: name of a line in messages, such as "sentence" of a treebank whose
      lines were copied; "" for a line of the file.
    measured: the visible characters before each 256th unit are counted, by
      which trees find their lines.
    nfc: as they are in NFC.
  """

  file: str
  path: pathlib.Path
  form: Literal["lines", "trees"] = "lines"
  noun: str = ""
  measured: bool = False
  nfc: bool = False

  def place(self, number: int) -> str:
    """Returns where a unit is, for messages; numbers start at 1."""
    if self.noun:
      return f"{self.file}, {self.noun} {number}"
    return f"{self.file}:{number}"

  def ranges(self) -> list[range]:
    """The ranges of bytes."""
    size = files.size_of(self.path)
    return [range(a, min(a + RANGE, size)) for a in range(0, size, RANGE)]


def index(units: LineUnits, part: range) -> tuple[Facts, dict[str, np.ndarray]]:
  """Where units begin, of those that begin in a range of bytes.

  Returns:
    facts: how many "units" and "lines" begin there, how many "visible"
      characters they have, the first and last of the "starts" of lines, and
      which line, from 0, is too "long", if one is. Arrays of every 256th unit:
      its "offset", and the "line" and "visible" characters before it in the
      range.
  """
  with files.open_read(units.path) as file:
    starts = _starts(file, part)
    gaps = np.flatnonzero(np.diff(starts) > LONGEST + 1)
    facts: Facts = {
      "lines": len(starts),
      "starts": [int(starts[0]), int(starts[-1])] if len(starts) else [],
      "long": int(gaps[0]) if len(gaps) else None,
    }
    if units.form == "lines":
      offset, line = starts, np.arange(len(starts))
      seen = np.zeros(len(starts), np.int64)
      if units.measured:
        seen = np.array(_seen_lines(units, file, starts), np.int64)
    else:
      rows = list(_sentences(units, file, part, starts))
      offset, line, seen = np.array(rows, np.int64).reshape(-1, 3).T
  total = np.cumsum(np.append(0, seen))
  facts |= {"units": len(offset), "visible": int(total[-1])}
  arrays = {
    "offset": offset[::_STRIDE],
    "line": line[::_STRIDE],
    "visible": total[:-1][::_STRIDE],
  }
  return facts, arrays


def _starts(file: IO[bytes], part: range) -> np.ndarray:
  """Where the lines begin that begin in a range of bytes."""
  before = min(1, part.start)
  file.seek(part.start - before)
  data = np.frombuffer(file.read(len(part) + before - 1), np.uint8)
  starts = np.flatnonzero(data == ord("\n")) + (part.start - before + 1)
  return starts if before else np.append(0, starts)


def _seen_lines(
  units: LineUnits, file: IO[bytes], starts: np.ndarray
) -> list[int]:
  """Visible characters of lines."""
  if not len(starts):
    return []
  lines = itertools.islice(_lines(file, int(starts[0])), len(starts))
  return [len(visible(_text(units, line))) for line in lines]


def _text(units: LineUnits, raw: bytes) -> str:
  """The text of a line, whatever is wrong with it."""
  text = raw.decode("utf-8", "replace")
  return normal(text) if units.nfc else text


def _sentences(
  units: LineUnits, file: IO[bytes], part: range, starts: np.ndarray
) -> Iterator[tuple[int, int, int]]:
  """Offset, line and visible characters of the trees that begin in a range.

  Of what is malformed too: it is read again, and told, with its lines.
  """
  if not len(starts):
    return
  first = int(starts[0])
  file.seek(max(0, first - 64))
  fresh = first == 0 or bool(_BLANK.search(file.read(first - file.tell())))
  offset = position = first
  line, block = 0, list[bytes]()
  lines = itertools.chain(_lines(file, first), [b""])
  for index, raw in enumerate(lines):
    if position >= part.stop and not (fresh and block):
      return
    if raw.rstrip(b"\r"):
      if not block:
        offset, line = position, index
      block.append(raw if position else raw.removeprefix(BOM))
    else:
      if fresh and any(not row.startswith(b"#") for row in block):
        yield offset, line, _seen_tree(units, block)
      fresh, block = True, []
    position += len(raw) + 1


def _seen_tree(units: LineUnits, block: Sequence[bytes]) -> int:
  """Visible characters of a tree's words, or of its text."""
  if not units.measured:
    return 0
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


def _lines(file: IO[bytes], offset: int) -> Iterator[bytes]:
  """The lines from an offset on, without their ends."""
  file.seek(offset)
  rest = b""
  while block := file.read(_BLOCK):
    *complete, rest = (rest + block).split(b"\n")
    yield from complete
  if rest:
    yield rest


class LineIndex:
  """What `index` found of all ranges of a file, together.

  Attributes:
    units: the file.
    count: how many units it has.
    lines: how many lines.
    visible: their visible characters, where measured.
  """

  def __init__(self, units: LineUnits, facts: Sequence[Facts], first: int):
    """Puts facts together.

    Args:
      units: the file.
      facts: of its ranges.
      first: number of the first of them among those of all files.

    Raises:
      InputError: a line is too long.
    """
    self.units, self._first = units, first
    totals = np.cumsum(
      [[0, 0, 0], *([f["units"], f["lines"], f["visible"]] for f in facts)], 0
    )
    self._units, self._lines, self._visible = totals.T
    self.count, self.lines, self.visible = map(int, totals[-1])
    self._check(facts)

  def _check(self, facts: Sequence[Facts]) -> None:
    """Raises InputError for a line that is too long."""
    last = None  # start of a line that may reach into ranges to come
    size = files.size_of(self.units.path)
    with files.open_read(self.units.path, read_ahead=1) as file:
      file.seek(max(0, size - 1))
      end = size + (file.read() != b"\n")  # where one more line would begin
    ends = [*facts, {"starts": [end, 0], "long": None}]
    for fact, above in zip(ends, self._lines):
      unit = None
      if fact["starts"]:
        if last is not None and fact["starts"][0] - last > LONGEST + 1:
          unit = above
        elif fact["long"] is not None:
          unit = above + fact["long"] + 1
        last = fact["starts"][1]
      if unit is not None:
        raise InputError(
          f"{self.units.place(unit)}: the line has more than {LONGEST:,}"
          " bytes; a line is a sentence."
        )

  def lines_of(self, work: Work, first: int, last: int) -> list[bytes]:
    """Lines first to last - 1, from 0, without their ends.

    Args:
      work: with the arrays.
      first, last: at most the number of lines.
    """
    if first == last:
      return []
    part, arrays, row = self._before(work, first)
    begin = int(arrays["offset"][row])
    skipped = first - int(self._units[part]) - row * _STRIDE
    end = self._offset_behind(work, last)
    with files.open_read(self.units.path, _SMALL_BLOCK) as file:
      file.seek(begin)
      data = file.read(end - begin)
    return data.split(b"\n", skipped + last - first)[skipped:][: last - first]

  def blocks_behind(self, work: Work, seen: int) -> Iterator[conllu.Block]:
    """The trees behind so many visible characters.

    Raises:
      InputError: one is malformed, or no tree begins there.
    """
    if not self.count:
      return iter(())
    # The unit before, not the next: a malformed tree without a word may stand
    # between.
    part = int(np.searchsorted(self._visible, seen)) - 1
    if (
      not 0 <= part < len(self._visible) - 1
    ):  # all of it, or nothing, is before
      last = 0 if part < 0 else self.count - 1
      part = int(np.searchsorted(self._units, last, "right")) - 1
    arrays = _arrays(work, self._first + part)
    before = arrays["visible"] + self._visible[part]
    row = max(0, int(np.searchsorted(before, seen)) - 1)
    return self._behind(part, arrays, row, seen - int(before[row]))

  def _behind(
    self, part: int, arrays: dict[str, np.ndarray], row: int, missing: int
  ) -> Iterator[conllu.Block]:
    for block in self._blocks(part, arrays, row):
      if missing <= 0:
        yield block
      elif missing < len(block.visible):
        raise InputError(
          f"{block.file}:{block.line}: this tree has words of two lines of the"
          " text; the CoNLL-U must have the same lines, in order."
        )
      else:
        missing -= len(block.visible)

  def _blocks(
    self, part: int, arrays: dict[str, np.ndarray], row: int
  ) -> Iterator[conllu.Block]:
    with files.open_read(self.units.path, _BLOCK) as file:
      yield from conllu.blocks_of_lines(
        _lines(file, int(arrays["offset"][row])),
        self.units.file,
        int(self._lines[part] + arrays["line"][row]),
      )

  def seen_before(self, work: Work, first: int) -> tuple[int, int]:
    """A unit at or before `first`, and the visible characters before it."""
    if not self.count:
      return 0, 0
    part, arrays, row = self._before(work, min(first, self.count - 1))
    index = int(self._units[part]) + row * _STRIDE
    return index, int(self._visible[part] + arrays["visible"][row])

  def _before(
    self, work: Work, index: int
  ) -> tuple[int, dict[str, np.ndarray], int]:
    """The range that a unit begins in, its arrays, and the row before it."""
    part = int(np.searchsorted(self._units, index, "right")) - 1
    row = (index - int(self._units[part])) // _STRIDE
    return part, _arrays(work, self._first + part), row

  def _offset_behind(self, work: Work, index: int) -> int:
    """Offset of the next known unit at or behind a number, or of the end."""
    part = int(np.searchsorted(self._units, index, "right")) - 1
    for later in range(part, len(self._units) - 1):
      row = -(-max(0, index - int(self._units[later])) // _STRIDE)
      offsets = _arrays(work, self._first + later)["offset"]
      if row < len(offsets):
        return int(offsets[row])
    return files.size_of(self.units.path)


@functools.lru_cache(16)
def _arrays(work: Work, index: int) -> dict[str, Any]:
  return work.read_arrays(f"index/{index}.units")
