"""Syntax-directed attention: distances by hand, loops, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from cases import SENTENCES, Sentence, features_of
from numpy.testing import assert_allclose, assert_array_equal
from window_cases import (
  SITE,
  check_weights,
  predicted_position,
  random_params,
  weights_of,
)

from jaxsyn.syntax.windows.tree import SyntaxDirected, distances
from jaxsyn.syntax.windows.whole import FullSentence

# "The monkey eats a banana": The -> monkey -> eats <- banana <- a.
MONKEY = features_of([Sentence((0, 1, 2, 3, 4, -1), (1, 2, 2, 4, 2))])


def test_different_trees_are_connected_by_eos():
  """Trees 0 <- 1 and 2 <- 3; word 1 has two subwords."""
  features = features_of([Sentence((0, 1, 1, 2, 3, -1), (0, 0, 2, 2))])
  expected = [
    [0, 1, 1, 2, 3, 1],
    [1, 0, 0, 3, 4, 2],
    [1, 0, 0, 3, 4, 2],
    [2, 3, 3, 0, 1, 1],
    [3, 4, 4, 1, 0, 2],
    [1, 2, 2, 1, 2, 0],
  ]
  assert_array_equal(distances(features)[0, :6, :6], expected)


@pytest.mark.parametrize(
  "position, apply",
  [("interp", "multiply"), ("hard", "add_log"), ("expected", "multiply")],
)
def test_weights_equal_loops(position, apply):
  spec = SyntaxDirected(edges=2, sigma=1.5, position=position, apply=apply)
  reference = papers.Sdatt(position=position, reach=2, sigma=1.5, apply=apply)
  check_weights(spec, reference, SENTENCES)


@pytest.mark.parametrize("position", ["interp", "hard", "expected"])
def test_gradient_of_the_position_predictor(position):
  spec = SyntaxDirected(position=position)
  score = np.random.default_rng(0).normal(size=(1, 1, 8))
  inputs = jnp.asarray(score), jnp.zeros((1, 1, SITE.width)), MONKEY
  params = random_params(spec.make(SITE), *inputs)
  assert bool(params) == (position != "expected")  # needs no predictor

  def value(params):
    weight = weights_of(spec, score, params=params, features=MONKEY)
    return jnp.sum(weight * jnp.arange(8.0))

  if params:
    slopes = jax.grad(value)(predicted_position(0.4))
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(slopes))
    assert largest > 1e-4 if position == "interp" else largest == 0


def test_without_distances_it_is_global_attention():
  """Golden value 13: M = 0 everywhere, or n and σ are large."""
  score = np.random.default_rng(2).normal(size=(1, 2, 8))
  one_word = features_of([Sentence((0,) * 6, (0,))])
  for spec, features in (
    (SyntaxDirected(), one_word),
    (SyntaxDirected(edges=99, sigma=1e9), MONKEY),
  ):
    expected = weights_of(FullSentence(), score, params={}, features=features)
    params = predicted_position(0.4)
    weight = weights_of(spec, score, params=params, features=features)
    assert_allclose(weight, expected, atol=1e-6)
