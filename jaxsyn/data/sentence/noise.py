"""Trees with some parents replaced, as if a parser had erred there.

Of each word in turn that was drawn the parent becomes another word, any of those
under which the sentence still is a tree: none that is below the word itself.
Its relation is kept. A root has no parent, so there are as many roots as there were:
a forest stays one, whose trees may take in words of each other, and a line
without a tree (each word its own root) stays as it is.

Before this file: `tree`. After it: `jaxsyn.data.loader.tree_sampling`.

Letters: C word that may be the parent.
"""

from __future__ import annotations

import numpy as np


def noised(
  head_W: np.ndarray,
  words: np.ndarray,
  *,
  is_replaced_W: np.ndarray,
  random_W: np.ndarray,
) -> np.ndarray:
  """The heads of many trees, some replaced; all trees at a time.

  Args:
    head_W: of all trees, one after the other; a root is its own.
    words: of each tree.
    is_replaced_W: whether the parent of a word is to be replaced. Where no other
      word can be it, it stays.
    random_W: which of those it is that can, as a part of 2³²; each equally
      often if numbers of 32 bits are.

  Returns:
    new heads, int64.
  """
  first = np.cumsum(words) - words
  shift_W = np.repeat(first, words)
  head_W = np.asarray(head_W, np.int64) + shift_W  # by place among all
  is_root_W = head_W == np.arange(len(head_W))
  replaced = np.flatnonzero(is_replaced_W & ~is_root_W)
  tree = np.repeat(np.arange(len(words)), words)[replaced]
  # The first of each tree together, then the second: each in the tree that those
  # before it made.
  turn = np.arange(len(replaced)) - np.searchsorted(tree, tree)
  for k in range(turn.max(initial=-1) + 1):
    word_B, tree_B = replaced[turn == k], tree[turn == k]
    parent_B = _other_parents(
      head_W, word_B, first[tree_B], words=words[tree_B], random_W=random_W
    )
    head_W[word_B] = parent_B
  return head_W - shift_W


def _other_parents(
  head_W: np.ndarray,
  word_B: np.ndarray,
  first_B: np.ndarray,
  *,
  words: np.ndarray,
  random_W: np.ndarray,
) -> np.ndarray:
  """The new parent of one word in each of some trees, or the one that it has.

  Args:
    head_W, random_W: of all trees; see `noised`.
    word_B: the words.
    first_B, words: the first word of each of their trees, and how many it has.
  """
  # W from here on: the words of these trees alone.
  begin_B = np.cumsum(words) - words
  place_W = np.arange(words.sum()) + np.repeat(first_B - begin_B, words)
  above_W = head_W[place_W] - np.repeat(first_B - begin_B, words)
  position_B = word_B - first_B + begin_B
  above_W[position_B] = (
    position_B  # a root, for now: that of all that are below it
  )
  # Doubling: after step k a word's is 2**k edges up, or a root.
  for _ in range(int(words.max(initial=1)).bit_length()):
    above_W = above_W[above_W]
  can_W = above_W != np.repeat(position_B, words)
  can_W[head_W[word_B] - first_B + begin_B] = False  # which it has
  other_C = np.flatnonzero(can_W)
  count_B = np.add.reduceat(can_W, begin_B, dtype=np.int64)
  product_B = random_W[word_B].astype(np.uint64) * count_B.astype(np.uint64)
  chosen_B = (product_B >> np.uint64(32)).astype(np.int64)
  some_B = count_B > 0
  parent_B = head_W[word_B]
  nth_B = np.cumsum(count_B) - count_B + chosen_B
  parent_B[some_B] = place_W[other_C[nth_B[some_B]]]
  return parent_B
