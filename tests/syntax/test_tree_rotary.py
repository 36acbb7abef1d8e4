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


def rotated(x_K, positions):
  """Eq. 15: blocks [[cos, -sin], [sin, cos]]; an odd last channel stays."""
  out, count = np.array(x_K, float), len(positions)
  for i, p in enumerate(positions):
    angle, (a, b) = p * 1e4 ** (-i / count), out[2 * i : 2 * i + 2]
    cos, sin = np.cos(angle), np.sin(angle)
    out[2 * i : 2 * i + 2] = a * cos - b * sin, a * sin + b * cos
  return out


@pytest.mark.parametrize(
  "by, heads, width",
  [
    (("line", "depth"), None, 8),
    (("parent", "line"), (2, 0), 8),
    (("line", "line"), None, 7),
  ],
)
def test_rotations_equal_loops(by, heads, width):
  spec = TreeRotary(by=by, heads=heads)
  site = dataclasses.replace(SITE, width=width * HEADS)
  inputs = QUERY[..., :width], KEY[..., :width]
  for x, new in zip(inputs, projected(spec, FEATURES, *inputs, site)):
    for b, sentence in enumerate(SENTENCES):
      for s, h in np.ndindex(len(sentence.word), HEADS):
        kinds = [by[i % 2] for i in range(width // 2)]
        positions = [position(kind, sentence, s) for kind in kinds]
        positions = positions if h in heads_of(spec) else [0] * len(kinds)
        expected = rotated(x[b, s, h], positions)
        assert_allclose(new[b, s, h], expected, atol=2e-6)


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
