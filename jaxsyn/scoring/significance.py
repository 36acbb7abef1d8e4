"""Significance tests and confidence intervals over the sentences of a test set.

Three two-sided tests:

- `bootstrap` (Koehn 2004, EMNLP): resamples the sentences with replacement many
  times and scores both systems. p is the fraction of resampled differences that
  are as far from their mean as the measured difference is from 0.
- `randomisation` (Riezler and Maxwell 2005): swaps the two translations of random
  sentences. p is the fraction of differences as large as the measured one.
- `sign` (Collins et al. 2005): a binomial test on the sentences whose own scores
  differ. Ties are left out.

Random draws and statistics are those of sacreBLEU, and `PairedTest.sacrebleu_p`
equals its p-value. `PairedTest.p` differs in two ways, so that p < 0.05 means
less than 5 % false alarms:

- sacreBLEU's bootstrap subtracts the mean of absolute differences from absolute
  differences. That is nearly a one-sided test: about 11 % of equal systems differ
  at p < 0.05 (measured by `benchmarks.false_alarms`).
- sacreBLEU counts differences larger than the measured one; here those as large
  are counted too. Only ties matter: for two equal outputs, or two that differ in
  one sentence, sacreBLEU returns 1/(samples + 1), and p is about 1.

Letters: I statistic of a sentence; J resample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from jaxsyn.scoring.results import Difference, PairedTest
from jaxsyn.scoring.scorers import MeanOfSets, Measured

SEED = 12345  # sacreBLEU's
SAME = 1e-6  # score points; smaller differences are rounding errors
TESTS = ("bootstrap", "randomisation", "sign")
# Value of --significance -> tests.
CHOICES = {"none": (), **{name: (name,) for name in TESTS}, "all": TESTS}

Pair = tuple[Measured, Measured]  # the baseline and the system


@dataclasses.dataclass(frozen=True)
class Draws:
  """Number of resamples or shuffles of a test, and their random seed.

  Attributes:
    samples: Samples of each test; 0: 1000 resamples, 10000 shuffles.
    seed: Seed of each test.
  """

  samples: int = 0
  seed: int = SEED

  @property
  def resamples(self) -> int:
    return self.samples or 1000

  @property
  def shuffles(self) -> int:
    return self.samples or 10000


def difference(
  names: tuple[str, str],
  system: Measured,
  baseline: Measured,
  *,
  tests: Collection[str] = ("bootstrap",),
  draws: Draws = Draws(),
  interval: bool = True,
  resampled: np.ndarray | None = None,
) -> Difference:
  """Returns the score difference of two systems, with interval and tests.

  Args:
    names: Names of the system and the baseline.
    system: Statistics of the system.
    baseline: Statistics of the baseline, for the same sentences and scorer.
    tests: Names of TESTS.
    draws: Random draws of the tests and of the interval.
    interval: Whether to compute a confidence interval.
    resampled: Result of `bootstrap` for the baseline and the system, if known.
  """
  pair = (baseline, system)
  low, high = None, None
  if interval:
    if resampled is None:
      resampled = bootstrap(pair, draws)
    low, high = interval_of(resampled[1] - resampled[0])
  better, worse, same = sentences(baseline, system)
  return Difference(
    *names,
    metric=system.scorer.name,
    value=system.value - baseline.value,
    low=low,
    high=high,
    better=better,
    worse=worse,
    same=same,
    tests=tuple(paired_test(test, pair, draws, resampled) for test in tests),
  )


def differences(
  measured: Mapping[str, Sequence[Measured]],
  baseline: str,
  *,
  tests: Collection[str],
  draws: Draws,
  interval: bool,
) -> tuple[Difference, ...]:
  """Returns the difference to the baseline for each system and metric."""
  results = []
  for name, metrics in measured.items():
    if name == baseline:
      continue
    pair = name, baseline
    for one, base in zip(metrics, measured[baseline]):
      results.append(
        difference(pair, one, base, tests=tests, draws=draws, interval=interval)
      )
  return tuple(results)


def bootstrap(systems: Sequence[Measured], draws: Draws) -> np.ndarray:
  """Returns scores on bootstrap resamples, one row per system.

  The draws are sacreBLEU's. They are made in blocks, so that memory does not grow
  with the number of samples. Several test sets are resampled independently.
  """
  means = [system for system in systems if isinstance(system, MeanOfSets)]
  if means:
    parts = zip(*(mean.parts for mean in means))
    return _mean_over_sets([bootstrap(part, draws) for part in parts])
  size = len(systems[0].statistic_BI)
  ends = np.cumsum([m.statistic_BI.shape[1] for m in systems])
  statistic_BI = np.concatenate([m.statistic_BI for m in systems], axis=1)
  metric = systems[0].scorer.metric
  typed_BI: np.ndarray = statistic_BI.astype(metric.dtype)
  # Sums of integers are exact in any order. Others are added as sacreBLEU does,
  # in its type.
  any_order = metric.dtype is np.float64 or not (statistic_BI % 1).any()
  random = np.random.default_rng(draws.seed)
  score_J = np.empty((len(systems), draws.resamples))
  rows = max(1, 10**6 // size)
  for start in range(0, draws.resamples, rows):
    end = min(start + rows, draws.resamples)
    sample_JB = np.stack(
      [random.choice(size, size=size, replace=True) for _ in range(start, end)]
    )
    if any_order:
      count = [np.bincount(sample_B, minlength=size) for sample_B in sample_JB]
      sum_JI = np.stack(count).astype(np.float64) @ statistic_BI
    else:
      sums = [typed_BI[sample_B].sum(axis=0) for sample_B in sample_JB]
      sum_JI = np.stack(sums)
    for row, part_JI in enumerate(np.split(sum_JI, ends[:-1], axis=1)):
      score_J[row, start:end] = metric.scores(part_JI.astype(metric.dtype))
  return score_J


def shuffled(baseline: Measured, system: Measured, draws: Draws) -> np.ndarray:
  """Returns score differences after randomly swapping two systems' outputs."""
  if isinstance(baseline, MeanOfSets) and isinstance(system, MeanOfSets):
    pairs = zip(baseline.parts, system.parts)
    return _mean_over_sets([shuffled(*pair, draws) for pair in pairs])
  a_BI, b_BI = baseline.statistic_BI, system.statistic_BI
  scores = baseline.scorer.metric.scores
  gain_J = []
  for unswapped_JB in _coins(draws.shuffles, len(a_BI), draws.seed):
    unswapped_JB = unswapped_JB.astype(np.float64)  # for a fast product
    swapped_JB = 1.0 - unswapped_JB
    one_JI = unswapped_JB @ a_BI + swapped_JB @ b_BI
    other_JI = swapped_JB @ a_BI + unswapped_JB @ b_BI
    gain_J.append(scores(one_JI) - scores(other_JI))
  return np.concatenate(gain_J)


