"""Eigenvectors of the Laplacian of a dependency tree.

The Laplacian is the symmetric normalized one of the undirected tree,
I - D^-1/2 A D^-1/2 (Chung 1997, section 1.2; the row of a word without edges is
0). Implementations of LAPACK differ in the last bits, and return different vectors
for equal eigenvalues, which are common in trees. Therefore one basis is chosen for
equal eigenvalues, and the components are rounded to six digits.

Letters: E eigenvector that is kept.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Sequence

import numpy as np
import threadpoolctl

from jaxsyn.data.schema import EIGENVECTORS

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
  # Padding comes last: the eigenvalues of a tree are at most 2.
  value_WB = np.full((longest, trees), 3.0)
  vector_WWB = np.zeros((longest, longest, trees))
  roots_B = np.zeros(trees, np.int64)
  # On busy cores more threads are slower for matrices this small: 14.2 ms of processor
  # time instead of 0.45 for a tree of 40 words.
  with _blas().limit(limits=1):
    for b, head_W in enumerate(heads):
      words = len(head_W)
      roots_B[b] = (head_W == np.arange(words)).sum()
      # One matrix at a time and without padding, so that the bits of a tree do not
      # depend on the other trees.
      value_W, vector_WW = np.linalg.eigh(_laplacian(np.asarray(head_W)))
      value_WB[:words, b], vector_WWB[:words, :words, b] = value_W, vector_WW.T
  vector_EWB = _basis(value_WB, vector_WWB, roots_B, words_B, count)
  # Not -0.0.
  return np.moveaxis(np.round(vector_EWB, _DIGITS) + 0.0, -1, 0)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
  """Controls the threads of NumPy's BLAS; to find the library takes milliseconds."""
  return threadpoolctl.ThreadpoolController().select(user_api="blas")


def _laplacian(head_W: np.ndarray) -> np.ndarray:
  """Returns the normalized Laplacian of a tree, laplacian_WW."""
  word_W = np.arange(len(head_W))
  has_parent_W = head_W != word_W
  child_W, parent_W = word_W[has_parent_W], head_W[has_parent_W]
  adjacency_WW = np.zeros((len(head_W), len(head_W)))
  adjacency_WW[child_W, parent_W] = adjacency_WW[parent_W, child_W] = 1
  degree_W = adjacency_WW.sum(axis=0)
  scale_W = np.sqrt(np.maximum(degree_W, 1))
  laplacian_WW = adjacency_WW / -(scale_W[:, None] * scale_W)
  laplacian_WW[word_W, word_W] = degree_W > 0
  return laplacian_WW


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
