"""Cleaning of the training split: drops sentence pairs and counts the reasons.

Each test is an option. No pair is dropped from other splits, whose translations
must all be scored. Duplicates are found by a hash of the pair, among all chunks
of lines. If they are dropped, the training split is cleaned in three stages:
`clean`, `find_duplicates`, and `clean_language`.
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
from jaxsyn.preprocess import extras, subset
from jaxsyn.preprocess.corpus import Chunk, JobContext, SplitInput
from jaxsyn.preprocess.outputs import Result, TaskOutput

# All of Unicode's category Cc but the tab.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_PARTITION_PAIRS = 1 << 24  # pairs whose hashes are compared at once: 0.4 GB
_GROUP = 256  # chunks of lines

Pair = tuple[str, str]
Test = Callable[[str, str], bool]  # returns whether a pair is dropped


def clean(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Tests the pairs in a chunk of lines before the search for duplicates.

  Runs all tests if duplicates are not dropped. Writes "kept", whether each line
  is kept, and "keys.N", hashes and line indices of kept pairs by partition.
  """
  chunk = context.chunk(number)
  pairs, changes = chunk.pairs(), {}
  for side, lines in zip(schema.SIDES, zip(*pairs)):
    if context.is_normalized(chunk.split, side):
      before_P = chunk.texts(side)
      changes[side] = sum(a != b for a, b in zip(before_P, lines, strict=True))
  if "alignments" in chunk.split.streams:
    # Reports malformed links before trees are made.
    extras.read_links(chunk, pairs)
  before, after = dict[str, Test](), dict[str, Test]()
  if context.is_train(chunk.split):
    before, after = _tests_of(context)
  keep_P = np.ones(len(pairs), bool)
  if _finds_duplicates(context, chunk.split):
    result = _drop(keep_P, pairs, before)
    tables = _keys(chunk, pairs, keep_P, partition_count(context))
    for partition, table in enumerate(tables):
      out.write(f"keys.{partition}", table.tobytes())
  else:
    result = _drop(keep_P, pairs, {**before, **after})
    result |= _count_control_characters(chunk, pairs, keep_P)
  out.write("kept", keep_P.tobytes())
  has_text = any(visible(s) and visible(t) for s, t in pairs)
  return {
    **result,
    "nfc": changes,
    "has_text": has_text,
    "lines": len(pairs),
  }


def combine(context: JobContext, results: Sequence[Result]) -> Result:
  """Prints and returns drop counts for splits whose duplicates are kept."""
  dropped = {}
  for split in context.job.splits:
    if not _finds_duplicates(context, split):
      of_split = [results[n] for n in context.chunks(split.name)]
      dropped[split.name] = _report(context, split, of_split)
  return {"dropped": dropped, **_draw_subset(context, dropped)}


