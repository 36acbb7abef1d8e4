"""Measures the false-alarm rate of the significance tests of `jaxsyn.compare`.

  python -m benchmarks.seed_alarms --trials 500 [--sentences 200] [--planted 0.3]

First, each trial draws the differences of two systems with --seeds runs each on one
test set: the sum of an effect of the seed, of the sentence, and of the sentence in
one run, with the standard deviations of SPREADS. The mean is 0 ("false_alarms",
which should be 5 % at p < 0.05), then --planted ("power"). "bootstrap" is the
resampling without the correction for few seeds.

Then, each trial draws a comparison of --systems systems without differences. Their
variances between seeds are equal, or the standard deviation of the last system is
three times as large. The error variance is that of each pair ("separate") or of all
systems ("pooled"). Printed are the rates of p < 0.05 for pairs of equal and unequal
variance, of any Holm-adjusted p < 0.05 in a comparison ("family"), the power for
--planted, and how often a difference of exactly --margin is called equivalent
("equivalence", which should be 5 %).
"""

from __future__ import annotations

import collections
import functools
import itertools

import numpy as np
from absl import flags

from benchmarks.figures import show
from jaxsyn import cli
from jaxsyn.comparison.hierarchical import hierarchical
from jaxsyn.comparison.inference import POOLED, SEPARATE, error_variance, holm

LEVEL = 0.05
# Standard deviations of the effects of a seed, a sentence, a sentence in one run.
SPREADS = {
  "no_seeds": (0.0, 1.0, 1.0),
  "some_seeds": (0.1, 1.0, 1.0),
  "many_seeds": (0.3, 1.0, 1.0),
  "seeds_alone": (0.3, 0.0, 0.5),
}
SYSTEMS = ("one", "other")


def called_different(
  spread: str,
  seeds: int,
  trials: int,
  *,
  sentences: int = 200,
  samples: int = 300,
  planted: float = 0.0,
) -> dict[str, int]:
  """Counts simulated trials with p < 0.05, with and without seed correction."""
  seed_sd, sentence_sd, run_sd = SPREADS[spread]
  even = np.full(sentences, 1 / sentences)
  hits: dict[str, int] = collections.Counter(corrected=0, bootstrap=0)
  for trial in range(trials):
    random = np.random.default_rng((seeds, trial))
    gain_YB = (
      planted
      + seed_sd * random.normal(size=(seeds, 1))
      + sentence_sd * random.normal(size=(1, sentences))
      + run_sd * random.normal(size=(seeds, sentences))
    )
    share_JB = random.multinomial(sentences, even, samples) / sentences
    test = hierarchical(
      SYSTEMS,
      "mean",
      tuple(range(seeds)),
      difference_Y=gain_YB.mean(axis=1),
      difference_YJ=gain_YB @ share_JB.T,
      seed=trial,
    )
    assert test.p is not None and test.bootstrap  # there are several seeds
    hits["corrected"] += test.p < LEVEL
    hits["bootstrap"] += test.bootstrap.p < LEVEL
  return dict(hits)


def _p_values(
  difference_Y: np.ndarray,
  difference_YJ: np.ndarray,
  *,
  pooled: tuple[float, int] | None,
  margin: float,
  shift: float = 0.0,
) -> tuple[float, float]:
  """Returns p-values of shifted differences; arguments as in `hierarchical`.

  Returns:
    p-values of a difference and of equivalence.
  """
  test = hierarchical(
    SYSTEMS,
    "mean",
    tuple(range(len(difference_Y))),
    difference_Y=difference_Y + shift,
    difference_YJ=difference_YJ + shift,
    pooled=pooled,
    margin=margin,
  )
  assert test.p is not None and test.equivalence_p is not None
  return test.p, test.equivalence_p


