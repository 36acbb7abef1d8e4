"""From results of runs to a comparison: scores, differences, buckets.

Letters: J resample; L run.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

import jaxsyn
from jaxsyn.comparison import results
from jaxsyn.comparison.controls import control_of, controls, pairs
from jaxsyn.comparison.hierarchical import Hierarchical, hierarchical
from jaxsyn.comparison.run_result import RunResult, TestStatistics
from jaxsyn.config import Config
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import flat, neutral
from jaxsyn.scoring import buckets, significance
from jaxsyn.scoring.scorers import Scored, mean_of_sets
from jaxsyn.scoring.settings import Settings

MEAN = "mean of test sets"

# A system, what it is compared with, and the seeds that both have.
Pair = tuple[str, str, tuple[int, ...]]


def of_runs(
  runs: Sequence[RunResult],
  settings: Settings,
  systems: Sequence[str],
  failed: Sequence[results.Failed] = (),
) -> results.Comparison:
  """Compares runs.

  Args:
    runs: Results of finished runs.
    settings: How to score.
    systems: Systems to compare, the baseline first; runs of others are left
      out.
    failed: Runs that did not finish.

  Raises:
    InputError: No run of the baseline; runs with other test sets, signatures
      or configs; a metric that a result lacks.
  """
  order = {name: number for number, name in enumerate(systems)}
  runs = [run for run in runs if run.system in order]
  runs.sort(key=lambda run: (run.seed, order[run.system]))
  first = next((run for run in runs if run.system == systems[0]), None)
  if first is None:
    said = "; ".join(one.message for one in failed) or "none has"
    raise InputError(
      f"no run of {systems[0]}, which all are compared with, has ended: {said}"
    )
  _check(runs, first, settings.metrics)
  present = dict.fromkeys(
    sorted((r.system for r in runs), key=order.__getitem__)
  )
  configs = {
    name: next(run.config for run in runs if run.system == name)
    for name in present
  }
  asked = pairs(configs, first.system)
  by_split: dict[str, Scored] = {
    split: _scored(runs, split, settings.metrics) for split in first.tests
  }
  tables = {
    split: buckets.in_buckets(test.sentence_facts(), settings.edges)
    for split, test in first.tests.items()
  }
  if len(by_split) > 1:
    by_split[MEAN] = _mean_of_splits([*by_split.values()])
  splits = tuple(
    _test_set(name, scored, asked, tables.get(name, ()), settings=settings)
    for name, scored in by_split.items()
  )
  return results.Comparison(
    format=results.FORMAT,
    made=max(run.finished for run in runs),
    version=jaxsyn.__version__,
    baseline=first.system,
    seeds=tuple(dict.fromkeys(run.seed for run in runs)),
    metrics=tuple(splits[0].signatures),
    samples=settings.draws.resamples,
    systems=tuple(
      _system(next(run for run in runs if run.system == name), configs)
      for name in present
    ),
    runs=tuple(_run(run, by_split) for run in runs),
    failed=tuple(failed),
    splits=splits,
    **vars(first.origin),
  )


def _check(
  runs: Sequence[RunResult], first: RunResult, metrics: Collection[str]
) -> None:
  """Raises InputError where runs cannot be compared with the first."""
  same_system: dict[str, RunResult] = {}
  for run in runs:
    other = same_system.setdefault(run.system, run)
    if changed := _differences(other.config, run.config):
      raise InputError(
        f"{other.name} and {run.name} have other configs: "
        f"{', '.join(changed[:5])}."
      )
    for split, test in first.tests.items():
      found = run.tests.get(split)
      if found is None:
        raise InputError(f"{run.name} was not scored on test set {split}.")
      _check_test(f"{run.name} and {first.name}, {split}", found, test)
      for metric in metrics:
        if metric not in found.metrics:
          raise InputError(
            f"{run.name} has no statistics of {metric!r} on {split}. "
            f"{did_you_mean(metric, found.metrics)} Where the translations are, "
            f"jaxsyn compare --metrics {metric} adds them."
          )
        signature = test.metrics[metric].signature
        if found.metrics[metric].signature != signature:
          raise InputError(
            f"{run.name} and {first.name} have other signatures of {metric} on "
            f"{split}: {found.metrics[metric].signature} and {signature}."
          )


def _check_test(names: str, one: TestStatistics, other: TestStatistics) -> None:
  for what in ("reference", "source"):
    if getattr(one, f"{what}_sha256") != getattr(other, f"{what}_sha256"):
      raise InputError(
        f"{names}: their {what}s differ (SHA-256), so their scores cannot be "
        "compared."
      )


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
  """Names of options that differ and change figures."""
  free = {name.removeprefix("config.") for name in neutral(Config)} | {"seed"}
  was, now = flat(one), flat(other)
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
  asked: Sequence[tuple[str, str]],
  tables: Sequence[buckets.Buckets],
  *,
  settings: Settings,
) -> results.TestSet:
  """Everything about one test set, except for examples."""
  first = next(iter(next(iter(scored.values())).values()))
  return results.TestSet(
    name=name,
    sentences=first[0].scorer.sentences,
    signatures={m.scorer.name: m.scorer.signature() for m in first},
    scores=summaries(scored),
    over_sentences=over_sentences(scored, asked, settings),
    over_seeds=over_seeds(scored, asked, settings.draws),
    buckets=tuple(
      bucket
      for table in tables
      for bucket in in_buckets(table, scored, asked, draws=settings.draws)
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
  scored: Scored, asked: Sequence[tuple[str, str]], settings: Settings
) -> tuple[results.OneSeed, ...]:
  """Each run against the other system's run of the same seed."""
  own = [(system, other) for system, other, _ in _together(scored, asked)]
  differences = significance.differences(
    scored, own, tests=settings.tests, draws=settings.draws
  )
  return tuple(results.OneSeed(*one) for one in differences)


