"""Context-aware attention: the formula by loops, parameters and maps."""

import dataclasses
import math

import numpy as np
import pytest
from cases import (
  FEATURES,
  HEADS,
  KEY,
  QUERY,
  SENTENCES,
  SITE,
  B,
  K,
  S,
  heads_of,
  normal,
  random_params,
  sigmoid,
)

from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath
from jaxsyn.syntax.context import Context
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.modifier import StackShape

D = SITE.width


def context_of(spec, inputs, b, s):
  """C at one position."""
  size = len(SENTENCES[b].word)
  if spec.context == "global":
    return inputs[-1][b, :size].mean(0)
  if spec.context == "deep":
    return np.concatenate([x[b, s] for x in inputs[:-1]])
  return np.concatenate([x[b, :size].mean(0) for x in inputs])


def by_loops(spec, x, scale, inputs, params):
  """X̂ of the class, position by position and head by head."""
  out = x.astype(np.float64)
  for b, sentence in enumerate(SENTENCES):
    for s in range(len(sentence.word)):
      context = context_of(spec, inputs, b, s).astype(np.float64)
      for n, h in enumerate(heads_of(spec)):
        mapped = context @ params["context_DHK"][:, n]
        undivided = x[b, s, h] / scale
        gate = sigmoid(
          undivided @ params["own_gate_HK"][n]
          + mapped @ params["context_gate_HK"][n]
        )
        out[b, s, h] = scale * ((1 - gate) * undivided + gate * mapped)
  return out


@pytest.mark.parametrize(
  "spec, layer, multiple",
  [
    (Context(context="global"), 0, 1),
    (Context(context="global"), 2, 1),
    (Context(context="deep"), 1, 1),
    (Context(context="deep"), 2, 2),
    (Context(context="deep_global"), 2, 3),
    (Context(context="deep_global", heads=(1,)), 1, 2),
  ],
  ids=str,
)
def test_queries_and_keys_equal_loops(spec, layer, multiple):
  inputs = tuple(normal(B, S, D) for _ in range(layer + 1))
  features = FEATURES.replace(inputs=inputs)
  site = dataclasses.replace(SITE, layer=layer)
  arguments = QUERY, KEY, features
  params = random_params(spec, "project", *arguments, site=site, scale=0.1)
  for module in params.values():
    heads = len(heads_of(spec))
    assert module["context_DHK"].shape == (multiple * D, heads, K)
  (q, k), state = spec.make(site).apply(
    {"params": params}, *arguments, method="project", mutable=[COLLECTION]
  )
  real = np.asarray(FEATURES.real_BS)[..., None, None]
  for out, was, name, scale in (
    (q, QUERY, "query", 1 / math.sqrt(K)),
    (k, KEY, "key", 1.0),
  ):
    expected = by_loops(spec, was, scale, inputs, params[name])
    np.testing.assert_allclose(
      np.where(real, out, 0), np.where(real, expected, 0), atol=2e-5
    )
  gates = Maps.of(state).published
  assert [g.address.kind for g in gates] == ["query_gate_BQH", "key_gate_BMH"]
  for gate in (np.asarray(gate.value) for gate in gates):
    is_selected = np.isin(np.arange(HEADS), heads_of(spec))
    assert (gate[..., ~is_selected] == 0).all()
    assert ((gate[..., is_selected] > 0) & (gate[..., is_selected] < 1)).all()


def test_deep_context_needs_a_previous_layer():
  spec = Context(context="deep")
  assert spec.active_heads(3, 1) == {(1, 0), (2, 0)}
  assert len(Context(context="deep_global").active_heads(3, 1)) == 3
  at = ConfigPath("config.parts.encoder.context")
  spec.check(at, StackShape("encoder", 2, 1, 8))
  for disabled in ({"layers": ()}, {"heads": ()}):
    spec = Context(context="deep", **disabled)
    spec.check(at, StackShape("encoder", 2, 1, 8))
  for spec, layers in (
    (Context(context="deep"), 1),
    (Context(context="deep", layers=(0,)), 3),
  ):
    with pytest.raises(InputError, match=r"context='deep' uses the inputs of"):
      spec.check(at, StackShape("encoder", layers, 1, 8))
