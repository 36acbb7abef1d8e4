"""Localness: the formula by loops, and windows at the limits of a type."""

import math

import cases
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FEATURES, KEY, QUERY, SCORE, SENTENCES, K, heads_of, sigmoid
from numpy.testing import assert_allclose

from jaxsyn.syntax.localness import Localness
from jaxsyn.syntax.maps import COLLECTION, Maps

WITH_KEYS = FEATURES.replace(query_BQHK=QUERY, key_BMHK=KEY)


def params_of(spec):
  return cases.random_params(spec, "rescore", SCORE, WITH_KEYS)


@pytest.mark.parametrize(
  "spec",
  [
    Localness(window="fixed", width=3.0),
    Localness(window="layer", heads=(1,)),
    Localness(window="query"),
    Localness(window="query", heads=(2, 0)),
  ],
  ids=str,
)
def test_scores_equal_loops(spec):
  params = params_of(spec)

  def score_of(score, sentence, i, q, m):
    b, h = SENTENCES.index(sentence), heads_of(spec)[i]
    length = len(sentence.word)
    hidden = np.tanh(QUERY[b, q, h] * math.sqrt(K) @ params["hidden_HKK"][i])
    center = length * sigmoid(hidden @ params["centre_HK"][i])
    window = spec.width
    if spec.window == "layer":
      mean = KEY[b, :length, h].mean(0)
      hidden = np.tanh(mean @ params["key_hidden_HKK"][i])
    if spec.window != "fixed":
      window = length * sigmoid(hidden @ params["window_HK"][i]) + 0.1
    return score - (m - center) ** 2 / (2 * (window / 2) ** 2)

  result, state = spec.make(cases.SITE).apply(
    {"params": params}, SCORE, WITH_KEYS, method="rescore", mutable=[COLLECTION]
  )
  assert_allclose(
    cases.real_pairs(result),
    cases.expected_scores(spec, score_of, no_tree=True),
    rtol=2e-5,
    atol=2e-5,
  )
  (bias,) = Maps.of(state).find(modifier="it", kind="bias_BHQM")
  assert_allclose(bias.value, result - SCORE, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_narrowest_window_is_finite(dtype):
  spec, params = Localness(window="query"), params_of(Localness())
  # tanh(W q) = 1 and u_d is far below 0, so that D = 0.1; P is half the length.
  params["hidden_HKK"] = np.full_like(params["hidden_HKK"], 9.0)
  params["window_HK"] = np.full_like(params["window_HK"], -99.0)
  params["centre_HK"] = np.zeros_like(params["centre_HK"])
  q, k = jnp.ones(QUERY.shape, dtype), jnp.asarray(KEY, dtype)
  out = cases.rescore(spec, 0 * SCORE, FEATURES, q, k, params=params)
  assert out.dtype == jnp.float32  # -1250 - 1/4 would be -1248 in bfloat16
  # P = 4.5 in the first sentence: -2 (0.5 / 0.1)² = -50 at 4 and 5.
  assert_allclose(out[0, :, :, 4:6], -50.0, rtol=1e-4)
  padding = FEATURES.replace(real_BS=jnp.zeros_like(FEATURES.real_BS))
  assert np.isfinite(
    cases.rescore(spec, SCORE, padding, q, k, params=params)
  ).all()
