"""Dependency trees as NumPy arrays: depths, distances, crossings.

A tree is `head_W`: the parent word of each word, from 0; a root is its own
parent. A sentence may have several roots (a forest). Heads come checked from
`jaxsyn.data.sentence.conllu`; `jaxsyn.data.sentence.example` stores what is computed here.

Many trees at once stand one after the other in `head_W`, and `words` says how
many words each has: NumPy takes most of its time for being called.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxsyn.data.schema import FAR, NO_WORD, OTHER_TREE

# Cells of the trees that are worked on together. What a processor has near at
# hand; with sixteen times as many it took one and a half times as long.
_CACHE = 1 << 16


def depth(head_W: np.ndarray, words: np.ndarray | None = None) -> np.ndarray:
  """Edges between each word and its root; int32.

  Args:
    head_W: of one tree, or of many.
    words: of each tree; None: it is one.

  Raises:
    ValueError: a head is no word of the sentence, or the heads hold a cycle.
  """
  head_W = _placed(head_W, words)
  ancestor_W = head_W
  depth_W = (head_W != np.arange(len(head_W))).astype(np.int32)
  # Doubling: after step k an ancestor is 2**k edges up, or a root.
  longest = len(head_W) if words is None else int(words.max(initial=0))
  for _ in range(longest.bit_length()):
    depth_W = depth_W + depth_W[ancestor_W]
    ancestor_W = ancestor_W[ancestor_W]
  if not np.array_equal(head_W[ancestor_W], ancestor_W):
    word = int(np.argmax(head_W[ancestor_W] != ancestor_W))
    raise ValueError(f"the heads form a cycle above word {word}.")
  return depth_W


def tree_distance(head_W: np.ndarray) -> np.ndarray:
  """Edges on the path between every two words; uint8, W by W.

  FAR (254) stands for 254 edges or more, OTHER_TREE (255) for no path.

  Raises:
    ValueError: see `depth`.
  """
  depth_W = depth(head_W)
  words = len(depth_W)
  # Parents first: a word's row is then its parent's row, one edge further.
  order_W = np.argsort(depth_W, kind="stable")
  place_W = np.empty(words, np.int64)
  place_W[order_W] = np.arange(words)
  parents = place_W[np.asarray(head_W, np.int64)[order_W]].tolist()
  distance_WW = np.full((words, words), OTHER_TREE, np.uint8)
  for place, parent in enumerate(parents):
    if parent != place:
      row = distance_WW[parent, :place]
      row = row + (row < FAR)  # FAR and OTHER_TREE stay what they are
      distance_WW[place, :place] = row
      distance_WW[:place, place] = row
    distance_WW[place, place] = 0
  return distance_WW[np.ix_(place_W, place_W)]


def tree_distances(head_W: np.ndarray, words: np.ndarray) -> np.ndarray:
  """`tree_distance` of many trees, row by row, one after the other; uint8.

  Trees of like size are worked on together: filled up with words that are each
  its own root, and one place in the order of all at a time.

  Args:
    head_W: of all trees.
    words: of each tree.

  Raises:
    ValueError: see `depth`.
  """
  if len(words) == 1:
    return tree_distance(head_W).reshape(-1)
  depth_W = depth(head_W, words)
  first = np.cumsum(words) - words
  size = words * words
  end = np.cumsum(size)
  distance = np.empty(size.sum(), np.uint8)
  for some in _alike(words):
    if len(some) == 1:
      one = slice(first[some[0]], first[some[0]] + words[some[0]])
      alike = tree_distance(head_W[one])[None]
    else:
      alike = _distances(
        *_filled(head_W, depth_W, first[some], words=words[some])
      )
    for i, tree_distance_WW in zip(some.tolist(), alike):
      tree_distance_WW = tree_distance_WW[: words[i], : words[i]]
      distance[end[i] - size[i] : end[i]] = tree_distance_WW.reshape(-1)
  return distance


def _alike(words: np.ndarray) -> Iterator[np.ndarray]:
  """Numbers of the trees that are worked on together, of all in turn."""
  some: list[int] = []
  for i in np.argsort(words, kind="stable").tolist():
    if some and (len(some) + 1) * words[i] ** 2 > _CACHE:
      yield np.array(some)
      some = []
    some.append(i)
  if some:
    yield np.array(some)


def _filled(
  head_W: np.ndarray,
  depth_W: np.ndarray,
  first: np.ndarray,
  *,
  words: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Heads and depths of some trees, a row a tree.

  Args:
    head_W, depth_W: of all trees.
    first: the first word of each of these.
    words: how many each has. The others are each its own root, and come last.
  """
  word_W = np.arange(words.max())
  real_BW = word_W < words[:, None]
  place_BW = np.where(real_BW, first[:, None] + word_W, 0)
  head_BW = np.where(real_BW, np.asarray(head_W)[place_BW], word_W)
  return head_BW, np.where(real_BW, depth_W[place_BW], len(word_W))


