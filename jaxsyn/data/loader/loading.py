"""Functions that read examples into memory, also in a background thread."""

from __future__ import annotations

import collections
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from jaxsyn.data.schema import FEATURES, origins
from jaxsyn.data.store.dataset import Examples
from jaxsyn.data.store.rows import Rows, measure

T = TypeVar("T")
_END: Any = object()


def prefetch(items: Iterator[T], depth: int) -> Generator[T, None, None]:
  """Yields items of an iterator that a background thread computes in advance.

  Up to `depth` items are waiting. An exception of the iterator is raised in
  place of its item. Closing the generator ends the thread.
  """
  if depth <= 0:
    yield from items
    return
  pool = ThreadPoolExecutor(1, "batches")
  try:
    waiting = collections.deque(
      pool.submit(next, items, _END) for _ in range(depth)
    )
    while (item := waiting.popleft().result()) is not _END:
      waiting.append(pool.submit(next, items, _END))
      yield item
  finally:
    pool.shutdown(cancel_futures=True)


def load(
  source: Examples,
  features: Sequence[str],
  ids: np.ndarray | None = None,
  buffer: Rows | None = None,
) -> Rows:
  """Returns given features of the examples of a split, read into memory.

  Args:
    source: Examples of a split.
    features: Names of features. For computed features, their inputs are read.
    ids: Indices of the examples, ascending, each once; None for all.
    buffer: Earlier result that is not used any more; its memory is reused.

  Raises:
    InputError: A file is missing or corrupt.
  """
  features = origins(features)
  ids = np.arange(len(source)) if ids is None else ids
  lengths = source.lengths.of(ids)
  flat: dict[str, np.ndarray] = {}
  start: dict[str, np.ndarray] = {}
  start_of_size: dict[tuple[str, str], np.ndarray] = {}
  # The sizes of other features are found by reading; they are few and small.
  unknown: list[str] = []
  for name in features:
    size = lengths.sizes(name)
    if size is None:
      unknown.append(name)
      continue
    if measure(name) not in start_of_size:  # one array for features of one size
      start_of_size[measure(name)] = np.cumsum(np.append(0, size))
    start[name] = start_of_size[measure(name)]
    # In its final size, since joining parts would take twice the memory.
    flat[name] = _allocate(buffer, name, int(start[name][-1]))
  parts, begin = [Rows.of([], unknown)], 0
  for rows in source.select(ids, features):
    for name, values in flat.items():
      place = start[name][begin]
      values[place : place + len(rows.flat[name])] = rows.flat[name]
    parts.append(rows.of_features(unknown))
    begin += len(rows)
  others = Rows.joined(parts)
  return Rows({**flat, **others.flat}, {**start, **others.start})


def _allocate(buffer: Rows | None, name: str, size: int) -> np.ndarray:
  """Returns an array for values of a feature, in reused memory if possible.

  Allocating new memory for every shuffling window takes up to a third of the
  time of reading.
  """
  memory = None if buffer is None else buffer.flat[name].base
  if memory is None or memory.size < size:
    # A little more than needed, since the next window may need it.
    memory = np.empty(size + size // 16, FEATURES[name].dtype)
  return memory[:size]
