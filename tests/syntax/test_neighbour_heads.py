"""Heads on neighbours: who sees whom, by walks on the tree; the gate by loops."""

import dataclasses

import control_trees
import graph_by_loops as graph
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graph_by_loops import HEADS, VIEW, WHERE
from models_under_test import check_part, parts_of, plan_of

from jaxsyn.errors import InputError
from jaxsyn.syntax.neighbour_heads import NeighbourHeads

RNG = np.random.default_rng(0)
SCORE = RNG.normal(size=(graph.B, HEADS, graph.S, graph.S)).astype(np.float32)
QUERY = RNG.normal(size=(graph.B, graph.S, HEADS, 8)).astype(np.float32)
NEAR = NeighbourHeads(hops=2, context=0, eos=False)
RELATIONS = [
  "parent",
  "children",
  "siblings",
  "ancestors",
  "descendants",
  "hops",
]


def sees(relation, head, one, other, hops, present):
  """Whether word `one` sees word `other`; words not `present` are passed over."""
  if one == other:
    return True
  above, below = (
    [word for word in graph.chain(head, item)[1:] if word in present]
    for item in (one, other)
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
  result = graph.path(head, one, other)
  return result is not None and len(result[0]) - 1 + len(result[1]) <= hops


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
        complete = e / e.sum()
        out[b, h, q, : len(word)] = complete
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
        if spec.gate == "query":
          i = list(heads).index(h)
          logit = QUERY[b, q, h] @ params["gate_HK"][i] * 8**0.5
          g = 1 / (1 + np.exp(-logit - params["gate_H"][i]))
        out[b, h, q, : len(word)] = g * local + (1 - g) * complete
  return out


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("gate", ["none", "query"])
@pytest.mark.parametrize("heads", [None, (2, 0)])
def test_against_loops(relation, gate, heads):
  spec = dataclasses.replace(NEAR, relation=relation, gate=gate, heads=heads)
  H = HEADS if heads is None else 2
  params = gate == "query" and {
    "gate_HK": RNG.normal(size=(H, 8)).astype(np.float32),
    "gate_H": RNG.normal(size=H).astype(np.float32),
  }
  real = np.asarray(VIEW.real_BS)[:, None, :, None]
  out = np.where(real, weights(spec, params), 0)
  np.testing.assert_allclose(out, by_loops(spec, params), atol=2e-6)


@pytest.mark.parametrize("hops", [1, 3])
def test_hops(hops):
  spec = dataclasses.replace(NEAR, hops=hops)
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
    spec = dataclasses.replace(NEAR, relation=relation, hops=2, heads=None)
    new = spec.make(WHERE).apply(
      {}, SCORE[:1, :, :3, :3], QUERY[:1, :3], QUERY[:1, :3], view,
      method="rescore",
    )  # fmt: skip
    seen = np.asarray(new)[0, 0] > -1e8
    assert (seen[1, 0], seen[0, 1]) == wanted
    assert seen.diagonal().all() and seen[2].tolist() == [False, False, True]


def test_large_scores_do_not_unmask_pairs():
  spec = NeighbourHeads(relation="parent", gate="query", heads=None)
  params = {"gate_HK": np.zeros((HEADS, 8)), "gate_H": np.full(HEADS, 1e4)}

  def loss(score):
    return jnp.sum(weights(spec, params, score)[:, :, :, 0])

  for score in (1e4 * SCORE, 0 * SCORE):
    weight = np.asarray(weights(spec, params, score))
    assert (
      np.isfinite(weight).all() and np.isfinite(jax.grad(loss)(score)).all()
    )
    assert weight[0, 0, 0, 2:].max() == 0  # all of it on itself and its parent


# Sentences of sixty words: a chain; a star some of whose words have no subword;
# a random tree, words of up to two subwords. And two random trees in one sentence.
LONG = [
  ([0, *range(59)], [2] * 60, [*range(60), -1], True),
  ([30] * 60, [1] * 60, [*range(0, 60, 3), 58, 58, 59, -1], True),
  (
    control_trees.random(60, 7),
    [3] * 60,
    [word for word in range(60) for _ in range(word % 3)] + [-1],
    True,
  ),
  (
    [*control_trees.random(8, 1), *(8 + control_trees.random(9, 2))],
    [1] * 17,
    [*range(17), -1],
    True,
  ),
]


def words_within(head, start, edges):
  """Words at most `edges` edges from `start`, by breadth-first search."""
  linked = {word: set() for word in range(len(head))}
  for word, parent in enumerate(head):
    linked[word].add(int(parent))
    linked[int(parent)].add(word)
  reached = frontier = {start}
  for _ in range(edges):
    frontier = set().union(*(linked[word] for word in frontier))
    reached = reached | frontier
  return reached


def published_mask(head, word):
  """The mask of Li et al. 2021 over the subwords of a sentence."""
  size, words = len(word), len(head)
  mask = np.zeros((size, size), bool)
  for q in range(size):
    for m in range(size):
      around = {word[q] - 1, word[q], word[q] + 1} & set(range(words))
      mask[q, m] = (
        word[q] < 0
        or word[m] < 0
        or any(word[m] in words_within(head, one, 3) for one in around)
      )
  return mask


@pytest.mark.parametrize("system", ["neighbour_heads", "neighbour_heads_gated"])
@pytest.mark.parametrize("sentences", [graph.SENTENCES, LONG])
def test_attention_of_the_published_systems(system, sentences):
  """The weights of local attention, and of the mixture by a shared gate."""
  spec = parts_of(plan_of(system))["neighbour_heads"]
  view = graph.view_of(sentences)
  B, S = view.word_BS.shape
  rng = np.random.default_rng(1)
  score = rng.normal(size=(B, HEADS, S, S)).astype(np.float32)
  x = rng.normal(size=(B, S, 8 * HEADS)).astype(np.float32)
  query = np.full((B, S, HEADS, 8), np.nan, np.float32)  # it is not read
  gated = system == "neighbour_heads_gated"
  u, b = rng.normal(size=8 * HEADS).astype(np.float32), np.float32(0.3)
  new = spec.make(WHERE).apply(
    {"params": {"gate_D": u, "gate_bias": b} if gated else {}},
    score, query, query, dataclasses.replace(view, inputs=(0 * x, x)),
    method="rescore",
  )  # fmt: skip
  real = view.real_BS[:, None, None, :]
  weight = jax.nn.softmax(
    jnp.where(real, new, jnp.finfo(jnp.float32).min), axis=-1
  )
  for i, (head, _, word, parsed) in enumerate(sentences):
    size = len(word)
    e = np.exp(score[i, :, :size, :size].astype(np.float64))
    wanted = e / e.sum(-1, keepdims=True)
    if parsed:
      masked = e * published_mask(head, word)
      local = masked / masked.sum(-1, keepdims=True)
      if gated:
        g = 1 / (1 + np.exp(-(x[i, :size].astype(np.float64) @ u + b)))
        wanted = g[:, None] * local + (1 - g[:, None]) * wanted
      else:
        wanted[:2] = local[:2]
    np.testing.assert_allclose(
      weight[i, :, :size, :size], wanted, atol=2e-6, err_msg=f"sentence {i}"
    )
    assert not np.any(weight[i, :, :size, size:])


def test_more_context_words_widen_the_view():
  """With `context`, also what the words at that distance in the line see."""
  view = graph.view_of(LONG)
  S = view.word_BS.shape[1]
  score = np.zeros((len(LONG), HEADS, S, S), np.float32)
  spec = NeighbourHeads(hops=1, context=3, eos=False, heads=None)
  query = np.zeros((len(LONG), S, HEADS, 8), np.float32)
  new = spec.make(WHERE).apply({}, score, query, query, view, method="rescore")
  for i, (head, _, word, _) in enumerate(LONG):
    for q, one in enumerate(word):
      around = {*range(one - 3, one + 4)} & set(range(len(head)))
      seen = set().union(*(words_within(head, a, 1) for a in around))
      wanted = [q == m or (one >= 0 and w in seen) for m, w in enumerate(word)]
      np.testing.assert_array_equal(
        np.asarray(new[i, 0, q, : len(word)] > -1e8), wanted, err_msg=f"{i} {q}"
      )


def test_rejects_an_option_without_effect():
  with pytest.raises(
    InputError, match="hops=2 does nothing with relation='parent'"
  ):
    check_part("encoder", "neighbour_heads", {"relation": "parent", "hops": 2})


@pytest.mark.parametrize("option", [{"context": 0}, {"eos": False}])
def test_options_of_hops_are_rejected_with_other_relations(option):
  with pytest.raises(InputError, match="does nothing with relation='children'"):
    check_part("encoder", "neighbour_heads", {"relation": "children"} | option)
