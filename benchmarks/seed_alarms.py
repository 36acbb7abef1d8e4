"""How often the test over seeds and sentences calls equal systems different.

  python -m benchmarks.seed_alarms --trials 500 [--sentences 200] [--planted 0.3]

Each trial draws the differences between two systems, of --seeds runs each, on one
test set: what a seed adds to all sentences, what a sentence has in all runs, and
what is of one sentence in one run. SPREADS are their standard deviations. First
the mean is 0 (false alarms, to be 5 % at p < 0.05), then --planted (power).
"bootstrap" are the resamples by themselves, without the correction for few seeds.

Then whole comparisons of --systems systems are drawn, without any difference but
in their error variance: all equal, or the last with three times the standard
deviation between seeds. Printed are, with the variance of each pair ("separate")
and of all systems ("pooled"), the share of pairs with p < 0.05 among those of equal
and of unequal variance, the share of comparisons with any Holm-adjusted p < 0.05
("family"), the power for --planted, and how often systems whose difference is
exactly --margin are called equivalent ("equivalence", to be 5 %).
"""

from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
from absl import flags

from benchmarks.figures import show
from jaxsyn import cli
from jaxsyn.comparison.hierarchical import hierarchical
from jaxsyn.comparison.inference import POOLED, SEPARATE, error_variance, holm

LEVEL = 0.05
# Of a seed, of a sentence, of a sentence in one run.
SPREADS = {
  "no_seeds": (0.0, 1.0, 1.0),
  "some_seeds": (0.1, 1.0, 1.0),
  "many_seeds": (0.3, 1.0, 1.0),
  "seeds_alone": (0.3, 0.0, 0.5),
}


def called_different(
  spread: str,
  seeds: int,
  trials: int,
  *,
  sentences: int = 200,
  samples: int = 300,
  planted: float = 0.0,
) -> dict[str, int]:
  """Counts the trials whose p-value is below 0.05, corrected and not."""
  of_seed, of_sentence, of_both = SPREADS[spread]
  even = np.full(sentences, 1 / sentences)
  hits: dict[str, int] = collections.Counter(corrected=0, bootstrap=0)
  for trial in range(trials):
    random = np.random.default_rng((seeds, trial))
    gain_YB = (
      planted
      + of_seed * random.normal(size=(seeds, 1))
      + of_sentence * random.normal(size=(1, sentences))
      + of_both * random.normal(size=(seeds, sentences))
    )
    share_JB = random.multinomial(sentences, even, samples) / sentences
    found = hierarchical(
      ("one", "other"),
      "mean",
      tuple(range(seeds)),
      difference_Y=gain_YB.mean(axis=1),
      difference_YJ=gain_YB @ share_JB.T,
      seed=trial,
    )
    assert found.p is not None and found.bootstrap  # of several seeds
    hits["corrected"] += found.p < LEVEL
    hits["bootstrap"] += found.bootstrap.p < LEVEL
  return dict(hits)


