"""PASCAL: values by hand, loops, and ignored parents."""

import math

import cases
import numpy as np
import pytest
from cases import HEADS, Sentence, features_of
from numpy.testing import assert_allclose, assert_array_equal

from jaxsyn.syntax import SentenceFeatures
from jaxsyn.syntax.parent_scaled import ParentScaled


def test_weights_by_hand():
  # "The monkey eats a banana": parents [1, 2, 2, 4, 2], and EOS; φ(0) to φ(4) of
  # the standard normal are .39894, .24197, .05399, .00443, .00013.
  monkey = Sentence((0, 1, 2, 3, 4, -1), (1, 2, 2, 4, 2))
  features = features_of([monkey])
  size = features.real_BS.shape[1]
  ones = np.ones((1, HEADS, size, size), np.float32)
  spec = ParentScaled(heads=(0,))
  out = np.asarray(cases.rescore(spec, ones, features))
  middle = [0.05399, 0.24197, 0.39894, 0.24197, 0.05399]
  expected = [
    [0.24197, 0.39894, 0.24197, 0.05399, 0.00443],
    middle,
    middle,
    [0.00013, 0.00443, 0.05399, 0.24197, 0.39894],
    middle,
  ]
  assert_allclose(out[0, 0, :5, :5], expected, atol=1e-5)
  assert_array_equal(out[0, 1:], 1)
  # A parent of two subwords, middle 3.5: φ(.5) at 3 and 4, φ(1.5) at 2 and 5.
  features = features.replace(parent_mid_BS=np.full((1, size), 3.5))
  out = np.asarray(cases.rescore(spec, ones, features))
  expected = [0.12952, 0.35207, 0.35207, 0.12952]
  assert_allclose(out[0, 0, 0, 2:6], expected, atol=1e-5)


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
    if spec.weighting == "parent_only":  # or both middle subwords
      exponent = 0.0 if abs(offset) < 1 else -math.inf
    elif spec.normalise == "pdf":
      constant = 1 / (spec.sigma * math.sqrt(2 * math.pi))
    weight = constant * math.exp(exponent)
    if apply == "add_log":
      return score + max(exponent, -1e9)
    return score * weight if apply == "multiply" else score + weight

  assert_allclose(
    cases.real_pairs(cases.rescore(spec)),
    cases.expected_scores(spec, score_of),
    rtol=2e-6,
    atol=1e-6,
  )


@pytest.mark.parametrize("weighting", ["gaussian", "parent_only"])
def test_ignoring_samples_each_sentence_head_and_query(weighting):
  score = np.ones((8, 2, 64, 16), np.float32)
  features = SentenceFeatures(
    real_BS=np.ones((8, 16), bool), parent_mid_BS=np.ones((8, 64))
  )

  def rescored(ignore, train):
    spec = ParentScaled(heads=None, weighting=weighting, ignore=ignore)
    out = cases.rescore(spec, score, features.replace(train=train))
    return np.asarray(out)

  plain, out = rescored(0.0, True), rescored(0.3, True)
  is_ignored_BHQ = (out == 1).all(-1)
  assert_array_equal(out[~is_ignored_BHQ], plain[~is_ignored_BHQ])
  # 1,024 samples with probability 0.3: five standard deviations are 0.072.
  assert abs(is_ignored_BHQ.mean() - 0.3) < 0.072
  assert not np.array_equal(is_ignored_BHQ[:, 0], is_ignored_BHQ[:, 1])
  assert not np.array_equal(is_ignored_BHQ[0], is_ignored_BHQ[1])
  assert_array_equal(rescored(0.3, False), plain)
  assert (rescored(1.0, True) == 1).all()
