"""Selects the training pairs: cleaning, duplicates, and the random subset.

Each line has a code: 0 if its pair is kept, otherwise that of the reason for which
it is dropped (`clean.CODES`). Repeated pairs are found by hashes, among all chunks
of lines. The subset depends on neither chunks nor processes.

Letters: P sentence pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.loader.philox import philox
from jaxsyn.data.sentence.align import visible
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean
from jaxsyn.preprocess.job import Chunk, PrepareJob
from jaxsyn.preprocess.optional import Pair
from jaxsyn.preprocess.outputs import Result, TaskOutput

_PARTITION_PAIRS = 1 << 24  # pairs whose hashes are compared at once: 0.4 GB
_BLOCK = 1 << 20  # lines that get random numbers at once


def apply_filters(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Filters the pairs of a training chunk; only checks chunks of other splits.

  For the training split, writes "codes", the code of each line; and "keys.N", the
  hashes and line indices of the kept pairs whose hash is in partition N.

  Raises:
    InputError: A line has NUL.
  """
  chunk = job.chunk(number)
  pairs = chunk.pairs()
  code_P = np.zeros(len(pairs), np.uint8)
  if chunk.is_train:
    code_P = _codes(job, pairs)
  rows = np.flatnonzero(code_P == 0)
  for row in rows.tolist():
    # UDPipe and other programs end a text at NUL. Other control characters do
    # no harm, and texts for scoring must stay as they were published.
    for side, line in zip(schema.SIDES, pairs[row]):
      if "\0" in line:
        raise InputError(
          f"{chunk.place(side, row)}: there is a NUL character in the line."
          " Remove it from the file (tr -d '\\000')."
        )
  if chunk.is_train:
    out.write("codes", code_P.tobytes())
    for partition, table in enumerate(_keys(chunk, pairs, rows)):
      out.write(f"keys.{partition}", table.tobytes())
  has_text = any(
    visible(source) and visible(target) for source, target in pairs
  )
  return {"has_text": has_text, "lines": len(pairs)}


def _codes(job: PrepareJob, pairs: Sequence[Pair]) -> np.ndarray:
  """Returns each training pair's drop-reason code, before deduplication."""
  data, prepare = job.config.data, job.config.prepare
  languages: list[str] = []
  if prepare.clean.language:
    declared = (data.source_language, data.target_language)
    languages = clean.identified_languages(declared)
  codes = (
    clean.CODES[clean.drop_reason(source, target, prepare.clean, languages)]
    for source, target in pairs
  )
  return np.fromiter(codes, np.uint8, len(pairs))


