"""Validates decoded examples against the manifest of their dataset.

An intact record may belong to another dataset or come from another program. The
features of a valid example can be used as indices: every id is in its
vocabulary, every word index in its sentence, and the parents form trees.

Letters: C bracket or subword of a bracketed sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxsyn.data.schema import EOS, SIDES, label_counts
from jaxsyn.data.sentence import linearise
from jaxsyn.data.store.rows import (
  Lengths,
  Rows,
  check_sizes,
  lengths_of,
  reject,
)

_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1

# Smallest and largest value of a feature, the same for all examples or not.
Bounds = tuple[int, int | np.ndarray]


def check(rows: Rows, manifest: Mapping[str, Any]) -> None:
  """Raises InvalidExampleError if one of the given examples is invalid.

  Args:
    rows: Examples with all their features.
    manifest: Manifest of their dataset.
  """
  # The order matters: later checks use values as indices that earlier checks
  # validate.
  for name in (f"{side}_id" for side in SIDES):
    reject(rows.sizes(name) == 0, f"{name} is empty; EOS is always there")
    last = rows.flat[name][rows.start[name][1:] - 1]
    reject(last != EOS, f"{name} does not end in EOS")
  lengths = lengths_of(rows)
  check_sizes(rows, lengths, "has another number of values")
  for name, bounds in _bounds(rows, manifest, lengths).items():
    if name in rows.flat:
      _check_bounds(rows, name, bounds)
  for side in SIDES:
    words = getattr(lengths, f"{side}_words")
    if f"{side}_head" in rows.flat:
      _check_trees(rows, f"{side}_head", words)
    if f"{side}_other_head" in rows.flat:
      _check_alternatives(rows, side, words)
  if "links" in rows.flat:
    reject(rows.sizes("links") % 2 > 0, "links has half a link")
  if "source_brackets" in rows.flat:
    _check_brackets(rows)


def _bounds(
  rows: Rows, manifest: Mapping[str, Any], lengths: Lengths
) -> dict[str, Bounds]:
  bounds: dict[str, Bounds] = {
    "line": (1, _INT64_MAX),
    "links": (0, _INT32_MAX),
  }
  if "source_brackets" in rows.flat:
    lowest = int(linearise.opening(len(manifest["brackets"]["source"])))
    bounds["source_brackets"] = lowest, lengths.source - 2
  for side in SIDES:
    subwords = getattr(lengths, side)
    words = getattr(lengths, f"{side}_words")
    relations = len(manifest["relations"].get(side, ()))
    of_side: dict[str, Bounds] = {
      "id": (0, manifest["vocabulary"][side]["size"] - 1),
      "word": (-1, words - 1),
      "head": (0, words - 1),
      "relation": (0, relations),
      "parent_mid": (0, subwords - 1),
      "parsed": (0, 1),
      "word_end": (0, _INT32_MAX),
      "other_head": (0, words - 1),
      "other_relation": (0, relations),
      "unit": (-1, subwords - 1),
    }
    for name, labels in label_counts(manifest, side):
      if labels:
        of_side[name] = 0, labels
    bounds |= {f"{side}_{name}": pair for name, pair in of_side.items()}
  return bounds


def _check_bounds(rows: Rows, name: str, bounds: Bounds) -> None:
  values, (low, high) = rows.flat[name], bounds
  highest = np.repeat(np.broadcast_to(high, len(rows)), rows.sizes(name))
  bad = ~((values >= low) & (values <= highest))  # NaN is bad
  if bad.any():
    first = int(np.argmax(bad))
    reject(
      rows.examples_with(name, bad),
      f"{name} must be from {low} to {highest[first]}, got {values[first]}",
    )


def _check_trees(rows: Rows, name: str, words: np.ndarray) -> None:
  """Raises InvalidExampleError unless the parents of words form trees.

  Args:
    rows: Examples, with one or several trees each.
    name: Feature with the parents of words.
    words: Number of words in each example.
  """
  head_W, size = rows.flat[name], rows.sizes(name)
  # Parents as positions among all values, shifted by offsets of their trees.
  position_W = np.arange(len(head_W))
  nth_W = position_W - np.repeat(rows.start[name][:-1], size)
  head_W = head_W + position_W - nth_W % np.repeat(np.maximum(words, 1), size)
  above_W = head_W  # doubling, as in `jaxsyn.data.sentence.tree.depth`
  for _ in range(int(words.max(initial=0)).bit_length()):
    above_W = above_W[above_W]
  reject(
    rows.examples_with(name, head_W[above_W] != above_W), f"{name} has a cycle"
  )


def _check_alternatives(rows: Rows, side: str, words: np.ndarray) -> None:
  name, label = f"{side}_other_head", f"{side}_other_relation"
  size = rows.sizes(name)
  incomplete = (size % np.maximum(words, 1) > 0) | (size > 0) & (words == 0)
  reject(incomplete, f"{name} has a part of a parse")
  reject(rows.sizes(label) != size, f"{label} has another number of values")
  _check_trees(rows, name, words)


def _check_brackets(rows: Rows) -> None:
  name = "source_brackets"
  sign_C = rows.flat[name]
  step_C = np.where(sign_C >= 0, 0, np.where(sign_C == linearise.CLOSE, -1, 1))
  depth_C = np.cumsum(step_C)
  last = np.append(0, depth_C)[rows.start[name][1:]]
  bad = (last != 0) | rows.examples_with(name, depth_C < 0)
  reject(bad, f"{name} has brackets that do not match")
