"""T5's biases: limits of the ranges, loops, and decoding step by step."""

import dataclasses

import cases
import jax.numpy as jnp
import numpy as np
import pytest
from cases import HEADS, heads_of
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.linear_bias import LinearBias, bucket

LONG = 150
SCORE, TABLE = cases.normal(1, HEADS, LONG, LONG), cases.normal(32, HEADS)
# Last distance of each range, for the 16 ranges of one direction of T5's encoder
# and the 32 of its decoder: from the formula in double precision, by hand at the
# limits. Of 16, range 8 + i ends before 8 · 16^((i + 1) / 8) = 8 · 2^((i + 1) / 2).
ENCODER = [*range(8), 11, 15, 22, 31, 45, 63, 90]
DECODER = [
  *range(16), 18, 20, 23, 26, 30, 34, 39, 45, 51, 58, 66, 76, 86, 98, 112
]  # fmt: skip
LIMITS = {"encoder": ENCODER, "decoder": DECODER}


@pytest.mark.parametrize("buckets, limits", [(16, ENCODER), (32, DECODER)])
def test_limits_of_ranges(buckets, limits):
  label = np.asarray(bucket(jnp.arange(400), buckets=buckets, farthest=128))
  expected = [sum(d > limit for limit in limits) for d in range(400)]
  assert label.tolist() == expected and label.max() == buckets - 1


def rescored(spec, stack, table, score=SCORE, query=None):
  position = jnp.arange(LONG)
  features = SentenceFeatures(
    real_BS=jnp.ones((1, LONG), bool),
    position_Q=position if query is None else jnp.array([query]),
    position_M=position,
  )
  site = dataclasses.replace(cases.SITE, stack=stack)
  params = {"bias_LH": table}
  return cases.rescore(spec, score, features, params=params, site=site)


@pytest.mark.parametrize(
  "stack, heads", [("encoder", None), ("decoder", (2, 0))]
)
def test_scores_equal_loops(stack, heads):
  spec = LinearBias(heads=heads)
  table = TABLE[:, : len(heads_of(spec))]
  expected = np.array(SCORE, np.float64)
  for q, m in np.ndindex(LONG, LONG):
    if stack == "decoder" and m > q:  # has no range
      continue
    label = sum(abs(m - q) > limit for limit in LIMITS[stack])
    for i, h in enumerate(heads_of(spec)):
      expected[0, h, q, m] += table[label + 16 * (m > q), i]
  complete = rescored(spec, stack, table)
  assert_allclose(complete, expected, atol=1e-6)
  for at in (0, 140):  # decoding steps
    row = rescored(spec, stack, table, SCORE[:, :, at : at + 1], query=at)
    assert_array_equal(row[:, :, 0], complete[:, :, at])
