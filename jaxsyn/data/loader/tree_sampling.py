"""Trees of training pairs, drawn anew in every epoch: config.data.tree="sampled".

First one of the parses of a sentence, where more than the best are stored; then
parents of words, which are replaced by others. What is drawn follows from (seed,
side, epoch, the number of the sentence, word) alone, so nothing depends on hosts, on
the order of batches or on where a run was resumed. How long an example is does not
change by it: a batch is drawn when it is made, of the rows of its host alone. What
follows from heads is found again by the functions that found it when data was
prepared.

Before this file: `philox`, `jaxsyn.data.sentence.noise`. After it: `split`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from jaxsyn.data.loader.columns import Columns
from jaxsyn.data.loader.philox import philox
from jaxsyn.data.schema import FEATURES, MADE, OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TREES, Sampled, TreeControl
from jaxsyn.data.sentence.noise import noised
from jaxsyn.data.sentence.tree import parent_mid, tree_distances
from jaxsyn.data.store.rows import Rows

_NO_WORD = 0xFFFFFFFF  # the number of no word


@dataclasses.dataclass(frozen=True)
class TreeSampler:
  """Draws the trees of a split.

  Attributes:
    tree: config.data.tree.
    seed: config.seed.
    sides: whose trees are read.
    several: of them those of which there are more parses than the best.
    relations: of these those whose relations are read.
  """

  tree: Sampled
  seed: int
  sides: tuple[str, ...]
  alternative_sides: tuple[str, ...] = ()
  relations: tuple[str, ...] = ()

  @property
  def needed(self) -> set[str]:
    """Features that are read to draw, beside those that a system reads."""
    return {
      *(f"{side}_head" for side in self.sides),
      *(f"{side}_other_head" for side in self.alternative_sides),
      *(f"{side}_other_relation" for side in self.relations),
    }

  @property
  def summary(self) -> str:
    """What is drawn, for the reader."""
    if not self.sides:
      name = TREES.name_of(self.tree)
      return f"config.data.tree={name!r} does nothing: no tree is read"
    first = "one of the parses that were given of the {}, and "
    sides = first.format(" and the ".join(self.alternative_sides))
    return (
      f"trees drawn anew in every epoch, of the {' and the '.join(self.sides)}: "
      f"{sides if self.alternative_sides else ''}each word's parent is another with "
      f"probability {self.tree.rate:g}"
    )

  def put(
    self, columns: Columns, place: np.ndarray, epoch: int, *, ids: np.ndarray
  ) -> Columns:
    """Columns of some examples with drawn trees in the place of those stored.

    Args:
      columns: of more examples, maybe.
      place: where these are in them.
      epoch: of the run.
      ids: their numbers in the split.
    """
    made = {
      f"{side}_{feature}" for side in self.sides for feature in OF_HEADS[1:]
    }
    unchanged = {
      n: start for n, start in columns.start.items() if n not in made
    }
    rows = Rows({n: columns.flat[n] for n in unchanged}, unchanged).take(place)
    flat, start = dict(rows.flat), dict(rows.start)
    for side in self.sides:
      head, middle, distance = (f"{side}_{feature}" for feature in OF_HEADS)
      word, words = f"{side}_word", rows.sizes(head)
      if side in self.alternative_sides:
        parse = self._parses(side, rows, epoch, ids=ids)
        for feature in ("head", "relation"):
          name, other = f"{side}_{feature}", f"{side}_other_{feature}"
          if other in flat:
            flat[name] = _chosen_values(rows, name, other, parse=parse)
            del flat[other], start[other]
      head_W = self._sample(side, flat[head], words, epoch=epoch, ids=ids)
      flat[head] = head_W.astype(FEATURES[head].dtype)
      if middle in columns.flat:
        flat[middle] = parent_mid(
          flat[word], head_W, pieces=rows.sizes(word), words=words
        )
        start[middle] = start[word]
      if distance in columns.flat:
        flat[distance] = tree_distances(head_W, words)
        start[distance] = np.cumsum(np.append(0, words * words))
    return Columns(flat, start)

  def _sample(
    self,
    side: str,
    head_W: np.ndarray,
    words: np.ndarray,
    *,
    epoch: int,
    ids: np.ndarray,
  ) -> np.ndarray:
    """The heads of an epoch."""
    word_W = np.arange(len(head_W)) - np.repeat(np.cumsum(words) - words, words)
    id_W = np.repeat(ids, words)
    whether_W, which_W = self._numbers(side, word_W, epoch, ids=id_W)
    is_replaced_W = whether_W < self.tree.rate * 2**32
    return noised(head_W, words, is_replaced_W=is_replaced_W, random_W=which_W)

  def _parses(
    self, side: str, rows: Rows, epoch: int, *, ids: np.ndarray
  ) -> np.ndarray:
    """Which parse of each example it is in an epoch; 0: the best."""
    words = rows.sizes(f"{side}_head")
    alternatives = rows.sizes(f"{side}_other_head") // np.maximum(words, 1)
    random_number, _ = self._numbers(side, _NO_WORD, epoch, ids=ids)
    count = (alternatives + 1).astype(np.uint64)
    return (random_number * count >> np.uint64(32)).astype(np.int64)

  def _numbers(
    self, side: str, word: np.ndarray | int, epoch: int, *, ids: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers of 32 bits for each word of examples, or for each of these."""
    seed_text = f"{self.seed} {side} tree".encode()
    digest = hashlib.blake2b(seed_text, digest_size=8).digest()
    key = int.from_bytes(digest, "big")
    one, other, *_ = philox(
      (key >> 32, key & 0xFFFFFFFF),
      (word, ids & 0xFFFFFFFF, ids >> 32, epoch),
    )
    return one, other


def _chosen_values(
  rows: Rows, name: str, other: str, *, parse: np.ndarray
) -> np.ndarray:
  """What one of its parses says of each word.

  Args:
    rows: with all of them.
    name: of the feature that holds the best.
    other: of that which holds the others.
    parse: which, of each example; 0: the best.
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
  """Sides of which something is read that follows from words' parents.

  Args:
    required: features that parts and losses read.
  """
  return _sides(required, OF_HEADS)


def _sides(
  required: Collection[str], features: Collection[str]
) -> tuple[str, ...]:
  stored = {MADE.get(name, name) for name in required}  # of what a batch makes
  by_side = ({f"{side}_{needed}" for needed in features} for side in SIDES)
  return tuple(side for side, needed in zip(SIDES, by_side) if needed & stored)


def open_sampler(
  tree: TreeControl,
  required: Collection[str],
  seed: int,
  *,
  manifest: Mapping[str, Any],
) -> TreeSampler | None:
  """What draws; None where nothing is to be drawn.

  Args:
    tree: config.data.tree.
    required: features that parts and losses read.
    seed: config.seed.
    manifest: of the data.
  """
  if not isinstance(tree, Sampled):
    return None
  stored = manifest.get("alternatives", ()) if tree.alternatives else ()
  relations = tuple(s for s in _sides(required, ["relation"]) if s in stored)
  sides = tuple(
    s for s in SIDES if s in (*sides_of_heads(required), *relations)
  )
  alternative_sides = tuple(side for side in sides if side in stored)
  return TreeSampler(tree, seed, sides, alternative_sides, relations)
