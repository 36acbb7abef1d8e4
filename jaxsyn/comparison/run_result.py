"""Results of one run, stored in SYSTEM/seed_N/result.json for reports.

A report is computed from these files alone, on any machine, without data and
checkpoints. They contain no text. Scores are stored as sufficient statistics of
each sentence (n-gram counts, edits, log-likelihoods), from which corpus scores
and all resampling tests are computed.

Letters: I statistic of a sentence.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import math
import pathlib
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.comparison import results
from jaxsyn.config import Config
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ConfigPath,
  flat,
  from_config,
  neutral_options,
)
from jaxsyn.scoring.buckets import Facts
from jaxsyn.scoring.scorers import Measured, Scorer
from jaxsyn.scoring.settings import SCORED
from jaxsyn.session import workdir

FORMAT = 1
FILE = "result.json"

# From small to large: the first that holds all values is stored.
_DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class PackedArray:
  """A compressed array in JSON.

  Attributes:
    dtype: Name of the NumPy type.
    data: Base64 of the zlib-compressed bytes in column-major order: the values
      of a column are similar, and compress better.
  """

  dtype: str
  shape: tuple[int, ...]
  data: str

  @classmethod
  def of(cls, array: np.ndarray) -> PackedArray:
    """Compresses an array losslessly, in the smallest sufficient data type."""
    with np.errstate(invalid="ignore", over="ignore"):
      equal = (n for n in _DTYPES if (array.astype(n) == array).all())
      dtype = next(equal, _DTYPES[-1])
    content = zlib.compress(array.T.astype(dtype).tobytes(), 9)
    return cls(dtype, array.shape, base64.b64encode(content).decode("ascii"))

  def unpacked(self) -> np.ndarray:
    """Returns the unpacked array, as float64.

    Raises:
      ValueError: The content does not have this type and shape.
    """
    if self.dtype not in _DTYPES or min(self.shape, default=0) < 0:
      raise ValueError(f"invalid dtype {self.dtype!r} or shape {self.shape}")
    size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
    try:
      raw = base64.b64decode(self.data, validate=True)
      # One byte more than expected, so that `reshape` rejects larger content.
      content = zlib.decompressobj().decompress(raw, size + 1)
    except (binascii.Error, zlib.error) as error:
      raise ValueError(str(error)) from None
    columns = np.frombuffer(content, self.dtype).reshape(self.shape[::-1])
    return np.ascontiguousarray(columns.T, np.float64)


@dataclasses.dataclass(frozen=True)
class MetricStatistics:
  """A metric's signature, and its statistics for each sentence."""

  signature: str
  sentences: PackedArray

  @classmethod
  def of(cls, measured: Measured) -> MetricStatistics:
    signature = measured.scorer.signature()
    return cls(signature, PackedArray.of(measured.statistic_BI))


@dataclasses.dataclass(frozen=True)
class SplitStatistics:
  """Metric statistics of a run's translations on one test set.

  Attributes:
    sentences: Number of sentences.
    source_sha256, reference_sha256: Hashes of the text.
    facts: Facts of the source sentences by name, for buckets; -1 if unknown.
    metrics: Statistics by name of the metric.
  """

  sentences: int
  source_sha256: str
  reference_sha256: str
  facts: dict[str, PackedArray]
  metrics: dict[str, MetricStatistics]

  def measured(self, metric: str) -> Measured:
    """Unpacks the stored sentence statistics of a metric."""
    stored = self.metrics[metric]
    scorer = Scorer(SCORED[metric](), self.sentences, stored.signature)
    return Measured(scorer, stored.sentences.unpacked())

  def sentence_facts(self) -> Facts:
    """Returns length and tree statistics of each source; None where unknown."""
    return {
      name: [None if value < 0 else value for value in packed.unpacked()]
      for name, packed in self.facts.items()
    }


@dataclasses.dataclass(frozen=True)
class RunResult:
  """Result of a finished run: metadata, config, and metric statistics.

  Attributes:
    commit: Git commit of the code, with "+changes" if files were modified;
      several, with commas, if the run was resumed with other code; None outside
      a checkout.
    finished: Time (UTC) of the end of the run.
    config: Complete config.
    published: "task split" -> BLEU in the paper.
    curve: Validations.
    tests: Statistics by test set.
    files: Checksums of translations and figures.
  """

  format: int
  version: str
  commit: str | None
  finished: str
  system: str
  seed: int
  config: dict[str, Any]
  published: dict[str, float]
  origin: results.Origin
  data: results.DatasetFacts
  facts: results.RunFacts
  curve: tuple[results.Point, ...]
  tests: dict[str, SplitStatistics]
  files: dict[str, dict[str, Any]]

  @property
  def name(self) -> str:
    return f"{self.system} seed {self.seed}"


def sha256_of_lines(lines: Iterable[str]) -> str:
  """Returns the SHA-256 of lines of text, each with a newline."""
  content = "".join(f"{line}\n" for line in lines)
  return hashlib.sha256(content.encode()).hexdigest()


def write(path: pathlib.Path, result: RunResult) -> None:
  """Writes the result of a run with its checksum, atomically."""
  workdir.write_record(path, dataclasses.asdict(result))