def check_texts(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  """Raises InputError if no pair of a split has text on both sides."""
  for split in job.splits:
    if any(results[n]["has_text"] for n in job.chunks(split.name)):
      continue
    source, target = (split.file_names(side) for side in schema.SIDES)
    what = f"no line taken of {source} has text, and text in {target} too"
    if not sum(job.summary("read")["counts"][split.name]["source"]):
      what = f"{source} and {target} are empty"
    raise InputError(
      f"config.prepare.splits.{split.name}: {what}. Give other files or lines."
    )
  return {}


def pair_key(pair: Pair) -> bytes:
  """Returns a 16-byte hash of a sentence pair; collisions are negligible."""
  source, target = (text.encode() for text in pair)
  size = len(source).to_bytes(8, "little")
  return hashlib.blake2b(size + source + target, digest_size=16).digest()


def _keys(
  chunk: Chunk, pairs: Sequence[Pair], rows: np.ndarray
) -> list[np.ndarray]:
  """Returns the hashes and line indices of kept pairs by hash partition."""
  partitions = partition_count(chunk.job)
  if not partitions:
    return []
  keys = b"".join(pair_key(pairs[row]) for row in rows.tolist())
  both = np.frombuffer(keys, "<u8").reshape(-1, 2)
  lines = (rows + chunk.lines.start).astype("<u8")
  table = np.column_stack([both, lines])
  part = both[:, 0] % np.uint64(partitions)
  return [table[part == i] for i in range(partitions)]


def partition_count(job: PrepareJob) -> int:
  """Returns the number of `find_duplicates` tasks, one per hash partition."""
  if not job.config.prepare.clean.duplicates:
    return 0
  return -(-len(job.line_ranges[0]) // _PARTITION_PAIRS)


def find_duplicates(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Finds repeated training pairs within one hash partition.

  Writes "lines", the line indices of all copies but the first of each pair.
  """
  tables = [
    np.frombuffer(job.outputs.read(f"clean/{chunk}", f"keys.{number}"), "<u8")
    for chunk in job.train_chunks
  ]
  one, two, lines = np.concatenate(tables).reshape(-1, 3).T
  order = np.lexsort((lines, two, one))
  is_copy = (np.diff(one[order]) == 0) & (np.diff(two[order]) == 0)
  out.write("lines", lines[order[1:][is_copy]].astype("<i8").tobytes())
  return {}


def select(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  """Selects the training pairs to keep, before the subword length limit.

  Writes "codes.N", the codes of the lines in training chunk N.

  Returns:
    "kept", the number of selected pairs.

  Raises:
    InputError: No training pair is left, or too few for the subset.
  """
  outputs, chunks = job.outputs, job.train_chunks
  prepare, lines = job.config.prepare, job.line_ranges[0]
  of_chunks = [outputs.read(f"clean/{chunk}", "codes") for chunk in chunks]
  code_P = np.frombuffer(bytearray().join(of_chunks), np.uint8)
  for number in range(len(results)):
    copies = np.frombuffer(outputs.read(f"duplicates/{number}", "lines"), "<i8")
    code_P[copies - lines.start] = clean.CODES["duplicates"]
  clean.check_left(clean.count_dropped(code_P, prepare), len(lines))
  if prepare.subset.pairs:
    _draw_subset(job, code_P)
  for number in chunks:
    of_chunk = job.chunk(number).lines
    first, stop = of_chunk.start - lines.start, of_chunk.stop - lines.start
    out.write(f"codes.{number}", code_P[first:stop].tobytes())
  return {"kept": int((code_P == 0).sum())}


def _draw_subset(job: PrepareJob, code_P: np.ndarray) -> None:
  """Drops all clean training pairs that are not in the random subset.

  Each line has a random number that depends only on the seed and its index, and
  the pairs with the lowest numbers are drawn. So for the same seed a smaller
  subset is contained in a larger one.

  Args:
    job: Preparation job.
    code_P: Code of each line of the training split; modified in place.

  Raises:
    InputError: There are fewer clean pairs than the subset needs.
  """
  pairs, clean_pairs = job.config.prepare.subset.pairs, (code_P == 0).sum()
  if pairs > clean_pairs:
    raise InputError(
      f"config.prepare.subset.pairs is {pairs:,}, but the training split has"
      f" {clean_pairs:,} clean pairs, of {len(code_P):,}. Give at most"
      f" {clean_pairs:,}, or 0 for all."
    )
  lowest = np.empty(0, np.uint64)
  for _, ranks in _ranks(job, code_P):
    lowest = np.append(lowest, ranks)
    if len(lowest) > pairs:
      lowest = np.partition(lowest, pairs - 1)[:pairs]
  last = lowest.max()
  for rows, ranks in _ranks(job, code_P):
    code_P[rows[ranks > last]] = clean.CODES["subset"]


def _ranks(
  job: PrepareJob, code_P: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Yields each block's rows that pass the filters, and their 64-bit random ranks."""
  seed, start = job.config.prepare.subset.seed, job.line_ranges[0].start
  for first in range(0, len(code_P), _BLOCK):
    rows = np.flatnonzero(code_P[first : first + _BLOCK] == 0) + first
    lines = rows + start
    high, low, *_ = philox((seed, 0), (lines & 0xFFFFFFFF, lines >> 32, 0, 0))
    yield rows, high << np.uint64(32) | low


def codes_of(job: PrepareJob, number: int) -> np.ndarray:
  """Returns the drop-reason code of each line in a chunk, from `select`."""
  chunk = job.chunk(number)
  if not chunk.is_train:
    return np.zeros(len(chunk.lines), np.uint8)
  data = job.outputs.read("summaries/duplicates", f"codes.{number}")
  return np.frombuffer(data, np.uint8)


def kept_rows(job: PrepareJob, number: int) -> list[int]:
  """Returns the indices of a chunk's lines that `select` keeps."""
  return np.flatnonzero(codes_of(job, number) == 0).tolist()
