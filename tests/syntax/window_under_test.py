"""One window on its own, and what its weights must be, by loops."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.syntax import AttentionSite, SentenceFeatures, WindowSpec

WIDTH = 6
WHERE = AttentionSite("cross", 0, 1, WIDTH, "float32")


def drawn(window, score_BNS, query_BNG, view: SentenceFeatures, seed: int = 0):
  """Random parameters of a window, large enough to matter."""
  keys = {"params": jax.random.key(seed)}
  shapes = jax.eval_shape(
    lambda: window.init(keys, score_BNS, query_BNG, view, 1, method=steps)
  ).get("params", {})
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 1, x.shape), x.dtype), shapes
  )


def steps(window, score_BNS, query_BNG, view, count):
  """Weights of as many steps on the same scores (weight_BNTS)."""
  facts = window.features(view)
  past = window.start(view, score_BNS.shape[1])
  weights = []
  for _ in range(count):
    weight_BNS, past = window(score_BNS, query_BNG, facts, past, view)
    weights.append(weight_BNS)
  return jnp.stack(weights, 2)


def weights_of(
  spec: WindowSpec,
  score_BNS,
  query_BNG=None,
  *,
  params=None,
  count: int = 1,
  train: bool = False,
  **facts,
):
  """weight_BNTS of `count` steps.

  Args:
    spec: of the window.
    score_BNS: the same at each step.
    query_BNG: zeros unless given.
    params: of the window.
    count: T.
    train: see `SentenceFeatures`.
    **facts: fields of the view; all positions are real unless said otherwise.
  """
  score_BNS = jnp.asarray(score_BNS, jnp.float32)
  B, N, S = score_BNS.shape
  facts = {"real_BS": jnp.ones((B, S), bool)} | {
    name: jnp.asarray(value) for name, value in facts.items()
  }
  if query_BNG is None:
    query_BNG = jnp.zeros((B, N, WIDTH))
  window, view = spec.make(WHERE), SentenceFeatures(**facts, train=train)
  return window.apply(
    {"params": params or {}},
    score_BNS,
    query_BNG,
    view,
    count,
    method=steps,
  )


def predicted(share: float) -> dict:
  """Parameters of a `PredictedPosition` that always says p = share · J.

  tanh(bias) · weight = ln(share / (1 - share)), through one unit.
  """
  bias_G = np.zeros(WIDTH, np.float32)
  bias_G[0] = 1.0
  kernel_G1 = np.zeros((WIDTH, 1), np.float32)
  kernel_G1[0] = math.log(share / (1 - share)) / math.tanh(1.0)
  return {
    "position": {
      "hidden": {
        "kernel": jnp.zeros((WIDTH, WIDTH)),
        "bias": jnp.asarray(bias_G),
      },
      "position": {"kernel": jnp.asarray(kernel_G1)},
    }
  }


def position_by_loops(params, query_G, length: int) -> float:
  """p = J · σ(vᵀ tanh(W q + b))."""
  hidden = params["position"]["hidden"]
  total = 0.0
  for unit in range(WIDTH):
    inner = float(hidden["bias"][unit])
    for i in range(WIDTH):
      inner += float(query_G[i]) * float(hidden["kernel"][i, unit])
    kernel = params["position"]["position"]["kernel"]
    total += math.tanh(inner) * float(kernel[unit, 0])
  return length / (1 + math.exp(-total))


def softmax_by_loops(score_S, seen) -> list[float]:
  """Over the positions seen; 0 elsewhere."""
  top = max(float(score_S[j]) for j in seen)
  parts = {j: math.exp(float(score_S[j]) - top) for j in seen}
  total = sum(parts.values())
  return [parts.get(j, 0.0) / total for j in range(len(score_S))]
