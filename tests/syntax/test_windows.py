"""Windows of recurrent decoders: loops, values by hand, and gradients."""

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

from jaxsyn.syntax.windows.flexible import Flexible
from jaxsyn.syntax.windows.local import Local
from jaxsyn.syntax.windows.tree import SyntaxDirected, distances
from jaxsyn.syntax.windows.whole import FullSentence


@pytest.mark.parametrize(
  "spec, reference, count",
  [
    (Local(reach=0, sigma=1.3), papers.Local(reach=0, sigma=1.3), 1),
    (Local(reach=2, sigma=1.3), papers.Local(reach=2, sigma=1.3), 1),
    (Flexible(sigma=1.5), papers.Flexible(), 3),
    (Flexible(sigma=1.5, span=0.4), papers.Flexible(span=0.4), 3),
    *(
      (
        SyntaxDirected(edges=2, sigma=1.5, position=position, apply=apply),
        papers.Sdatt(position=position, reach=2, sigma=1.5, apply=apply),
        1,
      )
      for position, apply in (
        ("interp", "multiply"),
        ("hard", "add_log"),
        ("expected", "multiply"),
      )
    ),
  ],
  ids=str,
)
def test_weights_of_several_steps_equal_loops(spec, reference, count):
  check_weights(spec, reference, SENTENCES, count=count)


def line_of(subwords):
  """Features of a sentence with so many subwords, EOS included."""
  words = subwords - 1
  return features_of([Sentence((*range(words), -1), (0,) * words)])


def test_local_weights_by_hand():
  """p = 0.5 · 22 = 11; uniform weights of 21 positions, times exp(-k² / 50)."""
  weight_S = weights_of(
    Local(reach=10, sigma=5.0),
    np.zeros((1, 1, 24)),
    params=predicted_position(0.5),
    features=line_of(22),
  )[0, 0, 0]
  assert weight_S[0] == 0  # 11 - 10 = 1 is the first visible position
  expected = [1.0, 0.9802, 0.9231, 0.8353]
  assert_allclose(weight_S[11:15] * 21, expected, atol=1e-4)
  assert_allclose(weight_S[11:22], weight_S[11:0:-1], rtol=1e-4)


def test_rows_of_padding_have_no_local_weight():
  features = line_of(7)
  features = features.replace(real_BS=jnp.zeros_like(features.real_BS))
  params, score = predicted_position(0.5), np.zeros((1, 1, 9))
  weight = weights_of(Local(), score, params=params, features=features)
  assert not weight.any()


STRONG = {  # strength σ(1) for all queries
  "hidden": {
    "kernel": jnp.zeros((SITE.width, SITE.width)),
    "bias": jnp.full(SITE.width, 99.0),
  },
  "strength": {"kernel": jnp.full((SITE.width, 1), 1 / SITE.width)},
}


def test_span_is_off_in_training():
  spec, score = Flexible(sigma=1.5, span=1.0), np.zeros((1, 1, 9))
  trained, evaluated = (
    weights_of(spec, score, params=STRONG, features=one)[0, 0, 0, :7]
    for one in (line_of(7).replace(train=True), line_of(7))
  )
  # 0.731 · j² / 4.5 is at most 1 up to j = √(4.5 / 0.731) = 2.48.
  assert_array_equal(evaluated > 0, np.arange(7) <= 2)
  assert (trained > 0).all()


def test_the_nearest_subword_is_in_every_span():
  window = Flexible(sigma=1.5, span=0.001).make(SITE)
  query, past = jnp.zeros((1, 1, SITE.width)), jnp.full((1, 1), 1.7)
  inputs = jnp.zeros((1, 1, 9)), query, (), past, line_of(7)
  weight, attended = window.apply({"params": STRONG}, *inputs)
  assert_array_equal(weight[0, 0], np.arange(9) == 2)
  assert attended.tolist() == [[2.0]]


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


# "The monkey eats a banana": The -> monkey -> eats <- banana <- a.
MONKEY = features_of([Sentence((0, 1, 2, 3, 4, -1), (1, 2, 2, 4, 2))])


@pytest.mark.parametrize(
  "spec, is_trained",
  [
    (Local(reach=10, sigma=2.0), True),
    (SyntaxDirected(), True),
    (SyntaxDirected(position="hard"), False),
  ],
)
def test_the_predicted_position_has_a_gradient(spec, is_trained):
  score = np.random.default_rng(1).normal(size=(1, 1, 8))

  @jax.jit
  def value(shift):
    params = predicted_position(0.45)
    kernel = params["position"]["position"]["kernel"]
    params["position"]["position"]["kernel"] = kernel + shift
    weight = weights_of(spec, score, params=params, features=MONKEY)
    return jnp.sum(weight * jnp.arange(8.0))

  slope = (value(0.01) - value(-0.01)) / 0.02
  assert_allclose(jax.grad(value)(0.0), slope, rtol=1e-2)
  assert (abs(float(slope)) > 1e-3) == is_trained


def test_expected_distances_need_no_predictor():
  inputs = jnp.zeros((1, 1, 8)), jnp.zeros((1, 1, SITE.width)), MONKEY
  assert not random_params(
    SyntaxDirected(position="expected").make(SITE), *inputs
  )


def test_without_distances_syntax_directed_is_global_attention():
  """M = 0 everywhere, or n and σ are large."""
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
