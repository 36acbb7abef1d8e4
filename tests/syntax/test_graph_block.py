"""Graph convolutions: the sum over neighbors by loops, at each place."""

import cases
import numpy as np
import pytest
from cases import FEATURES, SENTENCES, SITE, real_subwords
from numpy.testing import assert_allclose

from jaxsyn.syntax.graph_block import GraphBlock
from jaxsyn.syntax.maps import COLLECTION, Maps

X = cases.normal(cases.B, cases.S, 6)
STAGES = {
  "before": "embed",
  "after": "adapt_encoding",
  "beside": "adapt_output",
}


def params_of(spec):
  return cases.random_params(spec, "_message_BSD", X, FEATURES)


def applied(spec, params):
  """The output of the stage, and the published gates."""
  out, state = spec.make(SITE).apply(
    {"params": params},
    X,
    FEATURES.replace(inputs=(0 * X, X)),
    method=STAGES[spec.at],
    mutable=[COLLECTION],
  )
  (gates,) = Maps.of(state).find(kind="heard_BQM")
  return out, gates.value


def parent_of(sentence, word):
  return (sentence.ancestors(word) or [None])[0]


def by_loops(spec, params):
  """The formula, node by node and neighbor by neighbor."""
  out = np.array(X, np.float64)
  for b, sentence in enumerate(SENTENCES):
    if not sentence.parsed:
      continue
    words = sorted(set(sentence.word) - {-1})
    first = {w: X[b, sentence.subwords(w)].mean(0) for w in words}
    h = dict(first)
    for layer in range(spec.depth):
      directions = params[f"convolutions_{layer}"]

      def message(direction, sender_D, relation, directions=directions):
        p = directions[direction]
        gate = cases.sigmoid(sender_D @ p["gate_D"] + p["gate_R"][relation])
        value_D = sender_D @ p["value"]["kernel"] + p["bias_RD"][relation]
        return gate * value_D

      new = {}
      for w in words:
        total = message("from_itself", h[w], 0)
        parent = parent_of(sentence, w)
        if parent is not None:
          relation = sentence.relation[w]
          total = total + message("from_parent", h[parent], relation)
        for child in words:
          if parent_of(sentence, child) == w:
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
  out, gate_BQM = applied(spec, params)
  assert_allclose(
    real_subwords(out),
    real_subwords(by_loops(spec, params)),
    atol=5e-5,
    rtol=1e-5,
  )
  change = np.asarray(out - X)
  assert (change[4:] == 0).all()  # without words, without a tree
  assert (change[:, -1] == 0).all()  # padding
  for b, sentence in enumerate(SENTENCES):
    for q, m in np.ndindex(len(sentence.word), len(sentence.word)):
      one, other = sentence.word[q], sentence.word[m]
      is_edge = min(one, other) >= 0 and (
        parent_of(sentence, one) == other or parent_of(sentence, other) == one
      )
      assert (gate_BQM[b, q, m] > 0) == (is_edge and sentence.parsed)


@pytest.mark.parametrize("direction", ["from_parent", "from_children"])
def test_rows_of_the_map_are_receivers(direction):
  spec = GraphBlock()
  params = params_of(spec)
  closed = {"from_parent": "from_children", "from_children": "from_parent"}
  params["convolutions_0"][closed[direction]]["gate_R"][:] = -99.0
  _, gate_BQM = applied(spec, params)
  sentence = SENTENCES[1]
  for receiver, sender in np.ndindex(6, 6):
    words = sentence.word[receiver], sentence.word[sender]
    child, parent = words if direction == "from_parent" else words[::-1]
    is_open = gate_BQM[1, receiver, sender] > 1e-6
    assert is_open == (parent_of(sentence, child) == parent)
