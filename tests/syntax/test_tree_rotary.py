"""Rotary positions: the rotation matrix, and invariance to shifts."""

import dataclasses

import numpy as np
import pytest
from cases import FEATURES, HEADS, KEY, QUERY, SENTENCES, SITE, heads_of, run
from models_under_test import check_modifier

from jaxsyn.errors import InputError
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


def matrix(angles):
  """Eq. 15: blocks [[cos, -sin], [sin, cos]] on the diagonal."""
  complete = np.zeros((2 * len(angles),) * 2)
  for i, a in enumerate(angles):
    block = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]
    complete[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
  return complete


@pytest.mark.parametrize(
  "by", [("line", "line"), ("line", "depth"), ("parent", "depth")]
)
@pytest.mark.parametrize("heads", [None, (2, 0)])
def test_rotations_equal_the_matrix(by, heads):
  spec = TreeRotary(by=by, heads=heads)
  for x, new in zip((QUERY, KEY), projected(spec)):
    for b, sentence in enumerate(SENTENCES):
      for s in range(len(sentence.word)):
        rotation = matrix(
          [position(by[i % 2], sentence, s) * 1e4 ** (-i / 4) for i in range(4)]
        )
        for h in range(HEADS):
          is_selected = h in heads_of(spec)
          expected = rotation @ x[b, s, h] if is_selected else x[b, s, h]
          np.testing.assert_allclose(new[b, s, h], expected, atol=2e-6)


def test_last_channel_of_an_odd_width_stays():
  site = dataclasses.replace(SITE, width=7 * HEADS)
  new, _ = projected(LINE, q=QUERY[..., :7], k=KEY[..., :7], site=site)
  np.testing.assert_array_equal(new[..., 6], QUERY[..., 6])
  angles = 5 * 1e4 ** (-np.arange(3) / 3)
  expected = matrix(angles) @ QUERY[0, 5, 0, :6]
  np.testing.assert_allclose(new[0, 5, 0, :6], expected, atol=2e-6)


def test_scores_depend_on_differences_of_positions():
  """Eq. 11; and a decoding step equals the row of the parallel pass."""
  shifted = FEATURES.replace(
    position_Q=FEATURES.position_Q + 100, position_M=FEATURES.position_M + 100
  )
  scores = [
    np.einsum("BQHK,BMHK->BHQM", *projected(LINE, features))
    for features in (FEATURES, shifted)
  ]
  np.testing.assert_allclose(*scores, atol=2e-4)
  complete, keys = projected(LINE)
  step = FEATURES.replace(position_Q=FEATURES.position_Q[5:6])
  row, same_keys = projected(LINE, step, q=QUERY[:, 5:6])
  np.testing.assert_array_equal(row[:, 0], complete[:, 5])
  np.testing.assert_array_equal(same_keys, keys)


@pytest.mark.parametrize(
  "stack, options, message",
  [
    ("decoder", {}, "the output of a decoder has no tree; use"),
    ("encoder", {"by": ("line", "tree")}, "by"),
  ],
)
def test_rejects_invalid_options(stack, options, message):
  with pytest.raises(InputError, match=message):
    check_modifier(stack, "tree_rotary", options)
