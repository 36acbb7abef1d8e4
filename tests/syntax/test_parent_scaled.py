"""PASCAL: numbers that can be checked by hand, and the paper's conventions."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import part_under_test
import pytest
from models_under_test import check_part

from jaxsyn.errors import InputError
from jaxsyn.syntax.parent_scaled import (
  ParentScaled,
  parent_only_BQM,
)


def rescored(spec, score_BHQM, parent_BS, **more):
  """The scores after a part; queries and keys are not read by it."""
  return part_under_test.rescored(
    spec, score_BHQM, parent_mid_BS=parent_BS, **more
  )


def weighting(parent_BS, sigma):
  """What the part makes of scores of 1, for one sentence."""
  length = len(parent_BS)
  ones = np.ones((1, 2, length, length), np.float32)
  spec = ParentScaled(layers=(0,), heads=(0,), sigma=sigma)
  out_BHQM = rescored(spec, ones, jnp.array([parent_BS]))
  np.testing.assert_array_equal(out_BHQM[0, 1], ones[0, 1])  # the other head
  return out_BHQM[0, 0]


def test_the_monkey_eats_a_banana():
  # Parents [1, 2, 2, 4, 2]: φ(0), φ(1), φ(2), φ(3), φ(4) of the standard
  # normal are .39894, .24197, .05399, .00443, .00013.
  middle = [0.05399, 0.24197, 0.39894, 0.24197, 0.05399]
  np.testing.assert_allclose(
    weighting([1.0, 2.0, 2.0, 4.0, 2.0], 1.0),
    [
      [0.24197, 0.39894, 0.24197, 0.05399, 0.00443],
      middle,
      middle,
      [0.00013, 0.00443, 0.05399, 0.24197, 0.39894],
      middle,
    ],
    atol=1e-5,
  )


def test_a_parent_of_two_subwords():
  # Middle 3.5: φ(.5) = .35207 at 3 and 4, φ(1.5) = .12952 at 2 and 5.
  row = weighting([3.5] * 6, 1.0)[0]
  np.testing.assert_allclose(
    row[2:], [0.12952, 0.35207, 0.35207, 0.12952], atol=1e-5
  )


def test_sigma_is_the_root_of_the_variance():
  # Variance 4: φ(0)/2 = .19947, φ(.5)/2 = .17603.
  row = weighting([1.0] * 3, 2.0)[0]
  np.testing.assert_allclose(row, [0.17603, 0.19947, 0.17603], atol=1e-5)


def test_sigma_must_be_positive():
  with pytest.raises(InputError, match=r"parent_scaled\.sigma must be above 0"):
    check_part("encoder", "parent_scaled", {"sigma": 0.0})


def test_parent_only_takes_both_middles():
  weighting = parent_only_BQM(jnp.array([[1.0, 2.5]]), 5)[0]
  assert weighting.tolist() == [[0, 1, 0, 0, 0], [0, 0, 1, 1, 0]]


@pytest.mark.parametrize(
  "how, at_parent, elsewhere",
  [
    ("multiply", lambda s: s, lambda s: 0 * s),
    ("add", lambda s: s + 1, lambda s: s),
    ("add_log", lambda s: s, lambda s: 0 * s - 1e9),
  ],
)
def test_parent_only_weighs_1_at_the_parent_and_0_elsewhere(
  how, at_parent, elsewhere
):
  # With the density's peak the parent had 0.399. Its middle is 1; or 2.5, of
  # two subwords, both of which have 1; or 3, of three, whose middle one has.
  score = np.random.default_rng(0).normal(size=(1, 2, 3, 5)).astype(np.float32)
  spec = ParentScaled(heads=(1,), weighting="parent_only", apply=how)
  out = rescored(spec, score, [[1.0, 2.5, 3.0]])
  chosen = np.array([[0, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0]], bool)
  wanted = np.where(chosen, at_parent(score), elsewhere(score))
  np.testing.assert_allclose(out[:, 1], wanted[:, 1], rtol=1e-6)
  np.testing.assert_array_equal(out[:, 0], score[:, 0])


def test_parent_only_ignores_its_parents_too():
  score = np.random.default_rng(0).normal(size=(4, 2, 9, 5)).astype(np.float32)
  spec = ParentScaled(heads=(0, 1), weighting="parent_only", ignore=0.4)
  out = np.asarray(rescored(spec, score, np.full((4, 9), 2.0), train=True))
  is_complete = (out == score).all(-1)
  assert 0.1 < is_complete.mean() < 0.7
  only = np.where(np.arange(5) == 2, score, 0)
  np.testing.assert_array_equal(out[~is_complete], only[~is_complete])


@pytest.mark.parametrize("option", [{"sigma": 2.0}, {"normalise": "peak1"}])
def test_parent_only_has_no_gaussian_to_shape(option):
  (name,) = option
  with pytest.raises(
    InputError, match=rf"encoder\.parent_scaled\.{name}=.*noth"
  ):
    options = {"weighting": "parent_only", **option}
    check_part("encoder", "parent_scaled", options)


def test_only_the_chosen_head_changes_in_every_sentence():
  # The reference code of the paper scales all heads of the last sentences of
  # a batch where fewer heads than all are chosen; here a head stays a head.
  rng = np.random.default_rng(0)
  score = jnp.asarray(rng.normal(size=(2, 2, 3, 3)), jnp.float32)
  parents = [[0.0, 0.0, 1.0], [2.0, 2.0, 2.0]]
  out = rescored(ParentScaled(heads=(1,)), score, parents)
  np.testing.assert_array_equal(out[:, 0], score[:, 0])
  for sentence in (0, 1):
    single = rescored(
      ParentScaled(heads=(1,)),
      score[sentence : sentence + 1],
      parents[sentence : sentence + 1],
    )
    np.testing.assert_array_equal(out[sentence], single[0])
  # Row 2 of sentence 0 has parent 1: score · (φ(1), φ(0), φ(1)).
  np.testing.assert_allclose(
    out[0, 1, 2],
    score[0, 1, 2] * np.array([0.24197, 0.39894, 0.24197]),
    atol=1e-5,
  )


def test_ignoring_everything_is_the_plain_score_in_training_alone():
  score = jnp.asarray(np.random.default_rng(1).normal(size=(2, 2, 4, 4)))
  parents = np.ones((2, 4), np.float32)
  spec = ParentScaled(heads=(0, 1), ignore=1.0)
  trained = rescored(spec, score, parents, train=True)
  np.testing.assert_array_equal(trained, score)
  evaluated = rescored(spec, score, parents)
  never = rescored(dataclasses.replace(spec, ignore=0.0), score, parents)
  np.testing.assert_array_equal(evaluated, never)
  assert not np.array_equal(evaluated, score)


def test_ignoring_draws_for_each_sentence_head_and_query():
  score = jnp.ones((8, 2, 64, 16))
  out = rescored(
    ParentScaled(heads=(0, 1), ignore=0.3), score, np.ones((8, 64)), train=True
  )
  ignored_BHQ = np.asarray((out == 1.0).all(-1))
  assert ((out == 1.0).any(-1) == ignored_BHQ).all()  # whole rows
  # 1,024 draws of probability 0.3: five standard deviations are 0.072.
  assert abs(ignored_BHQ.mean() - 0.3) < 0.072
  assert not np.array_equal(ignored_BHQ[:, 0], ignored_BHQ[:, 1])
  assert not np.array_equal(ignored_BHQ[0], ignored_BHQ[1])
