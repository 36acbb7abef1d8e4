"""Samples new parse trees in every epoch (config.data.tree="sampled").

First, one parse of a sentence is chosen, if the data has alternatives; then the
parents of some words are replaced. The result depends only on (seed, side,
epoch, index of the sentence, word), and so not on hosts, on the order of
batches or on where a run was resumed. The lengths of examples do not change.
Features that follow from parents are computed again by the functions that
prepared them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from jaxsyn.data.loader.philox import philox
from jaxsyn.data.loader.transforms import Transform, sides_of_heads
from jaxsyn.data.loader.windows import Window
from jaxsyn.data.schema import FEATURES, OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TREES, Sampled, TreeControl
from jaxsyn.data.sentence.example import replace_heads
from jaxsyn.data.sentence.noise import replace_parents
from jaxsyn.data.store.rows import Rows

_NO_WORD = 0xFFFFFFFF  # counter of numbers that belong to no word


class ResampledTrees(Transform):
  """Transform that samples new trees for each sentence in every epoch.

  Args:
    tree: Options of the sampling (config.data.tree).
    seed: Value of config.seed.
    features: Features that modifiers and losses read.
    alternatives: Sides for which the data has alternatives to the best parse.

  Attributes:
    sides: Sides whose trees are read.
    alternative_sides: Sides of which alternative parses are sampled.
  """

  def __init__(
    self,
    tree: Sampled,
    seed: int,
    features: Collection[str],
    alternatives: Collection[str] = (),
  ):
    self.tree, self._seed = tree, seed
    self._relations = [s for s in alternatives if f"{s}_relation" in features]
    heads = sides_of_heads(features)
    self.sides = tuple(s for s in SIDES if s in (*heads, *self._relations))
    self.alternative_sides = tuple(s for s in self.sides if s in alternatives)
    derived = {
      f"{side}_{name}"
      for side, name in itertools.product(self.sides, OF_HEADS[1:])
    }
    self.recomputed = frozenset(derived & {*features})

  def required(self, features: Collection[str]) -> set[str]:
    return {
      *(f"{side}_head" for side in self.sides),
      *(f"{side}_other_head" for side in self.alternative_sides),
      *(f"{side}_other_relation" for side in self._relations),
    }

  @property
  def summary(self) -> str:  # type: ignore[override]  # made of other attributes
    if not self.sides:
      name = TREES.name_of(self.tree)
      return f"config.data.tree={name!r} does nothing: no tree is read"
    parses = ""
    if self.alternative_sides:
      sides = " and ".join(self.alternative_sides)
      parses = f"one of all {sides} parses; "
    return (
      f"trees resampled in every epoch ({' and '.join(self.sides)}): {parses}"
      f"each word's parent is replaced with probability {self.tree.rate:g}"
    )

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    for side in self.sides:
      if side in self.alternative_sides:
        rows = self._sample_parses(rows, side, ids, window[0])
      head = f"{side}_head"
      words = rows.sizes(head)
      word_W = np.arange(words.sum()) - np.repeat(
        np.cumsum(words) - words, words
      )
      replace_W, parent_W = self._random(
        side, word_W, window[0], np.repeat(ids, words)
      )
      head_W = replace_parents(
        rows.flat[head],
        words,
        is_replaced_W=replace_W < self.tree.rate * 2**32,
        random_W=parent_W,
      )
      head_W = head_W.astype(FEATURES[head].dtype)
      rows = replace_heads(rows, side, head_W, self.recomputed)
    return rows

  def _sample_parses(
    self, rows: Rows, side: str, ids: np.ndarray, epoch: int
  ) -> Rows:
    """Selects one of each example's parses at random, and drops the others."""
    words = rows.sizes(f"{side}_head")
    alternatives = rows.sizes(f"{side}_other_head") // np.maximum(words, 1)
    random_number, _ = self._random(side, _NO_WORD, epoch, ids)
    count = (alternatives + 1).astype(np.uint64)
    parse = (random_number * count >> np.uint64(32)).astype(np.int64)
    flat, start = dict(rows.flat), dict(rows.start)
    for feature in ("head", "relation"):
      name, other = f"{side}_{feature}", f"{side}_other_{feature}"
      if other in flat:
        flat[name] = _values_of_parse(rows, name, other, parse)
        del flat[other], start[other]
    return Rows(flat, start)

  def _random(
    self, side: str, word: np.ndarray | int, epoch: int, ids: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns two random 32-bit numbers for each pair of word and example."""
    seed_text = f"{self._seed} {side} tree".encode()
    digest = hashlib.blake2b(seed_text, digest_size=8).digest()
    key = int.from_bytes(digest, "big")
    first, second, *_ = philox(
      (key >> 32, key & 0xFFFFFFFF),
      (word, ids & 0xFFFFFFFF, ids >> 32, epoch),
    )
    return first, second


def _values_of_parse(
  rows: Rows, name: str, other: str, parse: np.ndarray
) -> np.ndarray:
  """Returns a feature's values in the parse selected for each example.

  Args:
    rows: Examples with all parses.
    name: Feature of the best parse.
    other: Feature of the alternative parses.
    parse: Index of the parse of each example; 0 for the best.
  """
  words = rows.sizes(name)
  is_other_W = np.repeat(parse > 0, words)
  if not is_other_W.any():
    return rows.flat[name]
  first = rows.start[other][:-1] + (parse - 1) * words - rows.start[name][:-1]
  place_W = np.arange(len(is_other_W)) + np.repeat(first, words)
  values = rows.flat[other][np.where(is_other_W, place_W, 0)]
  return np.where(is_other_W, values, rows.flat[name])


def resampled_trees(
  tree: TreeControl,
  required: Collection[str],
  seed: int,
  *,
  manifest: Mapping[str, Any],
) -> ResampledTrees | None:
  """Returns a transform that resamples trees, or None if trees are fixed."""
  if not isinstance(tree, Sampled):
    return None
  return ResampledTrees(tree, seed, required, manifest.get("alternatives", ()))