def _distances(head_BW: np.ndarray, depth_BW: np.ndarray) -> np.ndarray:
  """What `tree_distance` makes, of trees of equally many words."""
  trees, words = head_BW.shape
  tree_B, word_W = np.arange(trees), np.arange(words)
  order_BW = np.argsort(depth_BW, axis=1, kind="stable")
  place_BW = np.empty_like(order_BW)
  np.put_along_axis(place_BW, order_BW, word_W[None], axis=1)
  parent_BW = np.take_along_axis(head_BW, order_BW, axis=1)
  parent_BW = np.take_along_axis(place_BW, parent_BW, axis=1)
  distance_BWW = np.full((trees, words, words), OTHER_TREE, np.uint8)
  distance_BWW[:, word_W, word_W] = 0
  for place in range(1, words):
    # The row of a root is its own: OTHER_TREE, as far as it is made.
    row_BW = distance_BWW[tree_B, parent_BW[:, place], :place]
    row_BW += row_BW < FAR
    distance_BWW[:, place, :place] = row_BW
    distance_BWW[:, :place, place] = row_BW
  return distance_BWW[
    tree_B[:, None, None], place_BW[:, :, None], place_BW[:, None, :]
  ]


def projective(head_W: np.ndarray) -> bool:
  """Whether no edge crosses another, those from a root to the left included.

  That is the same as: between a word and its parent stand descendants of the
  parent alone. Trees of a forest side by side cross nothing.

  Raises:
    ValueError: see `depth`.
  """
  head_W = _checked(head_W)
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
  """Middle position of the parent word's subwords, per subword; float32 S.

  The middle is the mean of the positions: subwords 3 and 4 give 3.5.

  A root's subwords get their own word's middle; a subword of no word (EOS) its
  own position. A parent without any subword (a word that the vocabulary's
  normalisation deletes, or that shares its subword with the word before it, as
  in Japanese) is passed over for its own parent; where none above
  has any, the word counts as a root.

  Args:
    word_S: word of each subword; -1: none.
    head_W: parent of each word; a root is its own.
    pieces, words: how many subwords and words each tree has; None: it is one.

  Source: Bugliarello & Okazaki 2020 (arXiv:1909.03149), and its code for
    words of several subwords.
  """
  word_S = np.asarray(word_S)
  if words is None or pieces is None:
    pieces, words = np.array([len(word_S)]), np.array([len(head_W)])
  head_W = _placed(head_W, words)
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
    climbs_W = (count_W[parent_W] == 0) & (head_W[parent_W] != parent_W)
    if not climbs_W.any():
      break
    parent_W = np.where(climbs_W, head_W[parent_W], parent_W)
  parent_W = np.where(count_W[parent_W] > 0, parent_W, np.arange(len(head_W)))
  result_S = np.where(inside_S, mid_W[parent_W[word_S]], position_S)
  return result_S.astype(np.float32)


def _first(sizes: np.ndarray, repeats: np.ndarray | None = None) -> np.ndarray:
  """Where each sentence begins, for each of its words (or subwords)."""
  first = np.cumsum(sizes) - sizes
  return np.repeat(first, sizes if repeats is None else repeats)


def _placed(head_W: np.ndarray, words: np.ndarray | None) -> np.ndarray:
  """The heads as int64, each a word of its sentence, by its place among all."""
  if words is None or len(words) == 1:
    return _checked(head_W)
  head_W = np.asarray(head_W, np.int64)
  bad_W = (head_W < 0) | (head_W >= np.repeat(words, words))
  if bad_W.any():
    tree = np.repeat(np.arange(len(words)), words)[np.argmax(bad_W)]
    end = words[: tree + 1].sum()
    _checked(head_W[end - words[tree] : end])  # raises
  return head_W + _first(words)


def _checked(head_W: np.ndarray) -> np.ndarray:
  """The heads as int64, each a word of the sentence."""
  head_W = np.asarray(head_W, np.int64)
  words = len(head_W)
  if words and not (head_W.min() >= 0 and head_W.max() < words):
    raise ValueError(
      f"heads of {words} words must be from 0 to {words - 1},"
      f" got {head_W.tolist()}."
    )
  return head_W
