"""Tests eigenvectors of trees against worked and independent results."""

import os
import subprocess
import sys

import control_trees
import numpy as np
import pytest

from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.data.sentence.spectrum import eigenvectors

HALF = 0.5**0.5
STAR = [0, 0, 0, 0, 0]  # four leaves of one root: 1 is an eigenvalue, thrice
FOREST = [0, 0, 1, 4, 4, 4, 6]  # a chain, a star and a single word
TREES = [
  np.array(head_W)
  for head_W in (
    [1, 2, 2, 5, 5, 2],  # "The monkey eats a ripe banana"
    STAR,
    FOREST,
    [0],
    [],
    [0, 1, 2],  # each its own root
    [1, 1],
    [4, 0, 1, 1, 4, 4, 5, 5, 5, 5],
    *(control_trees.random(words, words) for words in (3, 13, 21, 40)),
    control_trees.linear(20),
    control_trees.linear(64),
  )
]


def laplacian(head_W):
  """Entry by entry."""
  words = len(head_W)
  near = [{w for w in range(words) if w != v and (head_W[w] == v or head_W[v] == w)}
          for v in range(words)]  # fmt: skip
  out = np.zeros((words, words))
  for v in range(words):
    for w in range(words):
      if v == w:
        out[v, w] = 1.0 if near[v] else 0.0
      elif w in near[v]:
        out[v, w] = -1 / np.sqrt(len(near[v]) * len(near[w]))
  return out


def groups(values):
  """Beginnings and ends of equal ones, ascending."""
  starts = [
    0,
    *(i for i in range(1, len(values)) if values[i] - values[i - 1] > 1e-7),
  ]
  return zip(starts, [*starts[1:], len(values)])


def chosen(matrix, kept):
  """Returns the documented basis, chosen by Gram-Schmidt."""
  values, vectors = np.linalg.eigh(matrix)
  collected = []
  for begin, end in groups(values):
    if values[begin] < 1e-7:
      continue
    space = vectors[:, begin:end]
    # Gram-Schmidt over what the words leave in the space.
    mine = []
    for word in range(len(matrix)):
      left = space @ space[word]
      for one in mine:
        left = left - one * (one @ left)
      if left[word] > 1e-4:
        mine.append(left / np.linalg.norm(left))
    assert len(mine) == end - begin
    collected += mine
  collected = collected[:kept]
  return np.stack(
    [*collected, *[np.zeros(len(matrix))] * (kept - len(collected))], 1
  )


@pytest.mark.parametrize("head_W", TREES, ids=lambda head_W: str(len(head_W)))
def test_difficult_trees_have_the_documented_basis(head_W):
  """Ties, forests, single words and empty sentences, and the sign convention."""
  (vector_WE,) = eigenvectors([head_W])
  assert vector_WE.shape == (len(head_W), EIGENVECTORS)
  assert vector_WE.dtype == np.float32
  if not len(head_W):
    return
  matrix = laplacian(head_W)
  # Rounded to 1e-6, and to float32.
  np.testing.assert_allclose(vector_WE, chosen(matrix, EIGENVECTORS), atol=7e-7)
  values = np.linalg.eigvalsh(matrix)
  roots = int((head_W == np.arange(len(head_W))).sum())
  assert (np.abs(values[:roots]) < 1e-9).all()
  present = min(EIGENVECTORS, len(head_W) - roots)
  vectors = vector_WE[:, :present].astype(float)
  np.testing.assert_allclose(
    matrix @ vectors, vectors * values[roots:][:present], atol=2e-6
  )
  np.testing.assert_allclose(vectors.T @ vectors, np.eye(present), atol=6e-6)
  assert not vector_WE[:, present:].any()
  assert not np.signbit(vector_WE[vector_WE == 0]).any()
  first_E = np.argmax(np.abs(vectors) > 0.01, axis=0)
  assert (vectors[first_E, np.arange(present)] > 0).all()


def test_eigenvectors_of_the_worked_example():
  # A star of four leaves: 1 thrice, 2 once. Of the leaves' space: e1 less the
  # mean, and so on; then the root against its leaves.
  (vector_WE,) = eigenvectors([np.array(STAR)])
  (again_WE,) = eigenvectors([np.array(STAR, np.int32)])
  assert again_WE is vector_WE
  of_1 = np.array([0, 3, -1, -1, -1]) / 12**0.5
  of_2 = np.array([0, 0, 2, -1, -1]) / 6**0.5
  of_3 = np.array([0, 0, 0, 1, -1]) / 2**0.5
  last = np.array([2, -1, -1, -1, -1]) / 8**0.5
  expected = np.stack([of_1, of_2, of_3, last, np.zeros(5)], 1)
  np.testing.assert_allclose(vector_WE[:, :5], expected, atol=6e-7)


def test_trees_of_a_forest_do_not_mix():
  # Two equal trees of two words: 2 twice.
  (vector_WE,) = eigenvectors([np.array([0, 0, 2, 2])])
  expected = [[HALF, 0, 0], [-HALF, 0, 0], [0, HALF, 0], [0, -HALF, 0]]
  np.testing.assert_allclose(vector_WE[:, :3], expected, atol=6e-7)


# Checksum of the rounded vectors. Rounding hides the last bits of LAPACK.
DIGEST = "51047143"
MAKE = """
import zlib
import numpy as np
from jaxsyn.data.sentence.controls import random_trees
from jaxsyn.data.sentence.spectrum import eigenvectors
words = np.array([*range(1, 33), 61])
heads = np.split(random_trees(words, range(len(words))), np.cumsum(words))[:-1]
parts = [one.astype("<f4").tobytes() for one in eigenvectors(heads)]
print(f"{zlib.crc32(b''.join(parts)):08x}")
"""
# Threads of BLAS, and NumPy without the wider instructions of its processor.
WIDE = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_ICL X86_V3 X86_V4"


@pytest.mark.parametrize(
  "variables",
  [
    {},
    {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    {"NPY_DISABLE_CPU_FEATURES": WIDE},
  ],
)
def test_threads_and_instructions_do_not_change_the_vectors(variables):
  run = subprocess.run(
    [sys.executable, "-W", "ignore", "-c", MAKE],
    check=True,
    capture_output=True,
    text=True,
    env=os.environ | variables,
  )
  assert run.stdout.strip() == DIGEST
