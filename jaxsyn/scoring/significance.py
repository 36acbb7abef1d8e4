"""Is one system better than another, or is it chance? Tests over sentences.

Three tests, all two-sided, all on sums over the sentences of one test set:

- `bootstrap` (Koehn 2004, EMNLP): draw as many sentences with replacement, score
  both systems on them, many times. How often is the drawn difference as far from
  its mean as the real one is from 0?
- `randomisation` (Riezler and Maxwell 2005): swap the two systems' translations of
  random sentences. How often is the difference then as large as the real one?
- `sign` (Collins et al. 2005): of the sentences that differ in their own score,
  does one system win more than chance? Ties are left out.

Draws and statistics are sacreBLEU's, and so is `PairedTest.sacrebleu_p`, to the digit.
`PairedTest.p` differs from it in two things, because of which a p below 0.05 means less
than 5 % false alarms:

- sacreBLEU's bootstrap takes the mean of absolute differences off absolute
  differences. That is near a one-sided test: of equal systems it calls about 11 %
  different at p < 0.05 (`benchmarks.false_alarms` counts them).
- sacreBLEU counts what is larger than the real difference, this what is at least
  as large. Without a tie that is the same; but two equal outputs, or two that
  differ in a single sentence, get 1/(samples + 1) from the one, about 1 from the
  other.

Letters: I statistic of a sentence; J resample.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxsyn.scoring.results import Difference, PairedTest
from jaxsyn.scoring.scorers import MeanOfSets, Measured, Scored

SEED = 12345  # sacreBLEU's
SAME = 1e-6  # score points; differences below are rounding
_KEYS = {"bootstrap": "bs", "randomisation": "ar"}  # in signatures

Pair = tuple[Measured, Measured]  # the baseline and the system
Resampled = Callable[[], np.ndarray]  # their bootstrap


@dataclasses.dataclass(frozen=True)
class Draws:
  """How a test draws.

  Attributes:
    samples: of each test; 0: 1000 resamples, 10000 shuffles.
    seed: of the draws.
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
  """Compares two systems under one metric.

  Args:
    names: of the system and the baseline.
    system, baseline: the same sentences under the same scorer.
    tests: names of TESTS.
    draws: of the tests and of the interval.
    interval: whether to draw for one; it shares the resamples of `bootstrap`.
    resampled: Scores of `bootstrap` of the baseline and the system, where they
      are known.
  """
  pair = (baseline, system)

  # Once, and not where neither the interval nor a test wants it.
  @functools.cache
  def drawn() -> np.ndarray:
    return bootstrap(pair, draws) if resampled is None else resampled

  low, high = None, None
  if interval:
    before_J, after_J = drawn()
    low, high = interval_of(after_J - before_J)
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
    tests=tuple(TESTS[test](pair, drawn, draws) for test in tests),
  )


def differences(
  scored: Scored, pairs: Iterable[tuple[str, str]], **how: Any
) -> Iterator[tuple[int, Difference]]:
  """Runs of pairs of systems, each with the other's run of the same seed.

  Args:
    scored: translations.
    pairs: systems and what each is compared with.
    **how: see `difference`.

  Yields: the seed and the difference, under each metric.
  """
  for system, baseline in pairs:
    for seed in scored.get(system, ()):
      if seed in scored[baseline]:
        for one, base in zip(scored[system][seed], scored[baseline][seed]):
          yield seed, difference((system, baseline), one, base, **how)


