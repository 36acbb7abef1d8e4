"""Computes depths, distances and crossing edges of dependency trees.

A tree is `head_W`: the parent of each word, from 0; a root is its own parent. A
sentence may have several roots (a forest). For many trees, `head_W` has one tree after
the other and `words` the number of words of each tree (None: one tree); calling NumPy
for each tree would take most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn.data.schema import FAR, NO_WORD, OTHER_TREE

# Entries of the distance matrices that are computed together. They fit in the cache of
# a processor; with 16 times as many it took one and a half times as long.
_CACHE = 1 << 16


def depth(
  head_W: Sequence[int] | np.ndarray, words: np.ndarray | None = None
) -> np.ndarray:
  """Returns the number of edges between each word and its root; int32.

  Raises:
    ValueError: A parent is not a word of the sentence, or the parents form a cycle.
  """
  head_W = _global_heads(head_W, words)
  ancestor_W = head_W
  depth_W = (head_W != np.arange(len(head_W))).astype(np.int32)
  # Pointer doubling: after step k an ancestor is 2**k edges up, or a root.
  longest = len(head_W) if words is None else int(words.max(initial=0))
  for _ in range(longest.bit_length()):
    depth_W = depth_W + depth_W[ancestor_W]
    ancestor_W = ancestor_W[ancestor_W]
  if not np.array_equal(head_W[ancestor_W], ancestor_W):
    word = int(np.argmax(head_W[ancestor_W] != ancestor_W))
    raise ValueError(f"the heads form a cycle above word {word}.")
  return depth_W


def tree_distance(head_W: Sequence[int] | np.ndarray) -> np.ndarray:
  """Returns the matrix with the number of edges between each pair of words.

  The type is uint8. FAR (254) means 254 edges or more, OTHER_TREE (255) no path.
  """
  words = len(head_W)
  distance = tree_distances(np.asarray(head_W), np.array([words]))
  return distance.reshape(words, words)


def tree_distances(head_W: np.ndarray, words: np.ndarray) -> np.ndarray:
  """Returns the flattened `tree_distance` matrices of many trees (uint8)."""
  depth_W = depth(head_W, words)
  first = np.cumsum(words) - words
  size = words * words
  end = np.cumsum(size)
  distance = np.empty(size.sum(), np.uint8)
  for group in _similar_sizes(words):
    # Padding words are their own roots and come last in the order of depths.
    word_W = np.arange(words[group].max())
    is_word_BW = word_W < words[group, None]
    index_BW = np.where(is_word_BW, first[group, None] + word_W, 0)
    distance_BWW = _distances(
      np.where(is_word_BW, head_W[index_BW], word_W),
      np.where(is_word_BW, depth_W[index_BW], len(word_W)),
    )
    for i, distance_WW in zip(group.tolist(), distance_BWW):
      distance_WW = distance_WW[: words[i], : words[i]]
      distance[end[i] - size[i] : end[i]] = distance_WW.reshape(-1)
  return distance


def _similar_sizes(words: np.ndarray) -> Iterator[np.ndarray]:
  """Groups trees of similar size; yields the tree indices of each group."""
  group: list[int] = []
  for i in np.argsort(words, kind="stable").tolist():
    if not words[i]:
      continue
    if group and (len(group) + 1) * words[i] ** 2 > _CACHE:
      yield np.array(group)
      group = []
    group.append(i)
  if group:
    yield np.array(group)


def _distances(head_BW: np.ndarray, depth_BW: np.ndarray) -> np.ndarray:
  """Returns the tree distance between each pair of words in padded trees."""
  trees, words = head_BW.shape
  tree_B, word_W = np.arange(trees), np.arange(words)
  # Parents first: a word's row is then its parent's row plus one edge.
  order_BW = np.argsort(depth_BW, axis=1, kind="stable")
  rank_BW = np.empty_like(order_BW)
  np.put_along_axis(rank_BW, order_BW, word_W[None], axis=1)
  parent_BW = np.take_along_axis(head_BW, order_BW, axis=1)
  parent_BW = np.take_along_axis(rank_BW, parent_BW, axis=1)
  distance_BWW = np.full((trees, words, words), OTHER_TREE, np.uint8)
  distance_BWW[:, word_W, word_W] = 0
  for rank in range(1, words):
    # A root's parent is itself: its row is still OTHER_TREE.
    row_BW = distance_BWW[tree_B, parent_BW[:, rank], :rank]
    row_BW += row_BW < FAR  # FAR and OTHER_TREE do not change
    distance_BWW[:, rank, :rank] = row_BW
    distance_BWW[:, :rank, rank] = row_BW
  return distance_BWW[
    tree_B[:, None, None], rank_BW[:, :, None], rank_BW[:, None, :]
  ]


def projective(head_W: Sequence[int] | np.ndarray) -> bool:
  """Returns whether a tree is projective: no edges cross, root edges included.

  All roots depend on an artificial root node before the first word. Equivalently,
  all words between a word and its parent are descendants of the parent. Adjacent
  trees of a forest do not cross.
  """
  head_W = _global_heads(head_W, None)
  word_W = np.arange(len(head_W))
  # An artificial word before the first is the parent of all roots.
  parent_W = np.where(head_W == word_W, -1, head_W)
  low_W, high_W = np.minimum(word_W, parent_W), np.maximum(word_W, parent_W)
  starts_inside_WW = (low_W[:, None] < low_W) & (low_W < high_W[:, None])
  ends_outside_WW = high_W[:, None] < high_W
  return not (starts_inside_WW & ends_outside_WW).any()


def parent_mid(
  word_S: np.ndarray,
  head_W: np.ndarray,
  *,
  pieces: np.ndarray | None = None,
  words: np.ndarray | None = None,
) -> np.ndarray:
  """Returns the middle position of each subword's parent word.

  The result is a float32 array with the axis S. The middle is the mean of the
  positions of a word's subwords: subwords 3 and 4 give 3.5. Subwords of a
  root get the middle of their own word, a subword without a word (EOS) its own
  position. A parent may have no subwords: normalization deletes it, or it shares a
  subword with the word before it, as in Japanese. The nearest ancestor that has any
  is then used; without one, the word counts as a root.

  Args:
    word_S: Word of each subword; -1: no word.
    head_W: Parent of each word; a root is its own.
    pieces, words: Number of subwords and words of each tree; None for one tree.

  Source: Bugliarello & Okazaki 2020 (arXiv:1909.03149), and its code for
    words of several subwords.
  """
  word_S = np.asarray(word_S)
  if words is None or pieces is None:
    pieces, words = np.array([len(word_S)]), np.array([len(head_W)])
  head_W = _global_heads(head_W, words)
  position_S = np.arange(len(word_S)) - _first(pieces)
  if not len(head_W):
    return position_S.astype(np.float32)
  inside_S = word_S != NO_WORD
  word_S = np.where(inside_S, word_S + _first(words, pieces), 0)
  count_W = np.bincount(word_S[inside_S], minlength=len(head_W))
  sum_W = np.bincount(
    word_S[inside_S], position_S[inside_S], minlength=len(head_W)
  )
  mid_W = sum_W / np.maximum(count_W, 1)
  parent_W = head_W
  for _ in range(words.max()):
    lacks_subwords_W = (count_W[parent_W] == 0) & (head_W[parent_W] != parent_W)
    if not lacks_subwords_W.any():
      break
    parent_W = np.where(lacks_subwords_W, head_W[parent_W], parent_W)
  parent_W = np.where(count_W[parent_W] > 0, parent_W, np.arange(len(head_W)))
  result_S = np.where(inside_S, mid_W[parent_W[word_S]], position_S)
  return result_S.astype(np.float32)


def _first(sizes: np.ndarray, repeats: np.ndarray | None = None) -> np.ndarray:
  """Returns the flat start index of the sentence of each word or subword."""
  first = np.cumsum(sizes) - sizes
  return np.repeat(first, sizes if repeats is None else repeats)


def _global_heads(
  head_W: Sequence[int] | np.ndarray, words: np.ndarray | None
) -> np.ndarray:
  """Checks parents and converts them to indices into the words of all trees."""
  head_W = np.asarray(head_W, np.int64)
  if words is None:
    words = np.array([len(head_W)])
  is_invalid_W = (head_W < 0) | (head_W >= np.repeat(words, words))
  if is_invalid_W.any():
    tree = np.repeat(np.arange(len(words)), words)[is_invalid_W.argmax()]
    tree_W = np.split(head_W, np.cumsum(words))[tree]
    raise ValueError(
      f"heads of {len(tree_W)} words must be from 0 to {len(tree_W) - 1},"
      f" got {tree_W.tolist()}."
    )
  return head_W + _first(words)
