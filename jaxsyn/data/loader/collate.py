"""Pads examples to the static shape of a batch.

Training and translation pad with the same function, so their batches cannot
differ. Arrays of a batch are named side_feature_LETTERS: the feature names of
`jaxsyn.data.schema` with the axes of a batch, e.g. source_parent_mid_BS.

Letters: E eigenvector.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxsyn.data.schema import (
  ALTERNATIVES,
  COMPUTED_FROM,
  EIGENVECTORS,
  FEATURES,
  stored_names,
)
from jaxsyn.data.sentence.spectrum import eigenvectors
from jaxsyn.data.store.rows import Rows, gather_runs, measure
from jaxsyn.errors import InputError

Batch = dict[str, np.ndarray]
BatchTransform = Callable[[Batch], Batch]


@dataclasses.dataclass(frozen=True)
class Shape:
  """Static shape of a batch: number of rows, and padded lengths of both sides.

  Words have a separate size, since they may outnumber the subwords.
  """

  rows: int
  source: int
  target: int
  source_words: int = 1
  target_words: int = 1

  @property
  def positions(self) -> int:
    return self.rows * (self.source + self.target)


def collate(
  examples: Rows,
  features: Iterable[str],
  ids: np.ndarray,
  shape: Shape,
  *,
  rows: int,
) -> Batch:
  """Returns a batch of selected examples, with features padded to a shape.

  Padding is on the right.

  Args:
    examples: Examples in memory.
    features: Names of features; "links" after the units that they link.
      Alternative parses are in no batch.
    ids: Indices of the examples in the batch.
    shape: Shape of the batch: subwords and words.
    rows: Rows of the arrays: one for each example, then rows of padding.

  Raises:
    ValueError: The shape is too small for an example; no example is ever cut.
  """
  batch: Batch = {}
  # Features with equal sizes share an extent.
  extents = dict[tuple[str, bool], _Extent]()
  for feature in features:
    about = FEATURES[feature]
    if feature in ALTERNATIVES:
      continue
    if feature == "links":
      batch["links_BTS"] = _linked(examples, ids, batch)
      continue
    if feature in COMPUTED_FROM:
      array = _eigenvectors(examples, COMPUTED_FROM[feature], ids, shape, rows)
    elif not about.axes:
      array = np.full(rows, about.fill, about.dtype)
      array[: len(ids)] = examples.flat[feature][ids]
    else:
      size = measure(feature)
      if size not in extents:
        start = examples.start[feature]
        extents[size] = _extent(feature, start, ids, shape, rows)
      pad_values = _pad_squares if about.axes == "WW" else _pad_rows
      array = pad_values(examples.flat[feature], extents[size], about.fill)
    batch[f"{feature}_B{about.axes}"] = array
  return batch


class _Extent(NamedTuple):
  """Offsets, lengths and padding mask of a feature's values in a batch.

  Attributes:
    begin: Index of each example's first value.
    length: Number of values of each example; for square matrices, in each row.
    padding: Mask of padding; for square matrices bytes, 255 or 0.
  """

  begin: np.ndarray
  length: np.ndarray
  padding: np.ndarray


def _extent(
  feature: str, start: np.ndarray, ids: np.ndarray, shape: Shape, rows: int
) -> _Extent:
  axes = FEATURES[feature].axes
  length = {"S": shape.source, "T": shape.target}.get(axes)
  length = length or _words(feature, shape)
  begin = start[ids]
  length_B = start[ids + 1] - begin
  # A row of padding is an example without values. Padding these arrays for
  # every batch, with or without such rows, took 9 % of the time of reading.
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
    return _Extent(begin, length_B, _square_padding(length_B, length))
  return _Extent(begin, length_B, np.arange(length) >= length_B[:, None])


def _words(feature: str, shape: Shape) -> int:
  is_source = feature.startswith("source")
  return shape.source_words if is_source else shape.target_words


def _pad_rows(flat: np.ndarray, extent: _Extent, fill: float) -> np.ndarray:
  array = gather_runs(flat, extent.begin, extent.padding.shape[1])
  np.copyto(array, fill, where=extent.padding)
  return array


def _pad_squares(flat: np.ndarray, extent: _Extent, fill: float) -> np.ndarray:
  """Returns a batch of square matrices, padded to a common size.

  The n² values of an example are stored row by row.
  """
  length = extent.padding.shape[1]
  # First the values of an example, then its rows: memory is read in long runs.
  values = gather_runs(flat, extent.begin, length**2).reshape(-1)
  begin = np.arange(length) * extent.length[:, None]
  begin += np.arange(0, values.size, length**2)[:, None]
  array = gather_runs(values, begin, length)
  assert array.dtype == np.uint8, "bytes, which are filled by bits"
  # `copyto` with a mask takes five times as long.
  array ^= (array ^ np.uint8(fill)) & extent.padding
  return array


def _square_padding(sizes: np.ndarray, length: int) -> np.ndarray:
  """Returns the padding masks of word-by-word matrices: 255 for padding.

  Args:
    sizes: Number of words in each example.
    length: Number of words in the shape of the batch.
  """
  if length < len(sizes):  # there are fewer sizes than examples
    return _square_paddings(length).take(sizes, axis=0)
  byte = (np.arange(length) >= sizes[:, None]) * np.uint8(255)
  return byte[:, :, None] | byte[:, None, :]


@functools.lru_cache(64)  # an entry for each shape: 15 % of the time of reading
def _square_paddings(length: int) -> np.ndarray:
  """Returns one square padding mask for each size from 0 to `length` words."""
  sizes = np.arange(length + 1)
  return np.concatenate([_square_padding(sizes[[n]], length) for n in sizes])


def _linked(examples: Rows, ids: np.ndarray, batch: Batch) -> np.ndarray:
  """Returns a mask of the subword pairs whose words are aligned.

  The mask has the axes BTS and the type uint8.

  Args:
    examples: Examples in memory.
    ids: Indices of the examples in the batch.
    batch: Batch with source_unit_BS and target_unit_BT.
  """
  unit_BS, unit_BT = batch["source_unit_BS"], batch["target_unit_BT"]
  links = examples.of_features(["links"]).take(ids)
  source, target = links.flat["links"].reshape(-1, 2).T
  row = np.repeat(np.arange(len(ids)), links.sizes("links") // 2)
  # A word without a subword has no entry.
  sizes = [unit.max(initial=-1) + 1 for unit in (unit_BT, unit_BS)]
  in_range = (target < sizes[0]) & (source < sizes[1])
  # Subwords of no word (-1) index the last row or column, which is zero.
  words = np.zeros((len(unit_BS), sizes[0] + 1, sizes[1] + 1), np.uint8)
  words[row[in_range], target[in_range], source[in_range]] = 1
  row_B = np.arange(len(words))[:, None, None]
  return words[row_B, unit_BT[:, :, None], unit_BS[:, None, :]]


def _eigenvectors(
  examples: Rows, head: str, ids: np.ndarray, shape: Shape, rows: int
) -> np.ndarray:
  """Returns the Laplacian eigenvectors of a batch of parse trees, zero-padded.

  The axes are BWE. `head` is the name of the feature with the parents of words.
  """
  start, flat = examples.start[head], examples.flat[head]
  vectors = eigenvectors([flat[start[i] : start[i + 1]] for i in ids])
  size = rows, _words(head, shape), EIGENVECTORS
  vector_BWE = np.zeros(size, np.float32)
  for row, vector_WE in enumerate(vectors):
    vector_BWE[row, : len(vector_WE)] = vector_WE
  return vector_BWE


def pad(
  examples: Sequence[Mapping[str, np.ndarray]],
  features: Iterable[str],
  *,
  subwords: int,
  words: int,
  rows: int,
) -> Batch:
  """Returns a padded batch of encoded source sentences, for translation.

  Args:
    examples: Rows of `sentence.example.encode_all`, at most `rows`.
    features: Names of features of the source side.
    subwords: Subwords of a row (S).
    words: Words of a row (W).
    rows: Rows (B).

  Raises:
    ValueError: S or W is too small for an example.
  """
  features = tuple(features)
  shape = Shape(rows, subwords, target=1, source_words=words)
  loaded = Rows.of(examples, stored_names(features))
  ids = np.arange(len(examples))
  return collate(loaded, features, ids, shape, rows=rows)


def words_of(example: Mapping[str, np.ndarray], features: Iterable[str]) -> int:
  """Returns an example's number of words, derived from one of its features.

  It is 0 if no feature determines it. There may be more words than
  subwords: in Japanese and Chinese, a word may share the subword of the word
  before it.
  """
  for feature in features:
    if FEATURES[feature].axes == "W":
      return len(example[feature])
    if FEATURES[feature].axes == "WW":
      return math.isqrt(example[feature].size)
  return 0


def apply_batch_transform(
  batch: Batch, transform: BatchTransform | None
) -> Batch:
  """Applies a user-defined transform to a batch; None leaves it unchanged.

  A transform may add a matrix, for example. Double precision becomes single
  precision, in which the model computes.

  Raises:
    InputError: The transform did not return a dict of arrays with as many rows.
  """
  if transform is None:
    return batch
  rows = len(batch["source_id_BS"])
  new = transform(dict(batch))
  if not isinstance(new, dict):
    raise InputError(f"the batch transform returned {type(new).__name__}.")
  for name, array in new.items():
    array = np.asarray(array)
    if array.ndim == 0 or len(array) != rows:
      raise InputError(
        f"the batch transform made {name} of shape {array.shape}; its first "
        f"axis must be the {rows} rows of the batch."
      )
    is_double = array.dtype == np.float64
    new[name] = array.astype(np.float32) if is_double else array
  return new
