"""From results of runs to a comparison: scores, differences, buckets.

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
from jaxsyn.comparison.controls import control_of, controls, pairs
from jaxsyn.comparison.hierarchical import (
  Hierarchical,
  hierarchical,
  with_verdict,
)
from jaxsyn.comparison.inference import (
  DEFAULT,
  POOLED,
  ErrorVariance,
  Inference,
  check_family,
  error_variance,
  holm,
)
from jaxsyn.comparison.run_result import RunResult, SplitStatistics
from jaxsyn.config import Config, without_removed
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import flat, neutral_options
from jaxsyn.scoring import buckets, significance
from jaxsyn.scoring.metrics import larger_is_better
from jaxsyn.scoring.scorers import Scored, mean_of_sets
from jaxsyn.scoring.settings import SCORED, Settings

MEAN = "mean of test sets"

# A system, what it is compared with, and the seeds that both have.
Pair = tuple[str, str, tuple[int, ...]]


def of_runs(
  runs: Sequence[RunResult],
  settings: Settings,
  systems: Sequence[str],
  failed: Sequence[results.FailedRun] = (),
  *,
  inference: Inference = DEFAULT,
) -> results.Comparison:
  """Compares runs.

  Args:
    runs: Results of finished runs.
    settings: How to score.
    systems: Systems to compare, the baseline first; runs of others are left
      out.
    failed: Runs that did not finish.
    inference: Family of tests, error variance, margins.

  Raises:
    InputError: No run of the baseline; runs with other test sets, signatures
      or configs; a metric that a result lacks.
  """
  order = {name: index for index, name in enumerate(systems)}
  runs = [run for run in runs if run.system in order]
  runs.sort(key=lambda run: (run.seed, order[run.system]))
  first = next((run for run in runs if run.system == systems[0]), None)
  if first is None:
    messages = "; ".join(one.message for one in failed) or "none has"
    raise InputError(
      f"no run of {systems[0]}, which all are compared with, has ended: {messages}"
    )
  _check(runs, first, settings.metrics)
  present = dict.fromkeys(
    sorted((r.system for r in runs), key=order.__getitem__)
  )
  configs = {
    name: next(run.config for run in runs if run.system == name)
    for name in present
  }
  compared_pairs = pairs(configs, first.system)
  check_family(inference.family, systems)
  family = inference.family or tuple(compared_pairs)
  compared_pairs = list(dict.fromkeys([*compared_pairs, *family]))
  by_split: dict[str, Scored] = {
    split: _scored(runs, split, settings.metrics) for split in first.tests
  }
  tables = {
    split: buckets.in_buckets(test.sentence_facts(), settings.edges)
    for split, test in first.tests.items()
  }
  if len(by_split) > 1:
    by_split[MEAN] = _mean_of_splits([*by_split.values()])
  splits = [
    _test_set(
      *(name, scored, compared_pairs, tables.get(name, ())),
      settings=settings,
      inference=inference,
    )
    for name, scored in by_split.items()
  ]
  metrics = tuple(splits[0].signatures)
  splits[-1] = _decided(splits[-1], family, metrics[0])
  return results.Comparison(
    format=results.FORMAT,
    made=max(run.finished for run in runs),
    version=jaxsyn.__version__,
    baseline=first.system,
    seeds=tuple(dict.fromkeys(run.seed for run in runs)),
    metrics=metrics,
    samples=settings.draws.resamples,
    family=family,
    variance=inference.variance,
    systems=tuple(
      _system(next(run for run in runs if run.system == name), configs)
      for name in present
    ),
    runs=tuple(_run(run, by_split) for run in runs),
    failed=tuple(failed),
    splits=tuple(splits),
    **vars(first.origin),
  )


def _check(
  runs: Sequence[RunResult], first: RunResult, metrics: Collection[str]
) -> None:
  """Raises InputError where runs cannot be compared with the first."""
  same_system: dict[str, RunResult] = {}
  for run in runs:
    other = same_system.setdefault(run.system, run)
    if differences := _differences(other.config, run.config):
      raise InputError(
        f"{other.name} and {run.name} have other configs: "
        f"{', '.join(differences[:5])}."
      )
    if other.data.hashes != run.data.hashes:
      raise InputError(
        f"{other.name} and {run.name} were trained on different data: hashes of "
        "records, vocabulary or parser differ."
      )
    if more := sorted(set(run.tests) - set(first.tests)):
      raise InputError(
        f"{run.name} was scored on {', '.join(more)}, {first.name} was not. All "
        "runs of a report need the same test sets."
      )
    for split, test in first.tests.items():
      split_result = run.tests.get(split)
      if split_result is None:
        raise InputError(f"{run.name} was not scored on test set {split}.")
      _check_test(f"{run.name} and {first.name}, {split}", split_result, test)
      for metric in metrics:
        if metric not in split_result.metrics:
          raise InputError(
            f"{run.name} has no statistics of {metric!r} on {split}. "
            f"{did_you_mean(metric, split_result.metrics)} Where the translations are, "
            f"jaxsyn compare --metrics {metric} adds them."
          )
        signature = test.metrics[metric].signature
        if split_result.metrics[metric].signature != signature:
          raise InputError(
            f"{run.name} and {first.name} have other signatures of {metric} on "
            f"{split}: {split_result.metrics[metric].signature} and {signature}."
          )


def _check_test(
  names: str, one: SplitStatistics, other: SplitStatistics
) -> None:
  for what in ("reference", "source"):
    if getattr(one, f"{what}_sha256") != getattr(other, f"{what}_sha256"):
      raise InputError(
        f"{names}: their {what}s differ (SHA-256), so their scores cannot be "
        "compared."
      )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
  """Names of options that differ and change figures."""
  free = {name.removeprefix("config.") for name in neutral_options(Config)}
  free.add("seed")
  was, now = flat(without_removed(one)), flat(without_removed(other))
  return [
    f"{name} is {was.get(name)!r} and {now.get(name)!r}"
    for name in sorted(was | now)
    if was.get(name) != now.get(name)
    and not any(f"{name}.".startswith(f"{one}.") for one in free)
  ]


def _scored(
  runs: Sequence[RunResult], split: str, metrics: Sequence[str]
) -> Scored:
  scored: Scored = collections.defaultdict(dict)
  for run in runs:
    test = run.tests[split]
    scored[run.system][run.seed] = [test.measured(name) for name in metrics]
  return scored


def _mean_of_splits(scored: Sequence[Scored]) -> Scored:
  """The mean over test sets, as if they were one."""
  return {
    system: {
      seed: list(map(mean_of_sets, zip(*(s[system][seed] for s in scored))))
      for seed in seeds
    }
    for system, seeds in scored[0].items()
  }


def _system(
  run: RunResult, configs: Mapping[str, Mapping[str, Any]]
) -> results.Entry:
  return results.Entry(
    name=run.system,
    config=run.config,
    data=run.data,
    controls=controls(run.system, configs),
    control_of=control_of(run.system, configs),
    published=run.published,
  )


def _run(run: RunResult, by_split: Mapping[str, Scored]) -> results.SeedRun:
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
  compared_pairs: Sequence[tuple[str, str]],
  tables: Sequence[buckets.Buckets],
  *,
  settings: Settings,
  inference: Inference,
) -> results.TestSet:
  """Everything about one test set, except for examples."""
  resamples = resampled(scored, settings.draws)
  first = next(iter(next(iter(scored.values())).values()))
  return results.TestSet(
    name=name,
    sentences=first[0].scorer.sentences,
    signatures={m.scorer.name: m.scorer.signature() for m in first},
    scores=summaries(scored),
    over_sentences=over_sentences(scored, compared_pairs, settings, resamples),
    over_seeds=over_seeds(
      scored, compared_pairs, settings.draws, inference, resamples
    ),
    errors=error_variances(scored, inference),
    buckets=tuple(
      bucket
      for table in tables
      for bucket in in_buckets(
        *(table, scored, compared_pairs),
        draws=settings.draws,
        inference=inference,
      )
    ),
    example_metric="",
    examples=(),
  )


def summaries(scored: Scored) -> tuple[results.Summary, ...]:
  """Mean and standard deviation over seeds, of each system and metric."""
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


def over_sentences(
  scored: Scored,
  compared_pairs: Sequence[tuple[str, str]],
  settings: Settings,
  resamples: Sequence[np.ndarray] | None = None,
) -> tuple[results.OneSeed, ...]:
  """Each run against the other system's run of the same seed.

  Args:
    scored: Translations.
    compared_pairs: Systems and what each is compared with.
    settings: How to test.
    resamples: Of `resampled`, where it is known.
  """
  resamples = (
    resampled(scored, settings.draws) if resamples is None else resamples
  )
  row = {run: index for index, run in enumerate(_runs(scored))}
  singles = []
  for system, other, seeds in _scored_pairs(scored, compared_pairs):
    for seed in seeds:
      pairs = zip(resamples, scored[system][seed], scored[other][seed])
      for score_LJ, one, base in pairs:
        difference = significance.difference(
          *((system, other), one, base),
          tests=settings.tests,
          draws=settings.draws,
          resampled=score_LJ[[row[other, seed], row[system, seed]]],
        )
        singles.append(results.OneSeed(seed, difference))
  return tuple(singles)


def resampled(scored: Scored, draws: significance.Draws) -> list[np.ndarray]:
  """Returns score_LJ of all runs on resampled test sets, under each metric.

  The resamples are the same for all runs, so that all differences are paired.
  """
  measured = (scored[system][seed] for system, seed in _runs(scored))
  return [significance.bootstrap(runs, draws) for runs in zip(*measured)]


def over_seeds(
  scored: Scored,
  compared_pairs: Sequence[tuple[str, str]],
  draws: significance.Draws,
  inference: Inference = DEFAULT,
  resamples: Sequence[np.ndarray] | None = None,
) -> tuple[Hierarchical, ...]:
  """Each pair of systems, over seeds and sentences.

  Args:
    scored: Translations.
    compared_pairs: Systems and what each is compared with.
    draws: How to resample.
    inference: Error variance and margins.
    resamples: Of `resampled`, where it is known.
  """
  resamples = resampled(scored, draws) if resamples is None else resamples
  runs = _runs(scored)
  row = {run: index for index, run in enumerate(runs)}
  errors = error_variances(scored, inference)
  differences = []
  for column, score_LJ in enumerate(resamples):
    value_L = np.array(
      [scored[name][seed][column].value for name, seed in runs]
    )
    scorer = scored[runs[0][0]][runs[0][1]][column].scorer
    margin = inference.margins.get(SCORED.name_of(scorer.metric))
    error = next((e for e in errors if e.metric == scorer.name), None)
    for system, other, seeds in _scored_pairs(scored, compared_pairs):
      ours, theirs = (
        [row[name, seed] for seed in seeds] for name in (system, other)
      )
      differences.append(
        hierarchical(
          (system, other),
          scorer.name,
          seeds,
          difference_Y=value_L[ours] - value_L[theirs],
          difference_YJ=score_LJ[ours] - score_LJ[theirs],
          seed=draws.seed,
          pooled=(error.sd**2, error.degrees) if error else None,
          margin=margin,
        )
      )
  return tuple(
    with_verdict(d, None, larger_is_better=larger_is_better(d.metric))
    for d in differences
  )


def error_variances(
  scored: Scored, inference: Inference
) -> tuple[ErrorVariance, ...]:
  """Error variance of each metric; () where it is not pooled."""
  if inference.variance != POOLED:
    return ()
  first = next(iter(next(iter(scored.values())).values()))
  variances = [
    error_variance(
      measured.scorer.name,
      {
        system: {seed: one[column].value for seed, one in by_seed.items()}
        for system, by_seed in scored.items()
      },
    )
    for column, measured in enumerate(first)
  ]
  return tuple(error for error in variances if error)


def in_buckets(
  table: buckets.Buckets,
  scored: Scored,
  compared_pairs: Sequence[tuple[str, str]],
  *,
  draws: significance.Draws,
  inference: Inference = DEFAULT,
) -> list[results.BucketOfRuns]:
  """Scores and differences of the sentences of each bucket."""
  return [
    results.BucketOfRuns(
      **vars(bucket),
      scores=summaries(part),
      differences=over_seeds(part, compared_pairs, draws, inference)
      if bucket.count >= buckets.FEWEST
      else (),
    )
    for bucket, part in buckets.parts(table, scored)
  ]


def _decided(
  split: results.TestSet, family: Collection[tuple[str, ...]], metric: str
) -> results.TestSet:
  """A test set with Holm-adjusted p-values of a family under a metric."""
  chosen = [
    index
    for index, d in enumerate(split.over_seeds)
    if d.metric == metric
    and (d.system, d.baseline) in family
    and d.p is not None
  ]
  differences = list(split.over_seeds)
  adjusted = holm([differences[index].p or 0.0 for index in chosen])
  for index, p in zip(chosen, adjusted):
    differences[index] = with_verdict(
      differences[index], p, larger_is_better=larger_is_better(metric)
    )
  return dataclasses.replace(split, over_seeds=tuple(differences))


def _runs(scored: Scored) -> list[tuple[str, int]]:
  """System and seed of each run, in the order of `resampled`."""
  return [(system, seed) for system in scored for seed in scored[system]]


def _scored_pairs(
  scored: Scored, compared_pairs: Sequence[tuple[str, str]]
) -> list[Pair]:
  """Those pairs of systems that have runs of the same seed, with these seeds."""
  both = (
    (system, other, tuple(s for s in scored[system] if s in scored[other]))
    for system, other in compared_pairs
    if system in scored and other in scored
  )
  return [pair for pair in both if pair[2]]
