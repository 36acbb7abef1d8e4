"""Lengths of examples in subwords and words, from which batches are planned."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.rows import Rows

_OF_SIDE = ("W", "WW", "P", "X")  # axes whose size differs between the sides


class Lengths(NamedTuple):
  """Numbers of subwords and words of each example on both sides.

  The arrays are integers. EOS is counted. A side without trees has 0 words.
  """

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray

  def read_by(self, features: Collection[str]) -> Lengths:
    """Returns the lengths that a model with given features needs.

    A side has 0 words if none of the features is of its words.
    """
    of = {
      name.partition("_")[0]
      for name in features
      if FEATURES[name].axes in ("W", "WW")
    }
    none = np.zeros(len(self.source), np.uint8)
    words = (
      length if side in of else none for side, length in zip(SIDES, self[2:])
    )
    return Lengths(self.source, self.target, *words)

  def of(self, numbers: np.ndarray | slice) -> Lengths:
    """Returns the lengths of the examples with given indices, as int64."""
    return Lengths(*(side[numbers].astype(np.int64) for side in self))

  def sizes(self, feature: str) -> np.ndarray | None:
    """Returns the number of a feature's values in each example, int64.

    Returns None if the lengths do not determine it.
    """
    source = feature.startswith("source")
    words = self.source_words if source else self.target_words
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


def measure(feature: str) -> tuple[str, str]:
  """Returns a key that is equal for features with equal numbers of values.

  It consists of the axes of the feature and, if the sides differ, the side.
  """
  axes = FEATURES[feature].axes
  return axes, feature.partition("_")[0] if axes in _OF_SIDE else ""


def lengths_of(rows: Rows) -> Lengths:
  """Returns the subword and word counts of examples in memory."""
  subwords = [rows.sizes(f"{side}_id") for side in SIDES]
  return Lengths(*subwords, *(_words(rows, side) for side in SIDES))


def _words(rows: Rows, side: str) -> np.ndarray:
  """Returns the number of words on a side of each example; 0 if unknown."""
  for name in rows.start:
    axes = FEATURES[name].axes
    if name.startswith(side) and axes in ("W", "WW"):
      sizes = rows.sizes(name)
      return sizes if axes == "W" else np.sqrt(sizes).round().astype(np.int64)
  return np.zeros(len(rows), np.int64)
