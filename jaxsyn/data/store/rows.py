"""Ragged arrays: one flat array per feature, with the values of many examples.

Examples are encoded, decoded, checked and padded in this form, which is faster
than one array for each example. `Lengths` has the numbers of values.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import (
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from typing import NamedTuple, Self

import numpy as np

from jaxsyn.data.schema import FEATURES, SIDES, side_of

# Examples that are encoded at a time; more leave the processor's cache.
ENCODED_TOGETHER = 128

Example = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Rows:
  """Features of many examples in memory, stored as one flat array per feature.

  Attributes:
    flat: Concatenated values of all examples, by feature. Those of example i
      are flat[feature][start[feature][i] : start[feature][i + 1]].
    start: Index of the first value of each example, followed by the number of
      all values, by feature.
  """

  flat: Mapping[str, np.ndarray]
  start: Mapping[str, np.ndarray]

  @classmethod
  def of(
    cls, examples: Sequence[Mapping[str, np.ndarray]], features: Iterable[str]
  ) -> Self:
    """Creates `Rows` from a list of examples, which may be empty.

    Raises:
      TypeError: Values cannot be cast to the type of their feature.
    """
    flat, start = {}, {}
    for feature in features:
      values = [np.ravel(example[feature]) for example in examples]
      none = np.zeros(0, FEATURES[feature].dtype)
      flat[feature] = np.concatenate([none, *values]).astype(
        none.dtype, casting="same_kind", copy=False
      )
      start[feature] = np.cumsum([0, *map(len, values)])
    return cls(flat, start)

  def __len__(self) -> int:
    return len(next(iter(self.start.values()))) - 1

  @classmethod
  def joined(cls, parts: Sequence[Rows]) -> Self:
    """Concatenates the examples of several `Rows` with the same features."""
    flat, start = {}, {}
    for feature in parts[0].flat:
      flat[feature] = np.concatenate([part.flat[feature] for part in parts])
      sizes = [part.sizes(feature) for part in parts]
      start[feature] = np.cumsum(np.concatenate([[0], *sizes]))
    return cls(flat, start)

  def of_features(self, features: Iterable[str]) -> Rows:
    """Returns the same examples with only the given features."""
    names = tuple(features)
    return Rows(
      {name: self.flat[name] for name in names},
      {name: self.start[name] for name in names},
    )

  def take(self, ids: np.ndarray) -> Rows:
    """Returns the examples at the given indices, in the given order."""
    flat, start = {}, {}
    for feature, starts in self.start.items():
      begin, size = starts[ids], starts[ids + 1] - starts[ids]
      start[feature] = np.cumsum(np.append(0, size))
      shift = np.repeat(begin - start[feature][:-1], size)
      flat[feature] = self.flat[feature][shift + np.arange(len(shift))]
    return Rows(flat, start)

  def sizes(self, feature: str) -> np.ndarray:
    """Returns the number of values of a feature in each example."""
    return np.diff(self.start[feature])

  def examples_with(self, feature: str, bad: np.ndarray) -> np.ndarray:
    """Returns a mask of the examples with a feature value marked as bad."""
    row = np.searchsorted(self.start[feature], np.flatnonzero(bad), "right") - 1
    return np.isin(np.arange(len(self)), row)

  def examples(self) -> list[Example]:
    """Returns each example as a dictionary of its features."""
    parts = []
    for feature, flat in self.flat.items():
      start = self.start[feature].tolist()
      values = [flat[a:b] for a, b in itertools.pairwise(start)]
      parts.append(values if FEATURES[feature].axes else list(flat))
    return [dict(zip(self.flat, values)) for values in zip(*parts)]


class Lengths(NamedTuple):
  """Numbers of source and target subwords and words of each example.

  The arrays are integers. EOS is counted. A side without trees has 0 words.
  """

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray

  def read_by(self, features: Collection[str]) -> Lengths:
    """Returns the lengths, with word counts of 0 if word features are absent.

    A side has 0 words if no feature describes its words.
    """
    sides = {
      side_of(name) for name in features if FEATURES[name].axes in ("W", "WW")
    }
    none = np.zeros(len(self.source), np.uint8)
    words = (
      length if side in sides else none for side, length in zip(SIDES, self[2:])
    )
    return Lengths(self.source, self.target, *words)

  def of(self, ids: np.ndarray | slice) -> Lengths:
    """Returns the lengths of the examples at the given indices, as int64."""
    return Lengths(*(side[ids].astype(np.int64) for side in self))

  def sizes(self, feature: str) -> np.ndarray | None:
    """Returns the number of a feature's values in each example, int64.

    Returns None if the lengths do not determine it.
    """
    is_source = feature.startswith("source")
    words = self.source_words if is_source else self.target_words
    match FEATURES[feature].axes:
      case "":
        return np.ones(len(self.source), np.int64)
      case "S":
        return self.source.astype(np.int64)
      case "T":
        return self.target.astype(np.int64)
      case "W":
        return words.astype(np.int64)
      case "WW":
        return words.astype(np.int64) ** 2
    return None


def measure(feature: str) -> tuple[str, bool]:
  """Returns a key shared by features with the same number of values."""
  return FEATURES[feature].axes, feature.startswith("target")


def lengths_of(rows: Rows) -> Lengths:
  """Returns the subword and word counts of examples in memory."""
  subwords = [rows.sizes(f"{side}_id") for side in SIDES]
  return Lengths(*subwords, *(_words(rows, side) for side in SIDES))


def _words(rows: Rows, side: str) -> np.ndarray:
  """Returns each example's number of source or target words; 0 if unknown."""
  for name in rows.start:
    axes = FEATURES[name].axes
    if name.startswith(side) and axes in ("W", "WW"):
      sizes = rows.sizes(name)
      return sizes if axes == "W" else np.sqrt(sizes).round().astype(np.int64)
  return np.zeros(len(rows), np.int64)


