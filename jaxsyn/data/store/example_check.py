"""Validation of decoded examples against the manifest of their dataset.

An intact record may belong to another dataset or come from another program. The
features of a valid example can be used as indices: every id is in its
vocabulary, every word index in its sentence, and the parents form trees.
Checking many examples together takes a few microseconds for each.

Letters: C bracket or subword of a bracketed sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxsyn.data.schema import EOS, SIDES
from jaxsyn.data.sentence import linearise
from jaxsyn.data.store import manifests
from jaxsyn.data.store.decoding import InvalidExampleError
from jaxsyn.data.store.rows import Rows


class Check:
  """Validator of decoded examples from one dataset."""

  def __init__(self, manifest: Mapping[str, Any]):
    """Reads the bounds of feature values from a manifest.

    Args:
      manifest: Manifest of the dataset.
    """
    self._pieces = {s: e["size"] for s, e in manifest["vocabulary"].items()}
    self._labels = {s: len(e) for s, e in manifest["relations"].items()}
    self._brackets = len(manifest.get("brackets", {}).get("source", ()))
    self._annotations = tuple(manifest.get("annotations", ()))
    self._of_words = {
      side: dict(manifests.label_counts(manifest, side)) for side in SIDES
    }

  def __call__(self, rows: Rows) -> None:
    """Raises InvalidExampleError if one of the given examples is invalid."""
    for bad, name, why in self._faults(rows):
      if bad.any():
        raise InvalidExampleError(int(np.argmax(bad)), f"{name} {why}")

  def _faults(self, rows: Rows) -> Iterator[tuple[np.ndarray, str, str]]:
    """Yields the mask of bad examples, feature and error text of each check.

    The order matters: later checks use values as indices that earlier checks
    validate.
    """
    yield rows.flat["line"] < 1, "line", "is no line number"
    for side in SIDES:
      id_, size = f"{side}_id", rows.sizes(f"{side}_id")
      yield size == 0, id_, "is empty; EOS is always there"
      last = rows.flat[id_][rows.start[id_][1:] - 1]
      yield last != EOS, id_, "does not end in EOS"
      bad = _beyond(rows.flat[id_], self._pieces[side])
      yield rows.which(id_, bad), id_, "has an unknown id"
      if side in self._labels and f"{side}_head" in rows.flat:
        yield from self._tree(rows, side)
    if "source_brackets" in rows.flat:
      yield from self._bracketing(rows)
    if "links" in rows.flat:
      yield from self._alignment(rows)

  def _tree(
    self, rows: Rows, side: str
  ) -> Iterator[tuple[np.ndarray, str, str]]:
    word, head, relation, middle, distance, parsed = (
      f"{side}_{field}"
      for field in (
        *("word", "head", "relation"),
        *("parent_mid", "tree_distance", "parsed"),
      )
    )
    pieces, words = rows.sizes(f"{side}_id"), rows.sizes(head)
    annotations = [f"{side}_{name}" for name in self._annotations]
    for name, due in (
      (word, pieces),
      (middle, pieces),
      (relation, words),
      (distance, words * words),
      (f"{side}_word_end", words),
      *((name, words) for name in annotations),
    ):
      yield rows.sizes(name) != due, name, "has another number of values"
    for name, annotation in zip(annotations, self._annotations):
      if labels := self._of_words[side][annotation]:
        bad = _beyond(rows.flat[name], labels + 1)
        yield rows.which(name, bad), name, "has an unknown label"
    words_S = np.repeat(words, pieces)
    bad = _beyond(rows.flat[word] + 1, words_S + 1)
    yield rows.which(word, bad), word, "has a word that is not in the sentence"
    bad = _beyond(rows.flat[relation], self._labels[side] + 1)
    yield rows.which(relation, bad), relation, "has an unknown relation"
    middle_S = rows.flat[middle]  # NaN compares as false
    bad = ~((middle_S >= 0) & (middle_S <= np.repeat(pieces - 1, pieces)))
    yield (
      rows.which(middle, bad),
      middle,
      "has a place that is not in the sentence",
    )
    yield rows.flat[parsed] > 1, parsed, "is neither 0 nor 1"
    ends = f"{side}_word_end"
    bad = rows.flat[ends] < 0
    yield rows.which(ends, bad), ends, "has a negative offset"
    yield from _heads(rows, head, words)
    other, label = (f"{side}_other_{field}" for field in ("head", "relation"))
    if other in rows.flat:
      size = rows.sizes(other)
      bad = (size % np.maximum(words, 1) > 0) | (size > 0) & (words == 0)
      yield bad, other, "has a part of a parse"
      yield rows.sizes(label) != size, label, "has another number of values"
      bad = _beyond(rows.flat[label], self._labels[side] + 1)
      yield rows.which(label, bad), label, "has an unknown relation"
      yield from _heads(rows, other, words)

  def _alignment(self, rows: Rows) -> Iterator[tuple[np.ndarray, str, str]]:
    for side in SIDES:
      name, pieces = f"{side}_unit", rows.sizes(f"{side}_id")
      yield rows.sizes(name) != pieces, name, "has another number of values"
      bad = _beyond(rows.flat[name] + 1, np.repeat(pieces, pieces) + 1)
      yield rows.which(name, bad), name, "has a word beyond the subwords"
    yield rows.sizes("links") % 2 > 0, "links", "has half a link"
    bad = rows.flat["links"] < 0
    yield rows.which("links", bad), "links", "has a word before the first"

  def _bracketing(self, rows: Rows) -> Iterator[tuple[np.ndarray, str, str]]:
    name = "source_brackets"
    sign_C, size = rows.flat[name], rows.sizes(name)
    first_opening = linearise.opening(self._brackets)
    limit_C = np.repeat(rows.sizes("source_id") - 1, size)
    bad = (sign_C < first_opening) | (sign_C >= limit_C)
    yield rows.which(name, bad), name, "has an unknown sign"
    step_C = np.where(
      sign_C >= 0, 0, np.where(sign_C == linearise.CLOSE, -1, 1)
    )
    depth_C = np.cumsum(step_C)
    last = np.append(0, depth_C)[rows.start[name][1:]]
    bad = (last != 0) | rows.which(name, depth_C < 0)
    yield bad, name, "has brackets that do not match"


def _heads(
  rows: Rows, name: str, words: np.ndarray
) -> Iterator[tuple[np.ndarray, str, str]]:
  """Yields the checks that the parents of words form trees.

  Args:
    rows: Examples, with one or several trees each.
    name: Feature with the parents of words.
    words: Number of words in each example.
  """
  head_W, size = rows.flat[name], rows.sizes(name)
  words_W = np.repeat(words, size)
  bad = _beyond(head_W, words_W)
  yield rows.which(name, bad), name, "has a word that is not in the sentence"
  # Parents as positions among all values, shifted by offsets of their trees.
  nth_W = np.arange(len(head_W)) - np.repeat(rows.start[name][:-1], size)
  head_W = head_W + np.arange(len(head_W)) - nth_W % np.maximum(words_W, 1)
  above_W = head_W  # doubling, as in `jaxsyn.data.sentence.tree.depth`
  for _ in range(int(words.max(initial=0)).bit_length()):
    above_W = above_W[above_W]
  yield rows.which(name, head_W[above_W] != above_W), name, "has a cycle"


def _beyond(values: np.ndarray, end: np.ndarray | int) -> np.ndarray:
  """Returns the mask of int32 values that are negative or at least `end`."""
  return values.view(np.uint32) >= end  # negative values are large without sign
