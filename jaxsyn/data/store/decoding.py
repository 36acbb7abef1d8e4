"""Serialised tf.train.Examples to arrays, hundreds at a time.

Called by `jaxsyn.data.store.records`, which has `jaxsyn.data.store.example_check` look at
what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data.schema import TEXTS, Feature
from jaxsyn.data.store.rows import Rows

Values = dict[str, list[Any]]  # of each feature, one example after the other


class InvalidExampleError(ValueError):
  """A record is whole, but no example of the data set.

  Attributes:
    number: which of those that were given, from 0.
    why: what is wrong with it.
  """

  def __init__(self, index: int, why: str):
    super().__init__(f"record {index}: {why}")
    self.number, self.why = index, why


def decoder(
  features: Mapping[str, Feature],
) -> Callable[[Sequence[bytes]], Rows]:
  """A function from serialised examples, at least one, to their arrays.

  Each example is what `tfds.features.FeaturesDict.deserialize_example_np` makes
  of it, about six times as fast, but for the texts, which are left alone. The
  function raises InvalidExampleError for what has not just these features in their types.
  """
  from google.protobuf.message import DecodeError
  from tensorflow_datasets.proto import tf_example_pb2

  parse = tf_example_pb2.Example.FromString
  kinds = {name: kind_of(feature) for name, feature in features.items()}

  def decode(payloads: Sequence[bytes]) -> Rows:
    values: Values = {name: [] for name in features}
    sizes: dict[str, list[int]] = {name: [] for name in features}
    plan = [(n, kind, values[n], sizes[n]) for n, kind in kinds.items()]
    for index, payload in enumerate(payloads):
      try:
        proto = parse(payload).features.feature
      except DecodeError as error:
        raise InvalidExampleError(index, str(error)) from None
      count = len(proto)  # before asking, which makes what is not there
      for name, kind, waiting, size in plan:
        # A list; to go through the container itself takes twice the time.
        field_values = getattr(proto[name], kind).value[:]
        if not field_values and proto[name].WhichOneof("kind") not in (
          None,
          kind,
        ):
          raise InvalidExampleError(index, f"{name} has values of another type")
        waiting += field_values
        size.append(len(field_values))
      if not count == len(proto) == len(features) + len(TEXTS) or not all(
        len(proto[name].bytes_list.value) == 1 for name in TEXTS
      ):
        known = ", ".join([*features, *TEXTS])
        raise InvalidExampleError(index, f"its features are not {known}")
    return _rows(values, sizes, features)

  return decode


def texts_of(payloads: Sequence[bytes]) -> dict[str, list[str]]:
  """What examples have for people, by name: the `TEXTS` of the schema.

  Raises:
    InvalidExampleError: a text is not UTF-8, or there is none.
  """
  from tensorflow_datasets.proto import tf_example_pb2

  texts: dict[str, list[str]] = {name: [] for name in TEXTS}
  for index, payload in enumerate(payloads):
    proto = tf_example_pb2.Example.FromString(payload).features.feature
    for name, values in texts.items():
      try:
        (value,) = proto[name].bytes_list.value
        values.append(value.decode("utf-8"))
      except ValueError as error:
        raise InvalidExampleError(
          index, f"{name} is no text: {error}"
        ) from None
  return texts


def kind_of(feature: Feature) -> str:
  """Which kind of list a feature is kept in."""
  if feature.axes == "WW":
    return "bytes_list"
  return "float_list" if feature.dtype.kind == "f" else "int64_list"


def _rows(
  values: Values,
  sizes: Mapping[str, list[int]],
  features: Mapping[str, Feature],
) -> Rows:
  flat, start = {}, {}
  for name, feature in features.items():
    parts, size = values[name], sizes[name]
    if feature.axes in ("", "WW") and set(size) != {1}:
      index = next(i for i, n in enumerate(size) if n != 1)
      raise InvalidExampleError(index, f"{name} must have one value")
    if feature.axes == "WW":  # bytes, so that nothing is converted
      size = list(map(len, parts))
    start[name] = np.cumsum([0, *size])
    if feature.axes == "WW":
      flat[name] = np.frombuffer(b"".join(parts), feature.dtype)
    else:
      flat[name] = _array(parts, start[name], name, feature.dtype)
  return Rows(flat, start)


def _array(
  values: list[Any], start: np.ndarray, name: str, dtype: np.dtype
) -> np.ndarray:
  try:
    return np.fromiter(values, dtype, len(values))
  except OverflowError:
    for index, end in enumerate(start[1:]):
      try:
        np.fromiter(values[:end], dtype)
      except OverflowError as error:
        raise InvalidExampleError(index, f"{name}: {error}") from None
    raise
