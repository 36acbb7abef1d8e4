"""Heads on neighbours: who sees whom, by walks on the tree; the gate by loops."""

import dataclasses

import graph_by_loops as graph
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import HEADS, VIEW, WHERE
from models_under_test import check_part

from jaxsyn.errors import InputError
from jaxsyn.syntax.neighbour_heads import NeighbourHeads

RNG = np.random.default_rng(0)
SCORE = RNG.normal(size=(graph.B, HEADS, graph.S, graph.S)).astype(np.float32)
QUERY = RNG.normal(size=(graph.B, graph.S, HEADS, 8)).astype(np.float32)
RELATIONS = [
  "parent",
  "children",
  "siblings",
  "ancestors",
  "descendants",
  "hops",
]


def sees(relation, head, one, other, hops, there):
  """Whether word `one` sees word `other`; words not `there` are passed over."""
  if one == other:
    return True
  above, below = (
    [word for word in graph.chain(head, own)[1:] if word in there]
    for own in (one, other)
  )
  if relation == "parent":
    return above[:1] == [other]
  if relation == "children":
    return below[:1] == [one]
  if relation == "siblings":
    return bool(above and below) and above[0] == below[0]
  if relation == "ancestors":
    return other in above
  if relation == "descendants":
    return one in below
  found = graph.path(head, one, other)
  return found is not None and len(found[0]) - 1 + len(found[1]) <= hops


def weights(spec, params=None, score=SCORE):
  """Attention weights after the mask, as `jaxsyn.models.attention` has them."""
  new = spec.make(WHERE).apply(
    {"params": params or {}}, score, QUERY, QUERY, VIEW, method="rescore"
  )
  real = VIEW.real_BS[:, None, None, :]
  return jax.nn.softmax(jnp.where(real, new, jnp.finfo(jnp.float32).min))


def by_loops(spec, params=None):
  """The same in double precision, pair by pair, with zeros of pads."""
  out = np.zeros(SCORE.shape)
  heads = range(HEADS) if spec.heads is None else spec.heads
  for b, (head, _, word, parsed) in enumerate(graph.SENTENCES):
    for h in range(HEADS):
      for q, one in enumerate(word):
        e = np.exp(np.array(SCORE[b, h, q, : len(word)], np.float64))
        whole = e / e.sum()
        out[b, h, q, : len(word)] = whole
        if h not in heads or not parsed:
          continue
        near = np.array([
          q == m
          or (min(one, other) >= 0
              and sees(spec.relation, head, one, other, spec.hops, word))
          for m, other in enumerate(word)
        ])  # fmt: skip
        local = e * near / (e * near).sum()
        g = 1.0
        if spec.gate:
          i = list(heads).index(h)
          logit = QUERY[b, q, h] @ params["gate_HK"][i] * 8**0.5
          g = 1 / (1 + np.exp(-logit - params["gate_H"][i]))
        out[b, h, q, : len(word)] = g * local + (1 - g) * whole
  return out


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("heads", [None, (2, 0)])
def test_against_loops(relation, gate, heads):
  spec = NeighbourHeads(relation=relation, gate=gate, heads=heads)
  H = HEADS if heads is None else 2
  params = gate and {
    "gate_HK": RNG.normal(size=(H, 8)).astype(np.float32),
    "gate_H": RNG.normal(size=H).astype(np.float32),
  }
  real = np.asarray(VIEW.real_BS)[:, None, :, None]
  out = np.where(real, weights(spec, params), 0)
  np.testing.assert_allclose(out, by_loops(spec, params), atol=2e-6)


@pytest.mark.parametrize("hops", [1, 3])
def test_hops(hops):
  spec = NeighbourHeads(hops=hops)
  real = np.asarray(VIEW.real_BS)[:, None, :, None]
  out = np.where(real, weights(spec), 0)
  np.testing.assert_allclose(out, by_loops(spec), atol=2e-6)


def test_a_parent_without_subwords_is_passed_over():
  """Some sentence has one between a word and its grandparent: 2 -> 1 -> 0."""
  view = dataclasses.replace(
    VIEW,
    word_BS=jnp.asarray([[0, 2, -1]]),
    head_BW=jnp.asarray([[0, 0, 1]]),
    tree_distance_BWW=jnp.asarray([[[0, 1, 2], [1, 0, 1], [2, 1, 0]]]),
    real_BS=jnp.ones((1, 3), bool),
    parsed_B=jnp.ones(1, bool),
  )
  sees = {"parent": (1, 0), "children": (0, 1), "ancestors": (1, 0)}
  sees |= {"descendants": (0, 1), "hops": (1, 1)}
  for relation, wanted in sees.items():
    spec = NeighbourHeads(relation=relation, heads=None)
    new = spec.make(WHERE).apply(
      {}, SCORE[:1, :, :3, :3], QUERY[:1, :3], QUERY[:1, :3], view,
      method="rescore",
    )  # fmt: skip
    seen = np.asarray(new)[0, 0] > -1e8
    assert (seen[1, 0], seen[0, 1]) == wanted
    assert seen.diagonal().all() and seen[2].tolist() == [False, False, True]


def test_scores_however_large_leave_what_is_hidden_hidden():
  spec = NeighbourHeads(relation="parent", gate=True, heads=None)
  params = {"gate_HK": np.zeros((HEADS, 8)), "gate_H": np.full(HEADS, 1e4)}

  def loss(score):
    return jnp.sum(weights(spec, params, score)[:, :, :, 0])

  for score in (1e4 * SCORE, 0 * SCORE):
    weight = np.asarray(weights(spec, params, score))
    assert (
      np.isfinite(weight).all() and np.isfinite(jax.grad(loss)(score)).all()
    )
    assert weight[0, 0, 0, 2:].max() == 0  # all of it on itself and its parent


def test_an_option_that_does_nothing_is_told():
  with pytest.raises(
    InputError, match="hops=3 does nothing with relation='parent'"
  ):
    check_part("encoder", "neighbour_heads", {"relation": "parent", "hops": 3})
