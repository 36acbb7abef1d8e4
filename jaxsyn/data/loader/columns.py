"""Examples in memory, one flat array a feature, and padded from there.

A batch is a few NumPy gathers instead of hundreds of small arrays. The columns
of a split come from its files (`held`), those of a few sentences that are in no
split from `Columns.of`; both are padded by the same function, so training and
translation cannot drift apart.

Arrays of a batch are named side_feature_LETTERS: the names of
`jaxsyn.data.schema` with the axes of a batch, e.g. source_parent_mid_BS.

Before this file: `jaxsyn.data.store.rows`. After it: `held`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.store.rows import Rows

Batch = dict[str, np.ndarray]


class Columns(Rows):
  """Examples in memory: those of a split or a window, or of one batch."""

  def padded(
    self, feature: str, ids: np.ndarray, shape: Shape, *, rows: int
  ) -> np.ndarray:
    """A feature of some examples, right-padded with its fill.

    Args:
      feature: by name.
      ids: numbers of the examples.
      shape: of the batch: its subwords and words.
      rows: of the array: one an example, then rows of padding.

    Returns:
      an array in the feature's type; its axes after the first, if any, are as
      long as the shape has them.

    Raises:
      ValueError: the shape is too narrow for an example: nothing is ever cut.
    """
    place = self._place(feature, ids, shape, rows=rows)
    return self._filled(feature, place)

  def batch(
    self,
    features: Iterable[str],
    ids: np.ndarray,
    shape: Shape,
    *,
    rows: int,
  ) -> Batch:
    """The features of some examples by their names in a batch; see `padded`."""
    batch, places = {}, dict[tuple[int, str], _Place]()
    for feature in features:
      axes = FEATURES[feature].axes
      # Features of one size, as `held` reads them, are in the same places.
      own = id(self.start[feature]), axes
      if own not in places:
        places[own] = self._place(feature, ids, shape, rows=rows)
      batch[f"{feature}_B{axes}"] = self._filled(feature, places[own])
    return batch

  def _place(
    self, feature: str, ids: np.ndarray, shape: Shape, *, rows: int
  ) -> _Place:
    start, axes = self.start[feature], FEATURES[feature].axes
    source = feature.startswith("source")
    words = shape.source_words if source else shape.target_words
    length = {"S": shape.source, "T": shape.target, "": 1}.get(axes, words)
    begin = start[ids]
    own = start[ids + 1] - begin
    # A row of padding is an example of no values. Only where there are any: to
    # copy into zeros for every batch took 9 % of the time of reading.
    if len(ids) < rows:
      begin, own = (np.pad(x, (0, rows - len(ids))) for x in (begin, own))
    if axes == "WW":
      own = _roots(own)
    if (longest := own.max(initial=0)) > length:
      raise ValueError(
        f"{feature}: an example of {longest} does not fit into an array of "
        f"{length}."
      )
    number = np.arange(length)
    if axes == "WW":  # row by row: n² values of an example of n words
      begin = begin[:, None] + np.minimum(number, own[:, None]) * own[:, None]
    return _Place(begin, number >= own[:, None])

  def _filled(self, feature: str, place: _Place) -> np.ndarray:
    flat, about = self.flat[feature], FEATURES[feature]
    begin, beyond = place
    length = beyond.shape[1]
    if begin.max(initial=0) + length <= flat.size:
      # Whole rows of so many values, of which what is beyond is then filled: in
      # half the time of gathering one by one.
      rows = (flat.size - length + 1, length)
      array = np.ndarray(rows, flat.dtype, flat, strides=flat.strides * 2)[
        begin
      ]
    elif flat.size:  # the last examples, after which there is too little
      array = flat.take(begin[..., None] + np.arange(length), mode="clip")
    else:  # no example, or none of them has a word
      array = np.empty((*begin.shape, length), flat.dtype)
    if about.axes == "WW":
      np.copyto(array, about.fill, where=beyond[:, None])
      array[beyond] = about.fill
    else:
      np.copyto(array, about.fill, where=beyond)
    return array if about.axes else array[:, 0]


class _Place(NamedTuple):
  """Where values of a batch are, for features of the same sizes.

  Attributes:
    begin: where each row of values begins; of a square, each of its rows.
    beyond: which places of each row hold none, along the last axis.
  """

  begin: np.ndarray
  beyond: np.ndarray


def _roots(size: np.ndarray) -> np.ndarray:
  return np.sqrt(size).round().astype(np.int64)


def pad(
  examples: Sequence[Mapping[str, np.ndarray]],
  features: Iterable[str],
  *,
  subwords: int,
  words: int,
  rows: int,
) -> Batch:
  """The batch of examples that are in no data set, source side only.

  Args:
    examples: of `jaxsyn.data.sentence.example.encode`, at most `rows`.
    features: of the source side.
    subwords: S, at least those of the longest of them.
    words: W, at least those of the one with most of them.
    rows: B.

  Raises:
    ValueError: S or W is too small for an example.
  """
  features = tuple(features)
  shape = Shape(rows, subwords, target=1, source_words=words)
  columns, ids = Columns.of(examples, features), np.arange(len(examples))
  return columns.batch(features, ids, shape, rows=rows)


def words_of(example: Mapping[str, np.ndarray], features: Iterable[str]) -> int:
  """How many words an example has; 0 where none of the features tells.

  There may be more than subwords: a word that shares its subword with the one
  before it, as in Japanese and Chinese, has none of its own.
  """
  for feature in features:
    if FEATURES[feature].axes == "W":
      return len(example[feature])
    if FEATURES[feature].axes == "WW":
      return math.isqrt(example[feature].size)
  return 0
