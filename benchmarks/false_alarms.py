"""Measures the false-alarm rate of the significance tests of `jaxsyn.score`.

  python -m benchmarks.false_alarms --trials 500 [--sentences 200] \\
    [--metrics bleu,chrf,ribes] [--samples 1000] [--planted 0.1]

Each trial draws a test set and two systems that translate it with random faults,
which are replaced words and swapped neighbours; difficult sentences have more. First
both systems have equal rates of faults ("false_alarms", which should be 5 % at
p < 0.05), then the second has fewer by --planted ("power"). "sacrebleu" is the
p-value that sacreBLEU's command has for the same resamples.
"""

from __future__ import annotations

import collections

import numpy as np
from absl import flags

from benchmarks.figures import show
from jaxsyn import cli
from jaxsyn.scoring.settings import Settings
from jaxsyn.scoring.significance import TESTS, Draws, difference

LEVEL = 0.05
SYSTEMS = ("other", "one")


def called_different(
  metric: str,
  trials: int,
  *,
  sentences: int,
  samples: int,
  planted: float = 0.0,
) -> dict[str, int]:
  """Counts, for each test, the trials with a p-value below 0.05.

  Each trial has a test set and two systems, the second of which does not make a
  share `planted` of the faults. "bootstrap_sacrebleu" and so on count the p-values
  of sacreBLEU.
  """
  hits: dict[str, int] = collections.Counter()
  for trial in range(trials):
    random = np.random.default_rng((0, trial))
    reference, one, other = _test_set(random, sentences, planted)
    (scorer,) = Settings((metric,), "none").scorers([reference])
    first, second = (scorer.measure(s) for s in (one, other))
    draws = Draws(samples, seed=int(random.integers(2**31)))
    compared = difference(
      SYSTEMS, second, first, tests=TESTS, draws=draws, interval=False
    )
    for test in compared.tests:
      hits[test.name] += test.p < LEVEL
      if test.sacrebleu_p is not None:
        hits[f"{test.name}_sacrebleu"] += test.sacrebleu_p < LEVEL
  return dict(hits)


def _test_set(random, sentences: int, planted: float):
  """Returns a random reference and two translations, all made of numbers."""
  reference, one, other = [], [], []
  for _ in range(sentences):
    words = (500 * random.random(random.integers(5, 31)) ** 2).astype(int)
    rate = random.beta(2, 6)  # of faults, for both systems
    reference.append(_text(words))
    one.append(_text(_faulty(random, words, rate)))
    other.append(_text(_faulty(random, words, rate * (1 - planted))))
  return reference, one, other


def _faulty(random, words: np.ndarray, rate: float) -> np.ndarray:
  words = words.copy()
  replaced = random.random(len(words)) < rate
  words[replaced] = random.integers(500, size=replaced.sum())
  for i in np.flatnonzero(random.random(len(words) - 1) < rate / 2):
    words[[i, i + 1]] = words[[i + 1, i]]
  return words


def _text(words: np.ndarray) -> str:
  return " ".join(map(str, words.tolist()))


def _main(values: flags.FlagValues) -> None:
  for metric in values.metrics:
    for kind, planted in (("false_alarms", 0.0), ("power", values.planted)):
      hits = called_different(
        metric,
        values.trials,
        sentences=values.sentences,
        samples=values.samples,
        planted=planted,
      )
      for name, number in hits.items():
        share = 100 * number / values.trials, "%"
        show({f"{metric}_{name}_{kind}": share})


if __name__ == "__main__":
  flags.DEFINE_integer("trials", 500, "Number of pairs of systems.")
  flags.DEFINE_integer("sentences", 200, "Number of sentences in a test set.")
  flags.DEFINE_list(
    "metrics", ["bleu", "chrf", "ribes"], "Metrics, named as in jaxsyn.score."
  )
  flags.DEFINE_integer("samples", 1000, "Number of resamples per test.")
  flags.DEFINE_float(
    "planted",
    0.1,
    "Share of faults that one system does not make when power is measured.",
  )
  cli.main(_main)
