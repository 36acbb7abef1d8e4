"""Eigenvectors of a tree's Laplacian, the same bits on every machine.

The symmetric normalised Laplacian of the undirected tree, I - D^-1/2 A D^-1/2
(Chung 1997, section 1.2; the row of a word without edges is 0). Libraries of
linear algebra give other bits on other processors, and where eigenvalues are
equal, as is common in trees, other vectors. So here are Jacobi's rotations in a
fixed order, of additions, products, quotients and roots of single numbers, which
IEEE 754 rounds alike everywhere; sums are made one after the other. And one basis
is chosen of what belongs to equal eigenvalues.

Letters: E eigenvector that is kept.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Sequence

import numpy as np

from jaxsyn.data.schema import EIGENVECTORS

_SMALL = 1e-13  # beside the diagonal, it is 0: numbers there are 1 at most
_SWEEPS = 60  # eight or so are needed
_EQUAL = 1e-9  # eigenvalues that are no further apart are equal
_SEEN = 1e-4  # the square of a component that counts
_DIGITS = 6
_CACHE = 1 << 14  # cells that are worked on together: what is near at hand
_CACHED_TREES = 1 << 28  # bytes of vectors that are remembered


def eigenvectors(
  heads: Sequence[np.ndarray], count: int = EIGENVECTORS
) -> list[np.ndarray]:
  """Those of the smallest eigenvalues above 0, of some trees.

  A tree has one eigenvalue 0, a forest one for each of its trees; their vectors
  say nothing and are left out. Of equal eigenvalues, the first vector is what is
  left of the first word that it does not pass by, the next one of the next such
  word after that, and so on; so the first component of each is positive, and
  vectors of two trees of a forest do not mix. Components up to 0.01 count as 0
  in this, and all are rounded to six digits.

  Args:
    heads: head_W of each, as in `jaxsyn.data.sentence.tree`.
    count: E.

  Returns: of each tree vector_WE, float32, of length 1 along W; where it has less
    than E of them, the others are 0.
  """
  vectors = [np.zeros((len(head_W), count), np.float32) for head_W in heads]
  order = sorted(range(len(heads)), key=lambda i: len(heads[i]))
  some: list[int] = []
  for i in [*order, None]:
    if some and (i is None or (len(some) + 1) * len(heads[i]) ** 2 > _CACHE):
      for j, vector_EW in zip(some, _compute([heads[j] for j in some], count)):
        vectors[j][:] = vector_EW[:, : len(heads[j])].T
      some = []
    if i is not None and len(heads[i]) > 1:
      some.append(i)
  return vectors


class EigenvectorCache:
  """`eigenvectors`, made once of each tree while there is room.

  Args:
    most: bytes of vectors that are kept; those asked for longest ago go first.
  """

  def __init__(self, max_trees: int = _CACHED_TREES):
    self._room = max_trees
    self._of: collections.OrderedDict[bytes, np.ndarray] = (
      collections.OrderedDict()
    )
    self._lock = threading.Lock()

  def __call__(self, heads: Sequence[np.ndarray]) -> list[np.ndarray]:
    """vector_WE of each tree; not to be written to."""
    keys = [np.asarray(head_W, "<i4").tobytes() for head_W in heads]
    with self._lock:
      known = {key: self._of[key] for key in keys if key in self._of}
    new = {key: head for key, head in zip(keys, heads) if key not in known}
    known |= zip(new, eigenvectors([*new.values()]))
    with self._lock:
      for key in keys:
        if key not in self._of:
          self._room -= known[key].nbytes
        self._of[key] = known[key]
        self._of.move_to_end(key)
      while self._room < 0:
        self._room += self._of.popitem(last=False)[1].nbytes
    return [known[key] for key in keys]


cached_eigenvectors = EigenvectorCache()


def _compute(heads: Sequence[np.ndarray], count: int) -> np.ndarray:
  """vector_BEW of trees of about the same size."""
  words_B = np.array([len(head_W) for head_W in heads])
  longest, trees = int(words_B.max()), len(heads)
  value_WWB = np.zeros((longest, longest, trees))
  roots_B = np.zeros(trees, np.int64)
  for b, head_W in enumerate(heads):
    word_W = np.arange(len(head_W))
    is_root_W = head_W == word_W
    roots_B[b] = is_root_W.sum()
    child_W, parent_W = word_W[~is_root_W], np.asarray(head_W)[~is_root_W]
    value_WWB[child_W, parent_W, b] = value_WWB[parent_W, child_W, b] = 1
  degree_WB = value_WWB.sum(axis=0)  # whole numbers: in any order
  scale_WB = np.sqrt(np.maximum(degree_WB, 1))
  value_WWB /= -(scale_WB[:, None] * scale_WB[None])
  # Words that are none come last of all: eigenvalues are 2 at most.
  word_W1 = np.arange(longest)[:, None]
  diagonal_WB = np.where(word_W1 < words_B, degree_WB > 0, 3.0)
  value_WWB[np.arange(longest), np.arange(longest)] = diagonal_WB
  value_WB, vector_WWB = _jacobi(value_WWB)
  order_WB = np.argsort(value_WB, axis=0, kind="stable")
  value_WB = np.take_along_axis(value_WB, order_WB, axis=0)
  vector_WWB = np.take_along_axis(vector_WWB, order_WB[:, None], axis=0)
  vector_EWB = _basis(value_WB, vector_WWB, roots_B, words_B, count)
  # Not -0.0.
  return np.moveaxis(np.round(vector_EWB, _DIGITS) + 0.0, -1, 0)


@functools.lru_cache(64)
def _rounds(words: int) -> list[np.ndarray]:
  """The partner of each word, in one round after the other; maybe itself.

  Each two are partners in one of them. The order is that of fewer words, too: so
  a tree gives the same bits beside larger ones.
  """
  word_W = np.arange(words)
  rounds = []
  for apart in range(1, 1 << (words - 1).bit_length()):
    other_W = word_W ^ apart
    rounds.append(np.where(other_W < words, other_W, word_W))
  return rounds


def _jacobi(matrix_WWB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Eigenvalues, in no order, and eigenvectors, of symmetric matrices.

  Jacobi 1846, by sweeps over all pairs of rows (Golub & Van Loan, section 8.5),
  several pairs at a time. Where a number beside the diagonal is 0, the rotation is
  by 0 and leaves all bits.

  Returns: value_WB; vector_WWB, whose rows are the vectors.
  """
  words = len(matrix_WWB)
  word_W = np.arange(words)
  eye_WW1 = np.eye(words)[:, :, None]
  vectors = np.broadcast_to(eye_WW1, matrix_WWB.shape)
  both = np.concatenate([matrix_WWB, vectors], axis=1)
  for _ in range(_SWEEPS):
    turned = False
    for other_W in _rounds(words):
      # Of both of a pair the same number, above the diagonal.
      off_WB = both[np.minimum(word_W, other_W), np.maximum(word_W, other_W)]
      turns_WB = np.abs(off_WB) > _SMALL
      turns_WB &= (word_W != other_W)[:, None]
      if not turns_WB.any():
        continue
      turned = True
      diagonal_WB = both[word_W, word_W]
      ratio_WB = (diagonal_WB[other_W] - diagonal_WB) / np.where(
        turns_WB, 2 * off_WB, 1
      )
      tan_WB = 1 / (np.abs(ratio_WB) + np.sqrt(ratio_WB * ratio_WB + 1))
      sign_WB = np.where(word_W < other_W, 1.0, -1.0)[:, None]
      sign_WB = np.where(ratio_WB == 0, sign_WB, np.sign(ratio_WB))
      tan_WB = np.where(turns_WB, tan_WB * sign_WB, 0.0)
      cos_WB = 1 / np.sqrt(tan_WB * tan_WB + 1)
      sin_WB = tan_WB * cos_WB
      across = both[other_W]
      across *= sin_WB[:, None]
      both *= cos_WB[:, None]
      both -= across
      square = both[:, :words]
      across = square[:, other_W]
      across *= sin_WB
      square *= cos_WB
      square -= across
    if not turned:
      break
  return both[word_W, word_W], both[:, words:]


