"""Graph convolutions: the sum over neighbors by loops, at each place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
  FEATURES,
  SENTENCES,
  SITE,
  B,
  S,
  normal,
  random_params,
  real_subwords,
  run,
  sigmoid,
)
from models_under_test import check_modifier

from jaxsyn.errors import InputError
from jaxsyn.syntax.graph_block import GraphBlock
from jaxsyn.syntax.maps import COLLECTION, Maps

D = 6
X = normal(B, S, D)
STAGES = {
  "before": "embed",
  "after": "adapt_encoding",
  "beside": "adapt_output",
}


def params_of(spec):
  return random_params(spec, "_message_BSD", X, FEATURES)


def applied(spec, params):
  features = FEATURES.replace(inputs=(0 * X, X))
  return run(spec, STAGES[spec.at], X, features, params=params)


def by_loops(spec, params):
  """The formula, node by node and neighbor by neighbor."""
  out = np.array(X, np.float64)
  for b, sentence in enumerate(SENTENCES):
    if not sentence.parsed:
      continue
    words = sorted(set(sentence.word) - {-1})
    first = {w: X[b, sentence.subwords(w)].mean(0) for w in words}
    parent = {w: (sentence.ancestors(w) or [None])[0] for w in words}
    h = dict(first)
    for layer in range(spec.depth):
      directions = params[f"convolutions_{layer}"]

      def message(direction, sender_D, relation, directions=directions):
        p = directions[direction]
        gate = sigmoid(sender_D @ p["gate_D"] + p["gate_R"][relation])
        value_D = sender_D @ p["value"]["kernel"] + p["bias_RD"][relation]
        return gate * value_D

      new = {}
      for w in words:
        total = message("from_itself", h[w], 0)
        if parent[w] is not None:
          sender_D, relation = h[parent[w]], sentence.relation[w]
          total = total + message("from_parent", sender_D, relation)
        for child in words:
          if parent[child] == w:
            relation = sentence.relation[child]
            total = total + message("from_children", h[child], relation)
        new[w] = h[w] + np.maximum(total, 0)
      h = new
    for w in words:
      out[b, sentence.subwords(w)] += h[w] - first[w]
  return out


@pytest.mark.parametrize(
  "at, depth", [("before", 1), ("after", 2), ("beside", 2)]
)
def test_messages_equal_loops(at, depth):
  spec = GraphBlock(at=at, depth=depth)
  params = params_of(spec)
  np.testing.assert_allclose(
    real_subwords(applied(spec, params)),
    real_subwords(by_loops(spec, params)),
    atol=5e-5,
    rtol=1e-5,
  )
  change = np.asarray(applied(spec, params) - X)
  assert (change[4:] == 0).all()  # without words, without a tree
  assert (change[:, -1] == 0).all()  # padding


def test_publishes_gates_of_parents_and_children():
  spec = GraphBlock(depth=2)
  _, state = spec.make(SITE).apply(
    {"params": params_of(spec)},
    X,
    FEATURES,
    method="embed",
    mutable=[COLLECTION],
  )
  (gates,) = Maps.of(state).find(kind="heard_BQM")
  for b, sentence in enumerate(SENTENCES):
    for q, m in np.ndindex(len(sentence.word), len(sentence.word)):
      words = sentence.word[q], sentence.word[m]
      is_edge = min(words) >= 0 and (
        sentence.ancestors(words[0])[:1] == [words[1]]
        or sentence.ancestors(words[1])[:1] == [words[0]]
      )
      assert (gates.value[b, q, m] > 0) == (is_edge and sentence.parsed)


def test_each_parameter_gets_a_gradient():
  spec, weight = GraphBlock(depth=2), normal(*X.shape)

  @jax.jit
  def loss(params):
    return jnp.sum(applied(spec, params) * weight)

  params = jax.tree.map(jnp.asarray, params_of(spec))
  for gradient in jax.tree.leaves(jax.grad(loss)(params)):
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-3


@pytest.mark.parametrize(
  "options, message",
  [
    ({"layers": (0,)}, "layers=\\(0,\\) does nothing with at='before'"),
    ({"at": "beside", "layers": (2,)}, "2 is not one of the 2 layers"),
  ],
)
def test_rejects_invalid_layers(options, message):
  with pytest.raises(InputError, match=message):
    check_modifier("encoder", "graph_block", options)
