"""report.json: everything a report of a comparison needs, typed.

`to_json` and `from_json` are each other's inverse; `from_json` refuses what it
does not know by name, as `jaxsyn.config` does.
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
  """One validation of a run: a point of its curve.

  Attributes:
    step: batches seen.
    minutes: of training until then.
    values: the log's figures of it: "bleu" or what else selects, "perplexity",
      "loss", ...
  """

  step: int
  minutes: float
  values: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Machine:
  """Where a run was trained, and with what."""

  device: str
  devices: int
  processor: str
  cores: int
  system: str
  python: str
  packages: dict[str, str]


@dataclasses.dataclass(frozen=True)
class RunFacts:
  """Facts of the training of one run.

  Attributes:
    step: where it ended.
    reason: why: "steps", "minutes" or "patience".
    selection: what the best checkpoint was chosen by, as in "BLEU (13a)".
    best_step, best_score: of that checkpoint, on the validation split.
    minutes: of training, resumes added; the translating is not in it.
    tokens: real target subwords trained on.
    tokens_per_s: of training alone; the median of the log's lines.
    parameters: numbers in the model.
    machine: of the last part of the run.
    notes: why it was not translated with the parameters that were asked for.
    wrong_parents: split -> side -> share of words with a wrong parent, where
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
  """One system with one seed.

  Attributes:
    system, seed: which.
    commit, version: Git commit of the code (None outside a checkout) and
      version of jaxsyn.
    folder: of the run, in the comparison's.
    facts: of its training.
    curve: of its validations.
    scores: test split -> scores with signatures.
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
  """A run that did not come to its end, and what it said last."""

  system: str
  seed: int
  message: str


@dataclasses.dataclass(frozen=True)
class DataSet:
  """The data set: folder, languages, sentence pairs, the manifest's hashes."""

  name: str
  directory: str
  source_language: str
  target_language: str
  pairs: dict[str, int]
  hashes: dict[str, dict[str, Any]]
  left_out: tuple[str, ...] = ()  # test splits whose files were not there


@dataclasses.dataclass(frozen=True)
class Entry:
  """One line of the report.

  Attributes:
    name: as asked for; of an ablation table the row's.
    config: Complete config of its first run.
    data: what it was trained and tested on.
    controls: those of its controls that are in the comparison, to be shown
      beside it.
    control_of: the system whose control it is; "" for others.
    published: "task split" -> BLEU as the paper reports it, of a table's row.
  """

  name: str
  config: dict[str, Any]
  data: DataSet
  controls: tuple[str, ...]
  control_of: str
  published: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Summary:
  """A system over its seeds, under one metric on one split.

  Attributes:
    mean: over seeds.
    sd: standard deviation of single runs (n - 1); None of a single seed.
    values: of each seed, in the order of `seeds`.
  """

  system: str
  metric: str
  mean: float
  sd: float | None
  seeds: tuple[int, ...]
  values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class OneSeed:
  """A difference over sentences between two runs of one seed."""

  seed: int
  difference: Difference


@dataclasses.dataclass(frozen=True)
class BucketOfRuns(Bucket):
  """A bucket of systems that have several seeds.

  Attributes:
    scores: of all systems; () where there is no sentence.
    differences: over seeds and sentences; () where there are too few sentences
      to draw from.
  """

  scores: tuple[Summary, ...]
  differences: tuple[Hierarchical, ...]


@dataclasses.dataclass(frozen=True)
class Example:
  """A sentence that systems translate differently.

  Attributes:
    line: of the test split, from 1.
    source, reference: the sentence.
    seed: of the runs that are shown: where systems are furthest apart.
    scores: system -> score of the sentence as that run translated it.
    translations: system -> that translation.
  """

  line: int
  source: str
  reference: str
  seed: int
  scores: dict[str, float]
  translations: dict[str, str]


