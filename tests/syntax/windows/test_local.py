"""Local attention: values by hand, loops, and gradients of the position."""

import jax
import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from cases import SENTENCES, Sentence, features_of
from numpy.testing import assert_allclose
from window_cases import (
  check_weights,
  predicted_position,
  weights_of,
)

from jaxsyn.syntax.windows.local import Local


def line_of(subwords):
  """Features of a sentence with so many subwords, EOS included."""
  words = subwords - 1
  return features_of([Sentence((*range(words), -1), (0,) * words)])


def test_weights_by_hand():
  """p = 0.5 · 22 = 11; uniform weights of 21 positions, times exp(-k² / 50)."""
  weight_S = weights_of(
    Local(reach=10, sigma=5.0),
    np.zeros((1, 1, 24)),
    params=predicted_position(0.5),
    features=line_of(22),
  )[0, 0, 0]
  assert weight_S[0] == 0  # 11 - 10 = 1 is the first visible position
  assert_allclose(
    weight_S[11:15] * 21, [1.0, 0.9802, 0.9231, 0.8353], atol=1e-4
  )
  assert_allclose(weight_S[11:22], weight_S[11:0:-1], rtol=1e-4)


def test_rows_of_padding_have_no_weight():
  features = line_of(7)
  features = features.replace(real_BS=jnp.zeros_like(features.real_BS))
  params, score = predicted_position(0.5), np.zeros((1, 1, 9))
  weight = weights_of(Local(), score, params=params, features=features)
  assert not weight.any()


@pytest.mark.parametrize("reach", [0, 2])
def test_weights_equal_loops(reach):
  reference = papers.Local(reach=reach, sigma=1.3)
  check_weights(Local(reach=reach, sigma=1.3), reference, SENTENCES)


def test_the_position_gets_a_gradient_from_the_gaussian():
  score = np.random.default_rng(1).normal(size=(1, 1, 9))

  def value(shift):
    params = predicted_position(0.45)
    kernel = params["position"]["position"]["kernel"]
    params["position"]["position"]["kernel"] = kernel + shift
    spec = Local(reach=10, sigma=2.0)
    weight = weights_of(spec, score, params=params, features=line_of(7))
    return jnp.sum(weight * jnp.arange(9.0))

  slope = (value(0.01) - value(-0.01)) / 0.02
  assert_allclose(jax.grad(value)(0.0), slope, rtol=1e-2)
  assert abs(float(slope)) > 0.1