def _basis(
  value_WB: np.ndarray,
  vector_WWB: np.ndarray,
  roots_B: np.ndarray,
  words_B: np.ndarray,
  count: int,
) -> np.ndarray:
  """The vectors that are kept, of a basis that only the matrix decides.

  Of equal eigenvalues: the factor of Cholesky's decomposition of the projector
  onto their space, where words whose pivot is 0 are passed by.

  Args:
    value_WB: ascending.
    vector_WWB: rows in that order.
    roots_B: eigenvalues 0.
    words_B: how many are of a tree.
    count: E.

  Returns: vector_EWB.
  """
  longest, _, trees = vector_WWB.shape
  tree_B = np.arange(trees)
  new_WB = np.ones(value_WB.shape, bool)
  new_WB[1:] = value_WB[1:] - value_WB[:-1] > _EQUAL
  group_WB = np.cumsum(new_WB, axis=0)
  basis_EWB = np.zeros((count, longest, trees))
  rest_WWB = np.zeros_like(vector_WWB)
  for e in range(min(count, longest - 1)):
    at_B = np.minimum(roots_B + e, longest - 1)
    exists_B = roots_B + e < words_B
    if not exists_B.any():
      break
    group_B = group_WB[at_B, tree_B]
    begins_B = exists_B & (new_WB[at_B, tree_B] | (e == 0))
    rest_WWB[:, :, begins_B] = 0
    for further in range(longest):
      member_B = np.minimum(at_B + further, longest - 1)
      is_one_B = begins_B & (at_B + further < longest)
      is_one_B &= group_WB[member_B, tree_B] == group_B
      if not is_one_B.any():
        break
      (tree,) = np.nonzero(is_one_B)
      vector_WB = vector_WWB[member_B[tree], :, tree].T
      rest_WWB[:, :, tree] += vector_WB[:, None] * vector_WB[None]
    diagonal_WB = rest_WWB[np.arange(longest), np.arange(longest)]
    pivot_B = np.argmax(diagonal_WB > _SEEN, axis=0)
    size_B = np.where(exists_B, diagonal_WB[pivot_B, tree_B], 1)
    vector_WB = rest_WWB[:, pivot_B, tree_B] / np.sqrt(size_B)
    vector_WB = np.where(exists_B, vector_WB, 0)
    rest_WWB -= vector_WB[:, None] * vector_WB[None]
    basis_EWB[e] = vector_WB
  return basis_EWB