class InvalidExampleError(ValueError):
  """Error for a record that is not a valid example of its dataset.

  Attributes:
    index: Index of the record among the decoded records.
    why: Description of the error.
  """

  def __init__(self, index: int, why: str):
    super().__init__(f"record {index}: {why}")
    self.index, self.why = index, why


def reject(bad: np.ndarray, why: str) -> None:
  """Raises InvalidExampleError for the first record marked as bad, if any."""
  if bad.any():
    raise InvalidExampleError(int(np.argmax(bad)), why)


def check_sizes(rows: Rows, lengths: Lengths, error: str) -> None:
  """Raises InvalidExampleError if a feature's size differs from `lengths`.

  `error` is the description of the error, which follows the name of the feature.
  """
  for name in rows.flat:
    expected = lengths.sizes(name)
    if expected is not None:
      reject(rows.sizes(name) != expected, f"{name} {error}")


def join_examples(
  examples: Iterable[Mapping[str, np.ndarray]],
) -> Iterator[Rows]:
  """Groups consecutive examples, and yields each group as `Rows`.

  A group has up to `ENCODED_TOGETHER` examples.
  """
  examples = iter(examples)
  while some := list(itertools.islice(examples, ENCODED_TOGETHER)):
    yield Rows.of(some, some[0])


def gather_runs(flat: np.ndarray, begin: np.ndarray, length: int) -> np.ndarray:
  """Returns the `length` consecutive values of `flat` that start at each index.

  The result has one axis more than `begin`. Positions after the last value have
  arbitrary values.
  """
  shape = (*begin.shape, length)
  if begin.max(initial=0) + length <= flat.size:
    # Overlapping runs as single values of many bytes: four times as fast as
    # gathering value by value.
    size, bytes_ = flat.size - length + 1, length * flat.itemsize
    runs = np.ndarray(size, f"V{bytes_}", flat, strides=flat.strides)
    return runs[begin].view(flat.dtype).reshape(shape)
  if flat.size:  # the last examples, which too few values follow
    return flat.take(begin[..., None] + np.arange(length), mode="clip")
  return np.empty(shape, flat.dtype)  # no example has a value