def _coins(samples: int, size: int, seed: int) -> Iterator[np.ndarray]:
  """Yields random masks that decide which outputs to swap, as in sacreBLEU."""
  random = np.random.default_rng(seed)
  # NumPy splits each 32 bits into coins and discards the rest of a call: calls
  # of 32 rows leave no remainder.
  rows = 32 * max(1, 10**6 // (32 * size))
  for start in range(0, samples, rows):
    count = min(rows, samples - start)
    yield random.integers(2, size=(count, size), dtype=bool)


def _mean_over_sets(resamples: Sequence[np.ndarray]) -> np.ndarray:
  """Averages resampled scores over several test sets.

  Samples are on the last axis. All test sets are drawn with the same random
  numbers. Shifting the samples of one set against another pairs samples that were
  drawn independently.
  """
  shifted = [
    np.roll(one, shift, axis=-1) for shift, one in enumerate(resamples)
  ]
  return np.mean(shifted, axis=0)


def sentences(baseline: Measured, system: Measured) -> tuple[int, int, int]:
  """Counts the sentences that a system wins, loses and ties, by score."""
  gain_B = system.sentence_B - baseline.sentence_B
  if not system.scorer.metric.larger_is_better:
    gain_B = -gain_B
  better, worse = int((gain_B > SAME).sum()), int((gain_B < -SAME).sum())
  return better, worse, len(gain_B) - better - worse


def interval_of(difference_J: np.ndarray) -> tuple[float, float]:
  """Returns the 95 % percentile interval of resampled score differences."""
  low, high = np.percentile(difference_J, [2.5, 97.5])
  return float(low), float(high)


def share(hits: np.ndarray) -> float:
  """Returns the p-value (hits + 1) / (resamples + 1), given a mask of hits."""
  return (int(hits.sum()) + 1) / (len(hits) + 1)


def paired_test(
  name: str, pair: Pair, draws: Draws, resampled: np.ndarray | None = None
) -> PairedTest:
  """Runs one paired significance test on two systems; returns the p-values.

  Args:
    name: Name in TESTS.
    pair: The baseline and the system.
    draws: Random draws.
    resampled: Result of `bootstrap`, if known.
  """
  baseline, system = pair
  if name == "sign":
    return _sign_test(baseline, system)
  if name == "bootstrap":
    key = "bs"
    if resampled is None:
      resampled = bootstrap(pair, draws)
    difference_J = resampled[1] - resampled[0]
    distance_J = abs(difference_J - difference_J.mean())
    sacrebleu_J = abs(difference_J) - abs(difference_J).mean()
  else:
    key = "ar"
    distance_J = sacrebleu_J = abs(shuffled(baseline, system, draws))
  measured = abs(system.value - baseline.value)
  scorer, samples = baseline.scorer, len(distance_J)
  sacrebleu_p = None
  if scorer.metric.in_sacrebleu and not isinstance(baseline, MeanOfSets):
    sacrebleu_p = share(sacrebleu_J > measured)
  return PairedTest(
    name,
    p=share(distance_J >= measured - SAME),
    sacrebleu_p=sacrebleu_p,
    samples=samples,
    signature=scorer.signature(**{key: samples}, seed=draws.seed),
  )


def _sign_test(baseline: Measured, system: Measured) -> PairedTest:
  from scipy import stats  # takes long to load

  better, worse, _ = sentences(baseline, system)
  differ = better + worse
  p = float(stats.binomtest(better, differ).pvalue) if differ else 1.0
  return PairedTest("sign", p, sacrebleu_p=None, samples=differ, signature="")
