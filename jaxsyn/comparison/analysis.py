"""Compares systems by the results of their runs: scores, tests, buckets.

A control of a system differs from it only in config.data.tree: its trees are
linear or random, and have no syntactic information
(`jaxsyn.data.sentence.controls`). Each system is compared with its controls.

Letters: J resample; L run; Y seed of a run.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

import jaxsyn
from jaxsyn.comparison import results
from jaxsyn.comparison.hierarchical import (
  Hierarchical,
  hierarchical,
  with_verdict,
)
from jaxsyn.comparison.inference import (
  POOLED,
  ErrorVariance,
  Inference,
  Pairs,
  check_family,
  error_variance,
  holm,
)
from jaxsyn.comparison.run_result import (
  RunResult,
  check_comparable,
  config_differences,
)
from jaxsyn.data.sentence.controls import TREES, Parsed
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets, significance
from jaxsyn.scoring.metrics import larger_is_better
from jaxsyn.scoring.scorers import Measured, Scored, mean_of_sets
from jaxsyn.scoring.settings import SCORED, Settings

MEAN = "mean of test sets"

Configs = Mapping[str, Mapping[str, Any]]  # JSON configs by system

# Options and sections that may differ between a control and its system.
_FREE = ("system", "seed", "data.tree", *(f"data.{name}" for name in TREES))


def of_runs(
  runs: Sequence[RunResult],
  settings: Settings,
  systems: Sequence[str],
  failed: Sequence[results.FailedRun] = (),
  *,
  inference: Inference,
) -> results.Comparison:
  """Compares systems, given the results of their runs.

  Args:
    runs: Results of finished runs.
    settings: Metrics and tests.
    systems: Systems to compare, the baseline first; runs of others are ignored.
    failed: Runs that failed.
    inference: Family of tests, error variance, margins.

  Raises:
    InputError: No run of the baseline; runs with other test sets, signatures
      or configs; a metric that a result lacks.
  """
  check_family(inference.family, systems)
  order = {name: index for index, name in enumerate(systems)}
  runs = [run for run in runs if run.system in order]
  runs.sort(key=lambda run: (run.seed, order[run.system]))
  by_system = {run.system: run for run in reversed(runs)}  # the first of each
  first_runs = {name: by_system[name] for name in systems if name in by_system}
  if systems[0] not in first_runs:
    messages = "; ".join(one.message for one in failed) or "there is none"
    raise InputError(
      f"no finished run of the baseline {systems[0]}: {messages}"
    )
  baseline = first_runs[systems[0]]
  check_comparable(runs, baseline, settings.metrics)
  configs = {name: run.config for name, run in first_runs.items()}
  controlled = {name: control_of(name, configs) for name in configs}
  pairs = pairs_to_test(controlled, baseline.system)
  family = inference.family or pairs
  pairs = tuple(dict.fromkeys(pairs + family))
  by_split = scored_runs(runs, settings.metrics)
  splits = []
  for name, scored in by_split.items():
    facts: buckets.Facts = {}
    if name in baseline.tests:
      facts = baseline.tests[name].sentence_facts()
    splits.append(test_set(name, scored, pairs, facts, settings, inference))
  metrics = tuple(splits[0].signatures)
  splits[-1] = _with_family(splits[-1], family, metrics[0])
  return results.Comparison(
    format=results.FORMAT,
    made=max(run.finished for run in runs),
    version=jaxsyn.__version__,
    baseline=baseline.system,
    seeds=tuple(dict.fromkeys(run.seed for run in runs)),
    metrics=metrics,
    samples=settings.draws.resamples,
    family=family,
    variance=inference.variance,
    systems=tuple(
      results.ComparedSystem(
        name=name,
        config=run.config,
        data=run.data,
        controls=tuple(n for n, of in controlled.items() if of == name),
        control_of=controlled[name],
        published=run.published,
      )
      for name, run in first_runs.items()
    ),
    runs=tuple(
      results.SeedRun(
        system=run.system,
        seed=run.seed,
        commit=run.commit,
        version=run.version,
        folder=f"{run.system}/seed_{run.seed}",
        facts=run.facts,
        curve=run.curve,
        scores={
          split: tuple(m.score for m in scored[run.system][run.seed])
          for split, scored in by_split.items()
        },
      )
      for run in runs
    ),
    failed=tuple(failed),
    splits=tuple(splits),
    **vars(baseline.origin),
  )


def control_of(system: str, configs: Configs) -> str:
  """Returns the system that a control differs from only in its trees, or ""."""
  trees = {
    name: TREES.get(config["data"]["tree"], Parsed)
    for name, config in configs.items()
  }
  if not trees[system].control:
    return ""
  for name, config in configs.items():
    if trees[name].replaces:
      continue
    if not config_differences(config, configs[system], _FREE):
      return name
  return ""


def pairs_to_test(controlled: Mapping[str, str], baseline: str) -> Pairs:
  """Returns pairs of each system with the baseline and with its controls.

  `controlled` has the result of `control_of` for each system.
  """
  pairs = [(system, baseline) for system in controlled if system != baseline]
  for system in controlled:
    for control, of in controlled.items():
      if of == system and baseline not in (system, control):
        pairs.append((system, control))
  return tuple(pairs)


def scored_runs(
  runs: Sequence[RunResult], metrics: Sequence[str]
) -> dict[str, Scored]:
  """Returns metric statistics of all runs per test set and for the mean."""
  by_split: dict[str, Scored] = collections.defaultdict(
    lambda: collections.defaultdict(dict)
  )
  splits = list(runs[0].tests)
  for run in runs:
    tests = [list(map(run.tests[split].measured, metrics)) for split in splits]
    for split, measured in zip(splits, tests):
      by_split[split][run.system][run.seed] = measured
    if len(splits) > 1:
      by_split[MEAN][run.system][run.seed] = [
        mean_of_sets(sets) for sets in zip(*tests)
      ]
  return by_split


def test_set(
  name: str,
  scored: Scored,
  pairs: Pairs,
  facts: buckets.Facts,
  settings: Settings,
  inference: Inference,
) -> results.TestSet:
  """Scores and tests all systems on one test set, and returns the results.

  Args:
    name: Name of the test set.
    scored: Statistics of all runs.
    pairs: Systems, and what each is compared with.
    facts: Facts of the sentences, by which they are divided into buckets.
    settings: Metrics and tests.
    inference: Error variance and margins.
  """
  tests = PairTests(scored, pairs, settings, inference)
  in_buckets = []
  for table in buckets.in_buckets(facts, settings.edges):
    for bucket, part in buckets.parts(table, scored):
      differences: tuple[Hierarchical, ...] = ()
      if bucket.count >= buckets.FEWEST:
        first = {
          system: {seed: measured[:1] for seed, measured in runs.items()}
          for system, runs in part.items()
        }
        differences = PairTests(first, pairs, settings, inference).over_seeds()
      in_buckets.append(
        results.ComparedBucket(
          **vars(bucket), scores=summaries(part), differences=differences
        )
      )
  scorers = [measured[0].scorer for measured in tests.measured]
  return results.TestSet(
    name=name,
    sentences=scorers[0].sentences,
    signatures={scorer.name: scorer.signature() for scorer in scorers},
    scores=summaries(scored),
    over_sentences=tests.over_sentences(),
    over_seeds=tests.over_seeds(),
    errors=tests.errors(),
    buckets=tuple(in_buckets),
    example_metric="",
    examples=(),
  )


def summaries(scored: Scored) -> tuple[results.Summary, ...]:
  """Returns each system's mean score and standard deviation over seeds."""
  entries = []
  for system, runs in scored.items():
    for measured in zip(*runs.values()):
      values = tuple(m.value for m in measured)
      entries.append(
        results.Summary(
          system=system,
          metric=measured[0].scorer.name,
          mean=statistics.fmean(values),
          sd=statistics.stdev(values) if len(values) > 1 else None,
          seeds=tuple(runs),
          values=values,
        )
      )
  return tuple(entries)


