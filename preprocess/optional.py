"""Base class of optional features of examples, such as word alignments.

`preprocess.features` has the table of all optional features. Their files are
read as streams (`preprocess.job.SplitInput`).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Prepare
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.preprocess.job import Chunk, PrepareJob
from jaxsyn.preprocess.outputs import Counts, Result, TaskOutput

USED, OTHER_WORDS, NO_TREE, NO_LINKS = (
  "used",
  "other words",
  "no tree",
  "no links",
)

Pair = tuple[str, str]
Features = dict[str, np.ndarray]  # of one example, by name


@dataclasses.dataclass(frozen=True)
class Examples:
  """Lines of a chunk that become examples, with their parses.

  Attributes:
    chunk: Chunk of lines.
    rows: Indices of the lines in the chunk.
    parses: Side with trees -> best parse of each line.
  """

  chunk: Chunk
  rows: Sequence[int]
  parses: Mapping[str, Sequence[Parse]]

  @functools.cached_property
  def pairs(self) -> list[Pair]:
    """All line pairs of the chunk."""
    return self.chunk.pairs()


class OptionalFeature:
  """Base class of optional features of examples, such as word alignments.

  Attributes:
    name: Key in the manifest of a dataset that has this feature.
    options: Options of config.prepare with its files (split -> file or files)
      -> prefix of the names of their streams; file N has the stream PREFIX.N.
  """

  name: str
  options: Mapping[str, str] = {}

  def streams(self, prepare: Prepare, split: str) -> dict[str, tuple[str, str]]:
    """Returns the option and file name of each of a split's input streams."""
    streams = {}
    for option, stream in self.options.items():
      names = operator.attrgetter(option)(prepare).get(split, ())
      for i, name in enumerate([names] if isinstance(names, str) else names):
        streams[f"{stream}.{i}"] = option, name
    return streams

  def scan(self, examples: Examples, out: TaskOutput) -> Result:
    """Collects the feature's labels in a chunk; `manifest` combines them."""
    return {}

  def manifest(self, job: PrepareJob, results: Sequence[Result]) -> Result:
    """Returns the feature's entries in the manifest, {} if it is not used.

    Args:
      job: Preparation job.
      results: Results of `scan` for all chunks.
    """
    return {}

  def encode(
    self, examples: Examples, out: TaskOutput
  ) -> tuple[list[Features], Counts]:
    """Encodes this feature for the examples of a chunk.

    Returns:
      Arrays of each example; and the number of input lines by use (USED,
      NO_TREE, ...), for each prefix of stream names.
    """
    return [{} for _ in examples.rows], {}

  def error(self, example: Features, manifest: Mapping[str, Any]) -> str:
    """Returns a message if the stored values of an example are invalid, or "".

    Args:
      example: All features of the example; those of subwords and words are valid.
      manifest: Manifest of the dataset.
    """
    return ""


def feature(name: str, values: Sequence[int] | np.ndarray) -> Features:
  """Returns a dict with one feature as an array of its declared type."""
  return {name: np.array(values, schema.FEATURES[name].dtype)}


def range_error(name: str, values: np.ndarray, low: int, high: int) -> str:
  """Returns a message if a value of a feature is out of range, or ""."""
  bad = (values < low) | (values > high)
  if not bad.any():
    return ""
  return f"{name} must be from {low} to {high}, got {values[bad][0]}"
