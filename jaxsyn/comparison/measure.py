"""Translates test sets, and computes metric statistics for each sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
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
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence.text import read_lines, writer
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import LIKELIHOOD, of_likelihoods
from jaxsyn.scoring.scorers import Measured, Scorer
from jaxsyn.scoring.settings import SCORED, Settings
from jaxsyn.session import Session
from jaxsyn.utils.progress import Bar

# Metrics that every result has, in addition to those of the command.
ALWAYS = ("bleu", "chrf")
SORTED_SENTENCES = 1000  # for each device, sorted by length together


def translate(session: Session, split: str, path: pathlib.Path) -> None:
  """Translates a test set with the trees of config.data, to a text file."""
  config = session.run.config
  records = Dataset(config.data.directory).split(split)
  examples = iterate_translations(records, config.data, config.seed)
  group_size = SORTED_SENTENCES * len(session.devices)
  bar = Bar(
    f"translating {split}",
    total=len(records),
    unit="sentence",
    note=session.note,
  )
  with contextlib.closing(bar), writer(path) as write:
    while chunk := list(itertools.islice(examples, group_size)):
      for best in session.search(chunk, on_progress=bar.advance):
        write(best[0].text if best else "")


def likelihoods(session: Session, split: str) -> Measured:
  """Returns the log-likelihood of each reference under the session's model."""
  config = session.run.config
  records = Dataset(config.data.directory).split(split)
  examples = list(iterate_translations(records, config.data, config.seed))
  # Without EOS, which is added.
  targets = [example["target_id"][:-1].tolist() for example in examples]
  name = f"scoring references of {split}"
  with contextlib.closing(Bar(name, len(examples), unit="sentence")) as bar:
    log_p = session.force_examples(examples, targets, bar.advance)
  sum_B = np.array([one.sum(dtype=np.float64) for one in log_p])
  # Half the bytes in the result; the error is below 1e-7 of a sum.
  sum_B = sum_B.astype(np.float32).astype(np.float64)
  return of_likelihoods(sum_B, np.array([len(one) for one in log_p], float))


@dataclasses.dataclass(frozen=True, eq=False)
class SplitText:
  """Sentences of a test set, with the source properties that define buckets."""

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
  """Function that scores a run's translations; reads each test set once."""

  def __init__(self, settings: Settings):
    """Creates a measurer from settings returned by `with_defaults`."""
    names = [name for name in settings.metrics if name != LIKELIHOOD]
    self._names = tuple(dict.fromkeys([*names, *ALWAYS]))
    self._settings = dataclasses.replace(settings, metrics=self._names)
    self._opened: dict[
      tuple[str, str], tuple[SplitText, dict[str, Scorer]]
    ] = {}

  def __call__(
    self, job: TrainingJob, likelihoods: Mapping[str, Measured]
  ) -> dict[str, SplitStatistics]:
    """Computes the metric statistics of a run's translations, by test set.

    Args:
      job: The run.
      likelihoods: Log-likelihoods of the references, by test set.

    Raises:
      InputError: A file of the dataset is corrupt; the number of translations
        differs from that of references.
    """
    tests = {}
    for split in job.config.data.test:
      text, _ = self._open(job, split)
      metrics = self._metrics(job, split, self._names)
      if split in likelihoods:
        metrics[LIKELIHOOD] = MetricStatistics.of(likelihoods[split])
      facts = {
        name: [-1.0 if v is None else float(v) for v in values]
        for name, values in text.facts.items()
      }
      tests[split] = SplitStatistics(
        sentences=len(text.references),
        source_sha256=run_result.sha256_of_lines(text.sources),
        reference_sha256=run_result.sha256_of_lines(text.references),
        facts={n: PackedArray.of(np.array(v)) for n, v in facts.items()},
        metrics=metrics,
      )
    return tests

  def completed(self, job: TrainingJob) -> RunResult:
    """Returns a finished run's result, after adding metrics that it lacks.

    Metrics that the result lacks, or that were measured with other settings,
    are measured and stored.

    Raises:
      InputError: The result, a translation or a file of the dataset is corrupt.
    """
    result = job.read_result()
    tests = {}
    for split, test in result.tests.items():
      _, scorers = self._open(job, split)
      stored = {name: m.signature for name, m in test.metrics.items()}
      missing = [
        name
        for name, scorer in scorers.items()
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

  def _metrics(
    self, job: TrainingJob, split: str, names: Sequence[str]
  ) -> dict[str, MetricStatistics]:
    """Computes statistics of several metrics for a run's translations."""
    _, scorers = self._open(job, split)
    lines = read_lines(job.hypotheses(split))
    return {
      name: MetricStatistics.of(scorers[name].measure(lines)) for name in names
    }

  def _open(
    self, job: TrainingJob, split: str
  ) -> tuple[SplitText, dict[str, Scorer]]:
    key = (job.config.data.directory, split)
    if key not in self._opened:
      text = read_test(job, split)
      scorers = self._settings.scorers([text.references], text.sources)
      self._opened[key] = text, dict(zip(self._names, scorers))
    return self._opened[key]


def without_sources(settings: Settings) -> Settings:
  """Returns the settings without metrics that read sources, such as COMET.

  They are measured once for all runs, after training.
  """
  names = (n for n in settings.metrics if not SCORED[n].needs_sources)
  return dataclasses.replace(settings, metrics=tuple(names) or ALWAYS)
