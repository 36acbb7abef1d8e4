"""Selects the sentences that systems translate most differently."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.comparison.analysis import scored_runs
from jaxsyn.comparison.measure import read_text
from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.comparison.results import Comparison, Example
from jaxsyn.comparison.run_result import RunResult
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.scoring.scorers import Scored

COUNT = 8  # sentences of a test set
PREFERRED = "chrF"  # BLEU of a sentence depends mostly on its smoothing

Translations = Mapping[tuple[str, int], Sequence[str]]  # by system and seed


def add(
  results: Comparison,
  runs: Mapping[TrainingJob, RunResult],
  metrics: Sequence[str],
) -> Comparison:
  """Adds example sentences from the text of the test sets to a comparison.

  Args:
    results: Results of the comparison.
    runs: Results of the finished jobs, whose translations are read.
    metrics: Names of the metrics.
  """
  scored = scored_runs(list(runs.values()), metrics)
  first_job, first_run = next(iter(runs.items()))
  splits = []
  for split in results.splits:
    if split.name in first_run.tests:
      texts = read_text(first_job, split.name)
      translations = {
        (job.system.name, job.seed): read_lines(job.hypotheses(split.name))
        for job in runs
      }
      metric, chosen = choose(*texts, scored[split.name], translations)
      split = dataclasses.replace(split, example_metric=metric, examples=chosen)
    splits.append(split)
  return dataclasses.replace(results, splits=tuple(splits))


def choose(
  sources: Sequence[str],
  references: Sequence[str],
  scored: Scored,
  translations: Translations,
) -> tuple[str, tuple[Example, ...]]:
  """Selects the sentences on which the scores of systems differ most.

  Sentences are ranked by means over seeds. An example shows the runs of the seed
  with the largest difference.

  Args:
    sources, references: Text of the test set.
    scored: Statistics of all runs.
    translations: Translations of all runs.

  Returns:
    The title of the selecting metric, and the sentences.
  """
  first = next(iter(next(iter(scored.values())).values()))
  names = [measured.scorer.name for measured in first]
  column = names.index(PREFERRED) if PREFERRED in names else 0
  score_B = {
    system: {seed: m[column].sentence_B for seed, m in runs.items()}
    for system, runs in scored.items()
  }
  means = [np.mean([*runs.values()], axis=0) for runs in score_B.values()]
  range_B = np.ptp(means, axis=0)
  seeds = sorted(set[int]().union(*scored.values()))
  range_of_seed = {
    seed: np.ptp([s[seed] for s in score_B.values() if seed in s], axis=0)
    for seed in seeds
  }
  examples = []
  for line in np.argsort(-range_B, kind="stable")[:COUNT]:
    if not range_B[line] > 0:
      continue
    seed = max(seeds, key=lambda s: range_of_seed[s][line])
    shown = [system for system in scored if seed in scored[system]]
    examples.append(
      Example(
        line=int(line) + 1,
        source=sources[line],
        reference=references[line],
        seed=seed,
        scores={name: float(score_B[name][seed][line]) for name in shown},
        translations={name: translations[name, seed][line] for name in shown},
      )
    )
  return names[column], tuple(examples)
