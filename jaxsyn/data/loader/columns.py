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
    flat, start = self.flat[feature], self.start[feature]
    axes, fill = FEATURES[feature].axes, FEATURES[feature].fill
    sizes = {"S": shape.source, "T": shape.target, "": 1}
    source = feature.startswith("source")
    sizes["W"] = shape.source_words if source else shape.target_words
    length = sizes[axes[:1]]
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
    real = number < own[:, None]
    place = begin[:, None] + number
    if axes == "WW":  # row by row: n² values of an example of n words
      place = begin[:, None, None] + number[:, None] * own[:, None, None]
      place = place + number
      real = real[:, :, None] & real[:, None, :]
    none = np.asarray(fill, flat.dtype)
    if flat.size:
      array = np.where(real, flat.take(place, mode="clip"), none)
    else:  # no example, or none of them has a word
      array = np.full(real.shape, none)
    return array if axes else array[:, 0]

  def batch(
    self,
    features: Iterable[str],
    ids: np.ndarray,
    shape: Shape,
    *,
    rows: int,
  ) -> Batch:
    """The features of some examples by their names in a batch; see `padded`."""
    return {
      f"{feature}_B{FEATURES[feature].axes}": self.padded(
        feature, ids, shape, rows=rows
      )
      for feature in features
    }


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