def bootstrap(systems: Sequence[Measured], draws: Draws) -> np.ndarray:
  """Scores of systems on the same resamples of the test set, one row a system.

  Draws what sacreBLEU draws, row by row, so memory does not grow with samples.
  Of several test sets, each is resampled independently.
  """
  means = [system for system in systems if isinstance(system, MeanOfSets)]
  if means:
    parts = zip(*(mean.parts for mean in means))
    return _mean_over_sets([bootstrap(part, draws) for part in parts])
  size = len(systems[0].statistic_BI)
  ends = np.cumsum([m.statistic_BI.shape[1] for m in systems])
  statistic_BI = np.concatenate([m.statistic_BI for m in systems], axis=1)
  scorer = systems[0].scorer
  # Sums of whole numbers are exact in any order; others are added up as
  # sacreBLEU does, in its type.
  is_float = scorer.dtype is np.float64 or not (statistic_BI % 1).any()
  random = np.random.default_rng(draws.seed)
  score_J = np.empty((len(systems), draws.resamples))
  rows = max(1, 10**6 // size)
  for start in range(0, draws.resamples, rows):
    end = min(start + rows, draws.resamples)
    sample_JB = np.stack(
      [random.choice(size, size=size, replace=True) for _ in range(start, end)]
    )
    if is_float:
      count = [np.bincount(sample_B, minlength=size) for sample_B in sample_JB]
      sum_JI = np.stack(count).astype(np.float64) @ statistic_BI
    else:
      typed_BI: np.ndarray = statistic_BI.astype(scorer.dtype)
      sum_JI = np.stack(
        [typed_BI[sample_B].sum(axis=0) for sample_B in sample_JB]
      )
    for row, part_JI in enumerate(np.split(sum_JI, ends[:-1], axis=1)):
      score_J[row, start:end] = scorer.scores(part_JI.astype(scorer.dtype))
  return score_J


def shuffled(baseline: Measured, system: Measured, draws: Draws) -> np.ndarray:
  """Differences after swapping the translations of random sentences."""
  if isinstance(baseline, MeanOfSets) and isinstance(system, MeanOfSets):
    pairs = zip(baseline.parts, system.parts)
    return _mean_over_sets([shuffled(*pair, draws) for pair in pairs])
  a_BI, b_BI = baseline.statistic_BI, system.statistic_BI
  scores = baseline.scorer.scores
  gain_J = []
  for unswapped_JB in _coins(draws.shuffles, len(a_BI), draws.seed):
    unswapped_JB = unswapped_JB.astype(np.float64)  # for a fast product
    swapped_JB = 1.0 - unswapped_JB
    one_JI = unswapped_JB @ a_BI + swapped_JB @ b_BI
    other_JI = swapped_JB @ a_BI + unswapped_JB @ b_BI
    gain_J.append(scores(one_JI) - scores(other_JI))
  return np.concatenate(gain_J)


def _mean_over_sets(resamples: Sequence[np.ndarray]) -> np.ndarray:
  """The mean over test sets of what was drawn of each; samples are the last axis.

  Each test set is drawn with the same random numbers. Shifting one set's samples
  against those of another pairs samples that were drawn independently.
  """
  shifted = [
    np.roll(one, shift, axis=-1) for shift, one in enumerate(resamples)
  ]
  return np.mean(shifted, axis=0)


def sentences(baseline: Measured, system: Measured) -> tuple[int, int, int]:
  """How many sentences the system does better, worse, and as well."""
  gain_B = system.sentence_B - baseline.sentence_B
  if not system.scorer.metric.larger_is_better:
    gain_B = -gain_B
  better, worse = int((gain_B > SAME).sum()), int((gain_B < -SAME).sum())
  return better, worse, len(gain_B) - better - worse


def interval_of(difference_J: np.ndarray) -> tuple[float, float]:
  """The middle 95 % of resampled differences."""
  low, high = np.percentile(difference_J, [2.5, 97.5])
  return float(low), float(high)


def _coins(samples: int, size: int, seed: int) -> Iterator[np.ndarray]:
  """sacreBLEU's draws, some rows at a time: it takes all at once."""
  random = np.random.default_rng(seed)
  # NumPy cuts each 32 bits into coins and throws the rest of a call away:
  # calls of 32 rows leave none.
  rows = 32 * max(1, 10**6 // (32 * size))
  for start in range(0, samples, rows):
    count = min(rows, samples - start)
    yield random.integers(2, size=(count, size), dtype=bool)


def share(hits: np.ndarray) -> float:
  """A p-value that cannot be 0, as of one more sample that was a hit."""
  return (int(hits.sum()) + 1) / (len(hits) + 1)


def _bootstrap_test(
  pair: Pair, resampled: Resampled, draws: Draws
) -> PairedTest:
  before_J, after_J = resampled()
  difference_J = after_J - before_J
  apart_J = abs(difference_J - difference_J.mean())
  theirs_J = abs(difference_J) - abs(difference_J).mean()
  return _test("bootstrap", pair, draws, apart_J=apart_J, theirs_J=theirs_J)


def _randomisation_test(
  pair: Pair, resampled: Resampled, draws: Draws
) -> PairedTest:
  apart_J = abs(shuffled(*pair, draws))
  return _test("randomisation", pair, draws, apart_J=apart_J, theirs_J=apart_J)


def _test(
  name: str,
  pair: Pair,
  draws: Draws,
  *,
  apart_J: np.ndarray,
  theirs_J: np.ndarray,
) -> PairedTest:
  real = abs(pair[1].value - pair[0].value)
  scorer, samples = pair[0].scorer, len(apart_J)
  return PairedTest(
    name,
    p=share(apart_J >= real - SAME),
    sacrebleu_p=share(theirs_J > real) if scorer.in_sacrebleu else None,
    samples=samples,
    signature=scorer.signature(**{_KEYS[name]: samples}, seed=draws.seed),
  )


def _sign_test(pair: Pair, resampled: Resampled, draws: Draws) -> PairedTest:
  from scipy import stats  # takes long to load

  better, worse, _ = sentences(pair[0], pair[1])
  differ = better + worse
  p = stats.binomtest(better, differ).pvalue if differ else 1.0
  return PairedTest(
    "sign", p=float(p), sacrebleu_p=None, samples=differ, signature=""
  )


# Name -> the test of ((baseline, system), their bootstrap, how to draw).
TESTS: dict[str, Callable[[Pair, Resampled, Draws], PairedTest]] = {
  "bootstrap": _bootstrap_test,
  "randomisation": _randomisation_test,
  "sign": _sign_test,
}
# What a command may be asked for -> the tests it runs.
CHOICES = {"none": (), **{name: (name,) for name in TESTS}, "all": (*TESTS,)}
