"""Local attention: by hand, against loops, and what learns."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from window_under_test import (
  WHERE,
  drawn,
  position_by_loops,
  predicted,
  softmax_by_loops,
  weights_of,
)

from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, from_config
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.windows.local import Local


def test_factors_by_hand_at_a_whole_position():
  """p = 0.5 · 22 = 11; even scores in 21 places, times exp(-k² / 50)."""
  weight_S = weights_of(
    Local(reach=10, sigma=5.0), np.zeros((1, 1, 22)), params=predicted(0.5)
  )[0, 0, 0]
  assert weight_S[0] == 0  # 11 - 10 = 1 is the first position seen
  np.testing.assert_allclose(weight_S[11], 1 / 21, rtol=1e-5)
  np.testing.assert_allclose(
    weight_S[11:15] * 21, [1.0, 0.9802, 0.9231, 0.8353], atol=1e-4
  )
  np.testing.assert_allclose(weight_S[11:], weight_S[11:0:-1], rtol=1e-4)
  assert weight_S.sum() < 1


def by_loops(spec, score_S, position, length):
  low, high = (
    math.floor(position) - spec.reach,
    math.floor(position) + spec.reach,
  )
  seen = [j for j in range(length) if low <= j <= high]
  weight_S = softmax_by_loops(score_S, seen)
  return [
    w * math.exp(-((j - position) ** 2) / (2 * spec.sigma**2))
    for j, w in enumerate(weight_S)
  ]


def test_against_loops():
  spec, rng = Local(reach=2, sigma=1.3), np.random.default_rng(0)
  score_BNS = rng.normal(size=(2, 3, 9))
  query_BNG = rng.normal(size=(2, 3, WHERE.width))
  real_BS = np.arange(9) < np.array([[9], [5]])
  view = SentenceFeatures(real_BS=jnp.asarray(real_BS))
  params = drawn(spec.make(WHERE), jnp.asarray(score_BNS), query_BNG, view)
  result = weights_of(
    spec, score_BNS, query_BNG, params=params, real_BS=real_BS
  )
  for b, n in np.ndindex(2, 3):
    length = (9, 5)[b]
    position = position_by_loops(params, query_BNG[b, n], length)
    expected = by_loops(spec, score_BNS[b, n], position, length)
    np.testing.assert_allclose(result[b, n, 0], expected, atol=1e-5)


def test_the_position_learns_through_the_gaussian():
  """d/dp of Σ_j α_j exp(-(j - p)² / 2σ²) v_j, by central differences."""
  spec = Local(reach=10, sigma=2.0)
  score = np.random.default_rng(1).normal(size=(1, 1, 7))

  def value(shift):
    params = predicted(0.45)
    kernel = params["position"]["position"]["kernel"]
    params["position"]["position"]["kernel"] = kernel + shift
    weight = weights_of(spec, score, params=params)
    return jnp.sum(weight * jnp.arange(7.0))

  slope = (value(0.01) - value(-0.01)) / 0.02
  np.testing.assert_allclose(jax.grad(value)(0.0), slope, rtol=1e-2)
  assert abs(float(slope)) > 0.1


@pytest.mark.parametrize("options", [{"reach": -1}, {"sigma": 0.0}])
def test_rejects_invalid_options(options):
  with pytest.raises(InputError, match=f"config.x.{next(iter(options))}"):
    from_config(Local, options, ConfigPath("config", "x"))
