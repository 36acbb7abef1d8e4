"""Cleaning of the training pairs: each step an option, each drop counted.

`preprocess.corpus` gives the lines, the vocabulary and the parser come after.
Nothing is dropped from the other splits: what is translated must be scored.
Repeats of a pair are found among all chunks, by a hash of the pair: so there
are steps before and behind (`clean`, `duplicates`, `language`).
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Clean
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.language_codes import short
from jaxsyn.errors import InputError
from jaxsyn.preprocess import links, subset
from jaxsyn.preprocess.corpus import Chunk, Split, Tools
from jaxsyn.preprocess.work import Facts, Output

# All of Unicode's category Cc but the tab.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_PAIRS_AT_ONCE = 1 << 24  # pairs whose hashes are compared at once: 0.4 GB
_GROUP = 256  # chunks

Pair = tuple[str, str]
Test = Callable[[str, str], bool]  # whether a pair must go


def clean(tools: Tools, index: int, out: Output) -> Facts:
  """The steps before the search for duplicates; all of them without one.

  Pieces: "kept", true of a line that stays; and "keys", hashes of those pairs.
  """
  chunk = tools.chunk(index)
  pairs, changes = chunk.pairs(), {}
  for side, lines in zip(schema.SIDES, zip(*pairs)):
    if chunk.normalised(side):
      were = chunk.texts(side)
      changes[side] = sum(a != b for a, b in zip(were, lines, strict=True))
  if chunk.split.alignments:
    links.read_links(
      chunk, pairs
    )  # what is wrong is told before trees are made
  before, after = steps(tools) if tools.is_train(chunk.split) else ({}, {})
  keep_P = np.ones(len(pairs), bool)
  if _repeats(tools, chunk.split):
    facts = _drop(keep_P, pairs, before)
    out.write_arrays("keys", _keys(chunk, pairs, keep_P, _partitions(tools)))
  else:
    facts = _drop(keep_P, pairs, {**before, **after})
    facts |= _control(chunk, pairs, keep_P)
  out.write_arrays("kept", {"kept": keep_P})
  text = any(visible(source) and visible(target) for source, target in pairs)
  return {**facts, "nfc": changes, "text": text, "lines": len(pairs)}


def duplicates(tools: Tools, index: int, out: Output) -> Facts:
  """The pairs of a part of all hashes that have come before."""
  chunks = tools.chunks(tools.config.data.train)
  repeats = [
    tools.work.read_array(f"clean/{chunk}.keys", str(index)) for chunk in chunks
  ]
  one, two, line = np.concatenate(repeats).T
  order = np.lexsort((line, two, one))
  again = (np.diff(one[order]) == 0) & (np.diff(two[order]) == 0)
  dropped = np.sort(line[order[1:][again]].astype(np.int64))
  groups = _groups(tools)
  bounds = np.searchsorted(dropped, [*groups, np.iinfo(np.int64).max])
  parts = {
    str(i): dropped[a:b] for i, (a, b) in enumerate(itertools.pairwise(bounds))
  }
  out.write_arrays("dropped", parts)
  return {"dropped": len(dropped)}


def language(tools: Tools, index: int, out: Output) -> Facts:
  """Duplicates, and the steps behind them; of the training split alone."""
  first = tools.chunks(tools.config.data.train).start
  chunk = tools.chunk(first + index)
  keep_P = tools.work.read_array(f"clean/{first + index}.kept", "kept").copy()
  pairs = chunk.pairs()
  facts: Facts = {"dropped": {"duplicates": 0}}
  for part in range(_partitions(tools)):
    name = f"duplicates/{part}.dropped"
    lines = tools.work.read_array(name, str(index // _GROUP))
    low, high = np.searchsorted(lines, [chunk.lines.start, chunk.lines.stop])
    keep_P[lines[low:high] - chunk.lines.start] = False
    facts["dropped"]["duplicates"] += int(high - low)
  _, after = steps(tools)
  facts["dropped"] |= _drop(keep_P, pairs, after)["dropped"]
  out.write_arrays("kept", {"kept": keep_P})
  return facts | _control(chunk, pairs, keep_P)


def partitions(tools: Tools) -> int:
  """How many tasks `duplicates` has."""
  return _partitions(tools) if tools.config.prepare.clean.duplicates else 0


def again(tools: Tools) -> int:
  """How many tasks `language` has."""
  if not tools.config.prepare.clean.duplicates:
    return 0
  return len(tools.chunks(tools.config.data.train))


def kept_rows(tools: Tools, index: int) -> list[int]:
  """Returns the rows of a chunk that are clean and, in training, drawn."""
  rows = _clean_rows(tools, index)
  chunk = tools.chunk(index)
  if tools.is_train(chunk.split):
    rows = rows[subset.is_drawn(tools, rows + chunk.lines.start)]
  return rows.tolist()


def _clean_rows(tools: Tools, index: int) -> np.ndarray:
  """Returns the rows of a chunk that cleaning keeps."""
  chunk = tools.chunk(index)
  name = f"clean/{index}.kept"
  if _repeats(tools, chunk.split):
    first = tools.chunks(chunk.split.name).start
    name = f"language/{index - first}.kept"
  keep_P = tools.work.read_arrays(name)["kept"]
  return np.flatnonzero(keep_P)


def after_clean(tools: Tools, facts: Sequence[Facts]) -> None:
  """Says what was found in the splits that are clean now."""
  dropped = {}
  for split in tools.job.splits:
    if not _repeats(tools, split):
      split_facts = [facts[index] for index in tools.chunks(split.name)]
      dropped[split.name] = report_dropped(tools, split, split_facts)
  if train := dropped.get(tools.config.data.train):
    train |= _draw(tools, train)
  tools.work.write_json("dropped.page", dropped)


def after_language(tools: Tools, facts: Sequence[Facts]) -> None:
  """The same of the training split, where duplicates were looked for."""
  train = tools.job.splits[0]
  if _repeats(tools, train):
    before = (tools.work.facts(f"clean/{n}") for n in tools.chunks(train.name))
    all_of_them = [result["facts"] for result in before if result] + [*facts]
    dropped = tools.work.read_json("dropped.page")
    dropped_counts = report_dropped(tools, train, all_of_them)
    dropped_counts |= _draw(tools, dropped_counts)
    tools.work.write_json(
      "dropped.page", {**dropped, train.name: dropped_counts}
    )


def _draw(tools: Tools, dropped: Mapping[str, int]) -> dict[str, int]:
  """Draws config.prepare.subset, if it is set, from the clean pairs.

  Args:
    tools: of the job.
    dropped: reason -> training pairs that cleaning dropped.

  Returns: "subset" -> number of clean pairs that were not drawn.
  """
  if not tools.config.prepare.subset.pairs:
    return {}
  cut = tools.cuts[0]
  count = cut.last - cut.first - sum(dropped.values())
  lines = (
    _clean_rows(tools, index) + tools.chunk(index).lines.start
    for index in tools.chunks(tools.config.data.train)
  )
  return {"subset": subset.draw(tools, count, lines)}


def _repeats(tools: Tools, split: Split) -> bool:
  """Whether duplicates are looked for in a split."""
  return tools.config.prepare.clean.duplicates and tools.is_train(split)


def report_dropped(
  tools: Tools, split: Split, facts: Sequence[Facts]
) -> dict[str, int]:
  """Says what was found in a split.

  Args:
    tools: of the job.
    split: the one.
    facts: of its chunks, in order, of `clean` and `language`.

  Returns: reason -> how many pairs were dropped.

  Raises:
    InputError: no line has text, or no training pair is left.
  """
  name = split.name
  _check_text(tools, split, facts)
  for side in schema.SIDES:
    if normalised := [
      f["nfc"][side] for f in facts if side in f.get("nfc", {})
    ]:
      print(f"{name}: {sum(normalised)} {side} lines changed by NFC")
  dropped: dict[str, int] = {}
  if tools.is_train(split):
    before, after = steps(tools)
    repeats = ["duplicates"] if _repeats(tools, split) else []
    dropped = dict.fromkeys([*before, *repeats, *after], 0)
    for fact in facts:
      for reason, count in fact["dropped"].items():
        dropped[reason] += count
    lines = sum(fact.get("lines", 0) for fact in facts)
    if lines == sum(dropped.values()):
      counts = ", ".join(f"{reason} {n}" for reason, n in dropped.items() if n)
      raise InputError(
        f"no training pair is left of {lines} (dropped: {counts or 'none'})."
        " See config.prepare.clean, and whether the files are the right ones."
      )
  for side in schema.SIDES:
    control_counts = [
      f["control"][side] for f in facts if side in f.get("control", {})
    ]
    if control_counts:
      _, character, where = control_counts[0]
      print(
        f"{name}: {sum(n for n, _, _ in control_counts):,} control characters stay in the"
        f" {side}, the first (U+{character:04X}) in {where}"
      )
  return dropped


def _check_text(tools: Tools, split: Split, facts: Sequence[Facts]) -> None:
  """Raises InputError for a split in which no pair has text."""
  if any(fact.get("text") for fact in facts):
    return
  source, target = (
    ", ".join(tools.job.files[file].file for file in split.texts[side])
    for side in schema.SIDES
  )
  what = f"no line taken of {source} has text, and text in {target} too"
  if not tools.count(split.texts["source"]):
    what = f"{source} and {target} are empty"
  raise InputError(
    f"config.prepare.splits.{split.name}: {what}. Give other files or lines."
  )


def _control(chunk: Chunk, pairs: Sequence[Pair], keep_P: np.ndarray) -> Facts:
  """Looks for control characters in the kept lines.

  UDPipe and much else ends a text at NUL; other control characters do no harm,
  and texts to score must stay as they were published.

  Returns: "control": side -> how many, which is the first, and where.

  Raises:
    InputError: there is a NUL; names FILE:LINE.
  """
  counts: dict[str, Any] = {}
  rows = np.flatnonzero(keep_P).tolist()
  for side, lines in zip(schema.SIDES, zip(*pairs)):
    for row in rows:
      for hit in CONTROL.findall(lines[row]):
        where = chunk.place(side, row)
        if hit == "\0":
          raise InputError(
            f"{where}: there is a NUL character in the line. Take it out of the"
            " file (tr -d '\\000'), or, to have such lines of the training"
            " split dropped, set config.prepare.clean.control to True."
          )
        count, *first = counts.get(side, (0, ord(hit), where))
        counts[side] = (count + 1, *first)
  return {"control": counts}


def steps(tools: Tools) -> tuple[dict[str, Test], dict[str, Test]]:
  """The steps that the options ask for, before and behind duplicates."""
  data = tools.config.data
  return tests(
    tools.config.prepare.clean, data.source_language, data.target_language
  )


def tests(
  options: Clean, source_language: str, target_language: str
) -> tuple[dict[str, Test], dict[str, Test]]:
  """Reason -> test, in order; those behind duplicates apart."""
  table: dict[str, Test] = {}
  if options.empty:
    # Not strip: of a line of zero-width characters alone no subword is left.
    table["empty"] = lambda s, t: not visible(s) or not visible(t)
  if options.control:
    table["control"] = lambda s, t: bool(CONTROL.search(s) or CONTROL.search(t))
  if options.max_words > 0:
    table["max_words"] = lambda s, t: (
      max(len(s.split()), len(t.split())) > options.max_words
    )
  if options.max_characters > 0:
    table["max_characters"] = lambda s, t: (
      max(len(s), len(t)) > options.max_characters
    )
  if options.max_ratio > 0:
    table["max_ratio"] = lambda s, t: _ratio(s, t) > options.max_ratio
  after: dict[str, Test] = {}
  if options.language:
    after["language"] = _other_language(source_language, target_language)
  return table, after


def _drop(
  keep_P: np.ndarray, pairs: Sequence[Pair], table: Mapping[str, Test]
) -> Facts:
  """Marks the pairs that must go.

  Args:
    keep_P: of each pair; changed.
    pairs: all of the chunk.
    table: reason -> test.

  Returns: "dropped": reason -> how many; a pair counts once, for the first.
  """
  dropped = dict.fromkeys(table, 0)
  for row in np.flatnonzero(keep_P).tolist():
    pair = pairs[row]
    for reason, test in table.items():
      if test(*pair):
        dropped[reason] += 1
        keep_P[row] = False
        break
  return {"dropped": dropped}


def key(pair: Pair) -> bytes:
  """A hash of a pair, 16 bytes: no two of a billion pairs share theirs."""
  source, target = (text.encode() for text in pair)
  size = len(source).to_bytes(8, "little")
  return hashlib.blake2b(size + source + target, digest_size=16).digest()


def _keys(
  chunk: Chunk, pairs: Sequence[Pair], keep_P: np.ndarray, partitions: int
) -> dict[str, np.ndarray]:
  """Hashes and line numbers of the pairs that stay, by partition."""
  rows = np.flatnonzero(keep_P)
  keys = b"".join(key(pairs[row]) for row in rows.tolist())
  both = np.frombuffer(keys, "<u8").reshape(-1, 2)
  table = np.column_stack([both, (rows + chunk.lines.start).astype("<u8")])
  part = both[:, 0] % np.uint64(partitions)
  return {str(i): table[part == i] for i in range(partitions)}


def _partitions(tools: Tools) -> int:
  cut = tools.cuts[0]  # of the training split
  return -(-(cut.last - cut.first) // _PAIRS_AT_ONCE)


def _groups(tools: Tools) -> list[int]:
  """The first line of each group of chunks."""
  cut = tools.cuts[0]
  return [cut.chunk(n).start for n in range(0, cut.chunks, _GROUP)]


def _ratio(source: str, target: str) -> float:
  """Words of the longer side by words of the shorter; inf if that has none."""
  short, long = sorted((len(source.split()), len(target.split())))
  return long / short if short else float("inf")


def _other_language(source_language: str, target_language: str) -> Test:
  """Whether either side seems to be in another language than it should.

  The first guess counts, however uncertain: py3langid has no chance in it, so
  the same text always gives the same answer.
  """
  import py3langid

  known = {code for code, _ in py3langid.rank("a")}
  wanted = []
  for field, code in (
    ("source_language", source_language),
    ("target_language", target_language),
  ):
    # It has some languages by three letters ("kik"), most by two ("ha").
    known_code = next((c for c in (code, short(code)) if c in known), "")
    wanted.append(known_code)
    if not known_code:
      raise InputError(
        f"config.data.{field}: py3langid does not know {code!r}; it knows"
        f" {', '.join(sorted(known))}. Or set config.prepare.clean.language"
        " to False."
      )

  def test(source: str, target: str) -> bool:
    known_code = [py3langid.classify(text)[0] for text in (source, target)]
    return known_code != wanted

  return test