class PairTests:
  """Paired significance tests between systems on a set of sentences.

  The bootstrap resamples are the same for all runs, so that all differences are
  paired.

  Attributes:
    measured: Statistics of all runs, for each metric.
    resampled: Scores of all runs on the resamples, score_LJ, for each metric.
  """

  def __init__(
    self,
    scored: Scored,
    pairs: Pairs,
    settings: Settings,
    inference: Inference,
  ):
    """Draws bootstrap resamples of all scores; arguments as in `test_set`."""
    self._scored, self._settings, self._inference = scored, settings, inference
    runs = [(system, seed) for system in scored for seed in scored[system]]
    self._rows = {run: row for row, run in enumerate(runs)}
    # Pairs of systems, and the seeds that both have.
    self._pairs = [
      (pair, tuple(seed for seed in scored[pair[0]] if seed in scored[pair[1]]))
      for pair in pairs
      if pair[0] in scored and pair[1] in scored
    ]
    self.measured: list[tuple[Measured, ...]] = list(
      zip(*(scored[system][seed] for system, seed in runs))
    )
    self.resampled = [
      significance.bootstrap(measured, settings.draws)
      for measured in self.measured
    ]

  def over_sentences(self) -> tuple[results.SeedDifference, ...]:
    """Tests score differences over sentences, separately for each seed."""
    singles = []
    for (system, other), seeds in self._pairs:
      for seed in seeds:
        both = [self._rows[other, seed], self._rows[system, seed]]
        for measured, score_LJ in zip(self.measured, self.resampled):
          difference = significance.difference(
            (system, other),
            measured[both[1]],
            measured[both[0]],
            tests=self._settings.tests,
            draws=self._settings.draws,
            resampled=score_LJ[both],
          )
          singles.append(results.SeedDifference(seed, difference))
    return tuple(singles)

  def over_seeds(self) -> tuple[Hierarchical, ...]:
    """Tests score differences over both seeds and sentences."""
    errors = {error.metric: error for error in self.errors()}
    differences = []
    for measured, score_LJ in zip(self.measured, self.resampled):
      scorer = measured[0].scorer
      value_L = np.array([one.value for one in measured])
      error = errors.get(scorer.name)
      for (system, other), seeds in self._pairs:
        if not seeds:
          continue
        ours = [self._rows[system, seed] for seed in seeds]
        theirs = [self._rows[other, seed] for seed in seeds]
        difference = hierarchical(
          (system, other),
          scorer.name,
          seeds,
          difference_Y=value_L[ours] - value_L[theirs],
          difference_YJ=score_LJ[ours] - score_LJ[theirs],
          seed=self._settings.draws.seed,
          pooled=(error.sd**2, error.degrees) if error else None,
          margin=self._inference.margins.get(SCORED.name_of(scorer.metric)),
        )
        is_better = larger_is_better(scorer.name)
        differences.append(
          with_verdict(difference, None, larger_is_better=is_better)
        )
    return tuple(differences)

  def errors(self) -> tuple[ErrorVariance, ...]:
    """Returns a pooled error variance for each metric; () without pooling."""
    if self._inference.variance != POOLED:
      return ()
    variances = []
    for column, measured in enumerate(self.measured):
      scores = {
        system: {seed: one[column].value for seed, one in runs.items()}
        for system, runs in self._scored.items()
      }
      variances.append(error_variance(measured[0].scorer.name, scores))
    return tuple(error for error in variances if error)


def _with_family(
  split: results.TestSet, family: Collection[tuple[str, ...]], metric: str
) -> results.TestSet:
  """Returns results with Holm-adjusted p-values for a family of tests."""
  differences = list(split.over_seeds)
  chosen = {
    index: d.p
    for index, d in enumerate(differences)
    if d.metric == metric and (d.system, d.baseline) in family
    if d.p is not None
  }
  for index, p in zip(chosen, holm(list(chosen.values()))):
    differences[index] = with_verdict(
      differences[index], p, larger_is_better=larger_is_better(metric)
    )
  return dataclasses.replace(split, over_seeds=tuple(differences))
