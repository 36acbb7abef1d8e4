"""Is one system better than another, or is it chance? Tests over sentences.

Three tests, all two-sided, all on sums over the sentences of one test set:

- `bootstrap` (Koehn 2004, EMNLP): draw as many sentences with replacement, score
  both systems on them, many times. How often is the drawn difference as far from
  its mean as the real one is from 0?
- `randomisation` (Riezler and Maxwell 2005): swap the two systems' translations of
  random sentences. How often is the difference then as large as the real one?
- `sign` (Collins et al. 2005): of the sentences that differ in their own score,
  does one system win more than chance? Ties are left out.

Draws and statistics are sacreBLEU's, and so is `Outcome.sacrebleu_p`, to the digit.
`Outcome.p` differs from it in two things, because of which a p below 0.05 means less
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
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.scoring.metrics import Measured

SEED = 12345  # sacreBLEU's
_SAME = 1e-6  # score points; differences below are rounding


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What one test says of one difference.

  Attributes:
    name: of TESTS.
    p: probability of a difference at least as large between equal systems.
    sacrebleu_p: what sacreBLEU's command gives for the same seed and samples;
      None where it has no such metric or test.
    samples: resamples or shuffles; for the sign test the sentences that differ.
    signature: sacreBLEU's, of a score with this test; "" for the sign test.
  """

  name: str
  p: float
  sacrebleu_p: float | None
  samples: int
  signature: str


@dataclasses.dataclass(frozen=True)
class Difference:
  """A system against the baseline under one metric, in score points.

  Attributes:
    system, baseline: their names.
    metric: as printed.
    value: score of the system less that of the baseline; of TER, less is better.
    low, high: 95 % interval of it: percentiles of the bootstrap; None without.
    better, worse, same: sentences whose own score is so; for BLEU sacreBLEU's
      sentence BLEU.
    tests: as asked for.
  """

  system: str
  baseline: str
  metric: str
  value: float
  low: float | None
  high: float | None
  better: int
  worse: int
  same: int
  tests: tuple[Outcome, ...]


def difference(
  names: tuple[str, str],
  system: Measured,
  baseline: Measured,
  tests: Collection[str] = ("bootstrap",),
  samples: int = 0,
  seed: int = SEED,
  interval: bool = True,
) -> Difference:
  """Compares two systems under one metric.

  Args:
    names: of the system and the baseline.
    system, baseline: the same sentences under the same scorer.
    tests: names of TESTS.
    samples: of each test and of the interval; 0: 1000 resamples, 10000 shuffles.
    seed: of the draws; sacreBLEU's is 12345.
    interval: whether to draw for one; it shares the resamples of `bootstrap`.

  Raises:
    InputError: no such test.
  """
  for test in tests:
    if test not in TESTS:
      raise InputError(f"no test {test!r}. {did_you_mean(test, TESTS)}")
  pair = (baseline, system)
  resampled = None
  if interval or "bootstrap" in tests:
    resampled = bootstrap(pair, samples or 1000, seed)
  low, high = None, None
  if interval:
    low, high = interval_of(resampled[1] - resampled[0])
  wins, losses, ties = sentences(baseline, system)
  found = tuple(TESTS[t](pair, resampled, samples, seed) for t in tests)
  return Difference(
    *names,
    system.scorer.name,
    system.value - baseline.value,
    *(low, high, wins, losses, ties),
    found,
  )


def bootstrap(
  systems: Sequence[Measured], samples: int, seed: int
) -> np.ndarray:
  """Scores of systems on the same resamples of the test set, one row a system.

  Draws what sacreBLEU draws, row by row, so memory does not grow with samples.
  """
  table = [m.statistic_BI.astype(m.scorer.dtype) for m in systems]
  random = np.random.default_rng(seed)
  score_J = np.empty((len(systems), samples))
  for j in range(samples):
    drawn_B = random.choice(len(table[0]), size=len(table[0]), replace=True)
    for row, (measured, statistic_BI) in enumerate(zip(systems, table)):
      sum_I = statistic_BI[drawn_B].sum(axis=0)
      score_J[row, j] = measured.scorer.of_sum(sum_I)
  return score_J


def shuffled(
  baseline: Measured, system: Measured, samples: int, seed: int
) -> np.ndarray:
  """Differences after swapping the translations of random sentences."""
  a_BI, b_BI = baseline.statistic_BI, system.statistic_BI
  found = []
  for kept_JB in _coins(samples, len(a_BI), seed):
    kept_JB = kept_JB.astype(np.float64)  # for a fast product
    swapped_JB = 1.0 - kept_JB
    for one_I, other_I in zip(
      kept_JB @ a_BI + swapped_JB @ b_BI, swapped_JB @ a_BI + kept_JB @ b_BI
    ):
      scorer = baseline.scorer
      found.append(scorer.of_sum(one_I) - scorer.of_sum(other_I))
  return np.array(found)


def sentences(baseline: Measured, system: Measured) -> tuple[int, int, int]:
  """How many sentences the system does better, worse, and as well."""
  gain_B = system.sentence_B - baseline.sentence_B
  gain_B = gain_B * system.scorer.better
  better, worse = int((gain_B > _SAME).sum()), int((gain_B < -_SAME).sum())
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
    number = min(rows, samples - start)
    yield random.integers(2, size=(number, size), dtype=bool)


def _share(hits: np.ndarray) -> float:
  """A p-value that cannot be 0, as of one more sample that was a hit."""
  return (int(hits.sum()) + 1) / (len(hits) + 1)


def _bootstrap_test(pair, resampled, samples, seed) -> Outcome:
  real = abs(pair[1].value - pair[0].value)
  difference_J = resampled[1] - resampled[0]
  apart_J = abs(difference_J - difference_J.mean())
  theirs_J = abs(difference_J) - abs(difference_J).mean()
  return _test("bootstrap", "bs", pair, seed, apart_J, theirs_J, real)


def _randomisation_test(pair, resampled, samples, seed) -> Outcome:
  real = abs(pair[1].value - pair[0].value)
  apart_J = abs(shuffled(*pair, samples or 10000, seed))
  return _test("randomisation", "ar", pair, seed, apart_J, apart_J, real)


def _test(name, key, pair, seed, apart_J, theirs_J, real) -> Outcome:
  scorer, samples = pair[0].scorer, len(apart_J)
  return Outcome(
    name,
    _share(apart_J >= real - _SAME),
    _share(theirs_J > real) if scorer.in_sacrebleu else None,
    samples,
    scorer.signature(**{key: samples}, seed=seed),
  )


def _sign_test(pair, resampled, samples, seed) -> Outcome:
  from scipy import stats  # takes long to load

  better, worse, _ = sentences(*pair)
  differ = better + worse
  p = stats.binomtest(better, differ).pvalue if differ else 1.0
  return Outcome("sign", float(p), None, differ, "")


# Name -> the test of ((baseline, system), their bootstrap, samples, seed).
TESTS: dict[str, Callable[..., Outcome]] = {
  "bootstrap": _bootstrap_test,
  "randomisation": _randomisation_test,
  "sign": _sign_test,
}
# What a command may be asked for -> the tests it runs.
CHOICES = {"none": (), **{name: (name,) for name in TESTS}, "all": (*TESTS,)}
