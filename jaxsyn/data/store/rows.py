"""Examples together: values of a feature in one array, of which each has a part.

They are decoded (`jaxsyn.data.store.decoding`), checked
(`jaxsyn.data.store.example_check`), encoded (`jaxsyn.data.store.encoding`) and
padded (`jaxsyn.data.loader.collate`) in this form, which is faster than one array
for each example.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np

from jaxsyn.data.schema import FEATURES

TOGETHER = 128  # examples; more are slower, as they leave the processor's cache

Example = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Rows:
  """Ragged: example i of a feature is flat[feature][start[i]:start[i + 1]].

  Attributes:
    flat: feature -> values of all examples, one after the other.
    start: feature -> where each example's begin; where the last one's end.
  """

  flat: Mapping[str, np.ndarray]
  start: Mapping[str, np.ndarray]

  @classmethod
  def of(
    cls, examples: Sequence[Mapping[str, np.ndarray]], features: Iterable[str]
  ) -> Self:
    """Examples that are at hand; maybe none.

    Raises:
      TypeError: values of another kind than the feature's.
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
    """Examples of several, one after the other; all have the same features."""
    flat, start = {}, {}
    for feature in parts[0].flat:
      flat[feature] = np.concatenate([part.flat[feature] for part in parts])
      sizes = [part.sizes(feature) for part in parts]
      start[feature] = np.cumsum(np.concatenate([[0], *sizes]))
    return cls(flat, start)

  def of_features(self, features: Iterable[str]) -> Rows:
    """Returns the same examples with these features only."""
    names = tuple(features)
    return Rows(
      {name: self.flat[name] for name in names},
      {name: self.start[name] for name in names},
    )

  def part(self, begin: int, end: int) -> Rows:
    """Examples begin to end - 1, their values not copied."""
    flat, start = {}, {}
    for feature, starts in self.start.items():
      flat[feature] = self.flat[feature][starts[begin] : starts[end]]
      start[feature] = starts[begin : end + 1] - starts[begin]
    return Rows(flat, start)

  def take(self, numbers: np.ndarray) -> Rows:
    """Some examples, by number, in that order."""
    flat, start = {}, {}
    for feature, starts in self.start.items():
      begin, size = starts[numbers], starts[numbers + 1] - starts[numbers]
      start[feature] = np.cumsum(np.append(0, size))
      shift = np.repeat(begin - start[feature][:-1], size)
      flat[feature] = self.flat[feature][shift + np.arange(len(shift))]
    return Rows(flat, start)

  def sizes(self, feature: str) -> np.ndarray:
    """How many values each example has of a feature."""
    return np.diff(self.start[feature])

  def which(self, feature: str, bad: np.ndarray) -> np.ndarray:
    """Which examples hold a bad value of a feature."""
    if not bad.any():
      return np.zeros(len(self), bool)
    row = np.repeat(np.arange(len(self)), self.sizes(feature))
    return np.bincount(row[bad], minlength=len(self)) > 0

  def examples(self) -> list[Example]:
    """Each example's arrays, by feature."""
    parts = [self._parts(feature) for feature in self.flat]
    return [dict(zip(self.flat, values)) for values in zip(*parts)]

  def _parts(self, feature: str) -> list[np.ndarray]:
    flat = self.flat[feature]
    if not FEATURES[feature].axes:
      return list(flat)
    start = self.start[feature].tolist()
    return [flat[a:b] for a, b in itertools.pairwise(start)]


def together(examples: Iterable[Mapping[str, np.ndarray]]) -> Iterator[Rows]:
  """The same examples in the same order, some at a time.

  Args:
    examples: with the same features each.
  """
  examples = iter(examples)
  while some := list(itertools.islice(examples, TOGETHER)):
    yield Rows.of(some, some[0])


def runs(flat: np.ndarray, begin: np.ndarray, length: int) -> np.ndarray:
  """Returns runs of values from some positions.

  Returns: an array with one axis more than `begin`; positions after the last value
    hold any values.
  """
  shape = (*begin.shape, length)
  if begin.max(initial=0) + length <= flat.size:
    # Overlapping runs as single values of many bytes: four times as fast as gathering
    # value by value.
    size, bytes_ = flat.size - length + 1, length * flat.itemsize
    runs = np.ndarray(size, f"V{bytes_}", flat, strides=flat.strides)
    return runs[begin].view(flat.dtype).reshape(shape)
  if flat.size:  # the last examples, which too few values follow
    return flat.take(begin[..., None] + np.arange(length), mode="clip")
  return np.empty(shape, flat.dtype)  # no example has a value
