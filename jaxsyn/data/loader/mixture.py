"""Mixes several dataset directories into one training split.

config.data.mixture adds corpora such as back-translations or other domains and
languages. All directories share one vocabulary; ids of relations and
annotations are mapped to those of config.data.directory. The rate of a corpus
is the number of times that an epoch reads it; if the rate is fractional, each
epoch samples part of the examples (`jaxsyn.data.loader.windows`).

Source: rates by temperature, n_i ∝ N_i^(1/T): Arivazhagan et al. 2019
(arXiv:1907.05019), section 4.2; tags: Caswell et al. 2019 (arXiv:1906.06442).

Letters: C corpus; U block of records.
"""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.annotations import NO_LABEL, UNKNOWN, label_ids
from jaxsyn.data.loader.transforms import (
  CorpusLabels,
  SourceTags,
  Transform,
  translations,
)
from jaxsyn.data.options import Data, Mixture
from jaxsyn.data.schema import NO_RELATION, Manifest, labels_of
from jaxsyn.data.store.dataset import Dataset, Examples, Split
from jaxsyn.data.store.rows import Lengths, Rows
from jaxsyn.errors import InputError


def tags(mixture: Mixture, manifest: Mapping[str, Any]) -> list[int]:
  """Returns the id of the tag on each added corpus's sources; [] if unused."""
  first = manifest["vocabulary"]["source"]["size"]
  return [first + k for k in range(len(mixture.folders) * mixture.tags)]


def rates(mixture: Mixture, sizes: Sequence[int]) -> list[float]:
  """Returns how many times an epoch reads each corpus of a mixture.

  With a temperature T of 1, it is the weight of the corpus. Otherwise the
  weights are multiplied such that, with weights of 1, the numbers of examples
  read are proportional to N_i^(1/T), with an unchanged total.

  Args:
    mixture: Section config.data.mixture.
    sizes: Numbers of examples in config.data.directory and in each folder.

  Raises:
    InputError: The weights do not match the folders, or are all 0.
  """
  weights = mixture.weights or (1.0,) * len(sizes)
  if len(weights) != len(sizes) or not any(weights):
    raise InputError(
      f"config.data.mixture.weights={weights}: one for config.data.directory "
      f"and one for each of the {len(sizes) - 1} folders is needed, one above 0."
    )
  size_C = np.array(sizes, np.float64)
  share_C = size_C ** (1 / mixture.temperature)
  rate_C = share_C / share_C.sum() * size_C.sum() / np.maximum(size_C, 1)
  return (rate_C * weights).tolist()


