"""Measures the translations of runs: statistics of each sentence, by test set.

Letters: I statistic of a sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.comparison import run_result
from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.comparison.run_result import (
  MetricStatistics,
  PackedArray,
  RunResult,
  SplitStatistics,
)
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import LIKELIHOOD
from jaxsyn.scoring.scorers import Measured, Scorer
from jaxsyn.scoring.settings import SCORED, Settings

# Metrics that every result has, in addition to those of the command.
ALWAYS = ("bleu", "chrf")


@dataclasses.dataclass(frozen=True, eq=False)
class SplitText:
  """The text of a test set, as it was prepared.

  Attributes:
    sources, references: Sentences.
    facts: Facts of the sources, for buckets.
  """

  sources: list[str]
  references: list[str]
  facts: buckets.Facts


def read_test(job: TrainingJob, split: str) -> SplitText:
  """Reads a test set of a run's dataset.

  Raises:
    InputError: A file is corrupt.
  """
  data = job.config.data
  dataset = Dataset(data.directory)
  sources, references = (dataset.text(split, side) for side in SIDES)
  parses = dataset.trees(split, "source")
  facts = buckets.sentence_facts(sources, parses, data.source_language)
  return SplitText(sources, references, facts)


class Measurer:
  """Measures runs; reads each test set once."""

  def __init__(self, settings: Settings):
    """Sets it up.

    Args:
      settings: How to score, with the tokenizer named.
    """
    names = [name for name in settings.metrics if name != LIKELIHOOD]
    self._names = tuple(dict.fromkeys([*names, *ALWAYS]))
    self._settings = dataclasses.replace(settings, metrics=self._names)
    self._read: dict[tuple[str, str], tuple[SplitText, list[Scorer]]] = {}

  def __call__(
    self, job: TrainingJob, likelihoods: Mapping[str, Measured]
  ) -> dict[str, SplitStatistics]:
    """Measures the translations of a run.

    Args:
      job: The run.
      likelihoods: Log-likelihoods of the references of each test set.

    Returns:
      Statistics by test set.

    Raises:
      InputError: A file of the dataset is corrupt; the number of translations
        differs from that of references.
    """
    return {
      split: self._measured(job, split, likelihoods.get(split))
      for split in job.config.data.test
    }

  def completed(self, job: TrainingJob) -> RunResult:
    """Returns the result of a finished run, with all metrics of the settings.

    Metrics that the result lacks, or that were measured in another way, are
    measured and stored.

    Raises:
      InputError: As of a call; the result or a translation is corrupt.
    """
    result = job.read_result()
    tests = {}
    for split, test in result.tests.items():
      _, scorers = self._open(job, split)
      stored = {n: metric.signature for n, metric in test.metrics.items()}
      missing = [
        name
        for name, scorer in zip(self._names, scorers)
        if stored.get(name) != scorer.signature()
      ]
      if missing:
        new = self._metrics(job, split, missing)
        test = dataclasses.replace(test, metrics={**test.metrics, **new})
      tests[split] = test
    if tests != result.tests:
      result = dataclasses.replace(result, tests=tests)
      run_result.write(job.result_file, result)
    return result

  def _measured(
    self, job: TrainingJob, split: str, likelihood: Measured | None
  ) -> SplitStatistics:
    text, _ = self._open(job, split)
    metrics = self._metrics(job, split, self._names)
    if likelihood:
      metrics[LIKELIHOOD] = _packed(likelihood)
    return SplitStatistics(
      sentences=len(text.references),
      source_sha256=run_result.sha256_of_lines(text.sources),
      reference_sha256=run_result.sha256_of_lines(text.references),
      facts={
        name: PackedArray.of(
          np.array([-1.0 if v is None else float(v) for v in values])
        )
        for name, values in text.facts.items()
      },
      metrics=metrics,
    )

  def _metrics(
    self, job: TrainingJob, split: str, names: Sequence[str]
  ) -> dict[str, MetricStatistics]:
    """Statistics of some metrics by name."""
    _, scorers = self._open(job, split)
    lines = read_lines(job.hypotheses(split))
    return {
      name: _packed(scorer.measure(lines))
      for name, scorer in zip(self._names, scorers)
      if name in names
    }

  def _open(
    self, job: TrainingJob, split: str
  ) -> tuple[SplitText, list[Scorer]]:
    key = (job.config.data.directory, split)
    if key not in self._read:
      text = read_test(job, split)
      scorers = self._settings.scorers([text.references], text.sources)
      self._read[key] = text, scorers
    return self._read[key]


def without_sources(settings: Settings) -> Settings:
  """Returns settings without metrics that load a model of their own (COMET).

  They are measured once for all runs, after training.
  """
  names = (n for n in settings.metrics if not SCORED[n].needs_sources)
  return dataclasses.replace(settings, metrics=tuple(names) or ALWAYS)


def _packed(measured: Measured) -> MetricStatistics:
  return MetricStatistics(
    measured.scorer.signature(), PackedArray.of(measured.statistic_BI)
  )
