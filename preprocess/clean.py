"""Cleans the training split: drops sentence pairs and counts the reasons.

config.prepare.clean has the options of the filters. Other splits keep every pair,
since all their translations must be scored. Repeated pairs are found by hashes,
among all chunks of lines, in the stage after that of the filters.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Clean
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.language_codes import short
from jaxsyn.errors import InputError
from jaxsyn.preprocess import subset
from jaxsyn.preprocess.features import OPTIONAL
from jaxsyn.preprocess.job import Chunk, JobContext
from jaxsyn.preprocess.optional import Pair
from jaxsyn.preprocess.outputs import Result, TaskOutput

# All of Unicode's category Cc but the tab.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_PARTITION_PAIRS = 1 << 24  # pairs whose hashes are compared at once: 0.4 GB

Filter = Callable[[str, str], bool]  # returns whether a pair is dropped


def _is_empty(source: str, target: str) -> bool:
  # Not strip: zero-width characters alone give no subword.
  return not visible(source) or not visible(target)


def _has_control(source: str, target: str) -> bool:
  return bool(CONTROL.search(source) or CONTROL.search(target))


def _has_many_words(source: str, target: str, limit: float) -> bool:
  return max(len(source.split()), len(target.split())) > limit


def _has_many_characters(source: str, target: str, limit: float) -> bool:
  return max(len(source), len(target)) > limit


def _has_large_ratio(source: str, target: str, limit: float) -> bool:
  few, many = sorted((len(source.split()), len(target.split())))
  return (many / few if few else float("inf")) > limit


# Option, and reason in reports -> function that returns whether a pair is
# dropped, given the value of the option. A value of 0 is no filter.
LIMITS: dict[str, Callable[..., bool]] = {
  "max_words": _has_many_words,
  "max_characters": _has_many_characters,
  "max_ratio": _has_large_ratio,
}


def filters(
  options: Clean, source_language: str, target_language: str
) -> dict[str, Filter]:
  """Returns a dict from drop reasons to filters of sentence pairs."""
  selected: dict[str, Filter] = {"empty": _is_empty, "control": _has_control}
  for reason, function in LIMITS.items():
    limit = getattr(options, reason)
    if limit > 0:
      selected[reason] = functools.partial(function, limit=limit)
  if options.language:
    selected["language"] = _language_filter(source_language, target_language)
  return selected


def _language_filter(source_language: str, target_language: str) -> Filter:
  """Returns a filter that drops pairs with a side in the wrong language.

  The most probable language counts, however uncertain. py3langid is
  deterministic.
  """
  import py3langid

  known = {code for code, _ in py3langid.rank("a")}
  wanted = []
  for side, code in zip(schema.SIDES, (source_language, target_language)):
    # py3langid has three letters for some languages ("kik"), or two ("ha").
    known_code = next((c for c in (code, short(code)) if c in known), "")
    wanted.append(known_code)
    if not known_code:
      raise InputError(
        f"config.data.{side}_language: py3langid does not know {code!r}; it knows"
        f" {', '.join(sorted(known))}. Or set config.prepare.clean.language"
        " to False."
      )

  def is_other(source: str, target: str) -> bool:
    return [py3langid.classify(text)[0] for text in (source, target)] != wanted

  return is_other


def clean(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Filters one chunk of sentence pairs; checks optional input files.

  Writes "reasons": 0 for each line that is kept, otherwise the index of its
  filter, from 1; and "keys.N", the hashes and line indices of the kept pairs
  whose hash is in partition N.

  Raises:
    InputError: A line has NUL, or input of an optional feature is malformed.
  """
  chunk = context.chunk(number)
  pairs = chunk.pairs()
  for feature in OPTIONAL:
    feature.check(chunk, pairs)
  data, options = context.config.data, context.config.prepare.clean
  selected: dict[str, Filter] = {}
  if chunk.is_train:
    selected = filters(options, data.source_language, data.target_language)
  tests = list(selected.values())
  reason_P = np.fromiter(
    (_first_reason(pair, tests) for pair in pairs), np.uint8, len(pairs)
  )
  out.write("reasons", reason_P.tobytes())
  rows = np.flatnonzero(reason_P == 0)
  for row in rows.tolist():
    # UDPipe and other programs end a text at NUL. Other control characters do
    # no harm, and texts for scoring must stay as they were published.
    for side, line in zip(schema.SIDES, pairs[row]):
      if "\0" in line:
        raise InputError(
          f"{chunk.place(side, row)}: there is a NUL character in the line."
          " Remove it from the file (tr -d '\\000')."
        )
  if chunk.is_train and options.duplicates:
    for partition, table in enumerate(_keys(chunk, pairs, rows)):
      out.write(f"keys.{partition}", table.tobytes())
  counts = np.bincount(reason_P, minlength=len(selected) + 1)[1:].tolist()
  return {
    "dropped": dict(zip(selected, counts)),
    "has_text": any(visible(s) and visible(t) for s, t in pairs),
    "lines": len(pairs),
  }


def _first_reason(pair: Pair, tests: Sequence[Filter]) -> int:
  for index, test in enumerate(tests, 1):
    if test(*pair):
      return index
  return 0


