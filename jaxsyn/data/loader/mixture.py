"""Mixture of several dataset directories in one training split.

config.data.mixture adds corpora such as back-translations or other domains and
languages. All directories share one vocabulary; ids of relations and
annotations are mapped to those of config.data.directory. The rate of a corpus
is the number of times that an epoch reads it; if the rate is fractional, part
of the examples is sampled in each epoch (`jaxsyn.data.loader.batch_sampler`).

Source: rates by temperature, n_i ∝ N_i^(1/T): Arivazhagan et al. 2019
(arXiv:1907.05019), section 4.2; tags: Caswell et al. 2019 (arXiv:1906.06442).

Letters: C corpus.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data.annotations import NO_LABEL, UNKNOWN, label_ids
from jaxsyn.data.loader.transforms import (
  Transform,
  Window,
  longer_sources,
  transformed,
  translations,
)
from jaxsyn.data.options import Data, Mixture
from jaxsyn.data.schema import (
  ALTERNATIVES,
  FEATURES,
  NO_RELATION,
  relation_ids,
)
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset, Examples, Split
from jaxsyn.data.store.index import Lengths
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

Tables = Mapping[str, np.ndarray]


def tags(mixture: Mixture, manifest: Mapping[str, Any]) -> list[int]:
  """Returns the ids of a mixture's corpus tags, one per folder, if any."""
  first = manifest["vocabulary"]["source"]["size"]
  return [first + k for k in range(len(mixture.folders) * mixture.tags)]


def rates(mixture: Mixture, sizes: Sequence[int]) -> list[float]:
  """Returns the number of times that an epoch reads each corpus of a mixture.

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


class CorpusLabels(Transform):
  """Transform from a corpus's label ids to the ids of config.data.directory.

  Labels are dependency relations and annotations of words.
  """

  def __init__(self, tables: Tables):
    self._tables = tables

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    mapped = {
      name: table[rows.flat[name]]
      for name, table in self._tables.items()
      if name in rows.flat
    }
    return Rows({**rows.flat, **mapped}, rows.start)


class CorpusTag(Transform):
  """Transform that puts a tag, which identifies the corpus, before each source.

  Empty sources get no tag. Like EOS, the tag belongs to no word and is its own
  parent.
  """

  def __init__(self, tag: int):
    self._tag = tag

  def lengths(self, lengths: Lengths) -> Lengths:
    return longer_sources(lengths, 1)

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    flat, start = dict(rows.flat), dict(rows.start)
    for name in rows.flat:
      if FEATURES[name].axes != "S":
        continue
      subwords = rows.sizes(name)
      is_tagged = subwords > 1
      start[name] = np.append(0, np.cumsum(subwords + is_tagged))
      is_tag_S = np.zeros(start[name][-1], bool)
      is_tag_S[start[name][:-1][is_tagged]] = True
      fill = self._tag if name == "source_id" else FEATURES[name].fill
      flat[name] = np.full(len(is_tag_S), fill, FEATURES[name].dtype)
      flat[name][~is_tag_S] = rows.flat[name]
      if name == "source_parent_mid":  # a position, which moves by the tag
        flat[name][~is_tag_S] += np.repeat(is_tagged, subwords)
    return Rows(flat, start)


@dataclasses.dataclass(frozen=True)
class Corpus:
  """Named corpus of a mixture, with its examples.

  Attributes:
    name: Name in the log.
    examples: Examples with the label ids and tags of the mixture.
  """

  name: str
  examples: Examples


class MixedExamples(Examples):
  """Concatenated examples of several corpora in a mixture.

  Attributes:
    corpora: Corpora in order.
    rates: Number of times an epoch reads each corpus, maybe fractional.
    messages: Warnings for the log.
  """

  def __init__(
    self,
    corpora: Sequence[Corpus],
    rates: Sequence[float],
    messages: Sequence[str] = (),
  ):
    self.corpora, self.rates, self.messages = corpora, rates, messages
    each = [corpus.examples for corpus in corpora]
    self._ends = np.cumsum([len(one) for one in each])
    begin = np.append(0, self._ends)
    starts = [one.block_start[:-1] + b for one, b in zip(each, begin)]
    self.block_start = np.concatenate([*starts, self._ends[-1:]])
    self.lengths = Lengths(
      *map(np.concatenate, zip(*(one.lengths for one in each)))
    )

  @property
  def examples_per_epoch(self) -> int:
    """Number of examples that an epoch reads from all corpora."""
    corpora = zip(self.corpora, self.rates)
    return round(sum(len(one.examples) * rate for one, rate in corpora))

  @property
  def block_rates(self) -> np.ndarray:
    """Number of times that an epoch reads each block of records."""
    blocks = [len(one.examples.block_start) - 1 for one in self.corpora]
    return np.repeat(self.rates, blocks)

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Yields the examples in blocks of records, given in ascending order."""
    blocks, first = np.fromiter(blocks, np.int64), 0
    for corpus in self.corpora:
      end = first + len(corpus.examples.block_start) - 1
      local = blocks[(blocks >= first) & (blocks < end)] - first
      yield from corpus.examples.read_blocks(local.tolist(), features)
      first = end

  def count(self, ids: np.ndarray) -> dict[str, int]:
    """Returns the number of given examples from each corpus, by corpus name."""
    corpus_of_id = np.searchsorted(self._ends, ids, "right")
    counts = np.bincount(corpus_of_id, minlength=len(self.corpora)).tolist()
    return {one.name: n for one, n in zip(self.corpora, counts)}

  def summary(self) -> str:
    """Returns a log message with the size and rate of each corpus."""
    each = (
      f"{one.name} {len(one.examples):,} x {rate:.4g}"
      for one, rate in zip(self.corpora, self.rates)
    )
    return f"examples an epoch: {', '.join(each)}"


