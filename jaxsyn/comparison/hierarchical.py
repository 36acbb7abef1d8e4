"""Significance tests of two systems over seeds and sentences.

A test over sentences compares two trained models, not two systems: another seed
may reverse the sign. The paired multi-bootstrap (Sellam et al. 2022, "The
MultiBERTs", ICLR) resamples both. A resample draws with replacement

1. as many seeds as were trained, the same for both systems: run k of both saw the
   same batches;
2. as many sentences as the test set has, the same for both systems and all seeds.

Its difference is the mean over the drawn seeds of the difference of the two corpus
scores on the drawn sentences. `Hierarchical.bootstrap` summarizes them.

This is too liberal for few seeds: resampling K seeds gives their mean (K - 1)/K of
its variance, and percentiles ignore how badly K seeds estimate it.
`Hierarchical.p`, `low` and `high` correct both, from the same resamples of
sentences. The variance of the mean difference is

  V = V_seed + V_sentence - V_both

with V_seed, the variance between seeds divided by K; V_sentence, the variance of
the mean over resamples of sentences; and V_both, the part that is in both: the
variance with the sentences of a single seed's difference (Owen 2007, "The
pigeonhole bootstrap"). V is at least V_seed and at least V_sentence. The test is
Student's t with Satterthwaite's degrees of freedom, V² (K - 1) / V_seed²: K - 1 if
seeds dominate, many if sentences do.

With an error variance s2 that is pooled over all systems
(`jaxsyn.comparison.inference`), V_seed is 2 s2 / K, and the degrees of freedom of
s2 replace K - 1.

Equivalence within a margin m is tested by two one-sided tests (Schuirmann 1987):
the difference is below m, and above -m, with the same V and degrees of freedom;
the larger p-value counts. It is below 0.05 if the 90 % interval lies within
(-m, m).

Letters: Y seed of a run; J resample.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxsyn.arrays.shapes import agree
from jaxsyn.comparison.inference import LEVEL
from jaxsyn.scoring.significance import SAME, SEED, interval_of, share

_NORMAL_DEGREES = 1e6  # of freedom: Student's t is then the normal law


@dataclasses.dataclass(frozen=True)
class Bootstrap:
  """Interval and p-value of a bootstrap, not corrected for few seeds.

  Attributes:
    low, high: 95 % interval (percentiles), in points.
    p: Share of resamples at least as far from their mean as the difference is
      from 0.
    samples: Number of resamples.
  """

  low: float
  high: float
  p: float
  samples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hierarchical:
  """Score difference of two systems, tested over seeds and sentences.

  Values that need several seeds are None for a single seed.

  Attributes:
    system, baseline: Names; the baseline may also be a control.
    metric: Title of the metric.
    value: Mean over seeds of the score of the system minus the baseline's.
    by_seed: Difference for each of `seeds`, which both systems have.
    low, high: 95 % interval, corrected for few seeds.
    p: Two-sided p-value, corrected for few seeds.
    adjusted_p: Holm-adjusted p-value; None outside the family of tests.
    margin: Margin of equivalence, in points, if given.
    equivalence_p: p-value of the two one-sided tests of equivalence.
    equivalence_low, equivalence_high: 90 % interval.
    verdict: "better" or "worse" (p < 0.05, adjusted in the family),
      "equivalent" (equivalence_p < 0.05), "undecided", or "" for a single seed.
    seed_sd, sentence_sd: Square roots of V_seed and V_sentence.
    degrees: Degrees of freedom of p and the interval.
    bootstrap: Uncorrected bootstrap.
  """

  system: str
  baseline: str
  metric: str
  value: float
  by_seed: tuple[float, ...]
  seeds: tuple[int, ...]
  low: float | None = None
  high: float | None = None
  p: float | None = None
  seed_sd: float | None = None
  sentence_sd: float
  degrees: float | None = None
  bootstrap: Bootstrap | None = None
  adjusted_p: float | None = None
  margin: float | None = None
  equivalence_p: float | None = None
  equivalence_low: float | None = None
  equivalence_high: float | None = None
  verdict: str = ""

  @property
  def decisive_p(self) -> float | None:
    """p-value behind the verdict: Holm-adjusted if available, else raw."""
    return self.p if self.adjusted_p is None else self.adjusted_p


def hierarchical(
  names: tuple[str, str],
  metric: str,
  seeds: tuple[int, ...],
  *,
  difference_Y: np.ndarray,
  difference_YJ: np.ndarray,
  seed: int = SEED,
  pooled: tuple[float, float] | None = None,
  margin: float | None = None,
) -> Hierarchical:
  """Tests the score difference of two systems over seeds and sentences.

  Args:
    names: Names of the system and the baseline.
    metric: Title of the metric.
    seeds: Seeds of the compared runs.
    difference_Y: Score of the system minus the baseline's on the test set, in
      points.
    difference_YJ: Such differences on resamples of its sentences, which are the
      same for all seeds.
    seed: Seed of the resampling of seeds.
    pooled: Variance of the error of one run, and its degrees of freedom; None to
      estimate it from the differences of the two systems.
    margin: Margin of equivalence, in points; None for no test.
  """
  agree(difference_Y=difference_Y, difference_YJ=difference_YJ)
  count, samples = difference_YJ.shape
  value = float(difference_Y.mean())
  of_sentences = float(difference_YJ.mean(axis=0).var())
  difference = Hierarchical(
    system=names[0],
    baseline=names[1],
    metric=metric,
    value=value,
    by_seed=tuple(map(float, difference_Y)),
    seeds=tuple(seeds),
    sentence_sd=math.sqrt(of_sentences),
    margin=margin,
  )
  if count == 1:
    return difference
  of_seeds, seed_degrees = float(difference_Y.var(ddof=1)) / count, count - 1.0
  if pooled:
    of_seeds, seed_degrees = 2 * pooled[0] / count, pooled[1]
  apart_YJ = difference_YJ - difference_YJ.mean(axis=0)
  # The variance between K seeds is (K - 1)/K of that of each, so the sum over K
  # is K - 1 times the latter.
  of_both = float(apart_YJ.var(axis=1).sum()) / (count - 1) / count
  variance = max(of_seeds + of_sentences - of_both, of_seeds, of_sentences)
  degrees = _NORMAL_DEGREES
  if of_seeds > variance / math.sqrt(_NORMAL_DEGREES):
    degrees = seed_degrees * (variance / of_seeds) ** 2
  sd = math.sqrt(variance)
  low, high = _interval(value, sd, degrees, 0.975)
  p = 2 * _tail(abs(value), sd, degrees)
  resampled_J = draw(difference_YJ, seed)
  hits_J = abs(resampled_J - resampled_J.mean()) >= abs(value) - SAME
  difference = dataclasses.replace(
    difference,
    low=low,
    high=high,
    p=1.0 if abs(value) <= SAME else p,
    seed_sd=math.sqrt(of_seeds),
    degrees=degrees,
    bootstrap=Bootstrap(*interval_of(resampled_J), share(hits_J), samples),
  )
  if margin is None:
    return difference
  low, high = _interval(value, sd, degrees, 1 - LEVEL)
  return dataclasses.replace(
    difference,
    equivalence_p=_tail(margin - abs(value), sd, degrees),
    equivalence_low=low,
    equivalence_high=high,
  )


def draw(difference_YJ: np.ndarray, seed: int = SEED) -> np.ndarray:
  """Resamples seeds; returns the mean difference of each resample."""
  count, samples = difference_YJ.shape
  random = np.random.default_rng([seed, count])
  choice_JY = random.integers(count, size=(samples, count))
  return difference_YJ[choice_JY.T, np.arange(samples)].mean(axis=0)


def with_verdict(
  difference: Hierarchical,
  adjusted_p: float | None,
  *,
  larger_is_better: bool,
) -> Hierarchical:
  """Adds an adjusted p-value and a verdict, such as "better", to a difference.

  Args:
    difference: Difference of two systems.
    adjusted_p: Holm-adjusted p-value; None outside the family.
    larger_is_better: Whether a larger score is better.
  """
  difference = dataclasses.replace(difference, adjusted_p=adjusted_p)
  p, same_p = difference.decisive_p, difference.equivalence_p
  if p is None:
    verdict = ""
  elif p < LEVEL:
    better = (difference.value > 0) == larger_is_better
    verdict = "better" if better else "worse"
  elif same_p is not None and same_p < LEVEL:
    verdict = "equivalent"
  else:
    verdict = "undecided"
  return dataclasses.replace(difference, verdict=verdict)


def _interval(
  value: float, sd: float, degrees: float, quantile: float
) -> tuple[float, float]:
  """Returns a Student's t confidence interval around a mean."""
  from scipy import stats  # takes long to load

  reach = float(stats.t.ppf(quantile, degrees)) * sd
  return value - reach, value + reach


def _tail(distance: float, sd: float, degrees: float) -> float:
  """Returns the one-sided p-value of a mean, by Student's t-test against 0."""
  from scipy import stats  # takes long to load

  if sd <= SAME:  # the same for every seed and sentence
    return 0.0 if distance > 0 else 1.0
  return float(stats.t.sf(distance / sd, degrees))
