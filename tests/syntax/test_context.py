"""Context-aware attention: the formula by loops, parameters and maps."""

import dataclasses
import math

import cases
import numpy as np
import pytest
from cases import FEATURES, HEADS, KEY, QUERY, SENTENCES, SITE, heads_of
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax.context import Context
from jaxsyn.syntax.maps import COLLECTION, Maps


def context_of(spec, inputs, b, s):
  """C at one position."""
  size = len(SENTENCES[b].word)
  if spec.context == "global":
    return inputs[-1][b, :size].mean(0)
  if spec.context == "deep":
    return np.concatenate([x[b, s] for x in inputs[:-1]])
  return np.concatenate([x[b, :size].mean(0) for x in inputs])


def by_loops(spec, x, scale, inputs, params):
  """X̂ of the class, position by position and head by head; 0 at padding."""
  out = np.zeros_like(x, float)
  for b, sentence in enumerate(SENTENCES):
    for s in range(len(sentence.word)):
      out[b, s] = x[b, s]
      context = context_of(spec, inputs, b, s).astype(np.float64)
      for n, h in enumerate(heads_of(spec)):
        mapped = context @ params["context_DHK"][:, n]
        undivided = x[b, s, h] / scale
        gate = cases.sigmoid(
          undivided @ params["own_gate_HK"][n]
          + mapped @ params["context_gate_HK"][n]
        )
        out[b, s, h] = scale * ((1 - gate) * undivided + gate * mapped)
  return out


@pytest.mark.parametrize(
  "spec, layer, multiple",
  [
    (Context(context="global"), 2, 1),
    (Context(context="deep"), 2, 2),
    (Context(context="deep_global", heads=(1,)), 1, 2),
  ],
  ids=str,
)
def test_queries_and_keys_equal_loops(spec, layer, multiple):
  inputs = [
    cases.normal(cases.B, cases.S, SITE.width) for _ in range(layer + 1)
  ]
  site = dataclasses.replace(SITE, layer=layer)
  arguments = QUERY, KEY, FEATURES.replace(inputs=tuple(inputs))
  params = cases.random_params(
    spec, "project", *arguments, site=site, scale=0.1
  )
  shape = multiple * SITE.width, len(heads_of(spec)), cases.K
  assert params["query"]["context_DHK"].shape == shape
  results, state = spec.make(site).apply(
    {"params": params}, *arguments, method="project", mutable=[COLLECTION]
  )
  real = np.asarray(FEATURES.real_BS)[..., None, None]
  for name, x, scale, result in zip(
    ("query", "key"), (QUERY, KEY), (1 / math.sqrt(cases.K), 1.0), results
  ):
    expected = by_loops(spec, x, scale, inputs, params[name])
    assert_allclose(np.where(real, result, 0), expected, atol=2e-5)
  gates = Maps.of(state).published
  assert [g.address.kind for g in gates] == ["query_gate_BQH", "key_gate_BMH"]
  is_selected = np.isin(np.arange(HEADS), heads_of(spec))
  for gate in (np.asarray(gate.value) for gate in gates):
    assert_array_equal(
      (gate > 0) & (gate < 1), np.broadcast_to(is_selected, gate.shape)
    )
