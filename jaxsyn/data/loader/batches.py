"""Padded batches of a planned epoch, from any position, a few ahead.

Arrays are named side_fact_LETTERS: the names of `jaxsyn.data.schema` with the
axes of a batch, e.g. source_parent_mid_BS. `weight_B` is 1 for a pair, its
weight for an example of a second task, and 0 for a row of padding. No JAX here:
arrays are NumPy, on the host.

Before this file: `batch_plan` (which pairs), `columns` (their facts). After it: the
training loop.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from jaxsyn.data.loader.batch_plan import BatchPlan, Planned, Position
from jaxsyn.data.loader.columns import Columns, check_fits
from jaxsyn.data.schema import FEATURES, features
from jaxsyn.errors import InputError

Batch = dict[str, np.ndarray]
Change = Callable[[Batch], Batch]  # a caller's own function on host batches


def features_for(needs: Sequence[str], sides: Sequence[str]) -> tuple[str, ...]:
  """Names of the features a model reads.

  Args:
    needs: facts its parts and losses read, e.g. "source_parent_mid".
    sides: the sides of the data set that have trees.

  Raises:
    InputError: the data set lacks a fact; the message says how to get it.
  """
  there = features(sides)
  names = ["source_id", "target_id"]
  if unknown := sorted(set(needs) - set(FEATURES)):
    raise ValueError(f"no feature {unknown[0]!r}; see jaxsyn.data.schema.")
  if lacking := sorted(set(needs) - set(there)):
    of = sorted({need.partition("_")[0] for need in lacking})
    wanted = ",".join(f"'{side}'" for side in sorted({*sides, *of}))
    raise InputError(
      f"this system reads {', '.join(lacking)}, but the prepared data has no "
      f"trees of the {' and the '.join(of)} side. Prepare it again with "
      f'--config.prepare.parse.sides="({wanted},)".'
    )
  for need in sorted(needs):
    side = need.partition("_")[0]
    names += [f"{side}_word", f"{side}_parsed", need]
  return tuple(dict.fromkeys(names))


def assemble(
  columns: Columns,
  names: Sequence[str],
  planned: Planned,
  host: int = 0,
  hosts: int = 1,
) -> Batch:
  """The arrays of one planned batch, or of this host's share of its rows.

  Args:
    columns: facts of the split.
    names: features to fetch, see `features_for`.
    planned: which examples, in which shape.
    host, hosts: this host takes rows [host, host + 1) * rows / hosts.

  Raises:
    ValueError: the shape is too narrow for an example.
  """
  shape = planned.shape
  rows = shape.rows // hosts
  ids = planned.ids[host * rows : (host + 1) * rows]
  sizes = {
    "source": {"S": shape.source, "W": shape.source_words},
    "target": {"T": shape.target, "W": shape.target_words},
  }
  batch = {}
  for name in names:
    feature = FEATURES[name]
    if not feature.axes:
      array = columns.rows(name, ids, 1, feature.fill)[:, 0]
    else:
      length = sizes[name.partition("_")[0]][feature.axes[0]]
      read = columns.squares if feature.axes == "WW" else columns.rows
      array = read(name, ids, length, feature.fill)
    batch[f"{name}_B{feature.axes}"] = _fill_rows(array, rows, feature.fill)
  batch["weight_B"] = _fill_rows(columns.weights(ids), rows, 0.0)
  return batch


def pad(
  examples: Sequence[Mapping[str, np.ndarray]],
  names: Sequence[str],
  length: int,
  words: int,
  rows: int,
) -> Batch:
  """The same arrays for examples that are in no data set, source side only.

  Args:
    examples: of `jaxsyn.data.sentence.example.encode`, at most `rows`.
    names: features of the source side.
    length: S, at least the subwords of the longest of them.
    words: W, at least the words of the one with most of them.
    rows: B.

  Raises:
    ValueError: S or W is too small for an example.
  """
  batch, sizes = {}, {"S": length, "W": words}
  for name in names:
    feature = FEATURES[name]
    shape = (rows, *(sizes[axis] for axis in feature.axes))
    array = np.full(shape, feature.fill, feature.dtype)
    for row, example in enumerate(examples):
      value = np.asarray(example[name])
      if feature.axes == "WW":
        side = math.isqrt(value.size)
        value = value.reshape(side, side)
      for size, length in zip(value.shape, shape[1:]):
        check_fits(name, size, length)
      array[(row, *map(slice, value.shape))] = value
    batch[f"{name}_B{feature.axes}"] = array
  return batch


def words_of(example: Mapping[str, np.ndarray], names: Sequence[str]) -> int:
  """How many words an example has; 0 where no feature named tells.

  There may be more than subwords: a word that shares its subword with the one
  before it, as in Japanese and Chinese, has none of its own.
  """
  for name in names:
    if FEATURES[name].axes == "W":
      return len(example[name])
    if FEATURES[name].axes == "WW":
      return math.isqrt(example[name].size)
  return 0


def doubled(length: int, least: int) -> int:
  """The first of least, 2 · least, 4 · least, ... that holds a length.

  So that what comes in any length is padded to few.
  """
  while least < length:
    least *= 2
  return least


def changed(batch: Batch, change: Change | None) -> Batch:
  """The batch after a caller's own function, e.g. with its weighting matrix.

  Double precision becomes single, as the model computes.

  Raises:
    InputError: the function gave no dict of arrays with as many rows.
  """
  if change is None:
    return batch
  rows = len(batch["source_id_BS"])
  new = change(dict(batch))
  if not isinstance(new, dict):
    raise InputError(f"the change of a batch returned {type(new).__name__}.")
  for name, array in new.items():
    array = np.asarray(array)
    if array.ndim == 0 or len(array) != rows:
      raise InputError(
        f"the change of a batch made {name} of shape {array.shape}; its first "
        f"axis must be the {rows} rows of the batch."
      )
    single = array.dtype == np.float64
    new[name] = array.astype(np.float32) if single else array
  return new


def _fill_rows(array: np.ndarray, rows: int, fill) -> np.ndarray:
  """Appends rows of padding, so that the batch has its static shape."""
  if len(array) == rows:
    return array
  padding = np.full((rows - len(array), *array.shape[1:]), fill, array.dtype)
  return np.concatenate([array, padding])


def stream(
  columns: Columns,
  names: Sequence[str],
  plan: BatchPlan,
  start: Position,
  host: int = 0,
  hosts: int = 1,
) -> Iterator[tuple[Position, Batch]]:
  """Batches without end, from a position on.

  Yields: the position after the batch (what a checkpoint keeps), the batch.
  """
  position = start
  while True:
    planned = plan.epoch(position.epoch)[position.batch]
    position = position.next(plan)
    yield position, assemble(columns, names, planned, host, hosts)


def ahead(items: Iterator, depth: int) -> Iterator:
  """The same items, made in a thread up to `depth` before they are asked for.

  An exception of the maker is raised where the item would have come. Closing
  the generator ends the thread.
  """
  if depth <= 0:
    yield from items
    return
  box: queue.Queue = queue.Queue(depth)
  stop = threading.Event()

  def put(entry) -> bool:
    while not stop.is_set():
      try:
        box.put(entry, timeout=0.1)
        return True
      except queue.Full:
        continue
    return False

  def work():
    try:
      for item in items:
        if not put((item, None)):
          return
      put((None, StopIteration()))
    except BaseException as error:  # handed on to the reader
      put((None, error))

  thread = threading.Thread(target=work, daemon=True, name="batches")
  thread.start()
  try:
    while True:
      item, error = box.get()
      if isinstance(error, StopIteration):
        return
      if error is not None:
        raise error
      yield item
  finally:
    stop.set()
    thread.join(timeout=5.0)