def false_alarm_rates(
  systems: int,
  seeds: int,
  trials: int,
  *,
  unequal: bool = False,
  sentences: int = 200,
  samples: int = 200,
  planted: float = 0.3,
  margin: float = 1.0,
) -> dict[str, float]:
  """Returns the rates of significant results in simulated comparisons.

  Args:
    systems: Number of systems with the baseline.
    seeds: Runs of each system.
    trials: Number of comparisons.
    unequal: Whether the last system varies three times as much between seeds.
    sentences: Size of the test set.
    samples: Resamples of a test.
    planted: Difference for the power.
    margin: Margin of equivalence, and the difference that is tested with it.
  """
  # The standard deviation of a difference is √2 times that of a system.
  seed_sd, sentence_sd, run_sd = (x / 2**0.5 for x in SPREADS["many_seeds"])
  scale_L = np.ones((systems, 1, 1))
  scale_L[-1] += 2.0 * unequal
  even = np.full(sentences, 1 / sentences)
  rates: dict[str, list[float]] = collections.defaultdict(list)
  for trial in range(trials):
    random = np.random.default_rng((systems, seeds, unequal, trial))
    score_LYB = (
      seed_sd * random.normal(size=(1, seeds, 1))
      + seed_sd * scale_L * random.normal(size=(systems, seeds, 1))
      + sentence_sd * random.normal(size=(systems, 1, sentences))
      + run_sd * random.normal(size=(systems, seeds, sentences))
    )
    share_JB = random.multinomial(sentences, even, samples) / sentences
    value_LY, resampled_LYJ = score_LYB.mean(axis=2), score_LYB @ share_JB.T
    differences = [
      (value_LY[i] - value_LY[0], resampled_LYJ[i] - resampled_LYJ[0])
      for i in range(1, systems)
    ]
    by_seed = {str(i): dict(enumerate(row)) for i, row in enumerate(value_LY)}
    error = error_variance("mean", by_seed)
    assert error
    errors = {SEPARATE: None, POOLED: (error.sd**2, error.degrees)}
    for name, pooled in errors.items():
      test = functools.partial(_p_values, pooled=pooled, margin=margin)
      p_values = [test(*difference)[0] for difference in differences]
      alarms = [p < LEVEL for p in p_values]
      if unequal:
        rates[f"{name}_unequal_pair"].append(alarms.pop())
        _, p = test(*differences[-1], shift=margin)
        rates[f"{name}_equivalence_unequal"].append(p < LEVEL)
      rates[f"{name}_equal_pair"].append(float(np.mean(alarms)))
      rates[f"{name}_family"].append(min(holm(p_values)) < LEVEL)
      p, _ = test(*differences[0], shift=planted)
      rates[f"{name}_power"].append(p < LEVEL)
      _, p = test(*differences[0], shift=margin)
      rates[f"{name}_equivalence_equal"].append(p < LEVEL)
  return {name: float(np.mean(found)) for name, found in rates.items()}


def _main(values: flags.FlagValues) -> None:
  counts = [int(seeds) for seeds in values.seeds]
  for seeds, spread in itertools.product(counts, SPREADS):
    for kind, planted in (("false_alarms", 0.0), ("power", values.planted)):
      hits = called_different(
        spread,
        seeds,
        values.trials,
        sentences=values.sentences,
        samples=values.samples,
        planted=planted,
      )
      for name, count in hits.items():
        share = 100 * count / values.trials
        show({f"{seeds}_{spread}_{name}_{kind}": (share, "%")})
  for systems, seeds in itertools.product(map(int, values.systems), counts):
    for kind, unequal in (("equal", False), ("unequal", True)):
      rates = false_alarm_rates(
        systems,
        seeds,
        values.trials,
        unequal=unequal,
        sentences=values.sentences,
        planted=values.planted,
        margin=values.margin,
      )
      for name, rate in rates.items():
        show({f"{systems}_systems_{seeds}_{kind}_{name}": (100 * rate, "%")})


if __name__ == "__main__":
  flags.DEFINE_list("seeds", ["2", "3", "5"], "Numbers of runs per system.")
  flags.DEFINE_list("systems", ["5", "12"], "Numbers of systems compared.")
  flags.DEFINE_integer("trials", 500, "Number of comparisons.")
  flags.DEFINE_integer("sentences", 200, "Number of sentences in a test set.")
  flags.DEFINE_integer(
    "samples",
    300,
    "Number of resamples per test in comparisons of two systems.",
  )
  flags.DEFINE_float("planted", 0.3, "Mean difference when power is measured.")
  flags.DEFINE_float("margin", 1.0, "Margin of equivalence.")
  cli.main(_main)
