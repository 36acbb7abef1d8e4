"""The result of one run, SYSTEM/seed_N/result.json: all that a report needs.

A report is computed from these files alone, on any machine, without data and
checkpoints. They hold no text. Scores are stored as sufficient statistics of each
sentence (n-gram counts, edits, log-likelihoods), from which corpus scores and all
resampling tests are computed.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import math
import pathlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxsyn.comparison import results
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.scoring.buckets import Facts
from jaxsyn.scoring.scorers import Measured, Scorer
from jaxsyn.scoring.settings import SCORED
from jaxsyn.storage import checksums, files

FORMAT = 1
FILE = "result.json"

# From small to large: the first that holds all values is stored.
_DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class PackedArray:
  """An array in JSON.

  Attributes:
    dtype: Name of the NumPy type.
    shape: Shape of the array.
    data: Base64 of the zlib-compressed bytes, column by column.
  """

  dtype: str
  shape: tuple[int, ...]
  data: str

  @classmethod
  def of(cls, array: np.ndarray) -> PackedArray:
    """Packs an array without loss, in the smallest type that holds it."""
    with np.errstate(invalid="ignore", over="ignore"):
      equal = (n for n in _DTYPES if (array.astype(n) == array).all())
      smallest = next(equal, _DTYPES[-1])
    content = _columns(array).astype(smallest).tobytes()
    data = base64.b64encode(zlib.compress(content, 9)).decode("ascii")
    return cls(smallest, array.shape, data)

  def unpacked(self) -> np.ndarray:
    """Returns the array, as float64.

    Raises:
      ValueError: The content does not have this type and shape.
    """
    if self.dtype not in _DTYPES:
      raise ValueError(f"unknown dtype {self.dtype!r}")
    size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
    try:
      raw = base64.b64decode(self.data, validate=True)
      # One byte more than expected, so that larger content is noticed.
      content = zlib.decompressobj().decompress(raw, size + 1)
    except (binascii.Error, zlib.error) as error:
      raise ValueError(str(error)) from None
    if len(content) != size or min(self.shape, default=0) < 0:
      raise ValueError(f"its content does not have the shape {self.shape}")
    columns = np.frombuffer(content, self.dtype).reshape(self.shape[::-1])
    return np.ascontiguousarray(_columns(columns), np.float64)


def _columns(array: np.ndarray) -> np.ndarray:
  """Values of a column side by side: they are alike, and compress better."""
  return array.T


@dataclasses.dataclass(frozen=True)
class MetricStatistics:
  """The statistics of each sentence under one metric.

  Attributes:
    signature: Signature of the metric, as in sacreBLEU.
    sentences: Statistics, a row for each sentence.
  """

  signature: str
  sentences: PackedArray


@dataclasses.dataclass(frozen=True)
class SplitStatistics:
  """What a run scores on one test set.

  Attributes:
    sentences: Number of sentences.
    source_sha256: SHA-256 of the sources.
    reference_sha256: SHA-256 of the references.
    facts: Facts of the source sentences that buckets are made of, by name; -1
      where a fact is unknown.
    metrics: Statistics by the metric's name.
  """

  sentences: int
  source_sha256: str
  reference_sha256: str
  facts: dict[str, PackedArray]
  metrics: dict[str, MetricStatistics]

  def measured(self, metric: str) -> Measured:
    """Returns the statistics of a metric of `SCORED`, ready to be resampled."""
    stored = self.metrics[metric]
    scorer = Scorer(SCORED[metric](), self.sentences, stored.signature)
    return Measured(scorer, stored.sentences.unpacked())

  def sentence_facts(self) -> Facts:
    """Returns the facts of each sentence, None where one is unknown."""
    return {
      name: [None if value < 0 else value for value in packed.unpacked()]
      for name, packed in self.facts.items()
    }


@dataclasses.dataclass(frozen=True)
class RunResult:
  """Everything that a report says of one run.

  Attributes:
    format: Version of this format.
    version: Version of jaxsyn.
    commit: Git commit of the code, with "+changes" where files were changed;
      several, with commas, if the run was resumed with other code; None outside
      a checkout.
    finished: Time (UTC) when the run finished.
    system: Name of the system.
    seed: Seed of the run.
    config: Complete config of the run.
    published: "task split" -> BLEU as the paper reports it.
    origin: Config file, overrides and ablation table of the command.
    data: Dataset: names, languages, sizes, hashes.
    facts: Facts of the training.
    curve: Validations.
    tests: Statistics by test set.
    files: Checksums of the run's translations and pictures.
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
  data: results.DataSet
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
  """Writes a result with its checksum, atomically."""
  content = dataclasses.asdict(result)
  files.write_json(path, checksums.add_checksum(content))


def read(path: pathlib.Path) -> RunResult:
  """Reads a result.

  Raises:
    InputError: The file is missing, corrupt, or of another format; names it.
  """
  try:
    document = checksums.verify_checksum(files.read_json(path))
  except FileNotFoundError:
    raise InputError(f"{path} does not exist.") from None
  except (OSError, ValueError) as error:
    raise InputError(
      f"{path} is corrupt, or not the result of a run "
      f"({str(error).rstrip('.')})."
    ) from None
  if document.get("format") != FORMAT:
    raise InputError(
      f"{path} has format {document.get('format')}; this version reads {FORMAT}."
    )
  result = from_config(
    RunResult, document, ConfigPath(str(path)), CHECKPOINT_MODE
  )
  for split, test in result.tests.items():
    _check(test, ConfigPath(str(path)) / split)
  return result


def read_all(paths: Sequence[pathlib.Path]) -> list[RunResult]:
  """Reads the results of files, and of all folders below folders.

  Args:
    paths: Files, or folders that are searched for files named result.json; in
      a folder without any, all files *.json are read.

  Raises:
    InputError: No result; a corrupt file; two files of the same run.
  """
  results: dict[str, tuple[pathlib.Path, RunResult]] = {}
  for path in paths:
    chosen = [path]
    if path.is_dir():
      chosen = sorted(path.rglob(FILE)) or sorted(path.rglob("*.json"))
      if not chosen:
        raise InputError(f"{path} has no results: no file {FILE}.")
    for file in chosen:
      result = read(file)
      other, _ = results.setdefault(result.name, (file, result))
      if other.resolve() != file.resolve():
        raise InputError(
          f"{other} and {file} are both results of {result.name}. Leave one out."
        )
  return [result for _, result in results.values()]


def _check(test: SplitStatistics, at: ConfigPath) -> None:
  """Raises InputError where arrays are not what the test set must have."""
  arrays = dict(test.facts)
  for name, metric in test.metrics.items():
    SCORED.check_name(name, at / "metrics")
    arrays[name] = metric.sentences
  for name, packed in arrays.items():
    try:
      rows = len(packed.unpacked())
    except ValueError as error:
      raise (at / name).error(f" is corrupt: {error}.") from None
    if rows != test.sentences:
      raise (at / name).error(
        f" has {rows} sentences, the test set {test.sentences}."
      )
