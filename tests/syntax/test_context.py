"""Context-aware attention: hand-checked, and the formula in plain loops."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from part_under_test import WHERE

from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.context import Context
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.modifier import StackShape

H, K, D = WHERE.heads, WHERE.head_width, WHERE.width  # 2, 4, 8
# Four subwords and two, EOS included, then pads.
REAL = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], bool)


def drawn(spec, layer, seed=0):
  """Unscaled queries, keys, inputs of the layers and parameters, random."""
  rng = np.random.default_rng(seed)
  B, S = REAL.shape

  def draw(*shape):
    return rng.normal(size=shape).astype(np.float32)

  pieces = {"global": 1, "deep": layer, "deep_global": layer + 1}[spec.context]
  heads = H if spec.heads is None else len(spec.heads)
  params = {
    name: {
      "context_DHK": 0.3 * draw(pieces * D, heads, K),
      "own_gate_HK": draw(heads, K),
      "context_gate_HK": draw(heads, K),
    }
    for name in ("query", "key")
  }
  inputs = tuple(draw(B, S, D) for _ in range(layer + 1))
  return draw(B, S, H, K), draw(B, S, H, K), inputs, params


def run(spec, layer, q, k, inputs, params, real=REAL, site=WHERE):
  """Queries and keys after the part; both unscaled, as in the paper."""
  root = math.sqrt(site.head_width)
  view = SentenceFeatures(
    real_BS=jnp.asarray(real), inputs=tuple(map(jnp.asarray, inputs))
  )
  part = spec.make(dataclasses.replace(site, layer=layer))
  q, k = part.apply(
    {"params": params},
    jnp.asarray(q) / root,
    jnp.asarray(k),
    view,
    method="project",
  )
  return q * root, k


def context_of(spec, inputs, b, s):
  """C at one position: a list of numbers."""
  real = [i for i in range(REAL.shape[1]) if REAL[b, i]]

  def mean(x):
    return [sum(x[b, i, d] for i in real) / len(real) for d in range(D)]

  if spec.context == "global":
    return mean(inputs[-1])
  if spec.context == "deep":
    return [x[b, s, d] for x in inputs[:-1] for d in range(D)]
  return [index for x in inputs for index in mean(x)]


def reference(spec, x, inputs, params):
  """X̂ of the class, one number at a time."""
  out = x.astype(np.float64)
  heads = range(H) if spec.heads is None else spec.heads
  for b in range(x.shape[0]):
    for s in range(x.shape[1]):
      context = context_of(spec, inputs, b, s)
      for n, h in enumerate(heads):
        read = [
          sum(c * params["context_DHK"][d, n, i] for d, c in enumerate(context))
          for i in range(K)
        ]
        gate = 0.0
        for i in range(K):
          gate += x[b, s, h, i] * params["own_gate_HK"][n, i]
          gate += read[i] * params["context_gate_HK"][n, i]
        gate = 1.0 / (1.0 + math.exp(-gate))
        for i in range(K):
          out[b, s, h, i] = (1 - gate) * x[b, s, h, i] + gate * read[i]
  return out


@pytest.mark.parametrize(
  "spec, layer",
  [
    (Context(context="global"), 0),
    (Context(context="global"), 2),
    (Context(context="deep"), 1),
    (Context(context="deep"), 2),
    (Context(context="deep_global"), 0),
    (Context(context="deep_global"), 2),
    (Context(context="deep_global", heads=(1,)), 1),
  ],
  ids=str,
)
def test_against_loops(spec, layer):
  q, k, inputs, params = drawn(spec, layer)
  out_q, out_k = run(spec, layer, q, k, inputs, params)
  for out, was, name in ((out_q, q, "query"), (out_k, k, "key")):
    expected = reference(spec, was, inputs, params[name])
    np.testing.assert_allclose(out, expected, atol=1e-5)
    if spec.heads == (1,):
      np.testing.assert_allclose(out[:, :, 0], was[:, :, 0], rtol=1e-6)


def test_the_first_layer_has_no_layer_before():
  spec = Context(context="deep")
  assert spec.active_heads(3, 1) == {(1, 0), (2, 0)}
  assert Context(context="deep_global").active_heads(3, 1) == {
    (0, 0),
    (1, 0),
    (2, 0),
  }
  at = ConfigPath("config.parts.encoder.context")
  spec.check(at, StackShape("encoder", 2, 1, 8))
  for off in ({"layers": ()}, {"heads": ()}):
    Context(context="deep", **off).check(at, StackShape("encoder", 2, 1, 8))
  for single, layers in ((spec, 1), (Context(context="deep", layers=(0,)), 3)):
    with pytest.raises(InputError, match=r"context='deep' is made of the lay"):
      single.check(at, StackShape("encoder", layers, 1, 8))


@pytest.mark.parametrize(
  "spec, layer, pieces",
  [
    (Context(context="global"), 2, 1),
    (Context(context="deep"), 2, 2),
    (Context(context="deep_global", heads=(0,)), 2, 3),
  ],
  ids=str,
)
def test_creates_parameters_and_publishes_maps(spec, layer, pieces):
  q, k, inputs = jax.tree.map(jnp.asarray, drawn(spec, layer)[:3])
  part = spec.make(dataclasses.replace(WHERE, layer=layer))
  view = SentenceFeatures(real_BS=jnp.asarray(REAL), inputs=inputs)
  call = dict(method="project")
  made = part.init(jax.random.key(0), q, k, view, **call)
  state = part.apply(made, q, k, view, **call, mutable=[COLLECTION])[1]
  heads = H if spec.heads is None else 1
  for name in ("query", "key"):
    assert {n: a.shape for n, a in made["params"][name].items()} == {
      "context_DHK": (pieces * D, heads, K),
      "own_gate_HK": (heads, K),
      "context_gate_HK": (heads, K),
    }
  gates = Maps.of(state).published
  assert [g.address.kind for g in gates] == ["query_gate_BQH", "key_gate_BMH"]
  for gate in (g.value for g in gates):
    assert gate.shape == (*REAL.shape, H)
    assert ((gate[..., :heads] > 0) & (gate[..., :heads] < 1)).all()
    assert (gate[..., heads:] == 0).all()
