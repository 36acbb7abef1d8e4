"""Vectors of relative positions: labels, lookups and gradients."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FEATURES, HEADS, B, K, S, normal
from numpy.testing import assert_allclose

from jaxsyn.syntax.dependency_relative import depth_BQM
from jaxsyn.syntax.relative import MAX_CHAIN, Relative, collect, spread


def test_depth_labels_of_the_paper():
  # "My father bought a red car .", Table 1; "bought" has two subwords.
  sentence = cases.Sentence((0, 1, 2, 2, 3, 4, 5, 6, -1), (1, 2, 2, 5, 5, 2, 2))
  rows = np.asarray(depth_BQM(cases.features_of([sentence])))[0]
  words = [0, 1, 2, 4, 5, 6, 7]
  assert rows[0, words].tolist() == [0, -1, -2, 0, 0, -1, -1]
  assert rows[1, words].tolist() == [1, 0, -1, 1, 1, 0, 0]
  for bought in (2, 3):
    assert rows[bought, words].tolist() == [2, 1, 0, 2, 2, 1, 1]


@pytest.mark.parametrize("full_context, visible", [(True, 4), (False, 3)])
def test_decoder_labels_at_one_position(full_context, visible):
  # Offsets from position 2 are -2, -1, 0, 1; clip=1 gives labels 0, 0, 1, 2.
  # The last one is used only where later positions are visible.
  site = dataclasses.replace(cases.SITE, stack="decoder", heads=1, width=1)
  features = FEATURES.replace(
    position_Q=jnp.array([2]),
    position_M=jnp.arange(4),
    full_context=full_context,
  )
  score, q = np.zeros((1, 1, 1, 4)), np.ones((1, 1, 1, 1))
  params = {
    "key_LK": np.array([[10.0], [20], [30]]),
    "value_LK": np.zeros((3, 1)),
  }
  spec = Relative(clip=1)
  out = cases.rescore(spec, score, features, q, q, params=params, site=site)
  assert out.ravel()[:visible].tolist() == [10, 10, 20, 30][:visible]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("labels", [3, MAX_CHAIN + 1])
def test_spread_and_collect_are_transposes(rows, labels):
  rng = np.random.default_rng(1)
  label = rng.integers(-1, labels, (rows, 4, 4))
  label[0, 0, :2] = [-1, labels - 1]
  value, out = normal(2, 4, 2, labels), normal(2, 2, 4, 4)
  spread_values, sums = np.zeros((2, 2, 4, 4)), np.zeros((2, 4, 2, labels))
  for b, h, q, m in np.ndindex(2, 2, 4, 4):
    one = label[b % rows, q, m]
    if one >= 0:
      spread_values[b, h, q, m] = value[b, q, h, one]
      sums[b, q, h, one] += out[b, h, q, m]
  label = jnp.asarray(label)
  result, vjp = jax.vjp(lambda value: spread(value, label), value)
  assert_allclose(result, spread_values, atol=1e-6)
  assert_allclose(vjp(out)[0], sums, atol=1e-5)
  result, vjp = jax.vjp(lambda out: collect(out, label, labels), out)
  assert_allclose(result, sums, atol=1e-5)
  assert_allclose(vjp(value)[0], spread_values, atol=1e-6)


@pytest.mark.parametrize("tie", [False, True])
def test_gradients_equal_differences(tie):
  spec, names = Relative(clip=2, tie=tie), ["key_LK", "value_LK"]
  params = {n: normal(5, K) for n in (["both_LK"] if tie else names)}
  weight, mixed = jax.nn.softmax(normal(B, HEADS, S, S)), normal(B, S, HEADS, K)

  def loss(params):
    new = weight * jax.nn.softmax(cases.rescore(spec, params=params))
    out = cases.run(spec, "mix", mixed, new, FEATURES, params=params)
    return 30 * (out**2).mean()

  cases.check_gradients(loss, params)
