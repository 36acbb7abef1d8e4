"""Translates and scores test sets, and records attention, with a trained run."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Mapping

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
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.text import read_lines, writer
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import LIKELIHOOD, of_likelihoods
from jaxsyn.scoring.scorers import Measured, Scorer
from jaxsyn.scoring.settings import SCORED, Settings
from jaxsyn.session import Session
from jaxsyn.storage import files
from jaxsyn.utils.progress import Bar

# Metrics that every result has, in addition to those of the command.
ALWAYS = ("bleu", "chrf")
SORTED_SENTENCES = 1000  # for each device, sorted by length together
SAMPLES = 3  # sentences whose attention is recorded
SHORTEST, LONGEST = 7, 13  # words of these sentences


def translate(session: Session, split: str, path: pathlib.Path) -> None:
  """Translates a test set into a file, with the trees of the run's config."""
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
    while chunk := [(x,) for x in itertools.islice(examples, group_size)]:
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
    log_p = session.force_examples(
      [(example,) for example in examples], targets, bar.advance
    )
  sum_B = np.array([one.sum(dtype=np.float64) for one in log_p])
  # Half the bytes in the result; the error is below 1e-7 of a sum.
  sum_B = sum_B.astype(np.float32).astype(np.float64)
  return of_likelihoods(sum_B, np.array([len(one) for one in log_p], float))


def sample(directory: str, split: str) -> list[Parse]:
  """Returns the trees of up to SAMPLES medium-length test sentences.

  Args:
    directory: Dataset directory.
    split: Name of a test split.

  Raises:
    InputError: The text or the trees are corrupt.
  """
  parses = Dataset(directory).trees(split, "source") or []
  fit = [p for p in parses if p.parsed and SHORTEST <= len(p.head_W) <= LONGEST]
  return fit[:: max(1, len(fit) // SAMPLES)][:SAMPLES]


def record_attention(session: Session, folder: pathlib.Path) -> None:
  """Writes trees and attention of sampled sentences into a new folder.

  The sentences are the same for all systems. The files are those of
  `jaxsyn.inspect`, for the first encoder layer with a modifier.
  """
  # Imported only if needed, since they load matplotlib.
  from jaxsyn.inspection import run
  from jaxsyn.inspection.attention_sampler import informative_maps
  from jaxsyn.inspection.inspector import attention_of

  data = session.run.config.data
  parses = sample(data.directory, data.test[0])
  try:
    sentences = attention_of(session, parses) if parses else []
  except InputError as error:  # scores are useful without figures
    print(f"no attention samples: {error}", flush=True)
    sentences = []
  with files.publish_folder(folder) as new:
    for index, seen in enumerate(sentences, start=1):
      maps = tuple(informative_maps(seen.attention))
      seen = dataclasses.replace(seen, attention=maps, weightings=())
      run.write(seen, new, index)


def read_text(job: TrainingJob, split: str) -> tuple[list[str], list[str]]:
  """Returns the sources and references of a test set of a run's dataset.

  Raises:
    InputError: A file is corrupt.
  """
  dataset = Dataset(job.config.data.directory)
  sources, references = (dataset.text(split, side) for side in SIDES)
  return sources, references


class Measurer:
  """Callable that scores a run's translations; reads each test set once."""

  def __init__(self, settings: Settings):
    """Creates a measurer from settings returned by `with_defaults`."""
    names = [name for name in settings.metrics if name != LIKELIHOOD]
    self._names = tuple(dict.fromkeys([*names, *ALWAYS]))
    self._settings = dataclasses.replace(settings, metrics=self._names)
    self._scorers: dict[tuple[str, str], dict[str, Scorer]] = {}

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
    data, tests = job.config.data, {}
    for split in data.test:
      sources, references = read_text(job, split)
      parses = Dataset(data.directory).trees(split, "source")
      facts = buckets.sentence_facts(sources, parses, data.source_language)
      numbers = {
        name: [-1.0 if v is None else float(v) for v in values]
        for name, values in facts.items()
      }
      test = SplitStatistics(
        sentences=len(references),
        source_sha256=run_result.sha256_of_lines(sources),
        reference_sha256=run_result.sha256_of_lines(references),
        facts={n: PackedArray.of(np.array(v)) for n, v in numbers.items()},
        metrics={},
      )
      tests[split] = self._complete(job, split, test)
      if split in likelihoods:
        of_split = MetricStatistics.of(likelihoods[split])
        tests[split].metrics[LIKELIHOOD] = of_split
    return tests

  def completed(self, job: TrainingJob) -> RunResult:
    """Returns a finished run's result, with missing metrics added and saved.

    Metrics that the result lacks, or that were measured with other settings,
    are measured and stored.

    Raises:
      InputError: The result, a translation or a file of the dataset is corrupt.
    """
    result = job.read_result()
    tests = {
      split: self._complete(job, split, test)
      for split, test in result.tests.items()
    }
    if tests != result.tests:
      result = dataclasses.replace(result, tests=tests)
      run_result.write(job.result_file, result)
    return result

  def _complete(
    self, job: TrainingJob, split: str, test: SplitStatistics
  ) -> SplitStatistics:
    """Returns test-set statistics with missing or outdated metrics added."""
    key = (job.config.data.directory, split)
    if key not in self._scorers:
      sources, references = read_text(job, split)
      scorers = self._settings.scorers([references], sources)
      self._scorers[key] = dict(zip(self._names, scorers))
    stored = {name: m.signature for name, m in test.metrics.items()}
    missing = {
      name: scorer
      for name, scorer in self._scorers[key].items()
      if stored.get(name) != scorer.signature()
    }
    lines = read_lines(job.hypotheses(split)) if missing else []
    new = {n: MetricStatistics.of(s.measure(lines)) for n, s in missing.items()}
    return dataclasses.replace(test, metrics={**test.metrics, **new})


def without_sources(settings: Settings) -> Settings:
  """Returns the settings without metrics that read sources, such as COMET.

  They are measured once for all runs, after training.
  """
  names = (n for n in settings.metrics if not SCORED[n].needs_sources)
  return dataclasses.replace(settings, metrics=tuple(names) or ALWAYS)
