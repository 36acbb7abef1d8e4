"""Dependency trees as NumPy arrays: depths, distances, crossings.

A tree is `head_W`: the parent word of each word, from 0; a root is its own
parent. A sentence may have several roots (a forest). Heads come checked from
`jaxsyn.data.sentence.conllu`; `jaxsyn.data.sentence.example` stores what is computed here.
"""

from __future__ import annotations

import numpy as np

from jaxsyn.data.schema import FAR, NO_WORD, OTHER_TREE


def depth(head_W: np.ndarray) -> np.ndarray:
  """Edges between each word and its root; int32.

  Raises:
    ValueError: a head is no word of the sentence, or the heads hold a cycle.
  """
  head_W = _checked(head_W)
  ancestor_W = head_W
  depth_W = (head_W != np.arange(len(head_W))).astype(np.int32)
  # Doubling: after step k an ancestor is 2**k edges up, or a root.
  for _ in range(len(head_W).bit_length()):
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


def parent_mid(word_S: np.ndarray, head_W: np.ndarray) -> np.ndarray:
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

  Source: Bugliarello & Okazaki 2020 (arXiv:1909.03149), and its code for
    words of several subwords.
  """
  word_S, head_W = np.asarray(word_S), _checked(head_W)
  position_S = np.arange(len(word_S), dtype=np.float64)
  if not len(head_W):
    return position_S.astype(np.float32)
  inside_S = word_S != NO_WORD
  count_W = np.bincount(word_S[inside_S], minlength=len(head_W))
  sum_W = np.bincount(
    word_S[inside_S], position_S[inside_S], minlength=len(head_W)
  )
  mid_W = sum_W / np.maximum(count_W, 1)
  parent_W = head_W
  for _ in range(len(head_W)):
    climbs_W = (count_W[parent_W] == 0) & (head_W[parent_W] != parent_W)
    if not climbs_W.any():
      break
    parent_W = np.where(climbs_W, head_W[parent_W], parent_W)
  parent_W = np.where(count_W[parent_W] > 0, parent_W, np.arange(len(head_W)))
  result_S = np.where(inside_S, mid_W[parent_W[word_S]], position_S)
  return result_S.astype(np.float32)


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