class MixedExamples(Examples):
  """Examples of all corpora in a mixture, indexed as one sequence.

  Args:
    names: Name of each corpus in the log.
    corpora: Examples of each corpus, with the labels and tags of the mixture.
    rates: Number of times an epoch reads each corpus, maybe fractional.
    warnings: Warnings for the log.

  Attributes:
    rate_U: Number of times that an epoch reads each block of records.
    messages: Size and rate of each corpus, and warnings, for the log.
  """

  def __init__(
    self,
    names: Sequence[str],
    corpora: Sequence[Examples],
    rates: Sequence[float],
    warnings: Sequence[str] = (),
  ):
    self._names, self._corpora = names, corpora
    sizes = [len(corpus) for corpus in corpora]
    self._ends = np.cumsum(sizes)
    begins = self._ends - sizes
    starts = [one.block_start[:-1] + b for one, b in zip(corpora, begins)]
    self.block_start = np.concatenate([*starts, self._ends[-1:]])
    lengths = zip(*(corpus.lengths for corpus in corpora))
    self.lengths = Lengths(*map(np.concatenate, lengths))
    self.rate_U = np.repeat(rates, [len(start) for start in starts])
    facts = [
      f"{name} {size:,} x {rate:.4g}"
      for name, size, rate in zip(names, sizes, rates)
    ]
    self.messages = [f"examples an epoch: {', '.join(facts)}", *warnings]

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Yields the examples in the given blocks of records, block by block.

    The block indices must be ascending.
    """
    blocks, first = np.fromiter(blocks, np.int64), 0
    for examples in self._corpora:
      end = first + len(examples.block_start) - 1
      local = blocks[(blocks >= first) & (blocks < end)] - first
      yield from examples.read_blocks(local.tolist(), features)
      first = end

  def count(self, ids: np.ndarray) -> dict[str, int]:
    """Counts how many of the given examples come from each corpus, by name."""
    corpus_of_id = np.searchsorted(self._ends, ids, "right")
    counts = np.bincount(corpus_of_id, minlength=len(self._corpora)).tolist()
    return dict(zip(self._names, counts))


def mix(
  main: Split, data: Data, seed: int, required: Collection[str]
) -> MixedExamples:
  """Combines the translation examples of several datasets into one mixture.

  Args:
    main: Split of config.data.directory.
    data: Section config.data.
    seed: Value of config.seed, for random trees.
    required: Features that are read.

  Raises:
    InputError: A folder occurs twice, is not a dataset directory, lacks a feature
      or has another vocabulary, or the weights do not match.
  """
  folders = [str(main.dataset.directory), *data.mixture.folders]
  corpora, warnings = [translations(main, data, seed)], list[str]()
  tag_ids = tags(data.mixture, main.dataset.manifest)
  features = schema.features_for(main.dataset.manifest, required)
  for k, folder in enumerate(data.mixture.folders):
    if folder in data.mixture.folders[:k]:
      raise InputError(
        f"config.data.mixture.folders has {folder} twice; raise its weight."
      )
    split = Dataset(folder).split(main.name)
    try:
      schema.features_for(split.dataset.manifest, required)
    except InputError as error:
      raise InputError(f"config.data.mixture, {folder}: {error}") from None
    _check_vocabulary(main.dataset, split.dataset)
    tables = _label_tables(
      main.dataset.manifest, split.dataset.manifest, features
    )
    warnings += _unknown_relations(split.dataset, tables)
    transforms: list[Transform] = [CorpusLabels(tables)] if tables else []
    if tag_ids:
      transforms.append(SourceTags(tag_ids[k], at_end=False))
    corpora.append(translations(split, data, seed, transforms=transforms))
  # The last component of a path, or the path if components are equal.
  short = [pathlib.PurePath(folder).name for folder in folders]
  count = collections.Counter(short)
  names = [s if count[s] == 1 else path for s, path in zip(short, folders)]
  times = rates(data.mixture, [len(corpus) for corpus in corpora])
  return MixedExamples(names, corpora, times, warnings)


def _check_vocabulary(first: Dataset, other: Dataset) -> None:
  for side, expected in first.manifest["vocabulary"].items():
    actual = other.manifest["vocabulary"][side]
    if actual["sha256"] != expected["sha256"]:
      raise InputError(
        f"config.data.mixture: {other.directory / actual['file']}, the {side} "
        f"vocabulary, is not that of {first.directory} (SHA-256 "
        f"{actual['sha256']} and {expected['sha256']}). Prepare it again with "
        f"--config.prepare.vocabulary.like={first.directory}."
      )


def _label_tables(
  first: Manifest, other: Manifest, features: Iterable[str]
) -> dict[str, np.ndarray]:
  """Returns tables that convert a corpus's label ids to the main dataset's.

  There is a table for each feature whose labels differ. A label that the first
  dataset lacks becomes UNKNOWN, or NO_RELATION for relations.
  """
  tables = {}
  for name in features:
    known, labels = labels_of(first, name), labels_of(other, name)
    if labels != known:
      ids = label_ids(known)
      missing = ids.get(UNKNOWN, NO_LABEL)
      table = [NO_LABEL, *(ids.get(label, missing) for label in labels)]
      tables[name] = np.array(table, np.int32)
  return tables


def _unknown_relations(
  dataset: Dataset, tables: Mapping[str, np.ndarray]
) -> Iterator[str]:
  """Yields warnings about relation labels missing from the main dataset.

  Other annotations have an id for unknown labels in every dataset.
  """
  for side, labels in dataset.manifest["relations"].items():
    ids = tables.get(f"{side}_relation", ())[1:]  # of the labels, in order
    lost = [label for label, id_ in zip(labels, ids) if id_ == NO_RELATION]
    if lost:
      more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
      yield (
        f"{dataset.directory}: {side} relations that config.data.directory "
        f"lacks are read as unknown: {', '.join(lost[:5])}{more}"
      )
