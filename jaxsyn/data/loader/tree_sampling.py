"""Trees of training pairs, drawn anew in every epoch: config.data.tree="sampled".

Which words of a sentence get another parent, and which, follows from (seed, side,
epoch, its number, word) alone, so nothing depends on hosts, on the order of batches
or on where a run was resumed. How long an example is does not change by it: a
batch is drawn when it is made, of the rows of its host alone. What follows from
heads is found again by the functions that found it when data was prepared.

Before this file: `philox`, `jaxsyn.data.sentence.noise`. After it: `split`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection

import numpy as np

from jaxsyn.data.loader.columns import Columns
from jaxsyn.data.loader.philox import philox
from jaxsyn.data.schema import FEATURES, OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TREES, Sampled, Tree
from jaxsyn.data.sentence.noise import noised
from jaxsyn.data.sentence.tree import parent_mid, tree_distances
from jaxsyn.data.store.rows import Rows


@dataclasses.dataclass(frozen=True)
class TreeSampler:
  """Draws the trees of a split.

  Attributes:
    tree: config.data.tree.
    seed: config.seed.
    sides: whose trees are read.
  """

  tree: Sampled
  seed: int
  sides: tuple[str, ...]

  @property
  def needed(self) -> set[str]:
    """Features that are read to draw, beside those that a system reads."""
    return {f"{side}_head" for side in self.sides}

  @property
  def told(self) -> str:
    """What is drawn, for the reader."""
    if not self.sides:
      name = TREES.name_of(self.tree)
      return f"config.data.tree={name!r} does nothing: no tree is read"
    return (
      f"trees drawn anew in every epoch, of the {' and the '.join(self.sides)}: "
      f"each word's parent is another with probability {self.tree.rate:g}"
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
    made = {f"{side}_{own}" for side in self.sides for own in OF_HEADS[1:]}
    kept = {n: start for n, start in columns.start.items() if n not in made}
    rows = Rows({n: columns.flat[n] for n in kept}, kept).take(place)
    flat, start = dict(rows.flat), dict(rows.start)
    for side in self.sides:
      head, middle, distance = (f"{side}_{own}" for own in OF_HEADS)
      word, words = f"{side}_word", rows.sizes(head)
      head_W = self._drawn(side, flat[head], words, epoch=epoch, ids=ids)
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

  def _drawn(
    self,
    side: str,
    head_W: np.ndarray,
    words: np.ndarray,
    *,
    epoch: int,
    ids: np.ndarray,
  ) -> np.ndarray:
    """The heads of an epoch."""
    page = f"{self.seed} {side} tree".encode()
    digest = hashlib.blake2b(page, digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    word_W = np.arange(len(head_W)) - np.repeat(np.cumsum(words) - words, words)
    id_W = np.repeat(ids, words)
    whether_W, which_W, *_ = philox(
      (number >> 32, number & 0xFFFFFFFF),
      (word_W, id_W & 0xFFFFFFFF, id_W >> 32, epoch),
    )
    is_replaced_W = whether_W < self.tree.rate * 2**32
    return noised(head_W, words, is_replaced_W=is_replaced_W, number_W=which_W)


def sides_read(reads: Collection[str]) -> tuple[str, ...]:
  """The sides of whose heads something is read.

  Args:
    reads: features that parts and losses read.
  """
  return tuple(
    side for side in SIDES if any(f"{side}_{own}" in reads for own in OF_HEADS)
  )


def open_sampler(
  tree: Tree, reads: Collection[str], seed: int
) -> TreeSampler | None:
  """What draws; None where nothing is to be drawn.

  Args:
    tree: config.data.tree.
    reads: features that parts and losses read.
    seed: config.seed.
  """
  if not isinstance(tree, Sampled):
    return None
  return TreeSampler(tree, seed, sides_read(reads))
