"""Localness: hand-checked windows, and the formula in plain loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import check_part
from part_under_test import WHERE, rescored

from jaxsyn.errors import InputError
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.localness import Localness
from jaxsyn.syntax.maps import COLLECTION, Address, Maps

WINDOWS = ["fixed", "layer", "query"]
H, K = WHERE.heads, WHERE.head_width  # 2, 4
# Five subwords and three, EOS included, then pads.
REAL = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]], bool)


def drawn(spec, seed=0):
  """Scores, unscaled queries, keys and parameters, all random."""
  rng = np.random.default_rng(seed)
  count = H if spec.heads is None else len(spec.heads)
  shapes = {"hidden_HKK": (count, K, K), "centre_HK": (count, K)}
  if spec.window != "fixed":
    shapes["window_HK"] = (count, K)
  if spec.window == "layer":
    shapes["key_hidden_HKK"] = (count, K, K)
  params = {
    name: rng.normal(size=shape).astype(np.float32)
    for name, shape in shapes.items()
  }
  B, S = REAL.shape
  score, q, k = (
    rng.normal(size=shape).astype(np.float32)
    for shape in ((B, H, S, S), (B, S, H, K), (B, S, H, K))
  )
  return score, q, k, params


def run(spec, score, q, k, params, real=REAL):
  return rescored(
    spec,
    score,
    q_BQHK=jnp.asarray(q / math.sqrt(K)),
    k_BMHK=jnp.asarray(k),
    params=params,
    real_BS=real,
  )


def sigmoid(x):
  return 1.0 / (1.0 + math.exp(-x))


def read(vector, matrix, x):
  """u · tanh(W x), where column i of the parameter makes the i-th of W x."""
  total = 0.0
  for i in range(K):
    total += vector[i] * math.tanh(sum(x[j] * matrix[j][i] for j in range(K)))
  return total


def reference(spec, score, q, k, params):
  """The formula of the class, one number at a time."""
  out = score.astype(np.float64)
  heads = range(H) if spec.heads is None else spec.heads
  for b in range(len(score)):
    real = [j for j in range(REAL.shape[1]) if REAL[b, j]]
    length = len(real)
    for n, h in enumerate(heads):
      hidden, centre = params["hidden_HKK"][n], params["centre_HK"][n]
      for i in range(REAL.shape[1]):
        P = length * sigmoid(read(centre, hidden, q[b, i, h]))
        if spec.window == "fixed":
          D = spec.width
        elif spec.window == "query":
          D = length * sigmoid(read(params["window_HK"][n], hidden, q[b, i, h]))
          D += 0.1
        else:
          mean = [sum(k[b, j, h, x] for j in real) / length for x in range(K)]
          D = read(params["window_HK"][n], params["key_hidden_HKK"][n], mean)
          D = length * sigmoid(D) + 0.1
        sigma = D / 2
        for j in range(REAL.shape[1]):
          out[b, h, i, j] -= (j - P) ** 2 / (2 * sigma**2)
  return out


@pytest.mark.parametrize(
  "spec",
  [
    *(Localness(window=window) for window in WINDOWS),
    Localness(window="fixed", width=3.0),
    Localness(window="layer", heads=(1,)),
    Localness(window="query", heads=(1,)),
  ],
  ids=str,
)
def test_against_loops(spec):
  score, q, k, params = drawn(spec)
  out = run(spec, score, q, k, params)
  # Pads query, too: their rows are finite and of no use.
  expected = reference(spec, score, q, k, params)
  np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
  if spec.heads == (1,):
    np.testing.assert_array_equal(out[:, 0], score[:, 0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_narrowest_window_is_a_number(dtype):
  spec = Localness(window="query")
  score, q, k, params = drawn(spec)
  # tanh(W q) = ±1 at ever the same places, and u_d far below: D = 0.1.
  q = np.ones_like(q)
  params["hidden_HKK"] = np.full_like(params["hidden_HKK"], 9.0)
  params["window_HK"] = np.full_like(params["window_HK"], -99.0)
  params["centre_HK"] = np.zeros_like(params["centre_HK"])
  q, k = jnp.asarray(q, dtype), jnp.asarray(k, dtype)
  out = run(spec, np.zeros_like(score), q, k, params)
  assert out.dtype == jnp.float32  # -1250 - 1/4 would be -1248 in bfloat16
  # P = 2.5: -2 (0.5 / 0.1)² = -50 at 2 and 3.
  np.testing.assert_allclose(out[0, :, :, 2:4], -50.0, rtol=1e-4)
  nothing = run(spec, score, q, k, params, np.zeros_like(REAL))
  assert np.isfinite(np.asarray(nothing, np.float32)).all()


def test_creates_parameters_and_publishes_maps():
  def made(spec):
    score, q, k, _ = drawn(spec)
    position = jnp.arange(REAL.shape[1])
    view = SentenceFeatures(
      real_BS=jnp.asarray(REAL), position_Q=position, position_M=position
    )
    part = spec.make(WHERE.for_modifier("localness"))
    call = dict(method="rescore")
    made = part.init(jax.random.key(0), score, q, k, view, **call)
    out = part.apply(made, score, q, k, view, **call, mutable=[COLLECTION])
    return made, Maps.of(out[1])

  fixed, _ = made(Localness(window="fixed"))
  assert set(fixed["params"]) == {"hidden_HKK", "centre_HK"}
  one, maps = made(Localness(window="layer", heads=(1,)))
  assert one["params"]["key_hidden_HKK"].shape == (1, K, K)
  bias = maps.at(Address("encoder", 0, "localness", "bias_BHQM"))
  assert bias.shape == (2, 2, 6, 6)
  assert (bias[:, 0] == 0).all() and (bias[:, 1] < 0).all()


def test_a_window_must_be_wide():
  with pytest.raises(
    InputError, match=r"encoder\.localness\.width must be above 0"
  ):
    check_part("encoder", "localness", {"width": 0.0})
