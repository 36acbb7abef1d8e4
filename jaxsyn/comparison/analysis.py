"""From translations to results: scores, differences, buckets, over all seeds."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

import jaxsyn
from jaxsyn import workdir
from jaxsyn.comparison import examples, progress, results
from jaxsyn.comparison.asked import Job, System
from jaxsyn.comparison.controls import control_of, controls
from jaxsyn.comparison.hierarchical import Hierarchical, hierarchical
from jaxsyn.config import Data, as_dict
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import integrity
from jaxsyn.data.store import manifest as manifests
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets, significance, tokenizers
from jaxsyn.scoring.metrics import Measured, measure, scorer_of

# System -> seed -> its translations of one split, under each metric.
Scored = dict[str, dict[int, list[Measured]]]


@dataclasses.dataclass(frozen=True)
class Settings:
  """How translations are scored.

  Attributes:
    metrics: names of `jaxsyn.scoring.metrics.METRICS`.
    tokenizer: of `jaxsyn.scoring.metrics.scorer_of`; "": what fits the target
      language (`jaxsyn.scoring.tokenizers`).
    lowercase: see `jaxsyn.scoring.metrics.scorer_of`.
    tests: of `jaxsyn.scoring.significance.TESTS`, over sentences.
    samples: of each test; 0: 1000 resamples, 10000 shuffles.
    seed: of the draws.
    edges: upper ends of the buckets by length, in words.
  """

  metrics: tuple[str, ...] = ("bleu", "chrf")
  tokenizer: str = ""
  lowercase: bool = False
  tests: tuple[str, ...] = ("bootstrap",)
  samples: int = 0
  seed: int = significance.SEED
  edges: tuple[int, ...] = buckets.EDGES


def settled(settings: Settings, data: Data) -> Settings:
  """Settings that name the tokeniser.

  Raises:
    InputError: there is none of this name, or it is not installed.
  """
  found = tokenizers.settled(settings.tokenizer, data.target_language)
  return dataclasses.replace(settings, tokenizer=found)


def check(settings: Settings, data: Data) -> None:
  """What would be found out after days of training, before it.

  Args:
    settings: how to score.
    data: of the baseline.

  Raises:
    InputError: no such metric or tokeniser, one that is not installed, or
      edges that are none.
  """
  tokenizer = settled(settings, data).tokenizer
  for metric in settings.metrics:
    scorer_of(metric, [["a"]], tokenizer, settings.lowercase)
  buckets.of_lines(["a"], settings.edges)


def analyse(
  jobs: Sequence[Job],
  failed: Mapping[Job, str],
  settings: Settings,
  config_file: str = "",
  overrides: Sequence[str] = (),
  ablation: results.Ablation | None = None,
) -> results.Results:
  """Scores all runs that finished.

  Args:
    jobs: all runs; the system of the first is the baseline.
    failed: message of each run that was given up.
    settings: how to score.
    config_file, overrides, ablation: where the systems came from.

  Raises:
    InputError: no run of the baseline finished; systems have other test sets;
      a file of translations, or of the test sets, was changed.
  """
  baseline, done = jobs[0].system.name, [job for job in jobs if job.finished]
  if all(job.system.name != baseline for job in done):
    said = "; ".join(failed.values()) or "none has"
    raise InputError(
      f"no run of {baseline}, which all are compared with, has ended: {said}"
    )
  settings = settled(settings, jobs[0].config.data)
  splits, scores = [], collections.defaultdict(dict)
  for name in jobs[0].config.data.test:
    split, scored = _split(name, baseline, done, settings)
    splits.append(split)
    for job in done:
      found = scored[job.system.name][job.seed]
      scores[job][name] = tuple(m.score for m in found)
  systems = list(dict.fromkeys(job.system for job in jobs))
  now = datetime.datetime.now(datetime.UTC)
  return results.Results(
    results.FORMAT,
    now.isoformat(timespec="seconds"),
    jaxsyn.__version__,
    config_file,
    tuple(overrides),
    baseline,
    tuple(dict.fromkeys(job.seed for job in jobs)),
    tuple(splits[0].signatures),
    settings.samples or 1000,
    tuple(_system(system, systems) for system in systems),
    tuple(_run(job, scores[job]) for job in done),
    tuple(
      results.Failed(j.system.name, j.seed, text) for j, text in failed.items()
    ),
    tuple(splits),
    ablation,
  )


def _system(system: System, others: Sequence[System]) -> results.System:
  data = system.config.data
  return results.System(
    system.name,
    as_dict(system.config),
    results.Data(
      data.name,
      data.directory,
      data.source_language,
      data.target_language,
      {
        split: entry["examples"]
        for split, entry in system.manifest["splits"].items()
      },
      workdir.hashes(system.manifest),
    ),
    controls(system.name, [other.name for other in others]),
    control_of(system.name),
    dict(system.published),
  )


def _run(job: Job, scores) -> results.Run:
  curve = []
  for record in progress.validations(job.run, job.config.train.selection):
    values = {
      name: float(value)
      for name, value in record.items()
      if name not in ("kind", "step", "time", "minutes", "seconds", "tokenizer")
    }
    curve.append(
      results.Point(record["step"], float(record["minutes"]), values)
    )
  return results.Run(
    job.system.name,
    job.seed,
    str(job.run.relative_to(job.folder)),
    job.facts,
    tuple(curve),
    {s: str(job.hypotheses(s).relative_to(job.folder)) for s in scores},
    scores,
  )


def _split(
  name: str, baseline: str, done: Sequence[Job], settings: Settings
) -> tuple[results.Split, Scored]:
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
  scorers = [
    scorer_of(metric, [references], settings.tokenizer, settings.lowercase)
    for metric in settings.metrics
  ]
  scored: Scored = collections.defaultdict(dict)
  translations = collections.defaultdict(dict)
  for job in done:
    job.check()
    said = read_lines(job.hypotheses(name))
    measured = [measure(scorer, said) for scorer in scorers]
    scored[job.system.name][job.seed] = measured
    translations[job.system.name][job.seed] = said
  manifest = manifests.read(first)
  parses = integrity.read_trees(first, manifest, name, "source")
  language = done[0].config.data.source_language
  split = results.Split(
    name,
    len(references),
    str(manifests.text_file(first, name, "source")),
    str(manifests.text_file(first, name, "target")),
    "" if parses is None else str(manifests.conllu_file(first, name, "source")),
    {scorer.name: scorer.signature() for scorer in scorers},
    summaries(scored),
    over_sentences(scored, baseline, settings),
    over_seeds(scored, baseline, settings),
    tuple(
      bucket
      for table in _tables(sources, parses, settings, language)
      for bucket in in_buckets(table, scored, baseline, settings)
    ),
    *examples.choose(sources, references, scored, translations),
  )
  return split, scored


def _texts(folder: str, split: str) -> tuple[list[str], list[str]]:
  """Sources and references, as they were prepared."""
  manifest = manifests.read(folder)
  source, target = (
    integrity.read_text(folder, manifest, split, side) for side in SIDES
  )
  return source, target


def _tables(
  lines: list[str],
  parses: list[conllu.Parse] | None,
  settings: Settings,
  language: str,
) -> list[buckets.Table]:
  if parses is None:
    return buckets.of_lines(lines, settings.edges, language)
  return buckets.of_parses(parses, settings.edges)


def summaries(scored: Scored) -> tuple[results.Summary, ...]:
  """Mean and standard deviation over seeds, of each system and metric."""
  found = []
  for system, runs in scored.items():
    for columns in zip(*runs.values()):
      values = tuple(m.value for m in columns)
      found.append(
        results.Summary(
          system,
          columns[0].scorer.name,
          statistics.fmean(values),
          statistics.stdev(values) if len(values) > 1 else None,
          tuple(runs),
          values,
        )
      )
  return tuple(found)


def over_sentences(
  scored: Scored, baseline: str, settings: Settings
) -> tuple[results.OneSeed, ...]:
  """Each run against the other system's run of the same seed."""
  found = []
  for system, other, seeds in _pairs(scored, baseline):
    for seed in seeds:
      for one, base in zip(scored[system][seed], scored[other][seed]):
        difference = significance.difference(
          (system, other),
          one,
          base,
          settings.tests,
          settings.samples,
          settings.seed,
        )
        found.append(results.OneSeed(seed, difference))
  return tuple(found)


