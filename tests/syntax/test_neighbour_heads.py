"""Heads on near words: visible words by walks on the tree, gates by loops."""

import dataclasses

import control_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import (
  HEADS,
  QUERY,
  SCORE,
  SENTENCES,
  K,
  Sentence,
  features_of,
  heads_of,
  normal,
  rescore,
  sigmoid,
)
from models_under_test import check_modifier, modifiers_of, plan_of

from jaxsyn.errors import InputError
from jaxsyn.syntax.neighbour_heads import RELATIONS, NeighbourHeads

NEAR = NeighbourHeads(hops=2, context=0, eos=False)
# Sixty words: a chain; a star with words without subwords; a random tree with
# words of up to two subwords. And two random trees in one sentence.
LONG = (
  Sentence((*range(60), -1), (0, *range(59))),
  Sentence((*range(0, 60, 3), 58, 58, 59, -1), (30,) * 60),
  Sentence(
    (*np.repeat(np.arange(60), np.arange(60) % 3).tolist(), -1),
    tuple(int(w) for w in control_trees.random(60, 7)),
  ),
  Sentence(
    (*range(17), -1),
    tuple(
      int(w)
      for w in [*control_trees.random(8, 1), *(8 + control_trees.random(9, 2))]
    ),
  ),
)


def sees(spec, sentence, q, m):
  """Whether a query sees a key, for relations and for hops without context."""
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
  new = rescore(spec, score, **options)
  real = features.real_BS[:, None, None, :]
  masked = jnp.where(real, new, jnp.finfo(jnp.float32).min)
  weight = np.asarray(jax.nn.softmax(masked))
  for b, sentence in enumerate(sentences):
    size = len(sentence.word)
    visible = visible_of(sentence)
    for h in range(HEADS):
      e = np.exp(score[b, h, :size, :size].astype(np.float64))
      expected = e / e.sum(-1, keepdims=True)
      if h in heads_of(spec) and sentence.parsed:
        local = e * visible / (e * visible).sum(-1, keepdims=True)
        gate = gate_of(b, h, size)[:, None] if gate_of else 1.0
        expected = gate * local + (1 - gate) * expected
      result = weight[b, h, :size]
      np.testing.assert_allclose(result[:, :size], expected, atol=2e-6)
      assert not result[:, size:].any()


@pytest.mark.parametrize("relation", [*RELATIONS, "hops"])
@pytest.mark.parametrize(
  "gate, heads", [("none", None), ("query", (2, 0)), ("query", None)]
)
def test_weights_equal_loops(relation, gate, heads):
  spec = dataclasses.replace(NEAR, relation=relation, gate=gate, heads=heads)
  selected, params, gate_of = list(heads_of(spec)), {}, None
  if gate == "query":
    count = len(selected)
    params = {"gate_HK": normal(count, K), "gate_H": normal(count)}

    def gate_of(b, h, size):
      i = selected.index(h)
      logit = QUERY[b, :size, h] @ params["gate_HK"][i] * K**0.5
      return sigmoid(logit + params["gate_H"][i])

  def visible_of(sentence):
    size = range(len(sentence.word))
    rows = [[sees(spec, sentence, q, m) for m in size] for q in size]
    return np.array(rows)

  features = features_of(SENTENCES)
  check_weights(
    spec,
    SENTENCES,
    SCORE,
    visible_of,
    gate_of,
    features=features,
    params=params,
  )


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("sentences", [SENTENCES, LONG])
def test_published_systems_equal_loops(gated, sentences):
  name = "neighbour_heads_gated" if gated else "neighbour_heads"
  spec = modifiers_of(plan_of(name))["neighbour_heads"]
  spec = dataclasses.replace(spec, heads=None if gated else (0, 1))
  features = features_of(sentences)
  B, S = features.word_BS.shape
  x, u_D, bias = normal(B, S, HEADS * K), normal(HEADS * K), 0.3
  params = {"gate_D": u_D, "gate_bias": np.float32(bias)} if gated else {}
  features = features.replace(inputs=(0 * x, x))
  not_read = np.full((B, S, HEADS, K), np.nan, np.float32)

  def gate_of(b, h, size):
    return sigmoid(x[b, :size].astype(np.float64) @ u_D + bias)

  check_weights(
    spec,
    sentences,
    normal(B, HEADS, S, S),
    lambda sentence: sees_with_context(spec, sentence),
    gate_of if gated else None,
    features=features,
    params=params,
    q=not_read,
    k=not_read,
  )


@pytest.mark.parametrize("context", [0, 3])
def test_context_words_widen_the_mask(context):
  spec = NeighbourHeads(hops=1, context=context, eos=False, heads=None)
  features = features_of(LONG)
  B, S = features.word_BS.shape
  score, zeros = np.zeros((B, HEADS, S, S)), np.zeros((B, S, HEADS, K))
  new = np.asarray(rescore(spec, score, features, zeros, zeros))
  for b, sentence in enumerate(LONG):
    size = len(sentence.word)
    expected = sees_with_context(spec, sentence)
    np.testing.assert_array_equal(new[b, 0, :size, :size] > -1e8, expected)


def test_large_scores_do_not_unmask_pairs():
  spec = NeighbourHeads(relation="parent", gate="query", heads=None)
  params = {"gate_HK": np.zeros((HEADS, K)), "gate_H": np.full(HEADS, 1e4)}
  features = features_of(SENTENCES)
  real = features.real_BS[:, None, None, :]

  def weights(score):
    new = rescore(spec, score, features, params=params)
    return jax.nn.softmax(jnp.where(real, new, jnp.finfo(jnp.float32).min))

  for score in (1e4 * SCORE, 0 * SCORE):
    weight = np.asarray(weights(jnp.asarray(score)))
    slope = jax.grad(lambda score: jnp.sum(weights(score)[:, :, :, 0]))(score)
    assert np.isfinite(weight).all() and np.isfinite(slope).all()
    assert weight[0, 0, 0, 2:].max() == 0  # on itself and its parent only


@pytest.mark.parametrize(
  "option", [{"hops": 2}, {"context": 0}, {"eos": False}]
)
def test_rejects_options_of_hops_with_other_relations(option):
  with pytest.raises(InputError, match="does nothing with relation='children'"):
    check_modifier(
      "encoder", "neighbour_heads", {"relation": "children"} | option
    )
