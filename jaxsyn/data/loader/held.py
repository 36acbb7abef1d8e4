"""Columns of some examples, read from their files into memory.

Before this file: `jaxsyn.data.store.prepared`. After it: `columns`, which are
padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn.data.loader.columns import Columns
from jaxsyn.data.loader.mixture import Mixed
from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.prepared import ColumnFiles, Lengths
from jaxsyn.data.store.rows import Rows


def hold(
  files: ColumnFiles | Mixed,
  features: Sequence[str],
  number: np.ndarray | None = None,
) -> Columns:
  """Reads examples: all, or those of some numbers, in the order of these.

  Args:
    files: of the split.
    features: names of those to read.
    number: ascending, each once.

  Raises:
    InputError: a file is missing or damaged.
  """
  lengths = files.lengths if number is None else files.lengths.of(number)
  start: dict[str, np.ndarray] = {}
  by_size: dict[str, np.ndarray] = {}  # one array for features of one size
  flat = {}
  for name in features:
    size, what = _size(lengths, name)
    if what not in by_size:
      by_size[what] = np.cumsum(np.append(0, size.astype(np.int64)))
    start[name] = by_size[what]
    # As large as it will be: parts that are joined are there twice.
    flat[name] = np.empty(start[name][-1], FEATURES[name].dtype)
  for begin, rows in _parts(files, features, number):
    for name in features:
      place = start[name][begin]
      flat[name][place : place + len(rows.flat[name])] = rows.flat[name]
  return Columns(flat, start)


def _parts(
  files: ColumnFiles | Mixed, features: Sequence[str], number: np.ndarray | None
) -> Iterator[tuple[int, Rows]]:
  """(place of the first, examples), block by block."""
  if number is None:
    every = range(len(files.start) - 1)
    yield from zip(files.start.tolist(), files.read(every, features))
    return
  cut = np.searchsorted(number, files.start)
  numbers = np.flatnonzero(np.diff(cut))
  for k, rows in zip(numbers, files.read(numbers, features)):
    own = number[cut[k] : cut[k + 1]] - files.start[k]
    yield int(cut[k]), rows if len(own) == len(rows) else rows.take(own)


def _size(lengths: Lengths, feature: str) -> tuple[np.ndarray, str]:
  """How many values each example has, and a name for that."""
  side, axes = feature.partition("_")[0], FEATURES[feature].axes
  if axes in ("W", "WW"):
    words = lengths[2 + SIDES.index(side)].astype(np.int64)
    return (words if axes == "W" else words**2), f"{side} {axes}"
  if axes:
    return (lengths.source if axes == "S" else lengths.target), axes
  return np.ones(len(lengths.source), np.int64), axes
