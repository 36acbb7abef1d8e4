"""Replaces parents in dependency trees, as if a parser had made errors.

`replace_parents` serves sampled trees (`jaxsyn.data.loader.tree_sampling`): it replaces
the parents of given words in many trees at once, with given random numbers.
`wrong_parents` serves the tree type "wrong_parents" (`controls.WrongParents`): an
exact rate of wrong parents in one tree. Both keep relations and the number of roots.

Letters: C word that may become the parent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

_TRIES = 20  # sampled parents may leave no candidates for the last words


def replace_parents(
  head_W: np.ndarray,
  words: np.ndarray,
  *,
  is_replaced_W: np.ndarray,
  random_W: np.ndarray,
) -> np.ndarray:
  """Returns trees in which selected words have random new parents (int64).

  The selected words of a tree are processed in order. The new parent of a word is
  another word that is not below it. Roots stay roots, so a line without a tree
  (each word its own root) does not change.

  Args:
    head_W: Parents in all trees, one tree after the other; a root is its own.
    words: Number of words of each tree.
    is_replaced_W: Whether to replace the parent of a word. It stays if no other
      word can be the parent.
    random_W: Integers below 2³²; their fraction of 2³² selects the new parent.
  """
  first = np.cumsum(words) - words
  shift_W = np.repeat(first, words)
  head_W = np.asarray(head_W, np.int64) + shift_W  # positions in all trees
  is_root_W = head_W == np.arange(len(head_W))
  replaced = np.flatnonzero(is_replaced_W & ~is_root_W)
  tree = np.repeat(np.arange(len(words)), words)[replaced]
  # First word of each tree together, then the second of each, and so on: each change
  # applies to the tree that the changes before it made.
  turn = np.arange(len(replaced)) - np.searchsorted(tree, tree)
  for k in range(turn.max(initial=-1) + 1):
    word_B, tree_B = replaced[turn == k], tree[turn == k]
    head_W[word_B] = _other_parents(
      head_W, word_B, first[tree_B], words=words[tree_B], random_W=random_W
    )
  return head_W - shift_W


def _other_parents(
  head_W: np.ndarray,
  word_B: np.ndarray,
  first_B: np.ndarray,
  *,
  words: np.ndarray,
  random_W: np.ndarray,
) -> np.ndarray:
  """Returns a random new parent for one word in each of several trees."""
  # From here on, W covers only the words in these trees.
  begin_B = np.cumsum(words) - words
  shift_W = np.repeat(first_B - begin_B, words)
  index_W = np.arange(words.sum()) + shift_W
  ancestor_W = head_W[index_W] - shift_W
  local_B = word_B - first_B + begin_B
  ancestor_W[local_B] = local_B  # makes the word the root of its subtree
  # Pointer doubling: after step k an ancestor is 2**k edges up, or a root.
  for _ in range(int(words.max(initial=1)).bit_length()):
    ancestor_W = ancestor_W[ancestor_W]
  is_candidate_W = ancestor_W != np.repeat(local_B, words)
  is_candidate_W[head_W[word_B] - first_B + begin_B] = False  # present parent
  candidate_C = np.flatnonzero(is_candidate_W)
  count_B = np.add.reduceat(is_candidate_W, begin_B, dtype=np.int64)
  product_B = random_W[word_B].astype(np.uint64) * count_B.astype(np.uint64)
  chosen_B = (product_B >> np.uint64(32)).astype(np.int64)
  has_any_B = count_B > 0
  parent_B = head_W[word_B]
  chosen_B += np.cumsum(count_B) - count_B
  parent_B[has_any_B] = index_W[candidate_C[chosen_B[has_any_B]]]
  return parent_B


def wrong_parents(head_W: np.ndarray, rate: float, seed: int) -> np.ndarray:
  """Returns a tree in which a given fraction of parents is wrong (int32).

  `rate * W` words, rounded up or down at random so that the expectation is exact,
  get a parent that they do not have in `head_W`. The words are sampled uniformly.
  The number of roots stays: if a root is sampled, another sampled word becomes a
  root in its place, and the old root gets a parent in the tree of the new root. So
  a root is never the only wrong word of a sentence. Any word outside the subtree of
  a word may become its new parent, with equal probability.

  Fewer words are wrong if no tree has so many: a single word, or words that are all
  roots, stay unchanged; in a tree of two words both are wrong or both right.

  Args:
    head_W: Parent of each word; a root is its own.
    rate: Share of wrong parents, 0 to 1.
    seed: Seed of the random numbers, which come from Python's Mersenne Twister (see
      `controls.random_trees`).
  """
  draw = random.Random(seed).random
  parsed = head_W.tolist()
  count = int(rate * len(parsed) + draw())
  best, most_wrong = parsed, 0
  for _ in range(_TRIES):
    heads, wrong = _with_wrong_parents(parsed, count, draw)
    if wrong > most_wrong:
      best, most_wrong = heads, wrong
    if most_wrong == count:
      break
  return np.array(best, np.int32)


def _with_wrong_parents(
  parsed: list[int], count: int, draw: Callable[[], float]
) -> tuple[list[int], int]:
  """Returns a tree with up to `count` wrong parents, and their number."""
  heads, words, wrong = [*parsed], range(len(parsed)), 0
  order = sorted(words, key=[draw() for _ in words].__getitem__)
  roots = [word for word in order[:count] if parsed[word] == word]
  candidates = [word for word in order if parsed[word] != word]
  for root in roots:
    if wrong + 2 > count or not candidates:
      break
    new = candidates.pop(0)
    heads[new] = new
    subtree = _subtree(heads, new)
    heads[root] = subtree[int(draw() * len(subtree))]
    wrong += 2
  for word in candidates:
    if wrong == count:
      break
    below = set(_subtree(heads, word))
    free = [w for w in words if w not in below and w != heads[word]]
    if free:
      heads[word] = free[int(draw() * len(free))]
      wrong += 1
  return heads, wrong


def _subtree(heads: Sequence[int], top: int) -> list[int]:
  children: list[list[int]] = [[] for _ in heads]
  for word, parent in enumerate(heads):
    if word != parent:
      children[parent].append(word)
  words = [top]
  for word in words:
    words += children[word]
  return sorted(words)
