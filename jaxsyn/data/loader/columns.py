"""Examples in memory, one flat array a feature, and padded from there.

A batch is a few NumPy gathers instead of hundreds of small arrays. The columns
of a split come from its files (`held`), those of a few sentences that are in no
split from `Columns.of`; both are padded by the same function, so training and
translation cannot drift apart.

Arrays of a batch are named side_feature_LETTERS: the names of
`jaxsyn.data.schema` with the axes of a batch, e.g. source_parent_mid_BS.

Before this file: `jaxsyn.data.store.rows`. After it: `held`.

Letters: E eigenvector.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.schema import (
  ALTERNATIVES,
  EIGENVECTORS,
  FEATURES,
  MADE,
  origins,
)
from jaxsyn.data.sentence.spectrum import cached_eigenvectors
from jaxsyn.data.store.lengths import measure
from jaxsyn.data.store.rows import Rows

Batch = dict[str, np.ndarray]


class Columns(Rows):
  """Examples in memory: those of a split or a window, or of one batch."""

  @classmethod
  def of(
    cls, examples: Sequence[Mapping[str, np.ndarray]], features: Iterable[str]
  ) -> Self:
    """See `Rows.of`; what a batch makes is not read of them."""
    return super().of(examples, origins(features))

  def batch(
    self,
    features: Iterable[str],
    ids: np.ndarray,
    shape: Shape,
    *,
    rows: int,
  ) -> Batch:
    """The features of some examples, right-padded with their fill.

    Args:
      features: by name; "links" after the units that they link, and what a
        batch makes (`schema.MADE`) after what it is made of. Parses beside the
        best are in no batch.
      ids: numbers of the examples.
      shape: of the batch: its subwords and words.
      rows: of the arrays: one an example, then rows of padding.

    Returns:
      arrays in the features' types; their axes after the first, if any, are as
      long as the shape has them.

    Raises:
      ValueError: the shape is too narrow for an example: nothing is ever cut.
    """
    batch: Batch = {}
    places = dict[tuple[str, str], _Extent]()
    for feature in features:
      if feature in ALTERNATIVES:
        continue
      about = FEATURES[feature]
      if feature == "links":
        batch["links_BTS"] = self._linked(ids, batch)
        continue
      if feature in MADE:
        batch[f"{feature}_BWE"] = self._eigenvectors(MADE[feature], ids, batch)
        continue
      flat = self.flat[feature]
      if not about.axes:
        array = np.full(rows, about.fill, about.dtype)
        array[: len(ids)] = flat[ids]
      else:
        if (size := measure(feature)) not in places:
          places[size] = self._place(feature, ids, shape, rows=rows)
        pad = _squares if about.axes == "WW" else _rows
        array = pad(flat, places[size], about.fill)
      batch[f"{feature}_B{about.axes}"] = array
    return batch

  def _linked(self, ids: np.ndarray, batch: Batch) -> np.ndarray:
    """Which subwords are of linked words: 1 of those, else 0 (uint8, BTS).

    Args:
      ids: numbers of the examples, rows of the batch.
      batch: with source_unit_BS and target_unit_BT.
    """
    unit_BS, unit_BT = batch["source_unit_BS"], batch["target_unit_BT"]
    start = self.start["links"]
    size = (start[ids + 1] - start[ids]) // 2
    row = np.repeat(np.arange(len(ids)), size)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
    place = start[ids][row] + 2 * nth
    source, target = (self.flat["links"][place + end] for end in (0, 1))
    # Of a word that has no subword nothing can be linked.
    sizes = [unit.max(initial=-1) + 1 for unit in (unit_BT, unit_BS)]
    in_range = (target < sizes[0]) & (source < sizes[1])
    # What is of no word (-1) looks into the last row or column, of zeros.
    words = np.zeros((len(unit_BS), sizes[0] + 1, sizes[1] + 1), np.uint8)
    words[row[in_range], target[in_range], source[in_range]] = 1
    row_B = np.arange(len(words))[:, None, None]
    return words[row_B, unit_BT[:, :, None], unit_BS[:, None, :]]

  def _eigenvectors(
    self, head: str, ids: np.ndarray, batch: Batch
  ) -> np.ndarray:
    """Of the Laplacians of trees, vector_BWE; 0 where there is no word.

    Args:
      head: the feature that has the trees.
      ids: numbers of the examples, rows of the batch.
      batch: with it.
    """
    start, flat = self.start[head], self.flat[head]
    of = cached_eigenvectors([flat[start[i] : start[i + 1]] for i in ids])
    size = *batch[f"{head}_BW"].shape, EIGENVECTORS
    vector_BWE = np.zeros(size, np.float32)
    for target_WE, vector_WE in zip(vector_BWE, of):
      target_WE[: len(vector_WE)] = vector_WE
    return vector_BWE

  def _place(
    self, feature: str, ids: np.ndarray, shape: Shape, *, rows: int
  ) -> _Extent:
    start, axes = self.start[feature], FEATURES[feature].axes
    source = feature.startswith("source")
    words = shape.source_words if source else shape.target_words
    length = {"S": shape.source, "T": shape.target}.get(axes, words)
    begin = start[ids]
    length_B = start[ids + 1] - begin
    # A row of padding is an example of no values. Only where there are any: to
    # copy into zeros for every batch took 9 % of the time of reading.
    if len(ids) < rows:
      begin, length_B = (
        np.pad(x, (0, rows - len(ids))) for x in (begin, length_B)
      )
    if axes == "WW":
      length_B = np.sqrt(length_B).round().astype(np.int64)
    if (longest := length_B.max(initial=0)) > length:
      raise ValueError(
        f"{feature}: an example of {longest} does not fit into an array of "
        f"{length}."
      )
    if axes == "WW":
      return _Extent(begin, length_B, _beyond_squares(length_B, length))
    return _Extent(begin, length_B, np.arange(length) >= length_B[:, None])


class _Extent(NamedTuple):
  """Where values of a batch are, for features of the same sizes.

  Attributes:
    begin: where those of each example begin.
    own: how many an example has; of a square, in each of its rows.
    beyond: which places hold none; of squares as bytes, 255 or 0.
  """

  begin: np.ndarray
  length: np.ndarray
  beyond: np.ndarray


def _rows(flat: np.ndarray, place: _Extent, fill: float) -> np.ndarray:
  array = _runs(flat, place.begin, place.beyond.shape[1])
  np.copyto(array, fill, where=place.beyond)
  return array


def _squares(flat: np.ndarray, place: _Extent, fill: float) -> np.ndarray:
  """Of n² values each, row by row, which become the corner of length²."""
  length = place.beyond.shape[1]
  # First the values of an example, then its rows: memory is read in long runs.
  values = _runs(flat, place.begin, length**2).reshape(-1)
  begin = np.arange(length) * place.length[:, None]
  begin += np.arange(0, values.size, length**2)[:, None]
  array = _runs(values, begin, length)
  assert array.dtype == np.uint8, "bytes, which are filled by bits"
  # `copyto` looks at one after the other, and takes five times as long.
  array ^= (array ^ np.uint8(fill)) & place.beyond
  return array


def _runs(flat: np.ndarray, begin: np.ndarray, length: int) -> np.ndarray:
  """So many values from each of some places on.

  Returns:
    an array with one axis more than `begin`; what would be after the last value
    is any.
  """
  shape = (*begin.shape, length)
  if begin.max(initial=0) + length <= flat.size:
    # Each run as one value of so many bytes, all of which overlap: in a quarter
    # of the time of gathering one by one.
    size, bytes_ = flat.size - length + 1, length * flat.itemsize
    runs = np.ndarray(size, f"V{bytes_}", flat, strides=flat.strides)
    return runs[begin].view(flat.dtype).reshape(shape)
  if flat.size:  # the last examples, after which there is too little
    return flat.take(begin[..., None] + np.arange(length), mode="clip")
  return np.empty(shape, flat.dtype)  # no example, or none of them has a word


def _beyond_squares(sizes: np.ndarray, length: int) -> np.ndarray:
  """Of examples of so many words, which of length² places hold no value.

  Returns:
    uint8, 255 for those.
  """
  if length < len(sizes):  # there are fewer sizes than examples
    return _every_square(length).take(sizes, axis=0)
  beyond = np.arange(length) >= sizes[:, None]
  return (beyond[:, :, None] | beyond[:, None, :]) * np.uint8(255)


@functools.lru_cache(64)  # of a shape
def _every_square(length: int) -> np.ndarray:
  """`_beyond_squares` of examples of 0 to length words."""
  return np.concatenate(
    [_beyond_squares(np.array([n]), length) for n in range(length + 1)]
  )


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
