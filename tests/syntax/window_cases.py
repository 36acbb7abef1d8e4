"""One window on its own, step by step."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from cases import features_of
from numpy.testing import assert_allclose, assert_array_equal
from paper_references import Step

from jaxsyn.syntax import AttentionSite

WIDTH = 6
SITE = AttentionSite("cross", 0, 1, WIDTH, "float32")


def steps(window, score_BNS, query_BNG, features, count):
  """Weights of several steps with the same scores, weight_BNTS."""
  shared = window.make_shared_features(features)
  past = window.start(features, score_BNS.shape[1])
  weights = []
  for _ in range(count):
    weight_BNS, past = window(score_BNS, query_BNG, shared, past, features)
    weights.append(weight_BNS)
  return jnp.stack(weights, 2)


def random_params(window, score_BNS, query_BNG, features, seed: int = 0):
  """Random parameters of a window, with large values."""
  keys = {"params": jax.random.key(seed)}
  shapes = jax.eval_shape(
    lambda: window.init(keys, score_BNS, query_BNG, features, 1, method=steps)
  ).get("params", {})
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 1, x.shape), x.dtype), shapes
  )


def weights_of(spec, score_BNS, query_BNG=None, *, params, features, count=1):
  """Weights of several steps, weight_BNTS; queries are 0 by default."""
  score_BNS = jnp.asarray(score_BNS, jnp.float32)
  if query_BNG is None:
    query_BNG = jnp.zeros((*score_BNS.shape[:2], WIDTH))
  window, inputs = spec.make(SITE), (score_BNS, query_BNG, features, count)
  return window.apply({"params": params}, *inputs, method=steps)


def check_weights(spec, reference, sentences, count=1, **more):
  """Compares the weights of `count` steps with a reference by loops."""
  features, rng = features_of(sentences, **more), np.random.default_rng(0)
  B, S = features.real_BS.shape
  score_BNS = rng.normal(size=(B, 3, S))
  query_BNG = rng.normal(size=(B, 3, WIDTH))
  inputs = jnp.asarray(score_BNS), query_BNG, features
  params = random_params(spec.make(SITE), *inputs)
  result = weights_of(
    spec, score_BNS, query_BNG, params=params, features=features, count=count
  )
  for b, n in np.ndindex(B, 3):
    size, attended = len(sentences[b].word), 0.0
    for t in range(count):
      step = Step(
        sentences[b], score_BNS[b, n, :size], query_BNG[b, n], params, attended
      )
      expected = reference.weights(step)
      attended = sum(j * w for j, w in enumerate(expected))
      assert_allclose(result[b, n, t, :size], expected, atol=1e-5)
      assert_array_equal(result[b, n, t, size:], 0)


def predicted_position(share: float) -> dict:
  """Parameters of a `PredictedPosition` that always predicts p = share · J.

  tanh(bias) · weight = ln(share / (1 - share)), by one unit.
  """
  bias_G = np.zeros(WIDTH, np.float32)
  bias_G[0] = 1.0
  kernel_G1 = np.zeros((WIDTH, 1), np.float32)
  kernel_G1[0] = math.log(share / (1 - share)) / math.tanh(1.0)
  hidden = {"kernel": jnp.zeros((WIDTH, WIDTH)), "bias": jnp.asarray(bias_G)}
  position = {"kernel": jnp.asarray(kernel_G1)}
  return {"position": {"hidden": hidden, "position": position}}