def read_document(
  path: pathlib.Path, version: int, remedy: str
) -> dict[str, Any]:
  """Reads a JSON file with checksum and format; see `read` for errors."""
  document = workdir.read_record(path, remedy)
  if document.get("format") != version:
    raise InputError(
      f"{path} has format {document.get('format')}; this version reads "
      f"{version}. {remedy}"
    )
  return document


def read(path: pathlib.Path, remedy: str = "Leave it out.") -> RunResult:
  """Reads the result of a run.

  Raises:
    InputError: The file is missing, corrupt, or has another format; the message
      ends with the remedy.
  """
  document = read_document(path, FORMAT, remedy)
  location = ConfigPath(str(path))
  result = from_config(RunResult, document, location, CHECKPOINT_MODE)
  for split, test in result.tests.items():
    _check_arrays(test, location / split)
  return result


def read_all(paths: Sequence[pathlib.Path]) -> list[RunResult]:
  """Reads the results of several runs.

  Args:
    paths: Files, or directories that are searched for files named result.json;
      in a directory without any, all files *.json are read.

  Raises:
    InputError: No result, a corrupt file, or two files of the same run.
  """
  loaded: dict[str, tuple[pathlib.Path, RunResult]] = {}
  for path in paths:
    chosen = [path]
    if path.is_dir():
      chosen = sorted(path.rglob(FILE)) or sorted(path.rglob("*.json"))
      if not chosen:
        raise InputError(f"{path} has no results: no file {FILE}.")
    for file in chosen:
      result = read(file)
      other, _ = loaded.setdefault(result.name, (file, result))
      if other.resolve() != file.resolve():
        raise InputError(
          f"{other} and {file} are both results of {result.name}. Leave one out."
        )
  return [result for _, result in loaded.values()]


def check_comparable(
  runs: Sequence[RunResult], baseline: RunResult, metrics: Collection[str]
) -> None:
  """Checks that runs are comparable with a run of the baseline.

  Raises:
    InputError: Other test sets or signatures; a missing metric; runs of one
      system with other options or data.
  """
  neutral = [name.removeprefix("config.") for name in neutral_options(Config)]
  free = ("seed", *neutral)
  first_runs: dict[str, RunResult] = {}
  for run in runs:
    other = first_runs.setdefault(run.system, run)
    both = f"{other.name} and {run.name}"
    if differences := config_differences(other.config, run.config, free):
      listed = ", ".join(differences[:5])
      raise InputError(f"{both} have other configs: {listed}.")
    if other.data.hashes != run.data.hashes:
      raise InputError(
        f"{both} were trained on different data: hashes of records, vocabulary "
        "or parser differ."
      )
    if more := sorted(set(run.tests) - set(baseline.tests)):
      raise InputError(
        f"{run.name} was scored on {', '.join(more)}, {baseline.name} was not. "
        "All runs of a report need the same test sets."
      )
    for split in baseline.tests:
      _check_test(run, baseline, split, metrics)


def _check_test(
  run: RunResult, baseline: RunResult, split: str, metrics: Collection[str]
) -> None:
  if split not in run.tests:
    raise InputError(f"{run.name} was not scored on test set {split}.")
  test, expected = run.tests[split], baseline.tests[split]
  both = f"{run.name} and {baseline.name}"
  for side in ("reference", "source"):
    key = f"{side}_sha256"
    if getattr(test, key) != getattr(expected, key):
      raise InputError(
        f"{both}, {split}: their {side}s differ (SHA-256), so their scores "
        "cannot be compared."
      )
  for metric in metrics:
    if metric not in test.metrics:
      raise InputError(
        f"{run.name} has no statistics of {metric!r} on {split}. "
        f"{did_you_mean(metric, test.metrics)} With the translations, jaxsyn "
        f"compare --metrics {metric} adds them."
      )
    signatures = [one.metrics[metric].signature for one in (test, expected)]
    if signatures[0] != signatures[1]:
      raise InputError(
        f"{both} have other signatures of {metric} on {split}: "
        f"{' and '.join(signatures)}."
      )


def config_differences(
  one: Mapping[str, Any], other: Mapping[str, Any], free: Collection[str]
) -> list[str]:
  """Describes the options in which two configs in JSON differ.

  Args:
    one, other: The configs.
    free: Dotted names of options and sections that may differ.
  """
  was, now = flat(one), flat(other)
  return [
    f"{name} is {was.get(name)!r} and {now.get(name)!r}"
    for name in sorted(was | now)
    if was.get(name) != now.get(name)
    and not any(f"{name}.".startswith(f"{section}.") for section in free)
  ]


def _check_arrays(test: SplitStatistics, path: ConfigPath) -> None:
  """Checks that each array is intact and has one row per sentence."""
  arrays = dict(test.facts)
  for name, metric in test.metrics.items():
    SCORED.check_name(name, path / "metrics")
    arrays[name] = metric.sentences
  for name, packed in arrays.items():
    try:
      rows = len(packed.unpacked())
    except ValueError as error:
      raise (path / name).error(f" is corrupt: {error}.") from None
    if rows != test.sentences:
      raise (path / name).error(
        f" has {rows} sentences, the test set {test.sentences}."
      )
