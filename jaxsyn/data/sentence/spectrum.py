"""Laplacian eigenvectors of dependency trees.

The Laplacian is the symmetric normalized one of the undirected tree,
I - D^-1/2 A D^-1/2 (Chung 1997, section 1.2; the row of a word without edges is
0). Implementations of LAPACK differ in the last bits, and return different vectors
for equal eigenvalues, which are common in trees. Therefore one basis is chosen for
equal eigenvalues, and the components are rounded to six digits.

Letters: E eigenvector.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Sequence

import numpy as np
import threadpoolctl

from jaxsyn.data.schema import EIGENVECTORS

_EQUAL = 1e-9  # difference up to which eigenvalues are equal
_NONZERO = 1e-4  # squares of components up to this count as 0
_DIGITS = 6
_CACHE = (
  1 << 14
)  # matrix entries computed together, to fit in a processor's cache
_CACHED_BYTES = 1 << 28  # of eigenvectors


def eigenvectors(
  heads: Sequence[np.ndarray], count: int = EIGENVECTORS
) -> list[np.ndarray]:
  """Returns each tree's Laplacian eigenvectors for the smallest eigenvalues.

  They are in ascending order of the eigenvalues, which are positive.
  A tree has one eigenvalue 0, a forest one for each of its trees; their vectors are
  uninformative and omitted. The basis of equal eigenvalues is the projection of the
  first word that has a nonzero projection, then that of the next such word,
  orthogonalized, and so on. So the first nonzero component of each vector is
  positive, and vectors of two trees of a forest do not mix. Components up to 0.01 count as 0 in this, and all are
  rounded to six digits.

  Args:
    heads: Parents (head_W) of each tree, as in `jaxsyn.data.sentence.tree`.
    count: Number of eigenvectors, E.

  Returns: Eigenvectors (vector_WE, float32) of each tree, of length 1 along W;
    missing vectors are 0.
  """
  vectors = [np.zeros((len(head_W), count), np.float32) for head_W in heads]
  order = sorted(range(len(heads)), key=lambda i: len(heads[i]))
  group: list[int] = []
  for i in [*order, None]:
    if group and (i is None or (len(group) + 1) * len(heads[i]) ** 2 > _CACHE):
      vector_BEW = _compute([heads[j] for j in group], count)
      for j, vector_EW in zip(group, vector_BEW):
        vectors[j][:] = vector_EW[:, : len(heads[j])].T
      group = []
    if i is not None and len(heads[i]) > 1:
      group.append(i)
  return vectors


class EigenvectorCache:
  """Thread-safe least-recently-used cache of Laplacian eigenvectors of trees.

  Args:
    max_bytes: Maximum size of the cached vectors.
  """

  def __init__(self, max_bytes: int = _CACHED_BYTES):
    self._free_bytes = max_bytes
    self._vectors: collections.OrderedDict[bytes, np.ndarray] = (
      collections.OrderedDict()
    )
    self._lock = threading.Lock()

  def __call__(self, heads: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the eigenvectors (vector_WE) of each tree, cached if possible.

    Callers must not modify them.
    """
    keys = [np.asarray(head_W, "<i4").tobytes() for head_W in heads]
    with self._lock:
      known = {key: self._vectors[key] for key in keys if key in self._vectors}
    new = {key: head for key, head in zip(keys, heads) if key not in known}
    known |= zip(new, eigenvectors([*new.values()]))
    with self._lock:
      for key in keys:
        if key not in self._vectors:
          self._free_bytes -= known[key].nbytes
        self._vectors[key] = known[key]
        self._vectors.move_to_end(key)
      while self._free_bytes < 0:
        self._free_bytes += self._vectors.popitem(last=False)[1].nbytes
    return [known[key] for key in keys]


cached_eigenvectors = EigenvectorCache()


