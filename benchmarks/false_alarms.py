"""How often the significance tests of `jaxsyn.score` call systems different.

  python -m benchmarks.false_alarms --trials 500 [--sentences 200] \\
    [--metrics bleu,chrf,ribes] [--samples 1000] [--planted 0.1]

Each trial draws a test set and two systems that translate it with random faults:
replaced words and swapped neighbours, as often as the sentence is hard. First both
have faults equally often (false alarms, to be 5 % at p < 0.05), then the second
has --planted of them fewer (power). One line a figure: name=value unit;
"sacrebleu" is the p-value of sacreBLEU's command for the same draws.
"""

from __future__ import annotations

import collections

import numpy as np
from absl import flags

from benchmarks.figures import show
from jaxsyn import cli
from jaxsyn.scoring.metrics import scorer_of
from jaxsyn.scoring.significance import TESTS, Draws, difference

LEVEL = 0.05


def called_different(
  metric: str,
  trials: int,
  *,
  sentences: int,
  samples: int,
  planted: float = 0.0,
  seed: int = 0,
) -> dict[str, int]:
  """Counts the trials whose p-value is below 0.05.

  Args:
    metric: a name of `jaxsyn.scoring.metrics.METRICS`.
    trials: pairs of systems, each with a test set of its own.
    sentences: of a test set.
    samples: of the tests.
    planted: share of faults that the second system does not make.
    seed: of everything.

  Returns:
    Trials by test; "bootstrap_sacrebleu" and the like for sacreBLEU's p-value.
  """
  hits: dict[str, int] = collections.Counter()
  for trial in range(trials):
    random = np.random.default_rng((seed, trial))
    reference, one, other = _test_set(random, sentences, planted)
    scorer = scorer_of(metric, [reference], "none")
    first, second = (scorer.measure(s) for s in (one, other))
    draws = Draws(samples, seed=int(random.integers(2**31)))
    compared = difference(
      *(("other", "one"), second, first),
      tests=TESTS,
      draws=draws,
      interval=False,
    )
    for test in compared.tests:
      hits[test.name] += test.p < LEVEL
      if test.sacrebleu_p is not None:
        hits[f"{test.name}_sacrebleu"] += test.sacrebleu_p < LEVEL
  return dict(hits)


def _test_set(random, sentences: int, planted: float):
  """A reference and two systems; a word is a number below 500."""
  reference, one, other = [], [], []
  for _ in range(sentences):
    words = (500 * random.random(random.integers(5, 31)) ** 2).astype(int)
    rate = random.beta(2, 6)  # of faults; hard sentences are hard for both
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
  """Prints the shares as they come."""
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
  flags.DEFINE_integer("trials", 500, "Pairs of systems.")
  flags.DEFINE_integer("sentences", 200, "Of each test set.")
  flags.DEFINE_list("metrics", ["bleu", "chrf", "ribes"], "As of jaxsyn.score.")
  flags.DEFINE_integer("samples", 1000, "Resamples and shuffles of a test.")
  flags.DEFINE_float("planted", 0.1, "Share of faults fewer, for the power.")
  cli.main(_main)
