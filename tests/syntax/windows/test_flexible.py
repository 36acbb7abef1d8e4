"""Flexible attention: against loops, and the vision span."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from window_under_test import WHERE, drawn, softmax_by_loops, weights_of

from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, from_config
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.windows.flexible import Flexible


def strength_by_loops(params, query_G):
  """g = σ(vᵀ tanh(W q + b))."""
  inner_G = query_G @ np.asarray(params["hidden"]["kernel"], float)
  inner_G = inner_G + np.asarray(params["hidden"]["bias"], float)
  total = sum(
    math.tanh(inner_G[i]) * float(params["strength"]["kernel"][i, 0])
    for i in range(WHERE.width)
  )
  return 1 / (1 + math.exp(-total))


@pytest.mark.parametrize("span", [0.0, 0.4])
def test_three_steps_against_loops(span):
  spec, rng = Flexible(sigma=1.5, span=span), np.random.default_rng(0)
  score_BNS = rng.normal(size=(2, 3, 9))
  query_BNG = rng.normal(size=(2, 3, WHERE.width))
  real_BS = np.arange(9) < np.array([[9], [5]])
  view = SentenceFeatures(real_BS=jnp.asarray(real_BS))
  params = drawn(spec.make(WHERE), jnp.asarray(score_BNS), query_BNG, view)
  result = weights_of(
    spec, score_BNS, query_BNG, params=params, real_BS=real_BS, count=3
  )
  cut = False
  for b, n in np.ndindex(2, 3):
    strength = strength_by_loops(params, query_BNG[b, n])
    last = 0.0
    for t in range(3):
      score_S, seen = [], []
      for j in range((9, 5)[b]):
        penalty = strength * (j - last) ** 2 / (2 * spec.sigma**2)
        score_S.append(score_BNS[b, n, j] - penalty)
        if not span or penalty <= span or j == math.floor(last + 0.5):
          seen.append(j)
      cut = cut or len(seen) < len(score_S)
      weight_S = softmax_by_loops(score_S, seen)
      size = len(weight_S)
      np.testing.assert_allclose(result[b, n, t, :size], weight_S, atol=1e-5)
      np.testing.assert_array_equal(result[b, n, t, size:], 0)
      last = sum(j * w for j, w in enumerate(weight_S))
  assert cut == bool(span)


def test_the_span_is_cut_in_evaluation_alone():
  score = np.zeros((1, 1, 9))
  params = {  # strength σ(1) whatever is asked
    "hidden": {
      "kernel": jnp.zeros((WHERE.width, WHERE.width)),
      "bias": jnp.full(WHERE.width, 99.0),
    },
    "strength": {"kernel": jnp.full((WHERE.width, 1), 1 / WHERE.width)},
  }
  spec = Flexible(sigma=1.5, span=1.0)
  complete, cut = (
    weights_of(spec, score, params=params, train=train)[0, 0, 0]
    for train in (True, False)
  )
  # 0.731 · j² / 4.5 is at most 1 up to j = √(4.5 / 0.731) = 2.48.
  np.testing.assert_array_equal(cut > 0, np.arange(9) <= 2)
  assert (complete > 0).all()


@pytest.mark.parametrize("options", [{"sigma": 0.0}, {"span": -0.1}])
def test_rejects_invalid_options(options):
  with pytest.raises(InputError, match=f"config.x.{next(iter(options))}"):
    from_config(Flexible, options, ConfigPath("config", "x"))
