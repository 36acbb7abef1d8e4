"""Lengths of examples: what batches are planned from."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from jaxsyn.data.schema import FEATURES, SIDES
from jaxsyn.data.store.rows import Rows

_OF_SIDE = ("W", "WW", "P", "X")  # axes whose size differs between the sides


class Lengths(NamedTuple):
  """Subwords (EOS included) and words of each example, as integer arrays.

  A side without trees has 0 words.
  """

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray

  def read_by(self, features: Collection[str]) -> Lengths:
    """Returns the lengths with 0 words on sides of which no word feature is read."""
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
    """Returns the lengths of some examples, as int64."""
    return Lengths(*(side[numbers].astype(np.int64) for side in self))

  def sizes(self, feature: str) -> np.ndarray | None:
    """Returns the number of values of a feature in each example, int64.

    None where the lengths do not determine it.
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
  """Returns a key that is equal for features with equally many values.

  It consists of the axes of the feature and, where the sides differ, the side.
  """
  axes = FEATURES[feature].axes
  return axes, feature.partition("_")[0] if axes in _OF_SIDE else ""


def lengths_of(rows: Rows) -> Lengths:
  """Returns the lengths of examples."""
  subwords = [rows.sizes(f"{side}_id") for side in SIDES]
  return Lengths(*subwords, *(_words(rows, side) for side in SIDES))


def _words(rows: Rows, side: str) -> np.ndarray:
  """Returns the words of each example, zeros if no feature determines them."""
  for name in rows.start:
    axes = FEATURES[name].axes
    if name.startswith(side) and axes in ("W", "WW"):
      sizes = rows.sizes(name)
      return sizes if axes == "W" else np.sqrt(sizes).round().astype(np.int64)
  return np.zeros(len(rows), np.int64)
