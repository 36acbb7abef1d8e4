"""Deps-SAN: values by hand, loops, and the sparse techniques."""

import math

import control_trees
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FEATURES, Sentence, expected_scores, features_of, real_pairs
from cases import rescore as rescore_all

from jaxsyn.data.sentence import tree as trees
from jaxsyn.syntax.tree_scaled import TreeScaled

# "The monkey eats a banana", one subword per word, and EOS.
MONKEY = Sentence((0, 1, 2, 3, 4, -1), (1, 2, 2, 4, 2))
WORDS, EOS = 5, 5
ALL = {"layers": (0,), "heads": None}
FILLS = ["far", "one", "mask"]


def rescore(spec, sentence=MONKEY, *, count=1, ones=False, key=0, **more):
  """Scores of copies of a sentence, without padding, and the scores before."""
  features = features_of([sentence] * count, **more)
  B, S = features.real_BS.shape
  score = np.random.default_rng(0).normal(size=(B, 2, S, S))
  score = (np.ones_like(score) if ones else score).astype(np.float32)
  out = rescore_all(spec, score, features, key=key)
  size = len(sentence.word)
  return np.asarray(out)[..., :size, :size], score[..., :size, :size]


def test_weights_by_hand():
  out, _ = rescore(TreeScaled(**ALL), ones=True)
  # Row of "eats": φ(2), φ(1), φ(0), φ(2), φ(1), far. Row of EOS: φ(0) at itself.
  expected = [0.05399, 0.24197, 0.39894, 0.05399, 0.24197, 0]
  np.testing.assert_allclose(out[0, 1, 2], expected, atol=1e-5)
  np.testing.assert_allclose(out[0, 1, EOS], [0] * 5 + [0.39894], atol=1e-5)


@pytest.mark.parametrize("apply", ["multiply", "add", "add_log"])
@pytest.mark.parametrize("sigma, normalise", [(1.0, "pdf"), (2.5, "peak1")])
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

  np.testing.assert_allclose(
    real_pairs(rescore_all(spec)),
    expected_scores(spec, score_of),
    rtol=2e-6,
    atol=1e-6,
  )


@pytest.mark.parametrize("apply", ["multiply", "add", "add_log"])
def test_gradients_of_far_pairs_are_finite(apply):
  spec = TreeScaled(heads=None, apply=apply, sigma=0.01)

  def loss(score):
    return jnp.sum(jax.nn.softmax(rescore_all(spec, score)) ** 2)

  score = np.ones((len(FEATURES.real_BS), 3, *[FEATURES.real_BS.shape[1]] * 2))
  assert np.isfinite(jax.grad(loss)(jnp.asarray(score, jnp.float32))).all()


def test_wink_6_has_no_effect_with_sigma_1():
  # A chain of 12 words. Beyond 6 edges weights are below φ(7) = 9.1e-12.
  head = tuple(control_trees.linear(12)[0:12])
  chain = Sentence((*range(12), -1), head)
  for sigma, is_same in ((1.0, True), (4.0, False)):
    spec = TreeScaled(**ALL, sigma=sigma, wink=6)
    wink, score = rescore(spec, chain, train=True)
    plain, _ = rescore(TreeScaled(**ALL, sigma=sigma), chain)
    change = np.abs(wink - plain).max()
    assert (change < 1e-8 * np.abs(score).max()) == is_same
    is_far = np.abs(np.subtract.outer(range(12), range(12))) > 6
    assert (wink[0, :, :12, :12][:, is_far] == 0).all()
    np.testing.assert_array_equal(
      wink[0, :, :12, :12][:, ~is_far], plain[0, :, :12, :12][:, ~is_far]
    )


def test_wink_is_off_in_evaluation_unless_enabled():
  options = {**ALL, "sigma": 4.0, "wink": 2}
  spec, always = (
    TreeScaled(**options),
    TreeScaled(**options, wink_at_evaluation=True),
  )
  plain, _ = rescore(TreeScaled(**ALL, sigma=4.0))
  np.testing.assert_array_equal(rescore(spec)[0], plain)
  trained, _ = rescore(spec, train=True)
  np.testing.assert_array_equal(rescore(always)[0], trained)
  assert not np.array_equal(trained, plain)


