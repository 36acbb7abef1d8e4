"""Computes Laplacian eigenvectors of dependency trees.

The Laplacian is the symmetric normalized one of the undirected tree,
I - D^-1/2 A D^-1/2 (Chung 1997, section 1.2; the row of a word without edges is
0). Implementations of LAPACK differ in the last bits, and return different vectors
for equal eigenvalues, which are common in trees. Therefore one basis is chosen for
equal eigenvalues, and the components are rounded to six digits.

Letters: E eigenvector.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import threadpoolctl

from jaxsyn.data.schema import EIGENVECTORS

_EQUAL = 1e-9  # difference up to which eigenvalues are equal
_NONZERO = 1e-4  # squares of components up to this count as 0
_DIGITS = 6
_CACHED_TREES = 1 << 16  # about 50 MB of sentences of 25 words


def eigenvectors(heads: Sequence[np.ndarray]) -> list[np.ndarray]:
  """Returns each tree's Laplacian eigenvectors with the smallest eigenvalues.

  They are cached, so callers must not modify them. They are in ascending order of
  the eigenvalues, which are positive. A tree has one eigenvalue 0, a forest one for
  each of its trees; their vectors are uninformative and omitted. The basis of equal
  eigenvalues is the projection of the first word that has a nonzero projection, then
  that of the next such word, orthogonalized, and so on. So the first nonzero
  component of each vector is positive, and vectors of two trees of a forest do not
  mix. Components up to 0.01 count as 0 in this, and all are rounded to six digits.

  Args:
    heads: Parents (head_W) of each tree, as in `jaxsyn.data.sentence.tree`.

  Returns: EIGENVECTORS eigenvectors (vector_WE, float32) of each tree, of length 1
    along W; missing vectors are 0.
  """
  # On busy cores, several threads are slower for matrices this small: 14.2 ms of
  # processor time instead of 0.45 ms for a tree of 40 words.
  with _blas().limit(limits=1):
    return [
      _eigenvectors(np.asarray(head_W, "<i4").tobytes()) for head_W in heads
    ]


@functools.lru_cache(_CACHED_TREES)
def _eigenvectors(head_bytes: bytes) -> np.ndarray:
  """Returns the Laplacian eigenvectors of one dependency tree.

  The axes are WE. For equal eigenvalues, the basis is the Cholesky factor of the
  projector onto their space; words whose pivot is 0 are skipped.
  """
  head_W = np.frombuffer(head_bytes, "<i4")
  words = len(head_W)
  basis_WE = np.zeros((words, EIGENVECTORS))
  if words < 2:
    return basis_WE.astype(np.float32)
  value_W, vector_WW = np.linalg.eigh(_laplacian(head_W))  # vectors in columns
  is_new_W = np.append(True, np.diff(value_W) > _EQUAL)
  group_W = np.cumsum(is_new_W)  # of equal eigenvalues
  roots = int((head_W == np.arange(words)).sum())  # eigenvalues 0
  rest_WW = np.zeros((words, words))
  for e in range(min(EIGENVECTORS, words - roots)):
    index = roots + e
    if e == 0 or is_new_W[index]:
      rest_WW[:] = 0
      end = np.searchsorted(group_W, group_W[index], side="right")
      for vector_W in vector_WW.T[index:end]:
        rest_WW += vector_W[:, None] * vector_W
    pivot = np.argmax(rest_WW.diagonal() > _NONZERO)
    vector_W = rest_WW[:, pivot] / np.sqrt(rest_WW[pivot, pivot])
    rest_WW -= vector_W[:, None] * vector_W
    basis_WE[:, e] = vector_W
  # Adding 0.0 removes -0.0.
  return (np.round(basis_WE, _DIGITS) + 0.0).astype(np.float32)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
  return threadpoolctl.ThreadpoolController().select(user_api="blas")


def _laplacian(head_W: np.ndarray) -> np.ndarray:
  """Returns the normalized graph Laplacian matrix of a dependency tree."""
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
