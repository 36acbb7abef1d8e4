"""The caller's own matrix."""

import jax.numpy as jnp
import numpy as np
import pytest
from part_under_test import rescored

from jaxsyn.syntax.given_weighting import GivenWeighting


@pytest.fixture
def score():
  return jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 3, 3)))


def test_one_matrix_for_the_chosen_heads(score):
  matrix = jnp.full((2, 3, 3), 2.0).at[1].set(3.0)
  out = rescored(GivenWeighting(heads=(1,)), score, weighting_BSS=matrix)
  np.testing.assert_array_equal(out[:, 0], score[:, 0])
  np.testing.assert_array_equal(out[0, 1], 2 * score[0, 1])
  np.testing.assert_array_equal(out[1, 1], 3 * score[1, 1])


def test_a_matrix_a_head(score):
  matrix = jnp.ones((2, 2, 3, 3)).at[:, 0].set(0.0)
  out = rescored(GivenWeighting(heads=(0, 1)), score, weighting_BHSS=matrix)
  assert (out[:, 0] == 0).all()
  np.testing.assert_array_equal(out[:, 1], score[:, 1])


def test_no_matrix_is_the_plain_score(score):
  out = rescored(GivenWeighting(heads=(0, 1)), score)
  np.testing.assert_array_equal(out, score)