def over_seeds(
  scored: Scored, baseline: str, settings: Settings
) -> tuple[Hierarchical, ...]:
  """Each pair of `_pairs`, over seeds and sentences."""
  found = []
  runs = [(system, seed) for system in scored for seed in scored[system]]
  for column in range(len(settings.metrics)):
    systems = [scored[system][seed][column] for system, seed in runs]
    # The same resamples for all runs, so that all differences are paired.
    drawn = significance.bootstrap(
      systems, settings.samples or 1000, settings.seed
    )
    row = {run: number for number, run in enumerate(runs)}
    for system, other, seeds in _pairs(scored, baseline):
      ours, theirs = (
        [row[name, seed] for seed in seeds] for name in (system, other)
      )
      real = [systems[a].value - systems[b].value for a, b in zip(ours, theirs)]
      found.append(
        hierarchical(
          (system, other),
          systems[0].scorer.name,
          seeds,
          np.array(real),
          drawn[ours] - drawn[theirs],
          settings.seed,
        )
      )
  return tuple(found)


def in_buckets(
  table: buckets.Table, scored: Scored, baseline: str, settings: Settings
) -> list[results.Bucket]:
  """Scores and differences of the sentences of each bucket."""
  found = []
  for number, label in enumerate(table.labels):
    chosen_B = table.bucket_B == number
    count = int(chosen_B.sum())
    scores, differences = (), ()
    if count:
      part = {
        system: {
          seed: [m.part(chosen_B) for m in measured]
          for seed, measured in runs.items()
        }
        for system, runs in scored.items()
      }
      scores = summaries(part)
      if count >= buckets.FEWEST:
        differences = over_seeds(part, baseline, settings)
    share = count / max(1, len(chosen_B))
    found.append(
      results.Bucket(table.by, label, count, share, scores, differences)
    )
  return found


def _pairs(
  scored: Scored, baseline: str
) -> list[tuple[str, str, tuple[int, ...]]]:
  """What to compare with what, and the seeds that both have.

  Every system with the baseline, and with its own controls.
  """
  pairs = [(system, baseline) for system in scored if system != baseline]
  pairs += [
    (system, control)
    for system in scored
    for control in controls(system, scored)
    if baseline not in (system, control)
  ]
  found = []
  for system, other in pairs:
    seeds = tuple(seed for seed in scored[system] if seed in scored[other])
    if seeds:
      found.append((system, other, seeds))
  return found