@dataclasses.dataclass(frozen=True)
class TestSet:
  """Everything about one test set, or about the mean over all of them.

  Attributes:
    name: of the split.
    sentences: in it.
    signatures: metric -> signature.
    scores: of all systems.
    over_sentences: against the baseline and own controls, seed by seed.
    over_seeds: the same over seeds and sentences, and the pairs of the family.
    errors: Error variances of the linear models, by metric; () where the
      variance is not pooled.
    buckets: by length and tree of the source.
    example_metric: what `examples` are chosen by and scored with; "" without
      examples.
    examples: the sentences whose scores, means over seeds, are the furthest
      apart; none in a report that was made without the text.
  """

  name: str
  sentences: int
  signatures: dict[str, str]
  scores: tuple[Summary, ...]
  over_sentences: tuple[OneSeed, ...]
  over_seeds: tuple[Hierarchical, ...]
  errors: tuple[ErrorVariance, ...]
  buckets: tuple[BucketOfRuns, ...]
  example_metric: str
  examples: tuple[Example, ...]

  def of_each_seed(self, difference: Hierarchical) -> list[Difference]:
    """The same difference over sentences, seed by seed."""
    pair = (difference.system, difference.baseline, difference.metric)
    singles = (one.difference for one in self.over_sentences)
    return [d for d in singles if (d.system, d.baseline, d.metric) == pair]

  def with_interval(
    self, difference: Hierarchical
  ) -> Hierarchical | Difference:
    """That of one seed, which has no interval, over sentences, which has."""
    if difference.low is not None:
      return difference
    return next(iter(self.of_each_seed(difference)), difference)


@dataclasses.dataclass(frozen=True)
class Ablation:
  """The table of a paper that the systems are rows of."""

  source: str
  question: str
  # System that was not trained here -> "task split" -> published BLEU.
  others: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Origin:
  """Where the systems came from.

  Attributes:
    config_file, overrides: as on the command line; "" and () from Python.
    ablation: None unless a table was asked for.
  """

  config_file: str = ""
  overrides: tuple[str, ...] = ()
  ablation: Ablation | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
  """A comparison.

  Attributes:
    format: of this file.
    made: Time (UTC) when the last of its runs finished.
    version: of jaxsyn, that wrote it.
    config_file, overrides, ablation: see `Origin`.
    baseline: the system others are compared with.
    seeds: of the finished runs.
    metrics: in the order asked for, as printed.
    samples: resamples of each test.
    family: Pairs of systems whose tests are corrected together, under the first
      metric on the last of `splits` (the mean, where there are several).
    variance: "pooled" or "separate", see `jaxsyn.comparison.inference`.
    systems, runs, failed: in the order asked for.
    splits: the test splits.
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
  systems: tuple[Entry, ...]
  runs: tuple[SeedRun, ...]
  failed: tuple[FailedRun, ...]
  splits: tuple[TestSet, ...]
  ablation: Ablation | None

  def system(self, name: str) -> Entry:
    return next(s for s in self.systems if s.name == name)

  @property
  def primary(self) -> TestSet:
    """The test set of the family: the mean over several, or the only one."""
    return self.splits[-1]

  def ordered(self) -> list[tuple[Entry, bool]]:
    """The systems, each with its controls below it and, as True says, set in."""
    by_name = {system.name: system for system in self.systems}
    rows = []
    for system in self.systems:
      if system.control_of not in by_name:
        rows.append((system, False))
        rows += [(by_name[name], True) for name in system.controls]
    return rows

  def leading(self) -> list[Entry]:
    """Those that a picture is of: neither controls nor the baseline."""
    return [
      system
      for system, inset in self.ordered()
      if not inset and system.name != self.baseline
    ]


def find(
  entries: Sequence[Any], system: str, metric: str, *, baseline: str = ""
) -> Any:
  """Of summaries or differences, that of a system; None where there is none."""
  return next(
    (
      entry
      for entry in entries
      if (entry.system, entry.metric) == (system, metric)
      and baseline in ("", getattr(entry, "baseline", ""))
    ),
    None,
  )


def to_json(results: Comparison) -> str:
  """The text of report.json."""
  return json.dumps(dataclasses.asdict(results), indent=1, ensure_ascii=False)


def from_json(text: str) -> Comparison:
  """What `to_json` wrote.

  Raises:
    InputError: no JSON, another format, a field too many, missing or mistyped.
  """
  try:
    document = json.loads(text)
  except json.JSONDecodeError as error:
    raise InputError(f"{FILE} is corrupt ({error}).") from None
  version = document.get("format") if isinstance(document, dict) else None
  if version != FORMAT:
    raise InputError(
      f"{FILE} has format {version}; this version reads {FORMAT}. "
      "Run jaxsyn.compare again: what is trained is not trained again."
    )
  return from_config(Comparison, document, ConfigPath(FILE), CHECKPOINT_MODE)
