"""Deps-SAN: numbers that can be checked by hand, loops, and its noise."""

import math

import control_trees
import numpy as np
import part_under_test
import pytest

from jaxsyn.data.sentence import tree as trees
from jaxsyn.syntax.tree_scaled import TreeScaled

# "The monkey eats a banana", one subword a word, EOS and one pad.
HEAD_W = np.array([1, 2, 2, 4, 2])
FACTS = {
  "word_BS": [[0, 1, 2, 3, 4, -1, -1]],
  "tree_distance_BWW": trees.tree_distance(HEAD_W)[None],
  "real_BS": [[True] * 6 + [False]],
}
SCORE = np.random.default_rng(0).normal(size=(1, 2, 7, 7)).astype(np.float32)
BOTH = {"layers": (0,), "heads": None}


def rescored(spec, score_BHQM=SCORE, **more):
  return np.asarray(part_under_test.rescored(spec, score_BHQM, **FACTS | more))


def reference(score_BHQM, sigma, how, heads, peak1=False):
  """The formula, pair by pair, on the words and EOS of FACTS."""
  distance_WW = trees.tree_distance(HEAD_W)
  out = np.array(score_BHQM, np.float64)
  for h in heads:
    for i in range(7):
      for j in range(7):
        if i == j:
          d = 0
        elif i < 5 and j < 5:
          d = int(distance_WW[i][j])
        else:
          d = math.inf  # EOS and pads are far from the rest
        weight = math.exp(-d * d / (2 * sigma**2))
        if not peak1:
          weight /= math.sqrt(2 * math.pi * sigma**2)
        if how == "multiply":
          out[0, h, i, j] *= weight
        elif how == "add":
          out[0, h, i, j] += weight
        elif d == math.inf:
          out[0, h, i, j] = -1e9
        else:
          out[0, h, i, j] += -d * d / (2 * sigma**2)
  return out


def test_the_distances_and_the_row_of_eats():
  # Edges The-monkey, monkey-eats, banana-eats, a-banana.
  assert trees.tree_distance(HEAD_W).tolist() == [
    [0, 1, 2, 4, 3],
    [1, 0, 1, 3, 2],
    [2, 1, 0, 2, 1],
    [4, 3, 2, 0, 1],
    [3, 2, 1, 1, 0],
  ]
  weight_SS = rescored(TreeScaled(**BOTH), np.ones_like(SCORE))[0, 1]
  # φ(2), φ(1), φ(0), φ(2), φ(1); EOS and the pad are far.
  np.testing.assert_allclose(
    weight_SS[2],
    [0.05399, 0.24197, 0.39894, 0.05399, 0.24197, 0, 0],
    atol=1e-5,
  )
  np.testing.assert_allclose(weight_SS[5], [0] * 5 + [0.39894, 0], atol=1e-5)


@pytest.mark.parametrize("how", ["multiply", "add", "add_log"])
@pytest.mark.parametrize("sigma, peak1", [(1.0, False), (2.5, True)])
def test_against_loops(how, sigma, peak1):
  spec = TreeScaled(
    layers=(0,),
    heads=(1,),
    sigma=sigma,
    apply=how,
    normalise="peak1" if peak1 else "pdf",
  )
  wanted = reference(SCORE, sigma, how, [1], peak1)
  np.testing.assert_allclose(rescored(spec), wanted, rtol=1e-5, atol=1e-5)


def test_another_tree_is_far_whatever_sigma():
  forest_WW = trees.tree_distance(np.array([0, 0, 2, 2, 2]))[None]
  spec = TreeScaled(**BOTH, sigma=1000.0, normalise="peak1")
  out = rescored(spec, tree_distance_BWW=forest_WW)
  assert (out[0, :, 0, 2:5] == 0).all()
  np.testing.assert_allclose(out[0, :, 0, :2], SCORE[0, :, 0, :2], rtol=1e-5)


def test_wink_at_6_is_a_no_op_for_sigma_1_but_not_for_sigma_4():
  # A chain of 12 words: distances up to 11. Weights beyond 6 edges are below
  # φ(7) = 9.1e-12, so the technique of the paper changes nothing there.
  chain = dict(
    word_BS=[list(range(12))],
    tree_distance_BWW=trees.tree_distance(control_trees.linear(12))[None],
    real_BS=np.ones((1, 12), bool),
  )
  score = np.random.default_rng(1).normal(size=(1, 2, 12, 12))
  for sigma, same in ((1.0, True), (4.0, False)):
    with_wink, without = (
      rescored(
        TreeScaled(**BOTH, sigma=sigma, wink=k), score, train=True, **chain
      )
      for k in (6, 0)
    )
    edit = np.abs(with_wink - without).max()
    assert (edit < 1e-8 * np.abs(score).max()) == same
    far = np.abs(np.subtract.outer(range(12), range(12))) > 6
    assert (with_wink[0, :, far] == 0).all()
    np.testing.assert_array_equal(with_wink[0, :, ~far], without[0, :, ~far])


def test_wink_is_for_training_unless_asked_for():
  spec = TreeScaled(**BOTH, sigma=4.0, wink=2)
  off = rescored(TreeScaled(**BOTH, sigma=4.0))
  np.testing.assert_array_equal(rescored(spec), off)
  always = TreeScaled(**BOTH, sigma=4.0, wink=2, wink_at_evaluation=True)
  np.testing.assert_array_equal(rescored(always), rescored(spec, train=True))
  assert not np.array_equal(rescored(always), off)


