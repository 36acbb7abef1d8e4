"""Tests between systems: by hand, by other programs, and by simulation."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.seed_alarms import called_different, false_alarm_rates
from jaxsyn.comparison.hierarchical import draw, hierarchical, with_verdict
from jaxsyn.comparison.inference import (
  check_family,
  error_variance,
  holm,
  read_family,
  read_margins,
)
from jaxsyn.errors import InputError


def compared(difference_Y, difference_YJ=None, **options):
  """Two systems; without resamples, sentences have no variance."""
  y = np.array(difference_Y, float)
  if difference_YJ is None:
    difference_YJ = np.repeat(y[:, None], 50, axis=1)
  return hierarchical(
    ("one", "other"),
    "BLEU",
    tuple(range(len(y))),
    difference_Y=y,
    difference_YJ=np.array(difference_YJ, float),
    **options,
  )


def test_variance_of_seeds_alone_gives_students_t():
  # 1 and 3 points in every resample. The variance of the mean is 2 / 2 = 1,
  # t = 2 / 1 with one degree of freedom (Cauchy): p = 1 - 2 atan(2) / π.
  result = compared([1, 3], [[1] * 4000, [3] * 4000])
  assert (result.value, result.seed_sd, result.sentence_sd) == (2, 1, 0)
  assert result.degrees == 1
  assert result.p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
  # The 97.5 % point of Cauchy's law is tan(0.475 π) = 12.706.
  reach = math.tan(0.475 * math.pi)
  assert (result.low, result.high) == pytest.approx((2 - reach, 2 + reach))
  # Resampled means are 1, 2, 3, all closer to 2 than 0 is: the smallest p.
  assert result.bootstrap.p == 1 / 4001
  assert (result.bootstrap.low, result.bootstrap.high) == (1, 3)


def test_variance_of_sentences_alone_gives_the_normal_law():
  # Every seed moves alike, by 1 up or down: variance 1, but 0 between seeds.
  moves = [1, 3] * 50
  result = compared([2, 2], [moves, moves])
  assert (result.seed_sd, result.sentence_sd) == (0, 1)
  assert result.p == pytest.approx(2 * stats.norm.sf(2), rel=1e-4)
  assert result.low == pytest.approx(2 - 1.96, abs=1e-3)


def test_shared_variance_counts_once():
  # Means of the columns are 1, 0: V_sentence = 1/4. Around them the seeds are
  # at 0, -1 and 0, 1: variances 1/4 and 1/4, so V_both = (1/2) / 1 / 2 = 1/4.
  # V_seed of 1 and 2 is (1/2) / 2 = 1/4. V = 1/4 + 1/4 - 1/4, 1 degree.
  result = compared([1, 2], [[1, -1], [1, 1]])
  assert result.seed_sd == result.sentence_sd == 0.5
  assert result.degrees == 1
  assert result.p == pytest.approx(2 * stats.t.sf(1.5 / 0.5, 1))
  # Seeds agree by chance (V_seed = 0), V_sentence = V_both = 1/4: V is not 0.
  result = compared([2, 2], [[1, -1], [1, 1]])
  assert result.p == pytest.approx(2 * stats.norm.sf(2 / 0.5), rel=1e-3)


def test_seeds_are_resampled_for_each_resample_of_sentences():
  column_J = np.arange(4000)
  sampled_J = draw(np.stack([column_J, column_J + 1000.0])) - column_J
  # Both seeds 0, one of each, both seeds 1: 1/4, 1/2, 1/4.
  for value, share in ((0, 0.25), (500, 0.5), (1000, 0.25)):
    sd = math.sqrt(share * (1 - share) / 4000)
    assert abs((sampled_J == value).mean() - share) < 4 * sd


def test_equal_systems_and_single_seeds():
  result = compared([0, 0, 0], np.zeros((3, 50)))
  assert result.p == result.bootstrap.p == 1.0
  assert (result.low, result.high) == (0, 0)
  result = compared([1.5], [[1, 2, 1, 2]], margin=0.5)
  assert (result.value, result.sentence_sd) == (1.5, 0.5)
  assert result.p is result.low is result.seed_sd is result.bootstrap is None
  assert result.equivalence_p is None


def test_false_alarms_with_three_seeds():
  trials = 200
  low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05)
  for spread in ("some_seeds", "many_seeds"):
    result = called_different(spread, 3, trials, sentences=100, samples=200)
    # A little above 5 % if seeds matter (docs/comparing.md).
    assert result["corrected"] <= high + 0.02 * trials, (spread, result)
  # Without the correction, some 15 %.
  assert result["bootstrap"] > high > low
  result = called_different("some_seeds", 3, 30, samples=200, planted=0.6)
  assert result["corrected"] >= 25, result  # a large difference is found


def test_false_alarms_of_pooled_variance():
  """Near 5 % if all systems vary equally; more if one varies more."""
  trials = 80  # each has a fixed seed
  result = false_alarm_rates(5, 3, trials, sentences=100, samples=100)
  low, high = stats.binom.ppf([0.0005, 0.9995], trials, 0.05) / trials
  assert low <= result["pooled_equal_pair"] <= high
  assert result["pooled_family"] <= high
  assert result["pooled_equivalence_equal"] <= high
  assert result["pooled_power"] > result["separate_power"]
  # One of twelve with three times the standard deviation: in 600 trials, 19 %
  # pooled and 5.5 % separate. With three seeds, separate ones are too many too.
  result = false_alarm_rates(
    12, 5, trials, unequal=True, sentences=100, samples=100
  )
  assert result["pooled_unequal_pair"] > high
  assert result["separate_unequal_pair"] <= high


def test_holm_equals_the_step_down_procedure():
  """Reject the smallest p while it is at most level / tests left."""
  # Sorted: .01 · 4, .02 · 3, .03 · 2, .2 · 1; each at least as large as before.
  assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx([0.06, 0.04, 0.2, 0.06])
  assert holm([0.5, 0.6]) == [1.0, 1.0] and holm([]) == []
  random = np.random.default_rng(1)
  for _ in range(300):
    p = random.beta(0.3, 3, random.integers(1, 12)).tolist()
    if random.random() < 0.5:
      p[0] = p[-1]  # a tie
    for level in (0.01, 0.05, 0.3):
      rejected, left = set(), len(p)
      for i in sorted(range(len(p)), key=p.__getitem__):
        if p[i] > level / left:
          break
        rejected.add(i)
        left -= 1
      assert {i for i, q in enumerate(holm(p)) if q <= level} == rejected


def balanced(systems, seeds, random):
  return {
    f"s{i}": {k: float(random.normal(30 + i, 1)) for k in range(seeds)}
    for i in range(systems)
  }


def test_error_variance_by_hand():
  # Means 11, 11 and 10.5, 11.5: residuals -0.5, 0.5, 0.5, -0.5; 1 degree.
  scores = {"a": {0: 10.0, 1: 12.0}, "b": {0: 11.0, 1: 11.0}}
  result = error_variance("BLEU", scores)
  # The difference b - a is 1 and -1: variance 2, and 2 s2 is 2.
  assert (result.sd, result.degrees) == (pytest.approx(1.0), 1)
  assert result.p is None and result.systems == 2
  # Rounded: neither equal systems nor the processor's kernels change a digit.
  equal = {name: {0: 0.1, 1: 1 / 3, 2: 4.79} for name in "abc"}
  assert error_variance("BLEU", equal).sd == 0
  # No degrees of freedom.
  assert error_variance("BLEU", {"a": {0: 1.0, 1: 2.0}}) is None
  assert error_variance("BLEU", {"a": {0: 1.0}, "b": {0: 2.0}}) is None


def test_error_variance_of_complete_and_missing_runs():
  """Complete runs: double centering. Missing runs: least squares."""
  scores = balanced(5, 4, np.random.default_rng(2))
  table = np.array([list(by_seed.values()) for by_seed in scores.values()])
  residual = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
  result = error_variance("BLEU", scores)
  assert result.degrees == 4 * 3
  assert result.sd**2 == pytest.approx((residual**2).sum() / 12)
  of_system = (residual**2).sum(1)
  worst = int(of_system.argmax())
  assert result.largest == f"s{worst}"
  assert result.largest_sd**2 == pytest.approx(of_system[worst] / (12 / 5))
  rest = (of_system.sum() - of_system[worst]) / 9.6
  ratio = (of_system[worst] / 2.4) / rest
  assert result.p == pytest.approx(min(1, 5 * stats.f.sf(ratio, 2.4, 9.6)))

  del scores["s1"][0], scores["s2"][3], scores["s2"][1]
  rows, values = [], []
  for i, by_seed in enumerate(scores.values()):
    for k, y in by_seed.items():
      # Dummy coding against the first system and seed, with an intercept.
      system_dummies = [i == a for a in range(1, 5)]
      rows.append([1.0, *system_dummies, *(k == b for b in range(1, 4))])
      values.append(y)
  design, y = np.array(rows, float), np.array(values)
  beta = np.linalg.solve(design.T @ design, design.T @ y)
  result = error_variance("BLEU", scores)
  assert result.degrees == 17 - 8
  assert result.sd**2 == pytest.approx(((y - design @ beta) ** 2).sum() / 9)


def test_pooled_variance_of_two_systems_is_the_paired_t_test():
  random = np.random.default_rng(4)
  for seeds in (2, 3, 8):
    scores = balanced(2, seeds, random)
    one, other = (np.array([*s.values()]) for s in scores.values())
    error = error_variance("BLEU", scores)
    result = compared(other - one, pooled=(error.sd**2, error.degrees))
    expected = stats.ttest_rel(other, one)
    assert result.p == pytest.approx(expected.pvalue)
    assert result.p == pytest.approx(compared(other - one).p)
    assert result.degrees == pytest.approx(seeds - 1)


def test_pooled_variance_by_hand():
  # s2 = 0.5 with 6 degrees: V = 2 · 0.5 / 4, t = 1 / 0.5.
  result = compared([0.5, 1.5, 1.0, 1.0], pooled=(0.5, 6))
  assert (result.seed_sd, result.degrees) == (0.5, 6)
  assert result.p == pytest.approx(2 * stats.t.sf(2, 6))
  # V_sentence = V_both = 1/4 (see above), V_seed = 2 · 3/4 / 2: V = 3/4, with
  # 5 degrees of V_seed alone: (3/4)² · 5 / (3/4)².
  rows = [[1, -1], [1, 1]]
  result = compared([1, 2], rows, pooled=(0.75, 5))
  assert result.degrees == pytest.approx(5)
  assert result.p == pytest.approx(2 * stats.t.sf(1.5 / 0.75**0.5, 5))
  # With V_seed = 1/8: V = max(1/8, 1/4) = 1/4; 5 (1/4)² / (1/8)² degrees.
  result = compared([1, 2], rows, pooled=(0.125, 5))
  assert result.degrees == pytest.approx(20)
  assert result.p == pytest.approx(2 * stats.t.sf(1.5 / 0.5, 20))


def test_equivalence_equals_two_one_sided_t_tests():
  random = np.random.default_rng(5)
  for margin in (0.2, 0.5, 2.0):
    y = random.normal(0.3, 0.4, 6)
    result = compared(y, margin=margin)
    below = stats.ttest_1samp(y, margin, alternative="less").pvalue
    above = stats.ttest_1samp(y, -margin, alternative="greater").pvalue
    assert result.equivalence_p == pytest.approx(max(below, above))
    interval = stats.ttest_1samp(y, 0).confidence_interval(0.9)
    ends = (result.equivalence_low, result.equivalence_high)
    assert ends == pytest.approx(tuple(interval))
    inside = -margin < ends[0] and ends[1] < margin
    assert (result.equivalence_p < 0.05) == inside
    opposite = compared(-y, margin=margin).equivalence_p
    assert opposite == pytest.approx(result.equivalence_p)
  # Mean 0.2, V = 0.02 / 2 = 0.01: (0.5 - 0.2) / 0.1 = 3 with one degree.
  result = compared([0.1, 0.3], margin=0.5)
  assert result.equivalence_p == pytest.approx(0.5 - np.arctan(3) / np.pi)
  assert compared([0.2, 0.2], margin=0.5).equivalence_p < 1e-6
  assert compared([0.1, 0.3]).equivalence_p is None


@pytest.mark.parametrize(
  ("value", "p", "adjusted", "same", "larger", "verdict"),
  [
    (1.0, 0.01, 0.04, None, True, "better"),
    (-1.0, 0.01, 0.04, None, True, "worse"),
    (-1.0, 0.01, 0.04, None, False, "better"),  # TER
    (1.0, 0.01, 0.06, None, True, "undecided"),  # Holm counts in the family
    (1.0, 0.01, None, None, True, "better"),
    (0.1, 0.5, 0.9, 0.04, True, "equivalent"),
    (0.1, 0.5, 0.9, 0.06, True, "undecided"),
    (0.1, 0.01, 0.02, 0.01, True, "better"),
    (0.1, None, None, None, True, ""),
  ],
)
def test_verdicts(value, p, adjusted, same, larger, verdict):
  difference = dataclasses.replace(
    compared([1.0, 2.0]), value=value, p=p, equivalence_p=same
  )
  result = with_verdict(difference, adjusted, larger_is_better=larger)
  assert result.verdict == verdict


def test_reads_pairs_of_a_family_and_margins():
  assert read_family(["a:b", "a:c"]) == (("a", "b"), ("a", "c"))
  for words in (["a"], ["a:"], [":b"], ["a:a"], ["a:b", "b:a"], ["a:b", "a:b"]):
    with pytest.raises(InputError, match="--family"):
      read_family(words)
  with pytest.raises(InputError, match=r"'pascl' is not compared\. Did you"):
    check_family((("pascl", "b"),), ["pascal", "b"])
  metrics = ("chrf", "bleu")
  assert read_margins(["bleu=1", "0.5"], metrics) == {"bleu": 1.0, "chrf": 0.5}
  for word in ("x", "0", "-1", "nan", "inf", "bleu=", "ter=1", "blue=1"):
    with pytest.raises(InputError, match="--margin"):
      read_margins([word], metrics)
