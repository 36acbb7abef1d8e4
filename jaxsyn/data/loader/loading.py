"""Columns of some examples, read from their files into memory.

Before this file: `jaxsyn.data.store.prepared`. After it: `columns`, which are
padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn.data.loader.columns import Columns
from jaxsyn.data.loader.examples import Blocks
from jaxsyn.data.schema import FEATURES, origins
from jaxsyn.data.store.lengths import measure
from jaxsyn.data.store.rows import Rows


def load(
  files: Blocks,
  features: Sequence[str],
  ids: np.ndarray | None = None,
  buffer: Columns | None = None,
) -> Columns:
  """Reads examples: all, or those of some numbers, in the order of these.

  Args:
    files: of the split.
    features: names of those to read; what a batch makes is not.
    ids: ascending, each once.
    buffer: of this function too, and not used any more: its memory is taken.

  Raises:
    InputError: a file is missing or damaged.
  """
  features = origins(features)
  lengths = files.lengths if ids is None else files.lengths.of(ids)
  start: dict[str, np.ndarray] = {}
  # One array for features of one size.
  by_size: dict[tuple[str, str], np.ndarray] = {}
  flat = {}
  known = [name for name in features if lengths.sizes(name) is not None]
  # Of others it is known when they are read; there are few, and they are small.
  remaining: dict[str, list[Rows]] = {n: [] for n in features if n not in known}
  for name in known:
    if measure(name) not in by_size:
      size = lengths.sizes(name)
      assert size is not None, name
      by_size[measure(name)] = np.cumsum(np.append(0, size))
    start[name] = by_size[measure(name)]
    # As large as it will be: parts that are joined are there twice.
    flat[name] = _allocate(buffer, name, int(start[name][-1]))
  for begin, rows in _read_parts(files, features, ids):
    for name in known:
      place = start[name][begin]
      flat[name][place : place + len(rows.flat[name])] = rows.flat[name]
    for name, parts in remaining.items():
      one = {name: rows.flat[name]}, {name: rows.start[name]}
      parts.append(Rows(*one))
  for name, parts in remaining.items():
    joined = Rows.joined([Rows.of([], [name]), *parts])
    flat[name], start[name] = joined.flat[name], joined.start[name]
  return Columns(flat, start)


def _allocate(buffer: Columns | None, name: str, size: int) -> np.ndarray:
  """Memory for so many values of a feature.

  That of before where it is enough: a system that has to find new memory for
  every window spends up to a third of the time of reading on it.
  """
  room = None if buffer is None else buffer.flat[name].base
  if room is None or room.size < size:
    # A little more, since the next window may have it; till then it costs none.
    room = np.empty(size + size // 16, FEATURES[name].dtype)
  return room[:size]


def _read_parts(
  files: Blocks, features: Sequence[str], ids: np.ndarray | None
) -> Iterator[tuple[int, Rows]]:
  """(place of the first, examples), block by block."""
  if ids is None:
    blocks = range(len(files.start) - 1)
    yield from zip(files.start.tolist(), files.read(blocks, features))
    return
  cut = np.searchsorted(ids, files.start)
  numbers = np.flatnonzero(np.diff(cut))
  for k, rows in zip(numbers, files.read(numbers, features)):
    local_ids = ids[cut[k] : cut[k + 1]] - files.start[k]
    yield (
      int(cut[k]),
      rows if len(local_ids) == len(rows) else rows.take(local_ids),
    )
