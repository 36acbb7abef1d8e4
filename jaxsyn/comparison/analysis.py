"""Computes a comparison from the results of runs: scores, differences, buckets.

Letters: J resample; L run; Y seed of a run.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Collection, Mapping, Sequence

import numpy as np

import jaxsyn
from jaxsyn.comparison import results
from jaxsyn.comparison.controls import control_of, controls, pairs
from jaxsyn.comparison.hierarchical import (
  Hierarchical,
  hierarchical,
  with_verdict,
)
from jaxsyn.comparison.inference import (
  POOLED,
  ErrorVariance,
  Inference,
  check_family,
  error_variance,
  holm,
)
from jaxsyn.comparison.run_result import RunResult, check_comparable
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets, significance
from jaxsyn.scoring.metrics import larger_is_better
from jaxsyn.scoring.scorers import Measured, Scored, mean_of_sets
from jaxsyn.scoring.settings import SCORED, Settings

MEAN = "mean of test sets"

Pairs = Sequence[tuple[str, str]]  # systems, and what each is compared with


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
  first_runs: dict[str, RunResult] = {}
  for run in runs:
    first_runs.setdefault(run.system, run)
  first_runs = {
    name: first_runs[name] for name in systems if name in first_runs
  }
  if systems[0] not in first_runs:
    messages = "; ".join(one.message for one in failed) or "there is none"
    raise InputError(
      f"no finished run of the baseline {systems[0]}: {messages}"
    )
  baseline = first_runs[systems[0]]
  check_comparable(runs, baseline, settings.metrics)
  configs = {name: run.config for name, run in first_runs.items()}
  compared_pairs = pairs(configs, baseline.system)
  family = inference.family or tuple(compared_pairs)
  compared_pairs = list(dict.fromkeys([*compared_pairs, *family]))
  by_split = _scored(runs, settings.metrics)
  splits = []
  for name, scored in by_split.items():
    tables: list[buckets.Buckets] = []
    if name in baseline.tests:
      facts = baseline.tests[name].sentence_facts()
      tables = buckets.in_buckets(facts, settings.edges)
    splits.append(
      _test_set(name, scored, compared_pairs, tables, settings, inference)
    )
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
        controls=controls(name, configs),
        control_of=control_of(name, configs),
        published=run.published,
      )
      for name, run in first_runs.items()
    ),
    runs=tuple(_seed_run(run, by_split) for run in runs),
    failed=tuple(failed),
    splits=tuple(splits),
    **vars(baseline.origin),
  )


def _scored(
  runs: Sequence[RunResult], metrics: Sequence[str]
) -> dict[str, Scored]:
  """Returns the metric statistics of all runs, by test set and as a mean."""
  by_split: dict[str, Scored] = {}
  for split in runs[0].tests:
    scored: Scored = collections.defaultdict(dict)
    for run in runs:
      test = run.tests[split]
      scored[run.system][run.seed] = [test.measured(name) for name in metrics]
    by_split[split] = scored
  if len(by_split) > 1:
    means: Scored = collections.defaultdict(dict)
    for run in runs:
      measured = [s[run.system][run.seed] for s in by_split.values()]
      means[run.system][run.seed] = list(map(mean_of_sets, zip(*measured)))
    by_split[MEAN] = means
  return by_split


def _seed_run(
  run: RunResult, by_split: Mapping[str, Scored]
) -> results.SeedRun:
  return results.SeedRun(
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


def _test_set(
  name: str,
  scored: Scored,
  compared_pairs: Pairs,
  tables: Sequence[buckets.Buckets],
  settings: Settings,
  inference: Inference,
) -> results.TestSet:
  """Computes a test set's scores, differences and buckets, but no examples."""
  draws, first = settings.draws, _first(scored)
  resamples = resampled(scored, draws)
  in_tables: list[results.ComparedBucket] = []
  for table in tables:
    in_tables += in_buckets(table, scored, compared_pairs, draws, inference)
  return results.TestSet(
    name=name,
    sentences=first[0].scorer.sentences,
    signatures={m.scorer.name: m.scorer.signature() for m in first},
    scores=summaries(scored),
    over_sentences=over_sentences(scored, compared_pairs, settings, resamples),
    over_seeds=over_seeds(scored, compared_pairs, draws, inference, resamples),
    errors=error_variances(scored, inference),
    buckets=tuple(in_tables),
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


def resampled(scored: Scored, draws: significance.Draws) -> list[np.ndarray]:
  """Returns the scores of all runs on bootstrap resamples of a test set.

  There is one array, score_LJ, for each metric. The resamples are the same for all
  runs, so that all differences are paired.
  """
  measured = [scored[system][seed] for system, seed in _run_rows(scored)]
  return [significance.bootstrap(runs, draws) for runs in zip(*measured)]


def over_sentences(
  scored: Scored,
  compared_pairs: Pairs,
  settings: Settings,
  resamples: Sequence[np.ndarray],
) -> tuple[results.SeedDifference, ...]:
  """Tests differences between systems over sentences, separately per seed.

  Args:
    scored: Statistics of all runs.
    compared_pairs: Systems, and what each is compared with.
    settings: Tests.
    resamples: Result of `resampled`.
  """
  rows = _run_rows(scored)
  singles = []
  for system, other in compared_pairs:
    for seed in _common_seeds(scored, system, other):
      both = [rows[other, seed], rows[system, seed]]
      columns = zip(resamples, scored[system][seed], scored[other][seed])
      for score_LJ, measured, baseline in columns:
        difference = significance.difference(
          (system, other),
          measured,
          baseline,
          tests=settings.tests,
          draws=settings.draws,
          resampled=score_LJ[both],
        )
        singles.append(results.SeedDifference(seed, difference))
  return tuple(singles)


def over_seeds(
  scored: Scored,
  compared_pairs: Pairs,
  draws: significance.Draws,
  inference: Inference,
  resamples: Sequence[np.ndarray],
) -> tuple[Hierarchical, ...]:
  """Tests differences between systems over both seeds and sentences.

  Args:
    scored: Statistics of all runs.
    compared_pairs: Systems, and what each is compared with.
    draws: Resampling.
    inference: Error variance and margins.
    resamples: Result of `resampled`.
  """
  rows = _run_rows(scored)
  errors = {e.metric: e for e in error_variances(scored, inference)}
  differences = []
  for column, score_LJ in enumerate(resamples):
    value_L = np.array([scored[name][k][column].value for name, k in rows])
    scorer = _first(scored)[column].scorer
    error = errors.get(scorer.name)
    for system, other in compared_pairs:
      seeds = _common_seeds(scored, system, other)
      if not seeds:
        continue
      ours = [rows[system, seed] for seed in seeds]
      theirs = [rows[other, seed] for seed in seeds]
      difference = hierarchical(
        (system, other),
        scorer.name,
        seeds,
        difference_Y=value_L[ours] - value_L[theirs],
        difference_YJ=score_LJ[ours] - score_LJ[theirs],
        seed=draws.seed,
        pooled=(error.sd**2, error.degrees) if error else None,
        margin=inference.margins.get(SCORED.name_of(scorer.metric)),
      )
      differences.append(
        with_verdict(
          difference, None, larger_is_better=larger_is_better(scorer.name)
        )
      )
  return tuple(differences)


def error_variances(
  scored: Scored, inference: Inference
) -> tuple[ErrorVariance, ...]:
  """Returns each metric's pooled error variance; () if not pooled."""
  if inference.variance != POOLED:
    return ()
  variances = []
  for column, measured in enumerate(_first(scored)):
    scores = {
      system: {seed: one[column].value for seed, one in runs.items()}
      for system, runs in scored.items()
    }
    variances.append(error_variance(measured.scorer.name, scores))
  return tuple(error for error in variances if error)


def in_buckets(
  table: buckets.Buckets,
  scored: Scored,
  compared_pairs: Pairs,
  draws: significance.Draws,
  inference: Inference,
) -> list[results.ComparedBucket]:
  """Computes scores and differences on the sentences of each bucket."""
  in_table = []
  for bucket, part in buckets.parts(table, scored):
    differences: tuple[Hierarchical, ...] = ()
    if bucket.count >= buckets.FEWEST:
      resamples = resampled(part, draws)
      differences = over_seeds(
        part, compared_pairs, draws, inference, resamples
      )
    in_table.append(
      results.ComparedBucket(
        **vars(bucket), scores=summaries(part), differences=differences
      )
    )
  return in_table


def _with_family(
  split: results.TestSet, family: Collection[tuple[str, ...]], metric: str
) -> results.TestSet:
  """Returns a test set with Holm-adjusted p-values for the test family."""
  differences = list(split.over_seeds)
  chosen = [
    index
    for index, d in enumerate(differences)
    if d.metric == metric and (d.system, d.baseline) in family
    if d.p is not None
  ]
  adjusted = holm([differences[index].p or 0.0 for index in chosen])
  for index, p in zip(chosen, adjusted):
    differences[index] = with_verdict(
      differences[index], p, larger_is_better=larger_is_better(metric)
    )
  return dataclasses.replace(split, over_seeds=tuple(differences))


def _first(scored: Scored) -> list[Measured]:
  """Returns the metric statistics of the first system's first run."""
  return next(iter(next(iter(scored.values())).values()))


def _run_rows(scored: Scored) -> dict[tuple[str, int], int]:
  """Maps each (system, seed) to its row in the arrays of `resampled`."""
  rows: dict[tuple[str, int], int] = {}
  for system, by_seed in scored.items():
    for seed in by_seed:
      rows[system, seed] = len(rows)
  return rows


def _common_seeds(scored: Scored, system: str, other: str) -> tuple[int, ...]:
  """Returns the seeds with which both systems were run."""
  ours, theirs = scored.get(system, {}), scored.get(other, {})
  return tuple(seed for seed in ours if seed in theirs)