def combine(context: JobContext, results: Sequence[Result]) -> Result:
  """Sums the counts of dropped pairs over all chunks, by split and reason.

  Raises:
    InputError: No pair of a split has text on both sides.
  """
  dropped = {}
  for split in context.job.splits:
    of_split = [results[n] for n in context.chunks(split.name)]
    if not any(result["has_text"] for result in of_split):
      source, target = (split.file_names(side) for side in schema.SIDES)
      what = f"no line taken of {source} has text, and text in {target} too"
      if not sum(context.summary("read")["counts"][split.name]["source"]):
        what = f"{source} and {target} are empty"
      raise InputError(
        f"config.prepare.splits.{split.name}: {what}. Give other files or lines."
      )
    dropped[split.name] = {
      reason: sum(r["dropped"][reason] for r in of_split)
      for reason in of_split[0]["dropped"]
    }
  return {"dropped": dropped}


def pair_key(pair: Pair) -> bytes:
  """Returns a 16-byte hash of a sentence pair; collisions are negligible."""
  source, target = (text.encode() for text in pair)
  size = len(source).to_bytes(8, "little")
  return hashlib.blake2b(size + source + target, digest_size=16).digest()


def _keys(
  chunk: Chunk, pairs: Sequence[Pair], rows: np.ndarray
) -> list[np.ndarray]:
  """Returns the hashes and line indices of kept pairs by hash partition."""
  keys = b"".join(pair_key(pairs[row]) for row in rows.tolist())
  both = np.frombuffer(keys, "<u8").reshape(-1, 2)
  lines = (rows + chunk.lines.start).astype("<u8")
  table = np.column_stack([both, lines])
  partitions = partition_count(chunk.context)
  part = both[:, 0] % np.uint64(partitions)
  return [table[part == i] for i in range(partitions)]


def partition_count(context: JobContext) -> int:
  """Returns the number of `find_duplicates` tasks, one per hash partition."""
  if not context.config.prepare.clean.duplicates:
    return 0
  return -(-len(context.line_ranges[0]) // _PARTITION_PAIRS)


def find_duplicates(
  context: JobContext, number: int, out: TaskOutput
) -> Result:
  """Finds repeated training pairs within one hash partition.

  Writes "lines", the line indices of all copies but the first of each pair.
  """
  tables = [
    np.frombuffer(
      context.outputs.read(f"clean/{chunk}", f"keys.{number}"), "<u8"
    )
    for chunk in context.train_chunks
  ]
  one, two, lines = np.concatenate(tables).reshape(-1, 3).T
  order = np.lexsort((lines, two, one))
  is_copy = (np.diff(one[order]) == 0) & (np.diff(two[order]) == 0)
  copies = lines[order[1:][is_copy]].astype("<i8")
  out.write("lines", copies.tobytes())
  return {"duplicates": len(copies)}


def select(context: JobContext, results: Sequence[Result]) -> Result:
  """Counts dropped pairs by split, and draws the training subset.

  Returns:
    "partitions", the number of `find_duplicates` tasks; "dropped": split ->
    reason -> number of pairs; and with a subset "last_drawn", see
    `subset.is_drawn`.

  Raises:
    InputError: No training pair is left, or too few for the subset.
  """
  dropped = copy.deepcopy(context.summary("clean")["dropped"])
  name, options = context.config.data.train, context.config.prepare
  counts = dropped[name]
  if options.clean.duplicates:
    counts["duplicates"] = sum(result["duplicates"] for result in results)
  total = len(context.line_ranges[0])
  left = total - sum(counts.values())
  if not left:
    listed = ", ".join(f"{reason} {n}" for reason, n in counts.items() if n)
    raise InputError(
      f"no training pair is left of {total} (dropped: {listed or 'none'})."
      " See config.prepare.clean, and whether the files are the right ones."
    )
  summary = {"partitions": len(results), "dropped": dropped}
  if options.subset.pairs:
    duplicates = context.duplicates(len(results))
    lines = (
      _clean_rows(context, n, duplicates) + context.chunk(n).lines.start
      for n in context.train_chunks
    )
    summary["last_drawn"] = subset.draw(options.subset, left, total, lines)
    counts["subset"] = left - options.subset.pairs
  return summary


def kept_rows(context: JobContext, number: int) -> list[int]:
  """Returns the indices of a chunk's lines that are clean and in the subset."""
  chunk, summary = context.chunk(number), context.summary("duplicates")
  duplicates = context.duplicates(summary["partitions"])
  rows = _clean_rows(context, number, duplicates)
  if "last_drawn" in summary and chunk.is_train:
    lines, seed = rows + chunk.lines.start, context.config.prepare.subset.seed
    rows = rows[subset.is_drawn(seed, lines, summary["last_drawn"])]
  return rows.tolist()


def _clean_rows(
  context: JobContext, number: int, duplicates: np.ndarray
) -> np.ndarray:
  """Returns the indices of a chunk's lines that cleaning keeps."""
  chunk = context.chunk(number)
  reasons = context.outputs.read(f"clean/{number}", "reasons")
  keep_P = np.frombuffer(reasons, np.uint8) == 0
  if chunk.is_train:
    bounds = (chunk.lines.start, chunk.lines.stop)
    low, high = np.searchsorted(duplicates, bounds)
    keep_P[duplicates[low:high] - chunk.lines.start] = False
  return np.flatnonzero(keep_P)
