"""Examples together: values of a feature in one array, of which each has a part.

So they are decoded (`jaxsyn.data.store.decoding`), looked at
(`jaxsyn.data.store.example_check`) and written to a disk
(`jaxsyn.data.loader.column_cache`): that is faster than arrays for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from jaxsyn.data.schema import FEATURES

TOGETHER = 128  # examples; more are slower, as they leave the processor's cache

Example = dict[str, np.ndarray]


class Rows:
  """Some examples, together.

  Attributes:
    flat: feature -> values of all examples, one after the other.
    size: feature -> how many of them each example has; int64.
  """

  def __init__(
    self, flat: Mapping[str, np.ndarray], size: Mapping[str, np.ndarray]
  ):
    self.flat, self.size = dict(flat), dict(size)

  def __len__(self) -> int:
    return len(next(iter(self.size.values())))

  def end(self, name: str) -> np.ndarray:
    """Where the values of each example end."""
    return np.cumsum(self.size[name])

  def which(self, name: str, bad: np.ndarray) -> np.ndarray:
    """Which examples hold a bad value of a feature."""
    if not bad.any():
      return np.zeros(len(self), bool)
    number = np.repeat(np.arange(len(self)), self.size[name])
    return np.bincount(number[bad], minlength=len(self)) > 0

  def examples(self) -> list[Example]:
    """Each example's arrays, by feature."""
    parts = [self._parts(name) for name in self.flat]
    return [dict(zip(self.flat, own)) for own in zip(*parts)]

  def _parts(self, name: str) -> list[np.ndarray]:
    flat = self.flat[name]
    if not FEATURES[name].axes:
      return list(flat)
    end = self.end(name).tolist()
    return [flat[a:b] for a, b in zip([0, *end], end)]


def together(examples: Iterable[Mapping[str, np.ndarray]]) -> Iterator[Rows]:
  """The same examples in the same order, some at a time.

  Args:
    examples: with the same features each.
  """
  examples = iter(examples)
  while some := list(itertools.islice(examples, TOGETHER)):
    parts = {
      name: [np.ravel(example[name]) for example in some] for name in some[0]
    }
    yield Rows(
      {name: np.concatenate(arrays) for name, arrays in parts.items()},
      {
        name: np.array(list(map(len, arrays)), np.int64)
        for name, arrays in parts.items()
      },
    )
