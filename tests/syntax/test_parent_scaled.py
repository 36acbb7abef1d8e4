"""PASCAL: values by hand, loops, and what is sampled."""

import math

import numpy as np
import pytest
from cases import KEY, QUERY, expected_scores, real_pairs, rescore
from models_under_test import check_modifier

from jaxsyn.errors import InputError
from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.parent_scaled import ParentScaled, is_parent_BQM


def rescored(spec, score, parent_BS, **options):
  B, _, _, M = score.shape
  features = SentenceFeatures(
    real_BS=np.ones((B, M), bool),
    parent_mid_BS=np.asarray(parent_BS),
    train=options.pop("train", False),
  )
  return np.asarray(rescore(spec, score, features, QUERY, KEY, **options))


def weights(parent_S, sigma=1.0):
  """Weights of one sentence: scores of 1 after the modifier."""
  ones = np.ones((1, 3, len(parent_S), len(parent_S)), np.float32)
  out = rescored(ParentScaled(heads=(0,), sigma=sigma), ones, [parent_S])
  np.testing.assert_array_equal(out[0, 1:], 1)
  return out[0, 0]


def test_weights_by_hand():
  # "The monkey eats a banana": parents [1, 2, 2, 4, 2]; φ(0) to φ(4) of the
  # standard normal are .39894, .24197, .05399, .00443, .00013.
  middle = [0.05399, 0.24197, 0.39894, 0.24197, 0.05399]
  expected = [
    [0.24197, 0.39894, 0.24197, 0.05399, 0.00443],
    middle,
    middle,
    [0.00013, 0.00443, 0.05399, 0.24197, 0.39894],
    middle,
  ]
  np.testing.assert_allclose(
    weights([1.0, 2.0, 2.0, 4.0, 2.0]), expected, atol=1e-5
  )
  # A parent of two subwords, middle 3.5: φ(.5) at 3 and 4, φ(1.5) at 2 and 5.
  np.testing.assert_allclose(
    weights([3.5] * 6)[0, 2:], [0.12952, 0.35207, 0.35207, 0.12952], atol=1e-5
  )
  # σ = 2: φ(0) / 2 = .19947, φ(.5) / 2 = .17603.
  np.testing.assert_allclose(
    weights([1.0] * 3, 2.0)[0], [0.17603, 0.19947, 0.17603], atol=1e-5
  )


@pytest.mark.parametrize("apply", ["multiply", "add", "add_log"])
@pytest.mark.parametrize(
  "options",
  [
    {"sigma": 1.5},
    {"normalise": "peak1", "heads": None},
    {"weighting": "parent_only", "heads": (2, 0)},
  ],
  ids=str,
)
def test_scores_equal_loops(apply, options):
  spec = ParentScaled(apply=apply, **options)

  def score_of(score, sentence, i, q, m):
    offset = m - sentence.parent_middle(q)
    exponent, constant = -(offset**2) / (2 * spec.sigma**2), 1.0
    if spec.weighting == "parent_only":
      exponent = 0.0 if abs(offset) < 1 else -math.inf
    elif spec.normalise == "pdf":
      constant = 1 / (spec.sigma * math.sqrt(2 * math.pi))
    weight = constant * math.exp(exponent)
    if apply == "add_log":
      return score + max(exponent, -1e9)
    return score * weight if apply == "multiply" else score + weight

  np.testing.assert_allclose(
    real_pairs(rescore(spec)),
    expected_scores(spec, score_of),
    rtol=2e-6,
    atol=1e-6,
  )


def test_parent_only_selects_both_middle_subwords():
  is_parent = is_parent_BQM(np.array([[1.0, 2.5, 3.0]]), 5)[0]
  assert is_parent.tolist() == [
    [0, 1, 0, 0, 0],
    [0, 0, 1, 1, 0],
    [0, 0, 0, 1, 0],
  ]


@pytest.mark.parametrize("weighting", ["gaussian", "parent_only"])
def test_ignoring_samples_each_sentence_head_and_query(weighting):
  score = np.ones((8, 2, 64, 16), np.float32)
  parents, options = np.ones((8, 64)), {"heads": None, "weighting": weighting}
  spec = ParentScaled(**options, ignore=0.3)
  plain = rescored(ParentScaled(**options), score, parents)
  out = rescored(spec, score, parents, train=True)
  is_ignored_BHQ = (out == 1).all(-1)
  np.testing.assert_array_equal(out[~is_ignored_BHQ], plain[~is_ignored_BHQ])
  # 1,024 samples with probability 0.3: five standard deviations are 0.072.
  assert abs(is_ignored_BHQ.mean() - 0.3) < 0.072
  assert not np.array_equal(is_ignored_BHQ[:, 0], is_ignored_BHQ[:, 1])
  assert not np.array_equal(is_ignored_BHQ[0], is_ignored_BHQ[1])
  np.testing.assert_array_equal(rescored(spec, score, parents), plain)
  everything = ParentScaled(**options, ignore=1.0)
  assert (rescored(everything, score, parents, train=True) == 1).all()


@pytest.mark.parametrize("option", [{"sigma": 2.0}, {"normalise": "peak1"}])
def test_rejects_gaussian_options_with_parent_only(option):
  (name,) = option
  options = {"weighting": "parent_only", **option}
  with pytest.raises(InputError, match=rf"scaled\.{name}=.* does nothing"):
    check_modifier("encoder", "parent_scaled", options)
  with pytest.raises(InputError, match=r"parent_scaled\.sigma must be above 0"):
    check_modifier("encoder", "parent_scaled", {"sigma": 0.0})
