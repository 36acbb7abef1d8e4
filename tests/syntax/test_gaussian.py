"""Tests the ways to apply a Gaussian weight, of PASCAL and of Deps-SAN."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from part_under_test import rescored

from jaxsyn.data.sentence import tree as trees
from jaxsyn.syntax.parent_scaled import ParentScaled
from jaxsyn.syntax.tree_scaled import TreeScaled

SCORE = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype(np.float32)
HEAD_W = np.array([1, 2, 2, 4, 2])
FACTS = {
  "parent_mid_BS": HEAD_W[None].astype(np.float32),
  "word_BS": np.arange(5)[None],
  "tree_distance_BWW": trees.tree_distance(HEAD_W)[None],
}
HOW = ["multiply", "add", "add_log"]
FAMILIES = {
  "parent_scaled": functools.partial(ParentScaled, heads=(1,)),
  "tree_scaled": functools.partial(TreeScaled, heads=(1,)),
}


@pytest.fixture(params=FAMILIES)
def family(request):
  return FAMILIES[request.param]


def attention(score_BHQM):
  return jax.nn.softmax(score_BHQM, axis=-1)


def test_adding_the_log_is_a_product_on_the_probabilities(family):
  out = attention(rescored(family(apply="add_log", sigma=1.5), SCORE, **FACTS))
  ones = rescored(family(sigma=1.5), np.ones_like(SCORE), **FACTS)
  product = attention(SCORE)[0, 1] * ones[0, 1]
  wanted = product / product.sum(-1, keepdims=True)
  np.testing.assert_allclose(out[0, 1], wanted, atol=1e-6)


def test_the_constant_cancels_in_the_log_but_not_in_the_product(family):
  for how in HOW:
    pdf, peak1 = (
      attention(rescored(family(apply=how, normalise=n), SCORE, **FACTS))
      for n in ("pdf", "peak1")
    )
    assert np.allclose(pdf, peak1, atol=1e-6) == (how == "add_log")


def test_peak1_is_1_at_the_middle():
  out = rescored(
    ParentScaled(heads=(0,), normalise="peak1"), np.ones_like(SCORE), **FACTS
  )
  # Parent of word 0 is word 1; exp(-1/2) = .60653, exp(-2) = .13534.
  np.testing.assert_allclose(
    out[0, 0, 0], [0.60653, 1, 0.60653, 0.13534, 0.01111], atol=1e-5
  )


def test_far_pairs_have_no_nan_in_the_gradient(family):
  facts = FACTS | {"word_BS": np.array([[0, 1, 2, -1, -1]])}
  for how in HOW:
    spec = family(apply=how, sigma=0.01)
    slope = jax.grad(
      lambda score, spec=spec: jnp.sum(
        attention(rescored(spec, score, **facts)) ** 2
      )
    )(jnp.asarray(SCORE))
    assert np.isfinite(slope).all()
