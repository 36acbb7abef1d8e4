"""Sampling of new parse trees in every epoch (config.data.tree="sampled").

First, one parse of a sentence is chosen, if the data has alternatives; then the
parents of some words are replaced. The result depends only on (seed, side,
epoch, index of the sentence, word), and so not on hosts, on the order of
batches or on where a run was resumed. The lengths of examples do not change, so
each host resamples the trees of its rows when it makes a batch. Features that
follow from parents are computed again by the functions that prepared them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from jaxsyn.data.loader.philox import philox
from jaxsyn.data.loader.transforms import Transform, Window
from jaxsyn.data.schema import FEATURES, MADE, OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TREES, Sampled, TreeControl
from jaxsyn.data.sentence.noise import noised
from jaxsyn.data.sentence.tree import parent_mid, tree_distances
from jaxsyn.data.store.rows import Rows

_NO_WORD = 0xFFFFFFFF  # counter of numbers that belong to no word


class ResampledTrees(Transform):
  """Transform that samples new trees for each sentence in every epoch.

  Attributes:
    tree: Options of the sampling (config.data.tree).
    sides: Sides whose trees are read.
    alternative_sides: Sides that have alternatives to the best parse.
  """

  scope: ClassVar = "batch"

  def __init__(
    self,
    tree: Sampled,
    seed: int,
    features: Collection[str],
    alternatives: Collection[str] = (),
  ):
    """Makes the transform for the features that a model reads.

    Args:
      tree: Options of the sampling (config.data.tree).
      seed: Value of config.seed.
      features: Features that modifiers and losses read.
      alternatives: Sides for which the data has alternatives to the best parse.
    """
    self.tree, self._seed = tree, seed
    stored = alternatives if tree.alternatives else ()
    relations = [s for s in _sides(features, ["relation"]) if s in stored]
    self._relations = relations
    self.sides = tuple(
      s for s in SIDES if s in (*sides_of_heads(features), *relations)
    )
    self.alternative_sides = tuple(s for s in self.sides if s in stored)
    self.recomputed = frozenset(
      name
      for name in features
      if name.partition("_")[0] in self.sides
      and name.partition("_")[2] in OF_HEADS[1:]
    )

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
    first = "one of the parses that were given of the {}, and "
    sides = first.format(" and the ".join(self.alternative_sides))
    return (
      f"trees resampled in every epoch, of the {' and the '.join(self.sides)}: "
      f"{sides if self.alternative_sides else ''}each word's parent is another with "
      f"probability {self.tree.rate:g}"
    )

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    flat, start, epoch = dict(rows.flat), dict(rows.start), window[0]
    for side in self.sides:
      head, middle, distance = (f"{side}_{feature}" for feature in OF_HEADS)
      word, words = f"{side}_word", rows.sizes(head)
      if side in self.alternative_sides:
        parse = self._parses(side, rows, epoch, ids=ids)
        for feature in ("head", "relation"):
          name, other = f"{side}_{feature}", f"{side}_other_{feature}"
          if other in flat:
            flat[name] = _values_of_parse(rows, name, other, parse=parse)
            del flat[other], start[other]
      head_W = self._heads(side, flat[head], words, epoch=epoch, ids=ids)
      flat[head] = head_W.astype(FEATURES[head].dtype)
      if middle in self.recomputed:
        flat[middle] = parent_mid(
          flat[word], head_W, pieces=rows.sizes(word), words=words
        )
        start[middle] = start[word]
      if distance in self.recomputed:
        flat[distance] = tree_distances(head_W, words)
        start[distance] = np.cumsum(np.append(0, words * words))
    return Rows(flat, start)

  def _heads(
    self,
    side: str,
    head_W: np.ndarray,
    words: np.ndarray,
    *,
    epoch: int,
    ids: np.ndarray,
  ) -> np.ndarray:
    """Returns the parents of words, with a random fraction replaced."""
    word_W = np.arange(len(head_W)) - np.repeat(np.cumsum(words) - words, words)
    id_W = np.repeat(ids, words)
    first_W, second_W = self._random(side, word_W, epoch, ids=id_W)
    is_replaced_W = first_W < self.tree.rate * 2**32
    return noised(head_W, words, is_replaced_W=is_replaced_W, random_W=second_W)

  def _parses(
    self, side: str, rows: Rows, epoch: int, *, ids: np.ndarray
  ) -> np.ndarray:
    """Returns the index of the sampled parse for each example in an epoch.

    The best parse has the index 0.
    """
    words = rows.sizes(f"{side}_head")
    alternatives = rows.sizes(f"{side}_other_head") // np.maximum(words, 1)
    random_number, _ = self._random(side, _NO_WORD, epoch, ids=ids)
    count = (alternatives + 1).astype(np.uint64)
    return (random_number * count >> np.uint64(32)).astype(np.int64)

  def _random(
    self, side: str, word: np.ndarray | int, epoch: int, *, ids: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns two random 32-bit numbers for each word of given examples.

    With `_NO_WORD` for the words, returns two numbers for each example.
    """
    seed_text = f"{self._seed} {side} tree".encode()
    digest = hashlib.blake2b(seed_text, digest_size=8).digest()
    key = int.from_bytes(digest, "big")
    first, second, *_ = philox(
      (key >> 32, key & 0xFFFFFFFF),
      (word, ids & 0xFFFFFFFF, ids >> 32, epoch),
    )
    return first, second


def _values_of_parse(
  rows: Rows, name: str, other: str, *, parse: np.ndarray
) -> np.ndarray:
  """Returns a feature's values for words in the selected parses.

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


def sides_of_heads(required: Collection[str]) -> tuple[str, ...]:
  """Returns the sides for which required features depend on parents of words.

  Args:
    required: Features that modifiers and losses read.
  """
  return _sides(required, OF_HEADS)


def _sides(
  required: Collection[str], features: Collection[str]
) -> tuple[str, ...]:
  stored = {MADE.get(name, name) for name in required}
  by_side = ({f"{side}_{needed}" for needed in features} for side in SIDES)
  return tuple(side for side, needed in zip(SIDES, by_side) if needed & stored)


def resampled_trees(
  tree: TreeControl,
  required: Collection[str],
  seed: int,
  *,
  manifest: Mapping[str, Any],
) -> ResampledTrees | None:
  """Returns the transform that resamples trees; None if trees are not sampled.

  Args:
    tree: Value of config.data.tree.
    required: Features that modifiers and losses read.
    seed: Value of config.seed.
    manifest: Manifest of the dataset directory.
  """
  if not isinstance(tree, Sampled):
    return None
  return ResampledTrees(tree, seed, required, manifest.get("alternatives", ()))
