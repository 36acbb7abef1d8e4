"""Deps-SAN: values by hand, loops, and the sparse techniques."""

import math

import cases
import control_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Sentence
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.data.sentence import tree as trees
from jaxsyn.syntax.tree_scaled import TreeScaled

# "The monkey eats a banana", one subword per word, and EOS.
MONKEY = Sentence((0, 1, 2, 3, 4, -1), (1, 2, 2, 4, 2))
WORDS, EOS = 5, 5
ALL = {"layers": (0,), "heads": None}


def rescore(spec, sentence=MONKEY, *, count=1, key=0, **more):
  """Scores of copies of a sentence, without padding, and the scores before."""
  features = cases.features_of([sentence] * count, **more)
  B, S = features.real_BS.shape
  score = np.random.default_rng(0).normal(size=(B, 2, S, S)).astype(np.float32)
  out = np.asarray(cases.rescore(spec, score, features, key=key))
  size = len(sentence.word)
  return out[..., :size, :size], score[..., :size, :size]


def test_weights_by_hand():
  out, score = rescore(TreeScaled(**ALL))
  # Row of "eats": φ(2), φ(1), φ(0), φ(2), φ(1), far. Row of EOS: φ(0) at itself.
  expected = np.array([0.05399, 0.24197, 0.39894, 0.05399, 0.24197, 0])
  assert_allclose(out[0, 1, 2], expected * score[0, 1, 2], atol=2e-5)
  expected = np.array([0] * 5 + [0.39894])
  assert_allclose(out[0, 1, EOS], expected * score[0, 1, EOS], atol=2e-5)


@pytest.mark.parametrize(
  "apply, sigma, normalise",
  [
    ("multiply", 1.0, "pdf"),
    ("multiply", 2.5, "peak1"),
    ("add", 2.5, "pdf"),
    ("add_log", 2.5, "pdf"),
  ],
)
def test_scores_equal_loops(apply, sigma, normalise):
  spec = TreeScaled(heads=(1,), sigma=sigma, apply=apply, normalise=normalise)

  def score_of(score, sentence, i, q, m):
    edges = sentence.edges(q, m)
    if edges is None:
      return -1e9 if apply == "add_log" else score * (apply == "add")
    exponent = -(edges**2) / (2 * sigma**2)
    constant = 1 / (sigma * math.sqrt(2 * math.pi))
    weight = math.exp(exponent) * (constant if normalise == "pdf" else 1)
    if apply == "add_log":
      return score + exponent
    return score * weight if apply == "multiply" else score + weight

  assert_allclose(
    cases.real_pairs(cases.rescore(spec)),
    cases.expected_scores(spec, score_of),
    rtol=2e-6,
    atol=1e-6,
  )


@pytest.mark.parametrize("apply", ["multiply", "add", "add_log"])
def test_gradients_of_far_pairs_are_finite(apply):
  spec = TreeScaled(heads=None, apply=apply, sigma=0.01)

  def loss(score):
    return jnp.sum(jax.nn.softmax(cases.rescore(spec, score)) ** 2)

  assert np.isfinite(jax.grad(loss)(jnp.ones_like(cases.SCORE))).all()


def test_wink_6_has_no_effect_with_sigma_1():
  # A chain of 12 words. Beyond 6 edges weights are below φ(7) = 9.1e-12.
  chain = Sentence((*range(12), -1), tuple(control_trees.linear(12).tolist()))
  for sigma, is_same in ((1.0, True), (4.0, False)):
    spec = TreeScaled(**ALL, sigma=sigma, wink=6)
    wink, score = rescore(spec, chain, train=True)
    plain, _ = rescore(TreeScaled(**ALL, sigma=sigma), chain)
    change = np.abs(wink - plain).max()
    assert (change < 1e-8 * np.abs(score).max()) == is_same


def test_wink_is_off_in_evaluation_unless_enabled():
  options = {**ALL, "sigma": 4.0, "wink": 2}
  plain, _ = rescore(TreeScaled(**ALL, sigma=4.0))
  assert_array_equal(rescore(TreeScaled(**options))[0], plain)
  trained, _ = rescore(TreeScaled(**options), train=True)
  always = TreeScaled(**options, wink_at_evaluation=True)
  assert_array_equal(rescore(always)[0], trained)


