"""What both Gaussian families share: a learned σ, and ways to apply a weight."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from part_under_test import WHERE, rescored

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


def softplus(x):
  return math.log1p(math.exp(x))


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


@pytest.mark.parametrize("how", HOW)
def test_a_learned_sigma_starts_at_the_fixed_value(family, how):
  spec = family(apply=how, learn_sigma=True, sigma=1.7)
  params = initial(spec)
  assert params["raw_sigma_H"].shape == (1,)  # of the chosen head alone
  assert softplus(float(params["raw_sigma_H"][0])) == pytest.approx(1.7, 1e-6)
  np.testing.assert_allclose(
    rescored(spec, SCORE, params=params, **FACTS),
    rescored(family(apply=how, sigma=1.7), SCORE, **FACTS),
    rtol=1e-5,
    atol=1e-6,
  )


def initial(spec):
  """Parameters as a training begins with them."""
  part = spec.make(WHERE)
  return part.init(jax.random.key(0), method="sigma_1H11")["params"]


def test_each_head_learns_its_own_sigma():
  spec = ParentScaled(heads=None, learn_sigma=True)
  raw = jnp.array([0.2, 1.4])
  both = rescored(spec, SCORE, params={"raw_sigma_H": raw}, **FACTS)
  for head in (0, 1):
    fixed = ParentScaled(heads=None, sigma=softplus(float(raw[head])))
    np.testing.assert_allclose(
      both[:, head], rescored(fixed, SCORE, **FACTS)[:, head], rtol=1e-5
    )


@pytest.mark.parametrize("how", HOW)
def test_the_gradient_of_sigma(family, how):
  spec = family(apply=how, learn_sigma=True)
  # A sum of attention weights with fixed factors, as a loss.
  factor = np.random.default_rng(1).normal(size=SCORE.shape)

  def loss(raw):
    out = rescored(spec, SCORE, params={"raw_sigma_H": raw[None]}, **FACTS)
    return jnp.sum(attention(out) * factor)

  raw, step = 0.3, 1e-2
  slope = (loss(jnp.array(raw + step)) - loss(jnp.array(raw - step))) / 2 / step
  # The difference has an error of order step² = 1e-4, and of float32 rounding
  # over the step, 1e-6 / 1e-2 = 1e-4.
  np.testing.assert_allclose(
    jax.grad(loss)(jnp.array(raw)), slope, rtol=1e-2, atol=1e-3
  )
  assert abs(slope) > 1e-2


def test_far_pairs_have_no_nan_in_the_gradient(family):
  facts = FACTS | {"word_BS": np.array([[0, 1, 2, -1, -1]])}
  for how in HOW:
    spec = family(apply=how, learn_sigma=True)
    slope = jax.grad(
      lambda raw, spec=spec: jnp.sum(
        attention(rescored(spec, SCORE, params={"raw_sigma_H": raw}, **facts))
        ** 2
      )
    )(jnp.array([0.5]))
    assert np.isfinite(slope).all()
