"""Results of a comparison, as stored in report.json.

`to_json` and `from_json` are inverses. The order of the fields is the order in
the file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from jaxsyn.comparison.hierarchical import Hierarchical
from jaxsyn.comparison.inference import ErrorVariance
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.scoring.results import Bucket, Difference, Score

FORMAT = 3
FILE = "report.json"


@dataclasses.dataclass(frozen=True)
class Point:
  """A validation of a run: one point of its learning curve.

  Attributes:
    step: Number of updates.
    minutes: Training time so far.
    values: Values of the log: the selecting metric, "perplexity", "loss", ...
  """

  step: int
  minutes: float
  values: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Machine:
  """The hardware and software of a run."""

  device: str
  devices: int
  processor: str
  cores: int
  system: str
  python: str
  packages: dict[str, str]


@dataclasses.dataclass(frozen=True)
class RunFacts:
  """How a run was trained: updates, time, best checkpoint, machine.

  Attributes:
    step: Number of updates at the end.
    reason: Reason of the end: "steps", "minutes" or "patience".
    selection: Metric that selected the best checkpoint, such as "BLEU (13a)".
    best_step, best_score: Step and validation score of the best checkpoint.
    minutes: Training time without translation, summed over resumed parts.
    tokens: Number of target subwords in training, without padding.
    tokens_per_s: Median training speed.
    parameters: Number of model parameters.
    machine: Machine of the last part of the run.
    notes: Warnings, for instance about parameters of another checkpoint.
    wrong_parents: Split -> side -> share of words with a wrong parent, if
      config.data.tree is "wrong_parents".
  """

  step: int
  reason: str
  selection: str
  best_step: int
  best_score: float
  minutes: float
  tokens: int
  tokens_per_s: float
  parameters: int
  machine: Machine
  notes: tuple[str, ...] = ()
  wrong_parents: dict[str, dict[str, float]] = dataclasses.field(
    default_factory=dict
  )


@dataclasses.dataclass(frozen=True)
class SeedRun:
  """A run of a system: facts, learning curve and scores.

  Attributes:
    commit: Git commit of the code; None outside a checkout.
    version: Version of jaxsyn.
    folder: Run directory, relative to the directory of the comparison.
    scores: Test set -> scores with signatures.
  """

  system: str
  seed: int
  commit: str | None
  version: str
  folder: str
  facts: RunFacts
  curve: tuple[Point, ...]
  scores: dict[str, tuple[Score, ...]]


@dataclasses.dataclass(frozen=True)
class FailedRun:
  """A run that failed, and its last messages."""

  system: str
  seed: int
  message: str


@dataclasses.dataclass(frozen=True)
class DatasetFacts:
  """Languages, sizes and hashes of a dataset.

  Attributes:
    pairs: Split -> number of sentence pairs.
    hashes: Hashes of records, vocabularies and parsers.
    left_out: Optional test splits without files.
  """

  name: str
  directory: str
  source_language: str
  target_language: str
  pairs: dict[str, int]
  hashes: dict[str, dict[str, Any]]
  left_out: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ComparedSystem:
  """A system of a comparison, with its config and controls.

  Attributes:
    config: Complete config of its first run.
    controls: Names of its controls.
    control_of: Name of the system that it is a control of, or "".
    published: "task split" -> BLEU in the paper, for rows of a paper's table.
  """

  name: str
  config: dict[str, Any]
  data: DatasetFacts
  controls: tuple[str, ...]
  control_of: str
  published: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Summary:
  """Scores of a system under one metric on one test set.

  Attributes:
    sd: Standard deviation between seeds (n - 1); None for a single seed.
    values: Score of each seed.
  """

  system: str
  metric: str
  mean: float
  sd: float | None
  seeds: tuple[int, ...]
  values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class SeedDifference:
  """Score difference of two same-seed runs, tested over sentences."""

  seed: int
  difference: Difference


@dataclasses.dataclass(frozen=True)
class ComparedBucket(Bucket):
  """Bucket of sentences similar in length or tree, with all systems' scores.

  Attributes:
    scores: Scores; empty without sentences.
    differences: Differences under the first metric, over seeds and sentences;
      empty if there are too few sentences to resample.
  """

  scores: tuple[Summary, ...]
  differences: tuple[Hierarchical, ...]


@dataclasses.dataclass(frozen=True)
class Example:
  """A sentence that the systems translate differently.

  Attributes:
    line: Line in the test set, from 1.
    seed: Seed of the shown runs.
    scores: System -> score of the translation.
    translations: System -> translation.
  """

  line: int
  source: str
  reference: str
  seed: int
  scores: dict[str, float]
  translations: dict[str, str]


@dataclasses.dataclass(frozen=True)
class TestSet:
  """Results of all systems on one test set, or averaged over all test sets.

  Attributes:
    sentences: Number of sentences.
    signatures: Metric -> signature.
    scores: Scores of all systems.
    over_sentences: Differences between runs with the same seed.
    over_seeds: Differences between systems, over seeds and sentences.
    errors: Error variance of each metric, if variances are pooled.
    buckets: Buckets by length and tree of the source.
    example_metric: Metric that selects `examples`; "" without examples.
    examples: Sentences with the largest differences between systems.
  """

  name: str
  sentences: int
  signatures: dict[str, str]
  scores: tuple[Summary, ...]
  over_sentences: tuple[SeedDifference, ...]
  over_seeds: tuple[Hierarchical, ...]
  errors: tuple[ErrorVariance, ...]
  buckets: tuple[ComparedBucket, ...]
  example_metric: str
  examples: tuple[Example, ...]

  def of_each_seed(self, difference: Hierarchical) -> list[Difference]:
    """Returns one difference per seed, of the systems and metric of another."""
    pair = (difference.system, difference.baseline, difference.metric)
    singles = (one.difference for one in self.over_sentences)
    return [d for d in singles if (d.system, d.baseline, d.metric) == pair]

  def with_interval(
    self, difference: Hierarchical
  ) -> Hierarchical | Difference:
    """Returns the difference; with only one seed, its test over sentences."""
    if difference.low is not None:
      return difference
    return next(iter(self.of_each_seed(difference)), difference)


@dataclasses.dataclass(frozen=True)
class Ablation:
  """Ablation table of a paper, whose rows are compared.

  Attributes:
    others: System that is not trained -> "task split" -> BLEU in the paper.
  """

  source: str
  question: str
  others: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Origin:
  """Recorded command line of a comparison: config, overrides, ablations."""

  config_file: str = ""
  overrides: tuple[str, ...] = ()
  ablation: Ablation | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Scores, differences and tests of several systems.

  Attributes:
    made: Time (UTC) when the last run finished.
    version: Version of jaxsyn.
    config_file, overrides, ablation: Attributes of `Origin`.
    baseline: Name of the system that others are compared with.
    seeds: Seeds of finished runs.
    metrics: Titles of the metrics, the primary one first.
    samples: Number of resamples in each test.
    family: Pairs of systems whose tests are corrected together, under the
      primary metric on the last of `splits`.
    variance: "pooled" or "separate" (`jaxsyn.comparison.inference`).
    splits: Test sets; the last is their mean if there are several.
  """

  format: int
  made: str
  version: str
  config_file: str
  overrides: tuple[str, ...]
  baseline: str
  seeds: tuple[int, ...]
  metrics: tuple[str, ...]
  samples: int
  family: tuple[tuple[str, ...], ...]
  variance: str
  systems: tuple[ComparedSystem, ...]
  runs: tuple[SeedRun, ...]
  failed: tuple[FailedRun, ...]
  splits: tuple[TestSet, ...]
  ablation: Ablation | None

  def system(self, name: str) -> ComparedSystem:
    return next(s for s in self.systems if s.name == name)

  @property
  def primary(self) -> TestSet:
    """Results that conclusions use: the only test set, or the mean of all."""
    return self.splits[-1]

  def ordered(self) -> list[tuple[ComparedSystem, bool]]:
    """Returns pairs (system, is control), each system before its controls."""
    names = {system.name for system in self.systems}
    rows = []
    for system in self.systems:
      if system.control_of not in names:
        rows.append((system, False))
        rows += [(self.system(name), True) for name in system.controls]
    return rows

  def leading(self) -> list[ComparedSystem]:
    """Returns the systems that are neither controls nor the baseline."""
    systems = [
      system for system, is_control in self.ordered() if not is_control
    ]
    return [system for system in systems if system.name != self.baseline]


def find(
  entries: Sequence[Any], system: str, metric: str, *, baseline: str = ""
) -> Any:
  """Returns the first result of a system under a metric, or None."""
  for entry in entries:
    if (entry.system, entry.metric) != (system, metric):
      continue
    if baseline in ("", getattr(entry, "baseline", "")):
      return entry
  return None


def to_json(results: Comparison) -> str:
  """Returns the text of report.json."""
  return json.dumps(dataclasses.asdict(results), indent=1, ensure_ascii=False)


def from_json(text: str) -> Comparison:
  """Parses the text of report.json.

  Raises:
    InputError: Invalid JSON, another format, or an invalid field.
  """
  try:
    document = json.loads(text)
  except json.JSONDecodeError as error:
    raise InputError(f"{FILE} is corrupt ({error}).") from None
  version = document.get("format") if isinstance(document, dict) else None
  if version != FORMAT:
    raise InputError(
      f"{FILE} has format {version}; this version reads {FORMAT}. "
      "Run jaxsyn compare again: finished runs are not repeated."
    )
  return from_config(Comparison, document, ConfigPath(FILE), CHECKPOINT_MODE)
