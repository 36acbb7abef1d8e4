"""Cleaning of the training split: drops sentence pairs and counts the reasons.

config.prepare.clean has the options of the filters. Other splits keep every pair,
since all their translations must be scored. Repeated pairs are found by hashes,
among all chunks of lines, in the stage after that of the filters.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Sequence

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
  """Returns the filters that the options select, by reason, in order."""
  found: dict[str, Filter] = {"empty": _is_empty, "control": _has_control}
  for reason, function in LIMITS.items():
    limit = getattr(options, reason)
    if limit > 0:
      found[reason] = functools.partial(function, limit=limit)
  if options.language:
    found["language"] = _language_filter(source_language, target_language)
  return found


def _language_filter(source_language: str, target_language: str) -> Filter:
  """Returns a filter that drops pairs with a side in an unexpected language.

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


def _filters(context: JobContext) -> dict[str, Filter]:
  data = context.config.data
  return filters(
    context.config.prepare.clean, data.source_language, data.target_language
  )


def _finds_duplicates(context: JobContext, split: SplitInput) -> bool:
  return context.config.prepare.clean.duplicates and context.is_train(split)


def clean(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Applies the filters to a chunk of lines.

  Writes "reasons": 0 for each line that is kept, otherwise the index of its
  filter, from 1; and "keys.N", hashes of pairs by partition.
  """
  chunk = context.chunk(number)
  pairs = chunk.pairs()
  if "alignments" in chunk.split.streams:
    # Reports malformed links before trees are made.
    extras.read_links(chunk, pairs)
  found = _filters(context) if context.is_train(chunk.split) else {}
  tests = [*found.values()]
  reason_P = np.fromiter(
    (_first_reason(pair, tests) for pair in pairs), np.uint8, len(pairs)
  )
  out.write("reasons", reason_P.tobytes())
  if _finds_duplicates(context, chunk.split):
    language = [*found, "language"].index("language") + 1
    tables = _keys(chunk, pairs, reason_P, language)
    for partition, table in enumerate(tables):
      out.write(f"keys.{partition}", table.tobytes())
  counts = np.bincount(reason_P, minlength=len(found) + 1)[1:].tolist()
  return {
    "dropped": dict(zip(found, counts)),
    "control": _control_characters(chunk, pairs, np.flatnonzero(reason_P == 0)),
    "has_text": any(visible(s) and visible(t) for s, t in pairs),
    "lines": len(pairs),
  }


def _first_reason(pair: Pair, tests: Sequence[Filter]) -> int:
  for index, test in enumerate(tests, 1):
    if test(*pair):
      return index
  return 0


def _control_characters(
  chunk: Chunk, pairs: Sequence[Pair], rows: np.ndarray
) -> Result:
  """Counts the control characters in the given rows of a chunk, by side.

  UDPipe and other programs end a text at NUL. Other control characters do no
  harm, and texts for scoring must stay as they were published.

  Returns:
    Side -> number, first character, and FILE:LINE of the first.

  Raises:
    InputError: a line has a NUL; names FILE:LINE.
  """
  counts: Result = {}
  for side, lines in zip(schema.SIDES, zip(*pairs)):
    for row in rows.tolist():
      for hit in CONTROL.findall(lines[row]):
        where = chunk.place(side, row)
        if hit == "\0":
          raise InputError(
            f"{where}: there is a NUL character in the line. Remove it from the"
            " file (tr -d '\\000')."
          )
        count, *first = counts.get(side, (0, ord(hit), where))
        counts[side] = (count + 1, *first)
  return counts


def combine(context: JobContext, results: Sequence[Result]) -> Result:
  """Prints messages about each split; returns the drop counts of its filters.

  Raises:
    InputError: no pair of a split has text on both sides.
  """
  dropped = {}
  for split in context.job.splits:
    of_split = [results[n] for n in context.chunks(split.name)]
    _check_text(context, split, of_split)
    for side in schema.SIDES:
      controls = [r["control"][side] for r in of_split if side in r["control"]]
      if controls:
        _, character, where = controls[0]
        print(
          f"{split.name}: {sum(n for n, *_ in controls):,} control characters"
          f" stay in the {side}, the first (U+{character:04X}) in {where}"
        )
    reasons = of_split[0]["dropped"]
    dropped[split.name] = {
      reason: sum(r["dropped"][reason] for r in of_split) for reason in reasons
    }
  return {"dropped": dropped}


def _check_text(
  context: JobContext, split: SplitInput, results: Sequence[Result]
) -> None:
  if any(result["has_text"] for result in results):
    return
  source, target = (split.file_names(side) for side in schema.SIDES)
  what = f"no line taken of {source} has text, and text in {target} too"
  counts = context.outputs.summary("read")["counts"][split.name]
  if not sum(counts["source"]):
    what = f"{source} and {target} are empty"
  raise InputError(
    f"config.prepare.splits.{split.name}: {what}. Give other files or lines."
  )


def pair_key(pair: Pair) -> bytes:
  """Returns a 16-byte hash of a sentence pair, unique among a billion pairs."""
  source, target = (text.encode() for text in pair)
  size = len(source).to_bytes(8, "little")
  return hashlib.blake2b(size + source + target, digest_size=16).digest()


def _keys(
  chunk: Chunk, pairs: Sequence[Pair], reason_P: np.ndarray, language: int
) -> list[np.ndarray]:
  """Returns the hashes of pairs that may be duplicates, a table per partition.

  These are the pairs that no filter drops but that of the language. It drops
  all copies of a pair, of which only the first counts for it. The third column
  is twice the line index, plus 1 if the language filter drops the pair.
  """
  rows = np.flatnonzero((reason_P == 0) | (reason_P == language))
  keys = b"".join(pair_key(pairs[row]) for row in rows.tolist())
  both = np.frombuffer(keys, "<u8").reshape(-1, 2)
  marked = 2 * (rows + chunk.lines.start) + (reason_P[rows] == language)
  table = np.column_stack([both, marked.astype("<u8")])
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
  """Finds the duplicates among the training pairs in one partition of hashes.

  Writes "group.N", line indices of duplicates in group N of chunks of lines.

  Returns:
    Number of duplicates, and of those that the language filter drops as well.
  """
  chunks = context.train_chunks
  read = context.outputs.read
  tables = [
    np.frombuffer(read(f"clean/{chunk}", f"keys.{number}"), "<u8")
    for chunk in chunks
  ]
  one, two, marked = np.concatenate(tables).reshape(-1, 3).T
  order = np.lexsort((marked, two, one))
  again = (np.diff(one[order]) == 0) & (np.diff(two[order]) == 0)
  repeated = np.sort(marked[order[1:][again]].astype("<i8"))
  lines = repeated // 2
  groups = [context.chunk(n).lines.start for n in chunks[::_GROUP]]
  bounds = np.searchsorted(lines, [*groups, np.iinfo(np.int64).max])
  for group, (a, b) in enumerate(itertools.pairwise(bounds)):
    out.write(f"group.{group}", lines[a:b].tobytes())
  return {"duplicates": len(lines), "language": int((repeated % 2).sum())}


def select(context: JobContext, results: Sequence[Result]) -> Result:
  """Counts the dropped pairs of each split and draws the training subset.

  Returns:
    "dropped": split -> reason -> number of pairs; and "last_drawn" with a
    subset, see `JobContext.last_drawn`.

  Raises:
    InputError: no training pair is left, or too few for the subset.
  """
  dropped = context.outputs.summary("clean")["dropped"]
  name, options = context.config.data.train, context.config.prepare
  counts = dropped[name]
  if options.clean.duplicates:
    language = counts.pop("language", None)
    counts["duplicates"] = sum(result["duplicates"] for result in results)
    if language is not None:
      repeated = sum(result["language"] for result in results)
      counts["language"] = language - repeated
  total = len(context.line_ranges[0])
  left = total - sum(counts.values())
  if not left:
    listed = ", ".join(f"{reason} {n}" for reason, n in counts.items() if n)
    raise InputError(
      f"no training pair is left of {total} (dropped: {listed or 'none'})."
      " See config.prepare.clean, and whether the files are the right ones."
    )
  if not options.subset.pairs:
    return {"dropped": dropped}
  lines = (
    _clean_rows(context, n) + context.chunk(n).lines.start
    for n in context.train_chunks
  )
  drawn = subset.draw(options.subset, left, total, lines)
  counts["subset"] = left - options.subset.pairs
  return {"dropped": dropped, "last_drawn": drawn}


def kept_rows(context: JobContext, number: int) -> list[int]:
  """Returns the indices of lines in a chunk that cleaning and subset keep."""
  rows = _clean_rows(context, number)
  chunk = context.chunk(number)
  options = context.config.prepare.subset
  if options.pairs and context.is_train(chunk.split):
    lines = rows + chunk.lines.start
    rows = rows[subset.is_drawn(options.seed, lines, context.last_drawn)]
  return rows.tolist()


def _clean_rows(context: JobContext, number: int) -> np.ndarray:
  """Returns the indices of lines in a chunk that cleaning keeps."""
  chunk, read = context.chunk(number), context.outputs.read
  keep_P = np.frombuffer(read(f"clean/{number}", "reasons"), np.uint8) == 0
  if _finds_duplicates(context, chunk.split):
    part = f"group.{(number - context.train_chunks.start) // _GROUP}"
    for partition in range(partition_count(context)):
      lines = np.frombuffer(read(f"duplicates/{partition}", part), "<i8")
      low, high = np.searchsorted(lines, [chunk.lines.start, chunk.lines.stop])
      keep_P[lines[low:high] - chunk.lines.start] = False
  return np.flatnonzero(keep_P)
