"""Rotary positions: the rotation matrix, and invariance to shifts."""

import dataclasses

import numpy as np
import pytest
from cases import FEATURES, HEADS, KEY, QUERY, SENTENCES, SITE, heads_of, run
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax.tree_rotary import TreeRotary

LINE = TreeRotary(by=("line", "line"))


def projected(spec, features=FEATURES, q=QUERY, k=KEY, site=SITE):
  return run(spec, "project", q, k, features, site=site)


def position(by, sentence, s):
  if by == "line" or not sentence.parsed:
    return s
  if by == "depth":
    return 0 if sentence.word[s] < 0 else sentence.depth(s) + 1
  return sentence.parent_middle(s)


def rotation(angles):
  """Eq. 15: blocks [[cos, -sin], [sin, cos]] on the diagonal."""
  matrix = np.zeros((2 * len(angles),) * 2)
  for i, a in enumerate(angles):
    block = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
  return matrix


@pytest.mark.parametrize(
  "by, heads", [(("line", "depth"), None), (("parent", "line"), (2, 0))]
)
def test_rotations_equal_the_matrix(by, heads):
  spec = TreeRotary(by=by, heads=heads)
  for x, new in zip((QUERY, KEY), projected(spec)):
    for b, sentence in enumerate(SENTENCES):
      for s in range(len(sentence.word)):
        positions = [position(by[i % 2], sentence, s) for i in range(4)]
        matrix = rotation(
          [p * 1e4 ** (-i / 4) for i, p in enumerate(positions)]
        )
        for h in range(HEADS):
          matrix_of_head = matrix if h in heads_of(spec) else np.eye(8)
          assert_allclose(new[b, s, h], matrix_of_head @ x[b, s, h], atol=2e-6)


def test_last_channel_of_an_odd_width_stays():
  site = dataclasses.replace(SITE, width=7 * HEADS)
  new, _ = projected(LINE, q=QUERY[..., :7], k=KEY[..., :7], site=site)
  assert_array_equal(new[..., 6], QUERY[..., 6])
  angles = 5 * 1e4 ** (-np.arange(3) / 3)
  expected = rotation(angles) @ QUERY[0, 5, 0, :6]
  assert_allclose(new[0, 5, 0, :6], expected, atol=2e-6)


def test_scores_depend_on_differences_of_positions():
  """Eq. 11; and a decoding step equals the row of the parallel pass."""
  shifted = FEATURES.replace(
    position_Q=FEATURES.position_Q + 100, position_M=FEATURES.position_M + 100
  )
  scores = [
    np.einsum("BQHK,BMHK->BHQM", *projected(LINE, features))
    for features in (FEATURES, shifted)
  ]
  assert_allclose(*scores, atol=2e-4)
  complete, keys = projected(LINE)
  step = FEATURES.replace(position_Q=FEATURES.position_Q[5:6])
  row, same_keys = projected(LINE, step, q=QUERY[:, 5:6])
  assert_array_equal(row[:, 0], complete[:, 5])
  assert_array_equal(same_keys, keys)
