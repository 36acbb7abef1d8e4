"""Syntax-directed attention: by hand, against loops, and what learns."""

import math

import control_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from window_under_test import (
  WHERE,
  drawn,
  position_by_loops,
  predicted,
  softmax_by_loops,
  weights_of,
)

from jaxsyn.data.sentence import tree as trees
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, from_config
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.windows.tree import SyntaxDirected, distances
from jaxsyn.syntax.windows.whole import FullSentence

# The monkey eats a banana: The -> monkey -> eats <- banana <- a.
MONKEY = [1, 2, 2, 4, 2]


def facts(head_W, word_S):
  """Facts of one sentence."""
  return {
    "word_BS": np.array([word_S]),
    "head_BW": np.array([head_W]),
    "tree_distance_BWW": trees.tree_distance(np.array(head_W))[None],
  }


def test_two_trees_meet_at_the_end_sign():
  """Words 0 <- 1 and 2 <- 3; subwords of word 1 are 0 apart."""
  view = SentenceFeatures(
    real_BS=jnp.ones((1, 6), bool), **facts([0, 0, 2, 2], [0, 1, 1, 2, 3, -1])
  )
  np.testing.assert_array_equal(
    distances(view)[0],
    [
      [0, 1, 1, 2, 3, 1],
      [1, 0, 0, 3, 4, 2],
      [1, 0, 0, 3, 4, 2],
      [2, 3, 3, 0, 1, 1],
      [3, 4, 4, 1, 0, 2],
      [1, 2, 2, 1, 2, 0],
    ],
  )


def by_loops(spec, score_S, distance_SS, position):
  """One row; `position` is p, or None where none is predicted."""
  size = len(score_S)
  if spec.position == "expected":
    weight_S = softmax_by_loops(score_S, range(size))
    mean_S = [
      sum(weight_S[k] * distance_SS[k][j] for k in range(size))
      for j in range(size)
    ]
    test_S, centre = mean_S, min(range(size), key=lambda j: mean_S[j])
  else:
    centre = min(math.floor(position), size - 1)
    mean_S = test_S = list(distance_SS[centre])
    if spec.position == "interp":
      above = min(math.ceil(position), size - 1)
      share = position - math.floor(position)
      mean_S = [
        (1 - share) * distance_SS[centre][j] + share * distance_SS[above][j]
        for j in range(size)
      ]
      test_S = distance_SS[above if share >= 0.5 else centre]
  seen = [j for j in range(size) if test_S[j] <= spec.edges or j == centre]
  scaled = [
    e * math.exp(-(d**2) / (2 * spec.sigma**2))
    if spec.apply == "multiply"
    else e - d**2 / (2 * spec.sigma**2)
    for e, d in zip(score_S, mean_S)
  ]
  return softmax_by_loops(scaled, seen)


@pytest.mark.parametrize("apply", ["multiply", "add_log"])
@pytest.mark.parametrize("position", ["interp", "hard", "expected"])
def test_against_loops(position, apply):
  spec = SyntaxDirected(edges=2, sigma=1.5, position=position, apply=apply)
  rng = np.random.default_rng(3)
  heads = [control_trees.random(8, 5), control_trees.random(5, 6)]
  head_BW, word_BS = np.zeros((2, 8), int), np.full((2, 9), -1)
  distance_BWW = np.full((2, 8, 8), 255, np.uint8)
  for b, head_W in enumerate(heads):
    words = len(head_W)
    head_BW[b, :words], word_BS[b, :words] = head_W, np.arange(words)
    distance_BWW[b, :words, :words] = trees.tree_distance(head_W)
  real_BS = np.arange(9) < np.array([[9], [6]])
  inputs = dict(
    word_BS=word_BS,
    head_BW=head_BW,
    tree_distance_BWW=distance_BWW,
    real_BS=real_BS,
  )
  score_BNS = rng.normal(size=(2, 4, 9))
  query_BNG = rng.normal(size=(2, 4, WHERE.width))
  view = SentenceFeatures(
    **{name: jnp.asarray(value) for name, value in inputs.items()}
  )
  params = drawn(spec.make(WHERE), jnp.asarray(score_BNS), query_BNG, view)
  result = weights_of(spec, score_BNS, query_BNG, params=params, **inputs)
  for b, n in np.ndindex(2, 4):
    size = len(heads[b]) + 1
    at = None
    if position != "expected":
      at = position_by_loops(params, query_BNG[b, n], size)
    expected = by_loops(
      spec,
      score_BNS[b, n, :size],
      np.asarray(distances(view)[b, :size, :size], float).tolist(),
      at,
    )
    np.testing.assert_allclose(result[b, n, 0, :size], expected, atol=1e-5)


@pytest.mark.parametrize(
  "position, learns", [("interp", True), ("hard", False)]
)
def test_what_the_predictor_learns(position, learns):
  spec = SyntaxDirected(position=position)
  score = np.random.default_rng(0).normal(size=(1, 1, 6))
  inputs = facts(MONKEY, [0, 1, 2, 3, 4, -1])

  def value(params):
    weight = weights_of(spec, score, params=params, **inputs)
    return jnp.sum(weight * jnp.arange(6.0))

  slopes = jax.grad(value)(predicted(0.4))
  largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(slopes))
  assert (largest > 1e-4) == learns
  assert (largest == 0) == (not learns)


def test_expected_has_no_predictor():
  inputs = facts(MONKEY, [0, 1, 2, 3, 4, -1])
  score, query = jnp.zeros((1, 1, 6)), jnp.zeros((1, 1, WHERE.width))
  view = SentenceFeatures(real_BS=jnp.ones((1, 6), bool), **inputs)
  assert not drawn(
    SyntaxDirected(position="expected").make(WHERE), score, query, view
  )


def test_no_distance_is_global_attention():
  """Golden value 13: M = 0 everywhere; or n and σ large."""
  score = np.random.default_rng(2).normal(size=(1, 2, 6))
  complete = weights_of(FullSentence(), score)
  one_word = facts([0], [0] * 6)
  for spec, inputs in (
    (SyntaxDirected(), one_word),
    (SyntaxDirected(edges=99, sigma=1e9), facts(MONKEY, [0, 1, 2, 3, 4, -1])),
  ):
    weight = weights_of(spec, score, params=predicted(0.4), **inputs)
    np.testing.assert_allclose(weight, complete, atol=1e-6)


@pytest.mark.parametrize("options", [{"edges": -1}, {"sigma": 0.0}])
def test_rejects_invalid_options(options):
  with pytest.raises(InputError, match=f"config.x.{next(iter(options))}"):
    from_config(SyntaxDirected, options, ConfigPath("config", "x"))
