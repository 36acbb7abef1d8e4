"""The sentences that systems differ in most."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.comparison.measure import read_test
from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.comparison.results import Comparison, Example
from jaxsyn.comparison.run_result import RunResult
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.scoring.scorers import Scored

COUNT = 8  # sentences of a split
PREFERRED = "chrF"  # BLEU of one sentence is mostly what its smoothing makes it


def add(
  results: Comparison,
  runs: Mapping[TrainingJob, RunResult],
  metrics: Sequence[str],
) -> Comparison:
  """Returns a comparison with examples, which need the text of the test sets.

  Args:
    results: Comparison of the runs.
    runs: Results of the finished jobs, whose translations are read.
    metrics: Metrics of the comparison.
  """
  splits = []
  for split in results.splits:
    if split.name in next(iter(runs.values())).tests:
      text = read_test(next(iter(runs)), split.name)
      scored: Scored = collections.defaultdict(dict)
      translations: dict[str, dict[int, list[str]]] = collections.defaultdict(
        dict
      )
      for job, run in runs.items():
        test = run.tests[split.name]
        scored[run.system][run.seed] = list(map(test.measured, metrics))
        translations[run.system][run.seed] = read_lines(
          job.hypotheses(split.name)
        )
      metric, chosen = choose(
        text.sources, text.references, scored=scored, translations=translations
      )
      split = dataclasses.replace(split, example_metric=metric, examples=chosen)
    splits.append(split)
  return dataclasses.replace(results, splits=tuple(splits))


def choose(
  sources: Sequence[str],
  references: Sequence[str],
  *,
  scored: Scored,
  translations: Mapping[str, Mapping[int, Sequence[str]]],
) -> tuple[str, tuple[Example, ...]]:
  """The metric, and the sentences whose scores under it are furthest apart.

  Scores are means over seeds, so that a sentence is not chosen for what one run
  made of it. Shown are the runs of the seed where systems are furthest apart.

  Args:
    sources, references: of a test split.
    scored: system -> seed -> its translations under each metric.
    translations: system -> seed -> its lines.
  """
  first = next(iter(next(iter(scored.values())).values()))
  names = [measured.scorer.name for measured in first]
  column = names.index(PREFERRED) if PREFERRED in names else 0
  single = {
    system: {seed: m[column].sentence_B for seed, m in runs.items()}
    for system, runs in scored.items()
  }
  means = [np.mean([*runs.values()], axis=0) for runs in single.values()]
  apart_B = np.ptp(means, axis=0)
  seeds = sorted({seed for runs in scored.values() for seed in runs})

  def apart(seed: int, line: int) -> float:
    scores = [r[seed][line] for r in single.values() if seed in r]
    return max(scores) - min(scores)

  examples = []
  for line in np.argsort(-apart_B, kind="stable")[:COUNT]:
    if not apart_B[line] > 0:
      continue
    seed = max(seeds, key=lambda s: apart(s, line))
    shown = [system for system in scored if seed in scored[system]]
    examples.append(
      Example(
        line=int(line) + 1,
        source=sources[line],
        reference=references[line],
        seed=seed,
        scores={name: float(single[name][seed][line]) for name in shown},
        translations={name: translations[name][seed][line] for name in shown},
      )
    )
  return names[column], tuple(examples)
