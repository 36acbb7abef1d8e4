"""Graph convolutions: the sum over neighbours by loops, and where they stand."""

import functools

import graph_by_loops as graph
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import RELATIONS, VIEW, WHERE
from models_under_test import check_part

from jaxsyn.errors import InputError
from jaxsyn.syntax.graph_block import GraphBlock
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.syntax.parents import parents_BWX

RNG = np.random.default_rng(0)
D = 6
X = RNG.normal(size=(graph.B, graph.S, D)).astype(np.float32)
STAGES = {"before": "embed", "after": "encoded", "beside": "adapt_output"}


def drawn(spec, seed=0):
  """Random parameters, biases and gates included."""
  rng = np.random.default_rng(seed)
  part = spec.make(WHERE)
  shapes = jax.eval_shape(
    lambda: part.init(jax.random.key(0), X, VIEW, method="_message_BSD")
  )
  return jax.tree.map(
    lambda x: jnp.asarray(rng.normal(0, 0.5, x.shape), x.dtype), shapes
  )


def applied(spec, variables, view=VIEW, x=X):
  inputs = (x, x, view) if spec.at == "beside" else (x, view)
  return spec.make(WHERE).apply(variables, *inputs, method=STAGES[spec.at])


def parent_of(head, word, present):
  """The nearest word above that has subwords; None: there is none."""
  return next((w for w in graph.chain(head, word)[1:] if w in present), None)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def by_loops(spec, variables):
  """The formula, node by node, neighbour by neighbour."""
  out = np.array(X, np.float64)
  params = jax.tree.map(np.asarray, variables["params"])
  for b, (head, relation, word, parsed) in enumerate(graph.SENTENCES):
    if not parsed:
      continue
    present = sorted({w for w in word if w >= 0})
    pieces = {
      w: [s for s, item in enumerate(word) if item == w] for w in present
    }
    h = {w: np.mean([X[b, s] for s in pieces[w]], axis=0) for w in present}
    first = dict(h)
    for layer in range(spec.depth):
      item = params[f"convolutions_{layer}"]

      def message(direction, sender, label, own=item):
        p = own[direction]
        g = sigmoid(sender @ p["gate_D"] + p["gate_R"][label])
        return g * (sender @ p["value"]["kernel"] + p["bias_RD"][label])

      new = {}
      for w in present:
        total = message("from_itself", h[w], 0)
        above = parent_of(head, w, present)
        if above is not None:
          total = total + message("from_parent", h[above], relation[w])
        for child in present:
          if parent_of(head, child, present) == w:
            total = total + message("from_children", h[child], relation[child])
        new[w] = h[w] + np.maximum(total, 0)
      h = new
    for w in present:
      for s in pieces[w]:
        out[b, s] += h[w] - first[w]
  return out


@pytest.mark.parametrize(
  "at, depth", [("before", 1), ("after", 2), ("beside", 2)]
)
def test_against_loops(at, depth):
  spec = GraphBlock(at=at, depth=depth)
  variables = drawn(spec)
  real = np.asarray(VIEW.real_BS)[..., None]
  np.testing.assert_allclose(
    np.where(real, applied(spec, variables), 0),
    np.where(real, by_loops(spec, variables), 0),
    atol=5e-5,
    rtol=1e-5,
  )


def test_what_is_drawn_is_who_is_heard():
  spec = GraphBlock(depth=2)
  _, state = spec.make(WHERE).apply(
    drawn(spec), X, VIEW, method="embed", mutable=[COLLECTION]
  )
  (result,) = Maps.of(state).find(kind="heard_BQM")
  for b, q, m, head, one, other in graph.pairs():
    present = {w for w in graph.SENTENCES[b][2] if w >= 0}
    near = min(one, other) >= 0 and (
      parent_of(head, one, present) == other
      or parent_of(head, other, present) == one
    )
    heard = result.value[b, q, m] > 0
    assert heard == (near and graph.parsed(b)), (b, q, m)


def test_a_parent_without_subwords_is_passed_over():
  # Words 0, 2, 5, 6, 7 of the third sentence have subwords; 2 depends on 1, that on
  # 0; 5 depends on 4, 3, and so on 2.
  parent_WX = np.asarray(parents_BWX(VIEW)[2])
  result = {w: np.flatnonzero(row).tolist() for w, row in enumerate(parent_WX)}
  assert {w: x for w, x in result.items() if x} == {
    2: [0],
    5: [2],
    6: [2],
    7: [0],
  }


def test_a_subword_of_a_word_alone_in_the_sentence_hears_itself():
  spec = GraphBlock()
  variables = drawn(spec)
  moved = applied(spec, variables, x=np.roll(X, 1, axis=2)) - np.roll(X, 1, 2)
  ours = applied(spec, variables) - X
  assert (np.asarray(ours[4]) == 0).all()  # the sentence of no word
  assert (np.asarray(ours[5]) == 0).all()  # and that without a tree
  assert (np.asarray(ours[:, -1]) == 0).all()  # pads
  assert np.abs(moved[0] - ours[0]).max() > 0.1


def test_every_parameter_learns():
  spec = GraphBlock(depth=2)
  variables = drawn(spec)
  weight = RNG.normal(size=X.shape)

  @functools.partial(jax.jit)
  def loss(variables):
    return jnp.sum(applied(spec, variables) * weight)

  for gradient in jax.tree.leaves(jax.grad(loss)(variables)):
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-3


@pytest.mark.parametrize(
  "options, message",
  [
    ({"layers": (0,)}, "layers=\\(0,\\) does nothing with at='before'"),
    ({"at": "beside", "layers": (2,)}, "2 is not one of the 2 layers"),
  ],
)
def test_what_does_not_fit_is_told(options, message):
  with pytest.raises(InputError, match=message):
    check_part("encoder", "graph_block", options)


def test_sizes_are_those_of_the_formula():
  spec = GraphBlock()
  sizes = jax.tree.map(lambda x: x.size, drawn(spec)["params"])
  (expected,) = sizes.values()
  for direction, labels in (("from_parent", 6), ("from_itself", 1)):
    assert (
      sum(jax.tree.leaves(expected[direction]))
      == D * D + labels * D + D + labels
    )
  assert RELATIONS == 5
