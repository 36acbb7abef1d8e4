"""How often the test over seeds and sentences calls equal systems different.

  python -m benchmarks.seed_alarms --trials 500 [--sentences 200] [--planted 0.3]

Each trial draws the differences between two systems, of --seeds runs each, on one
test set: what a seed adds to all sentences, what a sentence has in all runs, and
what is of one sentence in one run. SPREADS are their standard deviations. First
the mean is 0 (false alarms, to be 5 % at p < 0.05), then --planted (power).
"bootstrap" are the resamples by themselves, without the correction for few seeds.
"""

from __future__ import annotations

import collections

import numpy as np
from absl import flags

from benchmarks.figures import show
from jaxsyn import cli
from jaxsyn.comparison.hierarchical import hierarchical

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


if __name__ == "__main__":
  flags.DEFINE_list("seeds", ["2", "3", "5"], "Runs of each system.")
  flags.DEFINE_integer("trials", 500, "Pairs of systems.")
  flags.DEFINE_integer("sentences", 200, "Of each test set.")
  flags.DEFINE_integer("samples", 300, "Resamples of a test.")
  flags.DEFINE_float("planted", 0.3, "Mean difference, for the power.")
  cli.main(_main)
