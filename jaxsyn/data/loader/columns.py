"""All facts of a split, decoded once, as one flat array a feature.

A batch is then a few NumPy gathers instead of hundreds of small arrays. Small
splits live in memory, large ones in memory-mapped files; either way they come
from a cache beside the records, `jaxsyn.data.loader.column_cache`.

Before this file: `records` (one example at a time). After it: `batches`.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from jaxsyn.data.loader import column_cache
from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.sentence.example import retree, tagged
from jaxsyn.data.store.records import Records
from jaxsyn.data.store.rows import Example, Rows, together


class Lengths(NamedTuple):
  """Subwords, the end sign included, and words of each example."""

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray


def check_fits(name: str, size: int, length: int) -> None:
  """Raises ValueError where an array is too narrow: nothing is ever cut."""
  if size > length:
    raise ValueError(
      f"{name}: an example of {size} does not fit into an array of {length}."
    )


def _gather(
  flat: np.ndarray, where: np.ndarray, real: np.ndarray, fill
) -> np.ndarray:
  """flat[where] where that is real, else the fill."""
  fill = np.asarray(fill, flat.dtype)
  if not flat.size:  # no example has a word
    return np.broadcast_to(fill, real.shape).copy()
  return np.where(real, flat.take(where, mode="clip"), fill)


def _roots(size: np.ndarray) -> np.ndarray:
  return np.sqrt(size).round().astype(np.int64)


class Columns:
  """Ragged columns: example i of a feature is flat[start[i]:start[i + 1]]."""

  def __init__(
    self,
    flat: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
    notes: Mapping[str, int] | None = None,
    weight: np.ndarray | None = None,
  ):
    """Makes columns.

    Args:
      flat: values of all examples by feature.
      start: where each example's begin.
      notes: what was counted while the examples were made.
      weight: of each example in the loss; None: 1.
    """
    self._flat, self._start = dict(flat), dict(start)
    self._weight, self.notes = weight, dict(notes or {})

  def weighted(self, weight: np.ndarray) -> Columns:
    """The same columns where examples have weights."""
    return Columns(self._flat, self._start, self.notes, weight)

  def weights(self, ids: np.ndarray) -> np.ndarray:
    """Weights of examples in the loss; float32."""
    if self._weight is None:
      return np.ones(len(ids), np.float32)
    return self._weight[ids].astype(np.float32)

  def sizes(self, name: str) -> np.ndarray:
    """How many values each example has of a feature."""
    return np.diff(self._start[name])

  def lengths(self) -> Lengths:
    """How long each example is, for `jaxsyn.data.loader.batch_plan.Plan`."""
    subwords = [self.sizes(f"{side}_id") for side in SIDES]
    return Lengths(*subwords, *(self._words(side) for side in SIDES))

  def _words(self, side: str) -> np.ndarray:
    """Words of each example, from any feature that tells; else zeros."""
    for name in self._start:
      axes = FEATURES[name].axes
      if name.startswith(side) and axes in ("W", "WW"):
        sizes = self.sizes(name)
        return sizes if axes == "W" else _roots(sizes)
    return np.zeros_like(self.sizes(f"{side}_id"))

  def rows(self, name: str, ids: np.ndarray, length: int, fill) -> np.ndarray:
    """Examples as right-padded rows.

    Args:
      name: of the feature.
      ids: example numbers, n of them.
      length: L, at least the longest of the examples.
      fill: value of the padding.

    Returns: (n, L) in the feature's dtype.
    Raises: ValueError if an example has more than L values.
    """
    flat, start = self._flat[name], self._start[name]
    begin, own = start[ids], start[ids + 1] - start[ids]
    check_fits(name, own.max(initial=0), length)
    column = np.arange(length)
    real = column < own[:, None]
    return _gather(flat, begin[:, None] + column, real, fill)

  def squares(
    self, name: str, ids: np.ndarray, length: int, fill
  ) -> np.ndarray:
    """Examples of n² values, row-major, as padded squares.

    Returns: (len(ids), L, L) in the feature's dtype.
    Raises: ValueError if an example has more than L² values.
    """
    flat, start = self._flat[name], self._start[name]
    begin = start[ids]
    side = _roots(start[ids + 1] - begin)
    check_fits(name, side.max(initial=0), length)
    number = np.arange(length)
    real = number < side[:, None]
    where = (
      begin[:, None, None]
      + number[None, :, None] * side[:, None, None]
      + number[None, None, :]
    )
    real = real[:, :, None] & real[:, None, :]
    return _gather(flat, where, real, fill)


def open_columns(
  make: column_cache.Make,
  features: tuple[str, ...],
  cache: pathlib.Path,
  memory_gib: float,
) -> Columns:
  """The columns of a split; see `jaxsyn.data.loader.column_cache.open_cache`."""
  found = column_cache.open_cache(make, features, cache, memory_gib)
  return Columns(found.flat, found.start, found.notes)


def examples_of(
  records: Records, tree: str, seed: int, tag: int | None = None
) -> Iterator[Example]:
  """The examples of a split in order, with the trees asked for.

  Args:
    records: the opened split.
    tree: "parsed", or a control that replaces the trees of all sides that have
      any; see `jaxsyn.data.sentence.example.retree`.
    seed: of the run, for random trees.
    tag: put around each source; see `jaxsyn.data.sentence.example.tagged`.
  """
  for example in records:
    for side in SIDES:
      if tree != "parsed" and f"{side}_head" in example:
        example = retree(example, side, tree, seed)
    yield example if tag is None else tagged(example, tag)


def rows_of(
  records: Records, tree: str, seed: int, tag: int | None = None
) -> Iterator[Rows]:
  """`examples_of`, some at a time: faster where all stay as they are stored."""
  if tree == "parsed" and tag is None:
    return records.rows()
  return together(examples_of(records, tree, seed, tag))


def of_split(
  records: Records,
  features: tuple[str, ...],
  tree: str,
  seed: int,
  memory_gib: float,
  tag: int | None = None,
) -> Columns:
  """The columns of a prepared split, cached in its folder.

  Args:
    records: the opened split.
    features: names of those to keep.
    tree, seed, tag: see `examples_of`.
    memory_gib: see `jaxsyn.data.loader.column_cache`.
  """
  facts = tree_facts(tree, seed) + ([] if tag is None else [tag])
  cache = cache_of(records, features, *facts)
  return open_columns(
    lambda notes: rows_of(records, tree, seed, tag),
    features,
    cache,
    memory_gib,
  )


def tree_facts(tree: str, seed: int) -> list[str | int]:
  """What decides the trees of examples, for `cache_of`."""
  return [tree, seed] if tree == "random" else [tree]


def cache_of(
  records: Records, features: tuple[str, ...], *facts: str | int
) -> pathlib.Path:
  """Folder for columns of a prepared split.

  Args:
    records: the opened split.
    features: names of those to keep.
    *facts: all else that decides what is in it.
  """
  about = json.dumps([records.fingerprint, sorted(features), *facts])
  name = hashlib.sha256(about.encode()).hexdigest()[:16]
  return records.directory / "work" / "columns" / name
