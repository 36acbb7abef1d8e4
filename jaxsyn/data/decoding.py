"""Serialised tf.train.Examples to arrays, hundreds at a time.

Values of many examples come into one array a feature, of which each example
has its part: that is faster than an array for each, and all can be looked at
together (`jaxsyn.data.example_check`). Called by `jaxsyn.data.records`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxsyn.data.schema import Feature

Example = dict[str, np.ndarray]


class NotAnExample(ValueError):
  """A record is whole, but no example of the data set.

  Attributes:
    number: which of those that were given, from 0.
    why: what is wrong with it.
  """

  def __init__(self, number: int, why: str):
    super().__init__(f"record {number}: {why}")
    self.number, self.why = number, why


class Rows:
  """Decoded examples, together.

  Attributes:
    flat: feature -> values of all examples, one after the other; not of those
      with axes "WW".
    size: feature -> how many values each example has; int64.
  """

  def __init__(
    self,
    flat: dict[str, np.ndarray],
    size: dict[str, np.ndarray],
    parts: dict[str, Sequence],
  ):
    """Makes rows.

    Args:
      flat, size: see above.
      parts: feature -> array or number of each example.
    """
    self.flat, self.size, self._parts = flat, size, parts

  def __len__(self) -> int:
    return len(next(iter(self._parts.values())))

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
    return [
      dict(zip(self._parts, parts)) for parts in zip(*self._parts.values())
    ]


def decoder(
  features: Mapping[str, Feature],
) -> Callable[[Sequence[bytes]], Rows]:
  """A function from serialised examples, at least one, to their arrays.

  Each example is what `tfds.features.FeaturesDict.deserialize_example_np` makes
  of it, about six times as fast. The function raises NotAnExample for what has
  not just these features in their types.
  """
  from google.protobuf.message import DecodeError
  from tensorflow_datasets.proto import tf_example_pb2

  parse = tf_example_pb2.Example.FromString

  def decode(payloads: Sequence[bytes]) -> Rows:
    found = []
    for number, payload in enumerate(payloads):
      try:
        found.append(parse(payload).features.feature)
      except DecodeError as error:
        raise NotAnExample(number, str(error)) from None
    _check_names(found, features)
    flat, size, parts = {}, {}, {}
    for name, feature in features.items():
      values = [one[name] for one in found]
      kind, items = _items(values, feature)
      size[name] = np.array(list(map(len, items)), np.int64)
      for number in np.flatnonzero(size[name] == 0):
        if values[number].WhichOneof("kind") not in (None, kind):
          raise NotAnExample(int(number), f"{name} has values of another type")
      single = not feature.axes or feature.axes == "WW"
      if single and (size[name] != 1).any():
        number = int(np.argmax(size[name] != 1))
        raise NotAnExample(number, f"{name} must have one value")
      if feature.axes == "WW":  # bytes, so that nothing is converted
        arrays = [np.frombuffer(raw, feature.dtype) for (raw,) in items]
        parts[name] = arrays
        size[name] = np.array(list(map(len, arrays)), np.int64)
        continue
      flat[name] = _joined(items, name, feature.dtype)
      parts[name] = (
        _cut(flat[name], size[name]) if feature.axes else list(flat[name])
      )
    _check_names(found, features)  # asking for what is not there makes it
    return Rows(flat, size, parts)

  return decode


def _check_names(found: list, features: Mapping[str, Feature]) -> None:
  for number, one in enumerate(found):
    if len(one) != len(features):
      raise NotAnExample(number, f"its features are not {', '.join(features)}")


def _items(values: list, feature: Feature) -> tuple[str, list]:
  """Which kind of list a feature is kept in, and each example's."""
  if feature.axes == "WW":
    return "bytes_list", [value.bytes_list.value for value in values]
  if feature.dtype.kind == "f":
    return "float_list", [value.float_list.value for value in values]
  return "int64_list", [value.int64_list.value for value in values]


def _joined(items: list, name: str, dtype: np.dtype) -> np.ndarray:
  try:
    return np.fromiter(itertools.chain.from_iterable(items), dtype)
  except OverflowError:
    for number, own in enumerate(items):
      try:
        np.fromiter(own, dtype)
      except OverflowError as error:
        raise NotAnExample(number, f"{name}: {error}") from None
    raise


def _cut(flat: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
  end = np.cumsum(size).tolist()
  return [flat[a:b] for a, b in zip([0, *end], end)]