def open_splits(
  mixture: Mixture, name: str, required: Collection[str]
) -> list[Split]:
  """Returns the opened splits with a given name in the folders of a mixture.

  Args:
    mixture: Section config.data.mixture.
    name: Name of the split.
    required: Features that modifiers and losses read.

  Raises:
    InputError: A folder occurs twice, is no dataset directory, or lacks a
      feature.
  """
  splits: dict[str, Split] = {}
  for folder in mixture.folders:
    if folder in splits:
      raise InputError(
        f"config.data.mixture.folders has {folder} twice; raise its weight."
      )
    splits[folder] = Dataset(folder).split(name)
    try:
      manifests.features_for(splits[folder].dataset.manifest, required)
    except InputError as error:
      raise InputError(f"config.data.mixture, {folder}: {error}") from None
  return list(splits.values())


def mix(
  first: tuple[Split, Examples],
  others: Sequence[Split],
  data: Data,
  *,
  seed: int,
  features: Collection[str],
) -> MixedExamples:
  """Returns the examples of several splits as one mixture.

  Args:
    first: Split of config.data.directory, and its examples.
    others: Splits of the other folders, from `open_splits`.
    data: Section config.data.
    seed: Value of config.seed, for random trees.
    features: Names of the features that are read.

  Raises:
    InputError: The vocabularies differ, or the weights do not match.
  """
  main, examples = first
  corpora, messages = [examples], list[str]()
  tag_ids = tags(data.mixture, main.dataset.manifest)
  for k, split in enumerate(others):
    _check_vocabulary(main.dataset, split.dataset)
    tables = _label_tables(main.dataset, split.dataset, features)
    messages += _unknown_relations(split, tables)
    transforms: list[Transform] = [CorpusLabels(tables)] if tables else []
    if tag_ids:
      transforms.append(CorpusTag(tag_ids[k]))
    corpora.append(transformed(translations(split, data, seed), transforms))
  names = _short_names([main, *others], data.mixture)
  return MixedExamples(
    [Corpus(*pair) for pair in zip(names, corpora)],
    rates(data.mixture, [len(corpus) for corpus in corpora]),
    messages,
  )


def _short_names(splits: Sequence[Split], mixture: Mixture) -> list[str]:
  """Returns a short unique name for each dataset directory of a mixture.

  It is the last component of the path, or the path if components are equal.
  """
  folders = [str(splits[0].dataset.directory), *mixture.folders]
  short = [pathlib.PurePath(folder).name for folder in folders]
  count = collections.Counter(short)
  return [
    name if count[name] == 1 else folder for name, folder in zip(short, folders)
  ]


def _check_vocabulary(first: Dataset, other: Dataset) -> None:
  for side, expected in first.manifest["vocabulary"].items():
    found = other.manifest["vocabulary"][side]
    if found["sha256"] != expected["sha256"]:
      raise InputError(
        f"config.data.mixture: {other.directory / found['file']}, the {side} "
        f"vocabulary, is not that of {first.directory} (SHA-256 "
        f"{found['sha256']} and {expected['sha256']}). Prepare it again with "
        f"--config.prepare.vocabulary.like={first.directory}."
      )


def _label_tables(
  first: Dataset, other: Dataset, features: Collection[str]
) -> dict[str, np.ndarray]:
  """Returns tables from label ids of another dataset to ids of the first.

  Args:
    first: Dataset of config.data.directory.
    other: Dataset of another folder.
    features: Names of the features that are read.

  Returns: table by feature name, only for features whose labels differ.
  """
  tables = {}
  for side, labels in other.manifest["relations"].items():
    known = first.manifest["relations"].get(side, [])
    if f"{side}_relation" in features and labels != known:
      ids = relation_ids(known)
      table = [NO_RELATION, *(ids.get(label, NO_RELATION) for label in labels)]
      tables[f"{side}_relation"] = np.array(table, np.int32)
      tables[f"{side}_other_relation"] = tables[f"{side}_relation"]
  for side, of_side in other.manifest.get("labels", {}).items():
    known_names = first.manifest.get("labels", {}).get(side, {})
    for name, labels in of_side.items():
      known = known_names.get(name, labels)
      if f"{side}_{name}" in features and labels != known:
        ids = label_ids(known)
        table = [NO_LABEL, *(ids.get(label, ids[UNKNOWN]) for label in labels)]
        tables[f"{side}_{name}"] = np.array(table, np.int32)
  return tables


def _unknown_relations(split: Split, tables: Tables) -> Iterator[str]:
  """Yields warnings about relations in a split that the first dataset lacks.

  Other annotations have an id for unknown labels in every dataset.
  """
  for name, table in tables.items():
    if not name.endswith("_relation") or name in ALTERNATIVES:
      continue
    lost = np.flatnonzero(table[1:] == NO_RELATION) + 1
    if not len(lost):
      continue
    count = sum(
      int(np.isin(rows.flat[name], lost).sum()) for rows in split.rows([name])
    )
    labels = split.dataset.manifest["relations"][name.partition("_")[0]]
    named = ", ".join(labels[i - 1] for i in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    yield (
      f"{split.dataset.directory}: {count:,} words have a relation that "
      "config.data.directory does not know, and are read without: "
      f"{named}{more}"
    )
