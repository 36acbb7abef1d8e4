"""Heads on near words: visible words by walks on the tree, gates by loops."""

import cases
import control_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
  FEATURES,
  HEADS,
  QUERY,
  SCORE,
  SENTENCES,
  K,
  Sentence,
  heads_of,
)
from models_under_test import modifiers_of, plan_of
from numpy.testing import assert_allclose

from jaxsyn.syntax.neighbour_heads import RELATIONS, NeighbourHeads

# Sixty words: a chain; a star with words without subwords; a random tree with
# words of up to two subwords. And two random trees in one sentence.
TREE, ONE, OTHER = (
  control_trees.random(*sizes).tolist() for sizes in ((60, 7), (8, 1), (9, 2))
)
LONG = (
  Sentence((*range(60), -1), (0, *range(59))),
  Sentence((*range(0, 60, 3), 58, 58, 59, -1), (30,) * 60),
  Sentence((*(w for w in range(60) for _ in range(w % 3)), -1), tuple(TREE)),
  Sentence((*range(17), -1), (*ONE, *(8 + w for w in OTHER))),
)


def sees_relative(spec, sentence):
  """The mask of a relation, and of hops without context and EOS."""

  def sees(q, m):
    one, other = sentence.word[q], sentence.word[m]
    if q == m or min(one, other) < 0 or one == other:
      return q == m or one == other >= 0
    above, below = sentence.ancestors(one), sentence.ancestors(other)
    edges = sentence.word_edges(one, other)
    return {
      "parent": above[:1] == [other],
      "children": below[:1] == [one],
      "siblings": bool(above and below) and above[0] == below[0],
      "ancestors": other in above,
      "descendants": one in below,
      "hops": edges is not None and edges <= spec.hops,
    }[spec.relation]

  size = range(len(sentence.word))
  return np.array([[sees(q, m) for m in size] for q in size])


def within(sentence, start, edges):
  """Words at most `edges` edges from a word."""
  distances = [sentence.word_edges(start, w) for w in range(len(sentence.head))]
  return {w for w, d in enumerate(distances) if d is not None and d <= edges}


def sees_with_context(spec, sentence):
  """The mask of Li et al. 2021 over the subwords of a sentence."""
  words = range(len(sentence.head))
  reached = [within(sentence, w, spec.hops) for w in words]
  visible = np.zeros((len(sentence.word),) * 2, bool)
  for q, one in enumerate(sentence.word):
    context = {*range(one - spec.context, one + spec.context + 1)} & {*words}
    near = set().union(*(reached[w] for w in context))
    for m, other in enumerate(sentence.word):
      if min(one, other) < 0:
        visible[q, m] = spec.eos or q == m
      else:
        visible[q, m] = other in near
  return visible


def check_weights(spec, sentences, score, visible_of, gate_of=None, **options):
  """Compares attention weights after the mask with loops, in all heads."""
  features = options["features"]
  new = cases.rescore(spec, score, **options)
  real = features.real_BS[:, None, None, :]
  masked = jnp.where(real, new, jnp.finfo(jnp.float32).min)
  weight = np.asarray(jax.nn.softmax(masked))
  for b, sentence in enumerate(sentences):
    size = len(sentence.word)
    visible = visible_of(spec, sentence)
    for h in range(HEADS):
      e = np.exp(score[b, h, :size, :size].astype(np.float64))
      expected = e / e.sum(-1, keepdims=True)
      if h in heads_of(spec) and sentence.parsed:
        local = e * visible / (e * visible).sum(-1, keepdims=True)
        gate = gate_of(b, h, size)[:, None] if gate_of else 1.0
        expected = gate * local + (1 - gate) * expected
      result = weight[b, h, :size]
      assert_allclose(result[:, :size], expected, atol=2e-6)
      assert not result[:, size:].any()


@pytest.mark.parametrize("relation", [*RELATIONS, "hops"])
@pytest.mark.parametrize("gate, heads", [("none", None), ("query", (2, 0))])
def test_weights_equal_loops(relation, gate, heads):
  hops = {} if relation != "hops" else {"hops": 2, "context": 0, "eos": False}
  spec = NeighbourHeads(relation=relation, gate=gate, heads=heads, **hops)
  params, gate_of = {}, None
  if gate == "query":
    count = len(heads)
    params = {"gate_HK": cases.normal(count, K), "gate_H": cases.normal(count)}

    def gate_of(b, h, size):
      i = heads.index(h)
      logit = QUERY[b, :size, h] @ params["gate_HK"][i] * K**0.5
      return cases.sigmoid(logit + params["gate_H"][i])

  check_weights(
    spec,
    SENTENCES,
    SCORE,
    sees_relative,
    gate_of,
    features=FEATURES,
    params=params,
  )


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("sentences", [SENTENCES, LONG])
def test_published_systems_equal_loops(gated, sentences):
  name = "neighbour_heads_gated" if gated else "neighbour_heads"
  spec = modifiers_of(plan_of(name))["neighbour_heads"]
  features = cases.features_of(sentences)
  B, S = features.word_BS.shape
  x, u_D, bias = cases.normal(B, S, HEADS * K), cases.normal(HEADS * K), 0.3
  features = features.replace(inputs=(0 * x, x))
  not_read = np.full((B, S, HEADS, K), np.nan, np.float32)

  def gate_of(b, h, size):
    return cases.sigmoid(x[b, :size].astype(np.float64) @ u_D + bias)

  check_weights(
    spec,
    sentences,
    cases.normal(B, HEADS, S, S),
    sees_with_context,
    gate_of if gated else None,
    features=features,
    params={"gate_D": u_D, "gate_bias": np.float32(bias)} if gated else {},
    q=not_read,
    k=not_read,
  )


def test_large_scores_do_not_unmask_pairs():
  spec = NeighbourHeads(relation="parent", gate="query", heads=None)
  params = {"gate_HK": np.zeros((HEADS, K)), "gate_H": np.full(HEADS, 1e4)}
  real = FEATURES.real_BS[:, None, None, :]

  def weights(score):
    new = cases.rescore(spec, score, params=params)
    return jax.nn.softmax(jnp.where(real, new, jnp.finfo(jnp.float32).min))

  for score in (1e4 * SCORE, 0 * SCORE):
    weight = np.asarray(weights(jnp.asarray(score)))
    slope = jax.grad(lambda score: jnp.sum(weights(score)[:, :, :, 0]))(score)
    assert np.isfinite(weight).all() and np.isfinite(slope).all()
    assert weight[0, 0, 0, 2:].max() == 0  # on itself and its parent only