@pytest.mark.parametrize("fill", ["far", "one", "mask"])
def test_fill_of_dropped_pairs(fill):
  out, score = rescore(
    TreeScaled(**ALL, sigma=4.0, wink=2, fill=fill), train=True
  )
  plain, _ = rescore(TreeScaled(**ALL, sigma=4.0))
  dropped = np.zeros((6, 6), bool)
  dropped[:WORDS, :WORDS] = trees.tree_distance(np.array(MONKEY.head)) > 2
  expected = {"far": 0 * score, "one": score, "mask": 0 * score - 1e9}[fill]
  assert_array_equal(out, np.where(dropped, expected, plain))


@pytest.mark.parametrize(
  "noise, fill",
  [
    ({"wink": 1}, "one"),
    ({"random_sparse": 1.0}, "mask"),
    ({"random_sparse": 1.0}, "one"),
  ],
)
def test_pairs_without_a_path_are_never_dropped(noise, fill):
  forest = Sentence((0, 1, 2, 3, 4, -1), (0, 0, 2, 2, 3))
  spec = TreeScaled(**ALL, **noise, fill=fill)
  trained, score = rescore(spec, forest, train=True)
  evaluated, _ = rescore(spec, forest)
  words = np.s_[..., :WORDS, :WORDS]
  assert not np.allclose(trained[words], evaluated[words])
  for out in (trained, evaluated):
    assert (out[:, :, :2, 2:] == 0).all() and (out[:, :, 2:5, :2] == 0).all()
    expected = [0] * 5 + [0.398942 * score[0, 0, EOS, EOS]]
    assert_allclose(out[0, 0, EOS], expected, rtol=1e-5)


def test_random_sparse_samples_pairs_for_all_heads():
  sentence = Sentence(
    (*range(40), -1), tuple(control_trees.random(40, 0).tolist())
  )
  spec = TreeScaled(**ALL, sigma=10.0, random_sparse=0.1)

  def dropped(key):
    out, _ = rescore(spec, sentence, train=True, count=4, key=key)
    return out[..., :40, :40] == 0

  dropped_BHQM = dropped(0)
  # 6,400 samples with probability 0.1: five standard deviations are 0.019.
  assert abs(dropped_BHQM[:, 0].mean() - 0.1) < 0.019
  assert_array_equal(dropped_BHQM[:, 0], dropped_BHQM[:, 1])
  first, second, *_ = dropped_BHQM[:, 0]
  assert not np.array_equal(first, second)
  assert not np.array_equal(first, first.T)
  assert dropped_BHQM[:, 0, np.arange(40), np.arange(40)].any()
  assert not np.array_equal(dropped(1), dropped_BHQM)
  plain = rescore(TreeScaled(**ALL, sigma=10.0), sentence)[0]
  assert_array_equal(rescore(spec, sentence)[0], plain)


@pytest.mark.parametrize("wink", [0, 1])
def test_dropped_pairs_have_distance_k(wink):
  """RS-Sparse comes before Wink-Sparse, so that the latter drops no more."""
  spec = TreeScaled(**ALL, random_sparse=1.0, random_distance=2, wink=wink)
  out, score = rescore(spec, train=True)
  expected = score[..., :WORDS, :WORDS] * 0.053991  # φ(2)
  assert_allclose(out[..., :WORDS, :WORDS], expected, rtol=1e-4)


def test_saturated_distances_are_far_but_may_be_dropped():
  distance = np.where(np.eye(6), 0, 254)[None]
  wide = {**ALL, "sigma": 1000.0}
  more = {"tree_distance_BWW": jnp.asarray(distance)}
  out, _ = rescore(TreeScaled(**wide), **more)
  assert (out[0, :, :WORDS, :WORDS][:, ~np.eye(WORDS, dtype=bool)] == 0).all()
  spec = TreeScaled(**wide, random_sparse=1.0, random_distance=2)
  out, score = rescore(spec, train=True, **more)
  # φ(0.002) / 1000 = 0.000398941
  expected = score[..., :WORDS, :WORDS] * 0.000398941
  assert_allclose(out[..., :WORDS, :WORDS], expected, rtol=1e-4)
