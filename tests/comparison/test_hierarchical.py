"""The bootstrap over seeds and sentences: by hand, and by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.seed_alarms import called_different
from jaxsyn.comparison.hierarchical import draw, hierarchical


def compared(difference_Y, difference_YJ):
  difference_YJ = np.array(difference_YJ, float)
  seeds = tuple(range(len(difference_Y)))
  names = ("one", "other")
  return hierarchical(
    *(names, "BLEU", seeds),
    difference_Y=np.array(difference_Y, float),
    difference_YJ=difference_YJ,
  )


def test_seeds_alone_are_students_t():
  # Sentences do not matter: 1 and 3 points in every resample. The variance of
  # the mean is 2 / 2 = 1, t = 2 / 1 with one degree of freedom, of which the
  # law is Cauchy's: p = 1 - 2 atan(2) / π.
  result = compared([1, 3], [[1] * 4000, [3] * 4000])
  assert (result.value, result.seed_sd, result.sentence_sd) == (2, 1, 0)
  assert result.degrees == 1
  assert result.p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
  # The 97.5 % point of Cauchy's law is tan(0.475 π) = 12.706.
  reach = math.tan(0.475 * math.pi)
  assert (result.low, result.high) == pytest.approx((2 - reach, 2 + reach))
  # Drawn means are 1, 2, 3, none as far from 2 as 0 is: the smallest p there is.
  assert result.bootstrap.p == 1 / 4001
  assert (result.bootstrap.low, result.bootstrap.high) == (1, 3)


def test_sentences_alone_are_the_normal_law():
  # Every seed moves alike, by 1 up or down: a variance of 1, none of seeds.
  moves = [1, 3] * 50
  result = compared([2, 2], [moves, moves])
  assert (result.seed_sd, result.sentence_sd) == (0, 1)
  assert result.p == pytest.approx(2 * stats.norm.sf(2), rel=1e-4)
  assert result.low == pytest.approx(2 - 1.96, abs=1e-3)


def test_shared_variance_is_counted_once():
  # Means of the columns are 1, 0: V_sentence = 1/4. Around them the seeds are
  # at 0, -1 and 0, 1: variances 1/4 and 1/4, so V_both = (1/2) / 1 / 2 = 1/4.
  # V_seed of 1 and 2 is (1/2) / 2 = 1/4. V = 1/4 + 1/4 - 1/4, 1 degree.
  result = compared([1, 2], [[1, -1], [1, 1]])
  assert result.seed_sd == result.sentence_sd == 0.5
  assert result.degrees == 1
  assert result.p == pytest.approx(2 * stats.t.sf(1.5 / 0.5, 1))


def test_the_variance_is_never_below_what_sentences_have():
  # Seeds agree by chance (V_seed = 0), V_sentence = V_both = 1/4: not 0.
  result = compared([2, 2], [[1, -1], [1, 1]])
  assert result.p == pytest.approx(2 * stats.norm.sf(2 / 0.5), rel=1e-3)


def test_seeds_are_drawn_anew_for_each_resample_of_sentences():
  column_J = np.arange(4000)
  sampled_J = draw(np.stack([column_J, column_J + 1000.0])) - column_J
  # Both seeds 0, one of each, both seeds 1: 1/4, 1/2, 1/4.
  for value, share in ((0, 0.25), (500, 0.5), (1000, 0.25)):
    sd = math.sqrt(share * (1 - share) / 4000)
    assert abs((sampled_J == value).mean() - share) < 4 * sd


def test_equal_systems():
  result = compared([0, 0, 0], np.zeros((3, 50)))
  assert result.p == result.bootstrap.p == 1.0
  assert (result.low, result.high) == (0, 0)


def test_a_single_seed_says_nothing_of_seeds():
  result = compared([1.5], [[1, 2, 1, 2]])
  assert (result.value, result.sentence_sd) == (1.5, 0.5)
  assert result.p is result.low is result.seed_sd is result.bootstrap is None


def test_false_alarms_with_three_seeds():
  trials = 200
  low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05)
  for spread in ("some_seeds", "many_seeds"):
    result = called_different(spread, 3, trials, sentences=100, samples=200)
    # A little above 5 % where seeds matter, see the README.
    assert result["corrected"] <= high + 0.02 * trials, (spread, result)
  # Without the correction it is no test: some 15 %.
  assert result["bootstrap"] > high > low


def test_a_large_difference_is_found():
  result = called_different("some_seeds", 3, 30, samples=200, planted=0.6)
  assert result["corrected"] >= 25, result