def false_alarm_rates(
  systems: int,
  seeds: int,
  trials: int,
  *,
  unequal: bool = False,
  spread: str = "many_seeds",
  sentences: int = 200,
  samples: int = 200,
  planted: float = 0.3,
  margin: float = 1.0,
) -> dict[str, float]:
  """Draws comparisons of systems against a baseline, none of which differs.

  Args:
    systems: Number of systems, with the baseline.
    seeds: Runs of each system.
    trials: Number of comparisons.
    unequal: Whether the last system varies three times as much between seeds.
    spread: Name of SPREADS: standard deviations of a difference.
    sentences: Size of the test set.
    samples: Resamples of a test.
    planted: Difference that is to be found, for the power.
    margin: Margin of equivalence, and the difference that is tested with it.

  Returns:
    Shares from 0 to 1 by variance and figure.
  """
  # Of one system: a difference of two varies by the square root of 2 more.
  of_seed, of_sentence, of_both = (x / 2**0.5 for x in SPREADS[spread])
  scale_L = np.ones((systems, 1, 1))
  scale_L[-1] += 2.0 * unequal
  even = np.full(sentences, 1 / sentences)
  rates: dict[str, list[float]] = collections.defaultdict(list)
  for trial in range(trials):
    random = np.random.default_rng((systems, seeds, unequal, trial))
    score = (
      of_seed * random.normal(size=(1, seeds, 1))
      + of_seed * scale_L * random.normal(size=(systems, seeds, 1))
      + of_sentence * random.normal(size=(systems, 1, sentences))
      + of_both * random.normal(size=(systems, seeds, sentences))
    )
    share_JB = random.multinomial(sentences, even, samples) / sentences
    value, drawn = score.mean(axis=2), score @ share_JB.T
    error = error_variance(
      "mean", {str(i): dict(enumerate(row)) for i, row in enumerate(value)}
    )
    assert error
    for variance in (SEPARATE, POOLED):
      compared = functools.partial(
        _compared,
        value,
        drawn,
        pooled=(error.sd**2, error.degrees) if variance == POOLED else None,
        margin=margin,
      )
      tests = [compared(system, 0.0)[0] for system in range(1, systems)]
      alarms = [p < LEVEL for p in tests]
      if unequal:
        rates[f"{variance}_unequal_pair"].append(alarms.pop())
        _, p = compared(systems - 1, margin)
        rates[f"{variance}_equivalence_unequal"].append(p < LEVEL)
      rates[f"{variance}_equal_pair"].append(float(np.mean(alarms)))
      rates[f"{variance}_family"].append(min(holm(tests)) < LEVEL)
      rates[f"{variance}_power"].append(compared(1, planted)[0] < LEVEL)
      _, p = compared(1, margin)
      rates[f"{variance}_equivalence_equal"].append(p < LEVEL)
  return {name: float(np.mean(found)) for name, found in rates.items()}


def _compared(
  value_LY: np.ndarray,
  drawn_LYJ: np.ndarray,
  system: int,
  shift: float,
  **how: Any,
) -> tuple[float, float]:
  """p-values of a system against the first, with a shift of its scores.

  Returns:
    Of the test for a difference, and of that for equivalence.
  """
  found = hierarchical(
    *(("one", "other"), "mean", tuple(range(value_LY.shape[1]))),
    difference_Y=value_LY[system] - value_LY[0] + shift,
    difference_YJ=drawn_LYJ[system] - drawn_LYJ[0] + shift,
    **how,
  )
  assert found.p is not None and found.equivalence_p is not None
  return found.p, found.equivalence_p


def _main(values: flags.FlagValues) -> None:
  """Prints the shares as they come."""
  for seeds in map(int, values.seeds):
    for spread in SPREADS:
      for kind, planted in (("false_alarms", 0.0), ("power", values.planted)):
        hits = called_different(
          spread,
          seeds,
          values.trials,
          sentences=values.sentences,
          samples=values.samples,
          planted=planted,
        )
        for name, number in hits.items():
          share = 100 * number / values.trials, "%"
          show({f"{seeds}_{spread}_{name}_{kind}": share})
  for systems in map(int, values.systems):
    for seeds in map(int, values.seeds):
      for unequal in (False, True):
        rates = false_alarm_rates(
          *(systems, seeds, values.trials),
          unequal=unequal,
          sentences=values.sentences,
          planted=values.planted,
          margin=values.margin,
        )
        variances = "unequal" if unequal else "equal"
        for name, rate in rates.items():
          key = f"{systems}_systems_{seeds}_{variances}_{name}"
          show({key: (100 * rate, "%")})


if __name__ == "__main__":
  flags.DEFINE_list("seeds", ["2", "3", "5"], "Runs of each system.")
  flags.DEFINE_list("systems", ["5", "12"], "Systems of a comparison.")
  flags.DEFINE_integer("trials", 500, "Pairs of systems.")
  flags.DEFINE_integer("sentences", 200, "Of each test set.")
  flags.DEFINE_integer("samples", 300, "Resamples of a test.")
  flags.DEFINE_float("planted", 0.3, "Mean difference, for the power.")
  flags.DEFINE_float("margin", 1.0, "Margin of equivalence.")
  cli.main(_main)
