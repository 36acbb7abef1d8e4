"""From translations to results: scores, differences, buckets, over all seeds.

Letters: Y seed of a run; J resample.
"""

from __future__ import annotations

import collections
import datetime
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

import jaxsyn
from jaxsyn.comparison import examples, progress, results
from jaxsyn.comparison.asked import Job, System
from jaxsyn.comparison.controls import control_of, controls, pairs
from jaxsyn.comparison.hierarchical import Hierarchical, hierarchical
from jaxsyn.config import as_dict
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import integrity, layout, manifests
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets, significance
from jaxsyn.scoring.results import Score
from jaxsyn.scoring.scorers import Scored
from jaxsyn.scoring.settings import Settings
from jaxsyn.trained import workdir

Scores = dict[str, tuple[Score, ...]]  # of each test split
Translations = dict[str, dict[int, list[str]]]  # system -> seed -> lines

# A system, what it is compared with, and the seeds that both have.
Pair = tuple[str, str, tuple[int, ...]]


def analyse(
  jobs: Sequence[Job],
  failed: Mapping[Job, str],
  settings: Settings,
  origin: results.Origin,
) -> results.Comparison:
  """Scores all runs that finished.

  Args:
    jobs: all runs; the system of the first is the baseline.
    failed: message of each run that was given up.
    settings: how to score, settled.
    origin: where the systems came from.

  Raises:
    InputError: no run of the baseline finished; systems have other test sets;
      a file of translations, or of the test sets, was changed.
  """
  first, done = jobs[0].system, [job for job in jobs if job.finished]
  if all(job.system.name != first.name for job in done):
    said = "; ".join(failed.values()) or "none has"
    raise InputError(
      f"no run of {first.name}, which all are compared with, has ended: {said}"
    )
  splits: list[results.TestSet] = []
  scores: dict[Job, Scores] = collections.defaultdict(dict)
  for name in first.config.data.test:
    split, scored = _split(name, first.name, done, settings=settings)
    splits.append(split)
    for job in done:
      measured = scored[job.system.name][job.seed]
      scores[job][name] = tuple(m.score for m in measured)
  systems = list(dict.fromkeys(job.system for job in jobs))
  now = datetime.datetime.now(datetime.UTC)
  return results.Comparison(
    format=results.FORMAT,
    made=now.isoformat(timespec="seconds"),
    version=jaxsyn.__version__,
    baseline=first.name,
    seeds=tuple(dict.fromkeys(job.seed for job in jobs)),
    metrics=tuple(splits[0].signatures),
    samples=settings.draws.resamples,
    systems=tuple(_system(system, systems) for system in systems),
    runs=tuple(_run(job, scores[job]) for job in done),
    failed=tuple(
      results.Failed(job.system.name, job.seed, text)
      for job, text in failed.items()
    ),
    splits=tuple(splits),
    **vars(origin),
  )


def _system(system: System, others: Sequence[System]) -> results.Entry:
  data, manifest = system.config.data, system.manifest
  configs = {other.name: other.config for other in others}
  return results.Entry(
    name=system.name,
    config=as_dict(system.config),
    data=results.DataSet(
      name=data.name,
      directory=data.directory,
      source_language=data.source_language,
      target_language=data.target_language,
      pairs={
        split: entry["examples"] for split, entry in manifest["splits"].items()
      },
      hashes=workdir.hashes(manifest),
      left_out=tuple(manifest.get("left_out", ())),
    ),
    controls=controls(system.name, configs),
    control_of=control_of(system.name, configs),
    published=dict(system.published),
  )


def _run(job: Job, scores: Scores) -> results.SeedRun:
  curve = []
  for record in progress.validations(job):
    values = {
      name: float(value)
      for name, value in record.items()
      if name not in ("kind", "step", "time", "minutes", "seconds", "tokenizer")
    }
    curve.append(
      results.Point(record["step"], float(record["minutes"]), values)
    )
  return results.SeedRun(
    system=job.system.name,
    seed=job.seed,
    folder=str(job.run.relative_to(job.folder)),
    facts=job.facts,
    curve=tuple(curve),
    hypotheses={
      split: str(job.hypotheses(split).relative_to(job.folder))
      for split in scores
    },
    scores=scores,
  )


def _split(
  name: str, baseline: str, done: Sequence[Job], *, settings: Settings
) -> tuple[results.TestSet, Scored]:
  """Everything about one test split."""
  folders = dict.fromkeys(job.system.config.data.directory for job in done)
  texts = {folder: _texts(folder, name) for folder in folders}
  first = next(iter(texts))
  for folder, text in texts.items():
    if text != texts[first]:
      raise InputError(
        f"split {name} of {folder} is other text than that of {first}: their "
        "scores cannot be compared."
      )
  sources, references = texts[first]
  scorers = settings.scorers([references], sources)
  scored: Scored = collections.defaultdict(dict)
  translations: Translations = collections.defaultdict(dict)
  for job in done:
    job.check()
    lines = read_lines(job.hypotheses(name))
    measured = [scorer.measure(lines) for scorer in scorers]
    scored[job.system.name][job.seed] = measured
    translations[job.system.name][job.seed] = lines
  configs = {job.system.name: job.system.config for job in done}
  asked = pairs(configs, baseline)
  manifest = manifests.read(first)
  parses = integrity.read_trees(first, manifest, name, "source")
  tables = buckets.tables(
    sources,
    parses,
    edges=settings.edges,
    language=done[0].config.data.source_language,
  )
  example_metric, chosen = examples.choose(
    sources, references, scored=scored, translations=translations
  )
  split = results.TestSet(
    name=name,
    sentences=len(references),
    source=str(layout.text_file(first, name, "source")),
    reference=str(layout.text_file(first, name, "target")),
    conllu=""
    if parses is None
    else str(layout.conllu_file(first, name, "source")),
    signatures={scorer.name: scorer.signature() for scorer in scorers},
    scores=summaries(scored),
    over_sentences=over_sentences(scored, asked, settings),
    over_seeds=over_seeds(scored, asked, settings.draws),
    buckets=tuple(
      bucket
      for table in tables
      for bucket in in_buckets(table, scored, asked, draws=settings.draws)
    ),
    example_metric=example_metric,
    examples=chosen,
  )
  return split, scored


def _texts(folder: str, split: str) -> tuple[list[str], list[str]]:
  """Sources and references, as they were prepared."""
  manifest = manifests.read(folder)
  source, target = (
    integrity.read_text(folder, manifest, split, side) for side in SIDES
  )
  return source, target


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