def test_options_of_dropped_pairs():
  # The and a are 4 edges apart, monkey and a 3; the others at most 2 or 3.
  options = dict(**BOTH, sigma=4.0, wink=2, wink_at_evaluation=True)
  plain = rescored(TreeScaled(**BOTH, sigma=4.0))
  far, one, mask = (
    rescored(TreeScaled(**options, fill=fill))
    for fill in ("far", "one", "mask")
  )
  distance_WW = trees.tree_distance(HEAD_W)
  # Of EOS and pads the tree says nothing that could be dropped: their
  # weight is 0 whether pairs are dropped or not.
  dropped = np.zeros((7, 7), bool)
  dropped[:5, :5] = distance_WW > 2
  assert (far[..., dropped] == 0).all()
  np.testing.assert_array_equal(one[..., dropped], SCORE[..., dropped])
  assert (mask[..., dropped] == -1e9).all()
  for out in (far, one, mask):
    np.testing.assert_array_equal(out[..., ~dropped], plain[..., ~dropped])


def long_sentence(words):
  return dict(
    word_BS=np.tile(np.arange(words), (4, 1)),
    tree_distance_BWW=np.tile(
      trees.tree_distance(control_trees.random(words, 0)), (4, 1, 1)
    ),
    real_BS=np.ones((4, words), bool),
  )


def test_random_sparse_drops_pairs_for_all_heads_alike():
  spec = TreeScaled(**BOTH, sigma=10.0, random_sparse=0.1)
  score = np.ones((4, 2, 40, 40), np.float32)
  out = rescored(spec, score, train=True, **long_sentence(40))
  dropped_BHQM = out == 0
  # 6,400 draws of probability 0.1: five standard deviations are 0.019.
  assert abs(dropped_BHQM[:, 0].mean() - 0.1) < 0.019
  np.testing.assert_array_equal(dropped_BHQM[:, 0], dropped_BHQM[:, 1])
  one_BQM = dropped_BHQM[:, 0]
  assert not np.array_equal(one_BQM[0], one_BQM[1])  # each sentence its own
  assert not np.array_equal(one_BQM[0], one_BQM[0].T)  # each direction
  assert one_BQM[:, np.arange(40), np.arange(40)].any()  # the diagonal too
  again = rescored(spec, score, train=True, key=1, **long_sentence(40))
  assert not np.array_equal(out, again)
  np.testing.assert_array_equal(
    rescored(spec, score, **long_sentence(40)),
    rescored(TreeScaled(**BOTH, sigma=10.0), score, **long_sentence(40)),
  )


def words_alone(out, weight):
  """One weight on all pairs of words; 0 beside them, φ(0) on the diagonal."""
  wanted = np.diag([0.0] * 5 + [0.398942] * 2)
  wanted[:5, :5] = weight
  np.testing.assert_allclose(out, SCORE * wanted, rtol=1e-4)


@pytest.mark.parametrize("fill", ["far", "one", "mask"])
@pytest.mark.parametrize(
  "noise", [{"wink": 2}, {"random_sparse": 1.0}, {"wink": 2, "sigma": 4.0}]
)
def test_the_end_sign_is_the_same_in_training_and_evaluation(noise, fill):
  spec = TreeScaled(**BOTH | noise, fill=fill)
  trained, evaluated = rescored(spec, train=True), rescored(spec)
  assert not np.allclose(trained[..., :5, :5], evaluated[..., :5, :5])
  # Row and column of EOS, number 5: weight 0, its own φ(0) / σ.
  expected = 0.398942 / spec.sigma
  for out in (trained, evaluated):
    wanted = np.where(np.arange(6) == 5, expected * SCORE[0, :, 5, :6], 0)
    np.testing.assert_allclose(out[0, :, 5, :6], wanted, rtol=1e-5)
    assert (out[0, :, :5, 5] == 0).all()


@pytest.mark.parametrize("fill", ["far", "one", "mask"])
def test_what_has_no_path_is_not_dropped(fill):
  # Two trees, 0 <- 1 and 2 <- 3 <- 4: no path from 0 or 1 to the others.
  forest_WW = trees.tree_distance(np.array([0, 0, 2, 2, 3]))[None]
  for noise in ({"wink": 1}, {"random_sparse": 1.0}):
    spec = TreeScaled(**BOTH | noise, fill=fill)
    for train in (True, False):
      out = rescored(spec, tree_distance_BWW=forest_WW, train=train)
      assert (out[0, :, :2, 2:5] == 0).all()
      assert (out[0, :, 2:5, :2] == 0).all()


def test_a_dropped_pair_may_count_k_edges():
  spec = TreeScaled(**BOTH, random_sparse=1.0, random_distance=2)
  words_alone(rescored(spec, train=True), 0.053991)


def test_the_random_technique_comes_before_the_window():
  spec = TreeScaled(**BOTH, random_sparse=1.0, random_distance=2, wink=1)
  words_alone(rescored(spec, train=True), 0.053991)


def test_254_edges_or_more_are_far_but_may_be_dropped():
  # Stored as 254, whatever they are: weight 0 for any sigma. Dropped at random,
  # such a pair counts k edges as any other: φ(0.002) / 1000 = 0.000398941.
  distance_WW = np.where(np.eye(5, dtype=bool), 0, 254).astype(np.uint8)[None]
  wide = dict(**BOTH, sigma=1000.0)
  out = rescored(TreeScaled(**wide), tree_distance_BWW=distance_WW)
  words = ~np.eye(5, dtype=bool)
  assert (out[0, :, :5, :5][:, words] == 0).all()
  spec = TreeScaled(**wide, random_sparse=1.0, random_distance=2)
  out = rescored(spec, tree_distance_BWW=distance_WW, train=True)
  np.testing.assert_allclose(
    out[0, :, :5, :5], SCORE[0, :, :5, :5] * 0.000398941, rtol=1e-4
  )
