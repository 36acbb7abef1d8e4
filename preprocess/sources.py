"""The first stages: files are unpacked, looked through, and cut into chunks."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from jaxsyn import files
from jaxsyn.data import schema
from jaxsyn.data.sentence import text
from jaxsyn.errors import InputError
from preprocess import ranges as of_bytes
from preprocess.corpus import Cut, Split, Tools
from preprocess.work import Facts, Output

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 20
_LINES = re.compile(r"([0-9]{1,15})-([0-9]{0,15})")


def is_packed(path: pathlib.Path) -> bool:
  """Whether a file is packed by gzip or Zstandard, by name or content."""
  with files.open_read(path, ahead=4) as file:
    start = file.read(4)
  packed = start.startswith(_GZIP) or start == _ZSTD
  return packed or path.name.endswith((".gz", ".zst"))


def packed(tools: Tools) -> int:
  return len(tools.job.packed)


def unpack(tools: Tools, number: int, out: Output) -> Facts:
  """Unpacks a file.

  Raises:
    InputError: it is no such file, or cut off.
  """
  source, target = tools.job.packed[number]
  with files.publish(target, flush=False) as file:
    for block in _unpacked(source):
      file.write(block)
  out.add(target)
  return {"lines": 0}


def _unpacked(path: pathlib.Path) -> Iterator[bytes]:
  with files.open_read(path, ahead=4) as file:
    zstd = file.read(4) == _ZSTD or path.name.endswith(".zst")
  if not zstd:
    yield from (block for block in text.unpacked(path) if block)
    return
  library = _zstandard(path)
  unpacker = library.ZstdDecompressor().decompressobj()
  with files.open_read(path) as file:
    try:
      while block := file.read(_BLOCK):
        while block:
          if unpacker.eof:  # another frame follows
            unpacker = library.ZstdDecompressor().decompressobj()
          yield unpacker.decompress(block)
          block = unpacker.unused_data if unpacker.eof else b""
    except library.ZstdError as error:
      raise _cut_off(path, str(error)) from None
  if not unpacker.eof:
    raise _cut_off(path, "it ends too early")


def _cut_off(path: pathlib.Path, why: str) -> InputError:
  return InputError(
    f"{path} cannot be unpacked ({why}). Copy or fetch it again."
  )


def _zstandard(path: pathlib.Path) -> Any:
  try:
    import zstandard
  except ImportError:
    raise InputError(
      f"{path} is packed by Zstandard: pip install 'jaxsyn[zstd]', or unpack it"
      " (zstd -d)."
    ) from None
  return zstandard


def ranges(tools: Tools) -> int:
  return len(tools.ranges)


def index(tools: Tools, number: int, out: Output) -> Facts:
  """Where the units begin of a range of bytes of a file."""
  file, part = tools.ranges[number]
  facts, arrays = of_bytes.index(tools.job.files[file], part)
  out.write_arrays("units", arrays)
  return facts


def cut(tools: Tools, facts: Sequence[Facts]) -> None:
  """Counts the lines of all files and cuts the splits into chunks.

  Raises:
    InputError: the sides of a split differ in their number of lines, or it
      takes lines that are not there.
  """
  found: list[list[Facts]] = [[] for _ in tools.job.files]
  for (file, _), fact in zip(tools.ranges, facts):
    found[file].append(fact)
  tools.work.write_page("indices.page", found)
  cuts = []
  for split in tools.job.splits:
    _check_sides(tools, split)
    count = tools.count(split.texts["source"])
    if split.brackets and (other := tools.count(split.brackets)) != count:
      names = _names(tools, split.brackets)
      raise InputError(
        f"{names} has {other} lines, but its text has {count}. Line N must hold"
        " the tree of line N of the raw source file."
      )
    lines = taken(split.lines, count, split.name)
    made = Cut.of(lines.start, lines.stop)
    cuts.append((made.first, made.last, made.lines))
  tools.work.write_page("cuts.page", cuts)


def _names(tools: Tools, numbers: Sequence[int]) -> str:
  return ", ".join(tools.job.files[number].file for number in numbers)


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


def taken(lines: str, count: int, name: str) -> range:
  """Numbers of the pairs of a split, from 0.

  Args:
    lines: "FIRST-LAST", from 1 and both included; "FIRST-" to the last line;
      "" for all.
    count: pairs that the files have.
    name: of the split.
  """
  if not lines:
    return range(count)
  found = _LINES.fullmatch(lines)
  first, last = (int(n or count) for n in found.groups()) if found else (0, 0)
  if not 1 <= first <= last <= count:
    raise InputError(
      f"config.prepare.splits.{name}: the lines must be FIRST-LAST, or FIRST- to"
      f" the last, of 1 to {count} as the files have, got {lines!r}. Where the "
      "other splits take too many lines, give them fewer: with configs/own.py, "
      "held_out=50."
    )
  return range(first - 1, last)