@pytest.mark.parametrize("fill", FILLS)
def test_fill_of_dropped_pairs(fill):
  options = {**ALL, "sigma": 4.0, "wink": 2, "wink_at_evaluation": True}
  out, score = rescore(TreeScaled(**options, fill=fill))
  plain, _ = rescore(TreeScaled(**ALL, sigma=4.0))
  dropped = np.zeros((6, 6), bool)
  dropped[:WORDS, :WORDS] = trees.tree_distance(np.array(MONKEY.head)) > 2
  expected = {"far": 0 * score, "one": score, "mask": 0 * score - 1e9}[fill]
  np.testing.assert_array_equal(out, np.where(dropped, expected, plain))


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("noise", [{"wink": 1}, {"random_sparse": 1.0}])
def test_pairs_without_a_path_are_never_dropped(noise, fill):
  forest = Sentence((0, 1, 2, 3, 4, -1), (0, 0, 2, 2, 3))
  spec = TreeScaled(**ALL, **noise, fill=fill)
  trained, score = rescore(spec, forest, train=True)
  evaluated, _ = rescore(spec, forest)
  assert not np.allclose(
    trained[..., :WORDS, :WORDS], evaluated[..., :WORDS, :WORDS]
  )
  for out in (trained, evaluated):
    assert (out[:, :, :2, 2:] == 0).all() and (out[:, :, 2:5, :2] == 0).all()
    expected = [0] * 5 + [0.398942 * score[0, 0, EOS, EOS]]
    np.testing.assert_allclose(out[0, 0, EOS], expected, rtol=1e-5)


def test_random_sparse_samples_pairs_for_all_heads():
  head = tuple(control_trees.random(40, 0))
  sentence = Sentence((*range(40), -1), head)
  spec = TreeScaled(**ALL, sigma=10.0, random_sparse=0.1)
  options = {"count": 4, "ones": True}
  out = rescore(spec, sentence, train=True, **options)[0][..., :40, :40]
  dropped_BHQM = out == 0
  # 6,400 samples with probability 0.1: five standard deviations are 0.019.
  assert abs(dropped_BHQM[:, 0].mean() - 0.1) < 0.019
  np.testing.assert_array_equal(dropped_BHQM[:, 0], dropped_BHQM[:, 1])
  first, second, *_ = dropped_BHQM[:, 0]
  assert not np.array_equal(first, second)
  assert not np.array_equal(first, first.T)
  assert dropped_BHQM[:, 0, np.arange(40), np.arange(40)].any()
  again = rescore(spec, sentence, train=True, key=1, **options)[0]
  assert not np.array_equal(again[..., :40, :40], out)
  plain = rescore(TreeScaled(**ALL, sigma=10.0), sentence, **options)[0]
  np.testing.assert_array_equal(rescore(spec, sentence, **options)[0], plain)


@pytest.mark.parametrize("wink", [0, 1])
def test_dropped_pairs_have_distance_k(wink):
  """RS-Sparse comes before Wink-Sparse, so that the latter drops no more."""
  spec = TreeScaled(**ALL, random_sparse=1.0, random_distance=2, wink=wink)
  out, score = rescore(spec, train=True)
  expected = score[..., :WORDS, :WORDS] * 0.053991  # φ(2)
  np.testing.assert_allclose(out[..., :WORDS, :WORDS], expected, rtol=1e-4)


def test_saturated_distances_are_far_but_may_be_dropped():
  distance = np.full((1, 6, 6), 254)
  distance[0, range(6), range(6)] = 0
  wide = {**ALL, "sigma": 1000.0}
  more = {"tree_distance_BWW": jnp.asarray(distance)}
  out, _ = rescore(TreeScaled(**wide), **more)
  assert (out[0, :, :WORDS, :WORDS][:, ~np.eye(WORDS, dtype=bool)] == 0).all()
  spec = TreeScaled(**wide, random_sparse=1.0, random_distance=2)
  out, score = rescore(spec, train=True, **more)
  # φ(0.002) / 1000 = 0.000398941
  expected = score[..., :WORDS, :WORDS] * 0.000398941
  np.testing.assert_allclose(out[..., :WORDS, :WORDS], expected, rtol=1e-4)