def over_seeds(
  scored: Scored, asked: Sequence[tuple[str, str]], draws: significance.Draws
) -> tuple[Hierarchical, ...]:
  """Each pair of systems, over seeds and sentences."""
  runs = [(system, seed) for system in scored for seed in scored[system]]
  differences = []
  for systems in zip(*(scored[system][seed] for system, seed in runs)):
    # The same resamples for all runs, so that all differences are paired.
    drawn = significance.bootstrap(systems, draws)
    row = {run: number for number, run in enumerate(runs)}
    for system, other, seeds in _together(scored, asked):
      ours, theirs = (
        [row[name, seed] for seed in seeds] for name in (system, other)
      )
      real = [systems[a].value - systems[b].value for a, b in zip(ours, theirs)]
      differences.append(
        hierarchical(
          (system, other),
          systems[0].scorer.name,
          seeds,
          difference_Y=np.array(real),
          difference_YJ=drawn[ours] - drawn[theirs],
          seed=draws.seed,
        )
      )
  return tuple(differences)


def in_buckets(
  table: buckets.Buckets,
  scored: Scored,
  asked: Sequence[tuple[str, str]],
  *,
  draws: significance.Draws,
) -> list[results.BucketOfRuns]:
  """Scores and differences of the sentences of each bucket."""
  return [
    results.BucketOfRuns(
      **vars(bucket),
      scores=summaries(part),
      differences=over_seeds(part, asked, draws)
      if bucket.count >= buckets.FEWEST
      else (),
    )
    for bucket, part in buckets.parts(table, scored)
  ]


def _together(scored: Scored, asked: Sequence[tuple[str, str]]) -> list[Pair]:
  """Those pairs of systems that have runs of the same seed, with these seeds."""
  both = (
    (system, other, tuple(s for s in scored[system] if s in scored[other]))
    for system, other in asked
    if system in scored and other in scored
  )
  return [pair for pair in both if pair[2]]
