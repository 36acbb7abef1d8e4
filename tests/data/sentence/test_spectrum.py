"""Eigenvectors of trees: worked examples and an independent computation."""

import os
import subprocess
import sys

import control_trees
import numpy as np
import pytest
from numpy.testing import assert_allclose

from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.data.sentence.spectrum import eigenvectors

STAR = [0, 0, 0, 0, 0]  # four leaves of one root: 1 is an eigenvalue, thrice
TREES = [
  [1, 2, 2, 5, 5, 2],  # "The monkey eats a ripe banana"
  STAR,
  [0, 0, 1, 4, 4, 4, 6],  # a chain, a star and a single word
  [0],
  [],
  [0, 1, 2],  # each its own root
  [1, 1],
  [4, 0, 1, 1, 4, 4, 5, 5, 5, 5],
  *(control_trees.random(words, words) for words in (13, 40)),
  control_trees.linear(64),
]


def laplacian(head_W):
  """The normalized Laplacian, entry by entry."""
  words = range(len(head_W))
  near = [
    {w for w in words if w != v and (head_W[w] == v or head_W[v] == w)}
    for v in words
  ]
  matrix = np.zeros((len(words), len(words)))
  for v, w in np.ndindex(matrix.shape):
    if v == w:
      matrix[v, w] = 1.0 if near[v] else 0.0
    elif w in near[v]:
      matrix[v, w] = -1 / np.sqrt(len(near[v]) * len(near[w]))
  return matrix


def documented_basis(matrix):
  """Eigenvectors by Gram-Schmidt over the projections of the words."""
  values, vectors = np.linalg.eigh(matrix)
  basis, begin = [], 0
  while begin < len(values):
    end = begin + 1
    while end < len(values) and values[end] - values[end - 1] < 1e-7:
      end += 1
    space, group = vectors[:, begin:end], []
    for word in range(len(matrix)):
      rest = space @ space[word]
      for one in group:
        rest = rest - one * (one @ rest)
      if rest[word] > 1e-4:
        group.append(rest / np.linalg.norm(rest))
    assert len(group) == end - begin
    basis += group if values[begin] > 1e-7 else []
    begin = end
  basis += [np.zeros(len(matrix))] * EIGENVECTORS
  return np.stack(basis[:EIGENVECTORS], 1)


@pytest.mark.parametrize("head_W", TREES, ids=lambda head_W: str(len(head_W)))
def test_difficult_trees_have_the_documented_basis(head_W):
  """Ties, forests, single words and empty sentences, and the sign convention."""
  (vector_WE,) = eigenvectors([np.array(head_W)])
  assert vector_WE.shape == (len(head_W), EIGENVECTORS)
  assert vector_WE.dtype == np.float32
  assert not np.signbit(vector_WE[vector_WE == 0]).any()
  if len(head_W):
    expected = documented_basis(laplacian(head_W))
    assert_allclose(vector_WE, expected, atol=7e-7)  # six digits


def test_eigenvectors_by_hand():
  # A star of four leaves: 1 thrice, 2 once. In the leaves' space: e1 less the
  # mean, and so on; then the root against its leaves.
  (vector_WE,) = eigenvectors([np.array(STAR)])
  rows = [[0, 3, -1, -1, -1], [0, 0, 2, -1, -1], [0, 0, 0, 1, -1]]
  rows = np.array([*rows, [2, -1, -1, -1, -1], [0] * 5], float)
  rows[:4] /= np.linalg.norm(rows[:4], axis=1, keepdims=True)
  assert_allclose(vector_WE[:, :5], rows.T, atol=6e-7)
  (again_WE,) = eigenvectors([np.array(STAR, np.int32)])
  assert again_WE is vector_WE  # cached
  # Two equal trees of two words: 2 twice. Their vectors do not mix.
  (vector_WE,) = eigenvectors([np.array([0, 0, 2, 2])])
  expected = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]]) * 0.5**0.5
  assert_allclose(vector_WE[:, :3], expected, atol=6e-7)


# Checksum of the rounded vectors. Rounding hides the last bits of LAPACK.
DIGEST = "51047143"
PROGRAM = """
import zlib
import numpy as np
from jaxsyn.data.sentence.controls import random_trees
from jaxsyn.data.sentence.spectrum import eigenvectors
words = np.array([*range(1, 33), 61])
heads = np.split(random_trees(words, range(len(words))), np.cumsum(words))[:-1]
parts = [one.astype("<f4").tobytes() for one in eigenvectors(heads)]
digest = f"{zlib.crc32(b''.join(parts)):08x}"
"""
# NumPy without the wider instructions of its processor.
WIDE = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_ICL X86_V3 X86_V4"


def test_threads_and_instructions_do_not_change_the_vectors():
  variables = {}
  exec(PROGRAM, variables)
  assert variables["digest"] == DIGEST
  narrow = {"NPY_DISABLE_CPU_FEATURES": WIDE, "OPENBLAS_NUM_THREADS": "1"}
  run = subprocess.run(
    [sys.executable, "-W", "ignore", "-c", PROGRAM + "print(digest)"],
    check=True,
    capture_output=True,
    text=True,
    env=os.environ | narrow,
  )
  assert run.stdout.strip() == DIGEST
