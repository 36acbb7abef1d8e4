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
  SCORE,
  SENTENCES,
  K,
  Sentence,
  heads_of,
  normal,
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


SYSTEMS, GATES = ("neighbour_heads", "neighbour_heads_gated"), ("none", "query")


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


def weights(score, features):
  """Attention weights after the mask of padding."""
  real = features.real_BS[:, None, None, :]
  return jax.nn.softmax(jnp.where(real, score, jnp.finfo(jnp.float32).min))


CASES = [
  *((relation, gate, SENTENCES) for relation in RELATIONS for gate in GATES),
  *(("hops", gate, SENTENCES) for gate in GATES),
  *((name, "", one) for name in SYSTEMS for one in (SENTENCES, LONG)),
]


@pytest.mark.parametrize("relation, gate, sentences", CASES)
def test_weights_equal_loops(relation, gate, sentences):
  visible_of = sees_relative
  if relation in SYSTEMS:
    spec = modifiers_of(plan_of(relation))["neighbour_heads"]
    visible_of = sees_with_context
  else:
    heads = (2, 0) if gate == "query" else None
    hops = {"hops": 2, "context": 0, "eos": False} if relation == "hops" else {}
    spec = NeighbourHeads(relation=relation, gate=gate, heads=heads, **hops)
  features = cases.features_of(sentences)
  B, S = features.word_BS.shape
  x, score = normal(B, S, HEADS * K), normal(B, HEADS, S, S)
  features = features.replace(inputs=(0 * x, x))
  q, params = np.full((B, S, HEADS, K), np.nan, np.float32), {}
  if spec.gate == "input":
    params = {"gate_D": normal(HEADS * K), "gate_bias": np.float32(0.3)}
    logit_BHS = (x @ params["gate_D"] + 0.3)[:, None].repeat(HEADS, 1)
  elif spec.gate == "query":
    q = normal(B, S, HEADS, K)
    params = {"gate_HK": normal(2, K), "gate_H": normal(2)}
    logit_BHS = np.zeros((B, HEADS, S))
    for i, h in enumerate(heads):
      logit = q[:, :, h] @ params["gate_HK"][i] * K**0.5
      logit_BHS[:, h] = logit + params["gate_H"][i]
  new = cases.rescore(spec, score, features, q, q, params=params)
  result_BHSS = np.asarray(weights(new, features))
  for b, sentence in enumerate(sentences):
    size, visible = len(sentence.word), visible_of(spec, sentence)
    for h in range(HEADS):
      e = np.exp(score[b, h, :size, :size].astype(np.float64))
      expected = e / e.sum(-1, keepdims=True)
      if h in heads_of(spec) and sentence.parsed:
        local = e * visible / (e * visible).sum(-1, keepdims=True)
        gate_S1 = 1.0
        if params:
          gate_S1 = cases.sigmoid(logit_BHS[b, h, :size, None].astype(float))
        expected = gate_S1 * local + (1 - gate_S1) * expected
      result = result_BHSS[b, h, :size]
      assert_allclose(result[:, :size], expected, atol=2e-6)
      assert not result[:, size:].any()


def test_large_scores_do_not_unmask_pairs():
  spec = NeighbourHeads(relation="parent", gate="query", heads=None)
  params = {"gate_HK": np.zeros((HEADS, K)), "gate_H": np.full(HEADS, 1e4)}

  @jax.jit
  def first_column(score):
    weight = weights(cases.rescore(spec, score, params=params), FEATURES)
    return jnp.sum(weight[:, :, :, 0]), weight

  for score in (1e4 * SCORE, 0 * SCORE):
    slope, weight = jax.grad(first_column, has_aux=True)(score)
    assert np.isfinite(weight).all() and np.isfinite(slope).all()
    assert weight[0, 0, 0, 2:].max() == 0  # on itself and its parent only