def partition_count(context: JobContext) -> int:
  """Returns the number of `find_duplicates` tasks, one per hash partition."""
  if not context.config.prepare.clean.duplicates:
    return 0
  return -(-len(context.line_ranges[0]) // _PARTITION_PAIRS)


def find_duplicates(
  context: JobContext, number: int, out: TaskOutput
) -> Result:
  """Finds duplicates among the training pairs in one partition of hashes.

  Writes "group.N", line indices of duplicates in group N of chunks of lines.
  """
  chunks = context.train_chunks
  tables = [
    np.frombuffer(
      context.outputs.read(f"clean/{chunk}", f"keys.{number}"), "<u8"
    )
    for chunk in chunks
  ]
  one, two, line = np.concatenate(tables).reshape(-1, 3).T
  order = np.lexsort((line, two, one))
  again = (np.diff(one[order]) == 0) & (np.diff(two[order]) == 0)
  dropped = np.sort(line[order[1:][again]].astype("<i8"))
  groups = [context.chunk(n).lines.start for n in chunks[::_GROUP]]
  bounds = np.searchsorted(dropped, [*groups, np.iinfo(np.int64).max])
  for group, (a, b) in enumerate(itertools.pairwise(bounds)):
    out.write(f"group.{group}", dropped[a:b].tobytes())
  return {}


def language_count(context: JobContext) -> int:
  """Returns the number of `clean_language` tasks, one per training chunk."""
  if not context.config.prepare.clean.duplicates:
    return 0
  return len(context.train_chunks)


def clean_language(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Drops duplicates in a training chunk, then pairs in a wrong language.

  Writes "kept", whether each line is kept.
  """
  chunk_number = context.train_chunks[number]
  chunk = context.chunk(chunk_number)
  keep_P = _kept(context, f"clean/{chunk_number}")
  pairs = chunk.pairs()
  duplicates = 0
  for partition in range(partition_count(context)):
    part = f"group.{number // _GROUP}"
    data = context.outputs.read(f"duplicates/{partition}", part)
    lines = np.frombuffer(data, "<i8")
    low, high = np.searchsorted(lines, [chunk.lines.start, chunk.lines.stop])
    keep_P[lines[low:high] - chunk.lines.start] = False
    duplicates += int(high - low)
  _, after = _tests_of(context)
  dropped = _drop(keep_P, pairs, after)["dropped"]
  out.write("kept", keep_P.tobytes())
  return {
    "dropped": {"duplicates": duplicates, **dropped},
    **_count_control_characters(chunk, pairs, keep_P),
  }


def combine_language(context: JobContext, results: Sequence[Result]) -> Result:
  """Prints and returns drop counts of training pairs and their duplicates."""
  dropped = {}
  if results:
    split = context.job.splits[0]
    before = [
      context.outputs.result(f"clean/{n}") for n in context.train_chunks
    ]
    dropped[split.name] = _report(context, split, [*before, *results])
  return {"dropped": dropped, **_draw_subset(context, dropped)}


def kept_rows(context: JobContext, number: int) -> list[int]:
  """Returns the indices of lines in a chunk that cleaning and subset keep."""
  rows = _clean_rows(context, number)
  chunk = context.chunk(number)
  if context.is_train(chunk.split):
    rows = rows[subset.is_drawn(context, rows + chunk.lines.start)]
  return rows.tolist()


def _clean_rows(context: JobContext, number: int) -> np.ndarray:
  """Returns the indices of lines in a chunk that cleaning keeps."""
  task, split = f"clean/{number}", context.chunk(number).split
  if _finds_duplicates(context, split):
    task = f"language/{number - context.train_chunks.start}"
  return np.flatnonzero(_kept(context, task))


def _kept(context: JobContext, task: str) -> np.ndarray:
  return np.frombuffer(context.outputs.read(task, "kept"), bool).copy()


def _draw_subset(
  context: JobContext, dropped: Mapping[str, dict[str, int]]
) -> Result:
  """Samples the training subset after cleaning; counts the pairs left out.

  Args:
    context: preparation job and its loaded data.
    dropped: split -> reason -> number of dropped pairs; gets "subset".
  """
  name = context.config.data.train
  if not context.config.prepare.subset.pairs or name not in dropped:
    return {}
  total = len(context.line_ranges[0])
  lines = (
    _clean_rows(context, n) + context.chunk(n).lines.start
    for n in context.train_chunks
  )
  count = total - sum(dropped[name].values())
  drawn = subset.draw(context, count, total, lines)
  dropped[name]["subset"] = count - context.config.prepare.subset.pairs
  return {"last_drawn": drawn}


def _finds_duplicates(context: JobContext, split: SplitInput) -> bool:
  return context.config.prepare.clean.duplicates and context.is_train(split)


def _report(
  context: JobContext, split: SplitInput, results: Sequence[Result]
) -> dict[str, int]:
  """Prints cleaning messages for a split and returns drop counts by reason.

  Args:
    context: preparation job and its loaded data.
    split: split to report.
    results: results of the split's chunks of lines, in order.

  Returns:
    Reason -> number of dropped pairs.

  Raises:
    InputError: no line has text, or no training pair is left.
  """
  name = split.name
  _check_text(context, split, results)
  for side in schema.SIDES:
    counts = [r["nfc"][side] for r in results if side in r.get("nfc", {})]
    if counts:
      print(f"{name}: {sum(counts)} {side} lines changed by NFC")
  dropped: dict[str, int] = {}
  if context.is_train(split):
    before, after = _tests_of(context)
    found = ["duplicates"] if _finds_duplicates(context, split) else []
    dropped = dict.fromkeys([*before, *found, *after], 0)
    for result in results:
      for reason, count in result["dropped"].items():
        dropped[reason] += count
    lines = sum(result.get("lines", 0) for result in results)
    if lines == sum(dropped.values()):
      listed = ", ".join(f"{reason} {n}" for reason, n in dropped.items() if n)
      raise InputError(
        f"no training pair is left of {lines} (dropped: {listed or 'none'})."
        " See config.prepare.clean, and whether the files are the right ones."
      )
  for side in schema.SIDES:
    controls = [
      r["control"][side] for r in results if side in r.get("control", {})
    ]
    if controls:
      _, character, where = controls[0]
      print(
        f"{name}: {sum(n for n, _, _ in controls):,} control characters stay in"
        f" the {side}, the first (U+{character:04X}) in {where}"
      )
  return dropped


def _check_text(
  context: JobContext, split: SplitInput, results: Sequence[Result]
) -> None:
  """Raises InputError if no pair of a split has text on both sides."""
  if any(result.get("has_text") for result in results):
    return
  source, target = (split.file_names(side) for side in schema.SIDES)
  what = f"no line taken of {source} has text, and text in {target} too"
  counts = context.outputs.summary("read")["counts"][split.name]
  if not sum(counts["source"]):
    what = f"{source} and {target} are empty"
  raise InputError(
    f"config.prepare.splits.{split.name}: {what}. Give other files or lines."
  )


def _count_control_characters(
  chunk: Chunk, pairs: Sequence[Pair], keep_P: np.ndarray
) -> Result:
  """Counts the control characters in the kept lines of a chunk.

  UDPipe and other programs end a text at NUL. Other control characters do no
  harm, and texts for scoring must stay as they were published.

  Returns:
    "control": side -> number, first character, and FILE:LINE of the first.

  Raises:
    InputError: a line has a NUL; names FILE:LINE.
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


def _tests_of(context: JobContext) -> tuple[dict[str, Test], dict[str, Test]]:
  data = context.config.data
  return tests(
    context.config.prepare.clean, data.source_language, data.target_language
  )


def tests(
  options: Clean, source_language: str, target_language: str
) -> tuple[dict[str, Test], dict[str, Test]]:
  """Returns the cleaning tests to run before and after dropping duplicates.

  Returns:
    Two ordered dictionaries, reason -> test.
  """
  before: dict[str, Test] = {}
  if options.empty:
    # Not strip: zero-width characters alone give no subword.
    before["empty"] = lambda s, t: not visible(s) or not visible(t)
  if options.control:
    before["control"] = lambda s, t: bool(
      CONTROL.search(s) or CONTROL.search(t)
    )
  if options.max_words > 0:
    before["max_words"] = lambda s, t: (
      max(len(s.split()), len(t.split())) > options.max_words
    )
  if options.max_characters > 0:
    before["max_characters"] = lambda s, t: (
      max(len(s), len(t)) > options.max_characters
    )
  if options.max_ratio > 0:
    before["max_ratio"] = lambda s, t: _ratio(s, t) > options.max_ratio
  after: dict[str, Test] = {}
  if options.language:
    after["language"] = _other_language(source_language, target_language)
  return before, after


def _drop(
  keep_P: np.ndarray, pairs: Sequence[Pair], table: Mapping[str, Test]
) -> Result:
  """Marks the sentence pairs that a table of tests drops, and counts them.

  Args:
    keep_P: mask of kept pairs; modified in place.
    pairs: all pairs of the chunk of lines.
    table: reason -> test.

  Returns:
    "dropped": reason -> number of pairs; only a pair's first reason counts.
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


def pair_key(pair: Pair) -> bytes:
  """Returns a 16-byte hash of a sentence pair, unique among a billion pairs."""
  source, target = (text.encode() for text in pair)
  size = len(source).to_bytes(8, "little")
  return hashlib.blake2b(size + source + target, digest_size=16).digest()


def _keys(
  chunk: Chunk, pairs: Sequence[Pair], keep_P: np.ndarray, partitions: int
) -> list[np.ndarray]:
  """Returns hashes and line indices of kept pairs, a table per partition."""
  rows = np.flatnonzero(keep_P)
  keys = b"".join(pair_key(pairs[row]) for row in rows.tolist())
  both = np.frombuffer(keys, "<u8").reshape(-1, 2)
  table = np.column_stack([both, (rows + chunk.lines.start).astype("<u8")])
  part = both[:, 0] % np.uint64(partitions)
  return [table[part == i] for i in range(partitions)]


def _ratio(source: str, target: str) -> float:
  """Returns the ratio of word counts, longer side to shorter, or infinity."""
  short_side, long_side = sorted((len(source.split()), len(target.split())))
  return long_side / short_side if short_side else float("inf")


def _other_language(source_language: str, target_language: str) -> Test:
  """Returns a test that drops pairs with a side in an unexpected language.

  The most probable language counts, however uncertain. py3langid is
  deterministic.
  """
  import py3langid

  known = {code for code, _ in py3langid.rank("a")}
  wanted = []
  for field, code in (
    ("source_language", source_language),
    ("target_language", target_language),
  ):
    # py3langid has three letters for some languages ("kik"), or two ("ha").
    known_code = next((c for c in (code, short(code)) if c in known), "")
    wanted.append(known_code)
    if not known_code:
      raise InputError(
        f"config.data.{field}: py3langid does not know {code!r}; it knows"
        f" {', '.join(sorted(known))}. Or set config.prepare.clean.language"
        " to False."
      )

  def test(source: str, target: str) -> bool:
    return [py3langid.classify(text)[0] for text in (source, target)] != wanted

  return test