def _compute(heads: Sequence[np.ndarray], count: int) -> np.ndarray:
  """Returns computed eigenvectors (vector_BEW) of trees of similar size."""
  words_B = np.array([len(head_W) for head_W in heads])
  longest, trees = int(words_B.max()), len(heads)
  # Padding comes last: the eigenvalues of a tree are at most 2.
  value_WB = np.full((longest, trees), 3.0)
  vector_WWB = np.zeros((longest, longest, trees))
  roots_B = np.zeros(trees, np.int64)
  # On busy cores, several threads are slower for matrices this small: 14.2 ms of
  # processor time instead of 0.45 ms for a tree of 40 words.
  with _blas().limit(limits=1):
    for b, head_W in enumerate(heads):
      words = len(head_W)
      roots_B[b] = (head_W == np.arange(words)).sum()
      # One matrix at a time and without padding, so that the bits of a tree do not
      # depend on the other trees.
      value_W, vector_WW = np.linalg.eigh(_laplacian(np.asarray(head_W)))
      value_WB[:words, b], vector_WWB[:words, :words, b] = value_W, vector_WW.T
  vector_EWB = _basis(value_WB, vector_WWB, roots_B, words_B, count)
  # Adding 0.0 removes -0.0.
  return np.moveaxis(np.round(vector_EWB, _DIGITS) + 0.0, -1, 0)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
  """Returns the cached controller of the number of BLAS threads."""
  return threadpoolctl.ThreadpoolController().select(user_api="blas")


def _laplacian(head_W: np.ndarray) -> np.ndarray:
  """Returns the normalized Laplacian matrix (laplacian_WW) of a tree."""
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
  """Returns eigenvectors (vector_EWB) in a basis that depends on the tree only.

  For equal eigenvalues, the basis is the Cholesky factor of the projector onto their
  space; words whose pivot is 0 are skipped.

  Args:
    value_WB: Eigenvalues, ascending.
    vector_WWB: Eigenvectors as rows, in the same order.
    roots_B: Number of roots, and so of eigenvalues 0, of each tree.
    words_B: Number of words of each tree.
    count: Number of eigenvectors, E.
  """
  longest, _, trees = vector_WWB.shape
  tree_B = np.arange(trees)
  is_new_WB = np.ones(value_WB.shape, bool)
  is_new_WB[1:] = value_WB[1:] - value_WB[:-1] > _EQUAL
  group_WB = np.cumsum(is_new_WB, axis=0)
  basis_EWB = np.zeros((count, longest, trees))
  rest_WWB = np.zeros_like(vector_WWB)
  for e in range(min(count, longest - 1)):
    index_B = np.minimum(roots_B + e, longest - 1)
    exists_B = roots_B + e < words_B
    if not exists_B.any():
      break
    group_B = group_WB[index_B, tree_B]
    is_first_B = exists_B & (is_new_WB[index_B, tree_B] | (e == 0))
    rest_WWB[:, :, is_first_B] = 0
    for offset in range(longest):
      member_B = np.minimum(index_B + offset, longest - 1)
      is_member_B = is_first_B & (index_B + offset < longest)
      is_member_B &= group_WB[member_B, tree_B] == group_B
      if not is_member_B.any():
        break
      (tree,) = np.nonzero(is_member_B)
      vector_WB = vector_WWB[member_B[tree], :, tree].T
      rest_WWB[:, :, tree] += vector_WB[:, None] * vector_WB[None]
    diagonal_WB = rest_WWB[np.arange(longest), np.arange(longest)]
    pivot_B = np.argmax(diagonal_WB > _NONZERO, axis=0)
    size_B = np.where(exists_B, diagonal_WB[pivot_B, tree_B], 1)
    vector_WB = rest_WWB[:, pivot_B, tree_B] / np.sqrt(size_B)
    vector_WB = np.where(exists_B, vector_WB, 0)
    rest_WWB -= vector_WB[:, None] * vector_WB[None]
    basis_EWB[e] = vector_WB
  return basis_EWB
