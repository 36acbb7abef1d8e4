"""Is one system better than another, whatever the seed and the sentences?

A test over sentences alone speaks of two trained models; of the two systems it
says nothing, because the next seed may turn the sign. Here both are drawn: seeds
from those that might have been trained, sentences from those that might have
been in the test set (Sellam et al. 2022, "The MultiBERTs", ICLR: the
multi-bootstrap, paired). A resample is made of

1. as many seeds as were trained, with replacement, the same for both systems:
   run k of one is compared with run k of the other, which saw the same batches;
2. as many sentences as the test set has, with replacement, the same for both
   systems and for all seeds, which all translated the same sentences;

and its difference is the mean over the drawn seeds of the difference of the two
corpus scores on the drawn sentences. `Hierarchical.bootstrap` is what such
resamples say.

With few seeds that is too little: drawing from K seeds gives their mean a
variance that is (K - 1)/K of what it is, and a percentile knows nothing of how
badly K seeds tell their own spread. Three seeds of equal systems are so called
different far too often. `Hierarchical.p`, `low` and `high` mend both, from the
same resamples of sentences: the variance of the mean difference is

  V = V_seed + V_sentence - V_both

V_seed, the variance between seeds over K; V_sentence, the variance of the mean
over resamples of sentences; V_both, what is in both of them: the part of a
seed's difference that moves with the sentences (Owen 2007, "The pigeonhole
bootstrap", counts it twice too). V is never below either of the first two.
Then Student's t with Satterthwaite's degrees of freedom, V² (K - 1) / V_seed²:
K - 1 where seeds matter most, many where sentences do.

With an error variance s2 that is pooled over all systems
(`jaxsyn.comparison.inference`), V_seed is 2 s2 / K, and its degrees of freedom
take the place of K - 1.

Equivalence within a margin m is tested by two one-sided tests (Schuirmann 1987):
the difference is below m, and above -m, each with the same V and degrees of
freedom; the larger p-value counts. It is below 0.05 where the 90 % interval lies
within (-m, m).

Letters: Y seed of a run; J resample.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxsyn.comparison.inference import LEVEL
from jaxsyn.scoring.significance import SAME, SEED, interval_of, share
from jaxsyn.shapes import agree

_MANY = 1e6  # degrees of freedom from which on Student's t is the normal law


@dataclasses.dataclass(frozen=True)
class Bootstrap:
  """What the resamples say by themselves; too bold where seeds are few.

  Attributes:
    low, high: percentiles, 95 % between them.
    p: share of resamples as far from their mean as the difference from 0.
    samples: how many.
  """

  low: float
  high: float
  p: float
  samples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hierarchical:
  """A system against another, over seeds and sentences, in score points.

  Attributes:
    system, baseline: their names; the other is the baseline or a control.
    metric: as printed.
    value: mean over seeds of the difference; of TER, less is better.
    by_seed: the difference of each seed, in the order of `seeds`.
    seeds: those that both systems have.
    low, high: 95 % interval, corrected for few seeds; None of a single seed.
    p: two-sided, corrected for few seeds; None of a single seed.
    adjusted_p: Holm-adjusted p-value; None outside the family of tests.
    margin: Margin of equivalence, in points; None without.
    equivalence_p: p-value of the two one-sided tests of equivalence; None
      without a margin or of a single seed.
    equivalence_low, equivalence_high: 90 % interval.
    verdict: "better", "worse" (p < 0.05, adjusted in the family), "equivalent"
      (equivalence_p < 0.05) or "undecided"; "" of a single seed.
    seed_sd, sentence_sd: square roots of V_seed and V_sentence, see the module:
      what the value may move by with other seeds, and with other sentences.
    degrees: of freedom of p and the interval; None of a single seed.
    bootstrap: without the correction; None of a single seed.
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
    """The Holm-adjusted p-value in the family, the raw one outside."""
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
  """Compares two systems over seeds and sentences.

  Args:
    names: of the system and the baseline.
    metric: as printed.
    seeds: of the runs that are compared, Y of them.
    difference_Y: system less baseline, on the test set.
    difference_YJ: the same on resamples of its sentences; a column is one
      resample, drawn for all seeds alike.
    seed: of the draws of seeds.
    pooled: Variance of the error of one run, and its degrees of freedom; None:
      from the differences of these two systems.
    margin: Margin of equivalence, in points; None: not tested.
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
  # Between K seeds is (K - 1)/K of what each of them varies by, so the sum over
  # K is (K - 1) times that.
  of_both = float(apart_YJ.var(axis=1).sum()) / (count - 1) / count
  variance = max(of_seeds + of_sentences - of_both, of_seeds, of_sentences)
  degrees = _MANY
  if of_seeds > variance / math.sqrt(_MANY):
    degrees = seed_degrees * (variance / of_seeds) ** 2
  low, high, p = _student(value, variance, degrees)
  if margin is not None:
    same_p, same_low, same_high = _equivalence(
      value, variance, degrees, margin=margin
    )
    difference = dataclasses.replace(
      difference,
      equivalence_p=same_p,
      equivalence_low=same_low,
      equivalence_high=same_high,
    )
  resampled_J = draw(difference_YJ, seed)
  hits_J = abs(resampled_J - resampled_J.mean()) >= abs(value) - SAME
  return dataclasses.replace(
    difference,
    low=low,
    high=high,
    p=p,
    seed_sd=math.sqrt(of_seeds),
    degrees=degrees,
    bootstrap=Bootstrap(*interval_of(resampled_J), share(hits_J), samples),
  )


def draw(difference_YJ: np.ndarray, seed: int = SEED) -> np.ndarray:
  """The mean difference of as many seeds drawn anew for each resample."""
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
  """Returns a difference with its adjusted p-value and its verdict.

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


def _equivalence(
  value: float, variance: float, degrees: float, *, margin: float
) -> tuple[float, float, float]:
  """p-value and 90 % interval of two one-sided tests."""
  from scipy import stats  # takes long to load

  sd = math.sqrt(variance)
  reach = float(stats.t.ppf(1 - LEVEL, degrees)) * sd
  if sd <= SAME:
    p = 0.0 if abs(value) < margin else 1.0
  else:
    p = float(stats.t.sf((margin - abs(value)) / sd, degrees))
  return p, value - reach, value + reach


def _student(
  value: float, variance: float, degrees: float
) -> tuple[float, float, float]:
  """Interval and p-value of a mean with a variance."""
  from scipy import stats  # takes long to load

  sd = math.sqrt(variance)
  reach = float(stats.t.ppf(0.975, degrees)) * sd
  if abs(value) <= SAME:
    p = 1.0
  elif sd <= SAME:  # the same in every seed and every sentence
    p = 0.0
  else:
    p = float(2 * stats.t.sf(abs(value) / sd, degrees))
  return value - reach, value + reach, p
