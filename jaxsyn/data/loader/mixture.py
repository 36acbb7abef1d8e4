"""Several dataset directories as one training split: config.data.mixture.

For back-translations, other domains and other languages. All directories share one
vocabulary; ids of relations and annotations are mapped to those of
config.data.directory. The rate of a corpus says how often an epoch reads it: that many
complete times, and a part that is drawn again in each epoch
(`jaxsyn.data.loader.batch_sampler`).

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
from jaxsyn.data.store.lengths import Lengths
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

Tables = Mapping[str, np.ndarray]


def tags(mixture: Mixture, manifest: Mapping[str, Any]) -> list[int]:
  """Returns the ids of the corpus tags, one for each folder; none without tags."""
  first = manifest["vocabulary"]["source"]["size"]
  return [first + k for k in range(len(mixture.folders) * mixture.tags)]


def rates(mixture: Mixture, sizes: Sequence[int]) -> list[float]:
  """Returns how often an epoch reads each corpus.

  With a temperature of 1 that is its weight. Otherwise the weight is multiplied so that
  the numbers of examples n_i are proportional to N_i^(1/T), with an unchanged total.

  Args:
    mixture: config.data.mixture.
    sizes: Number of examples of config.data.directory and of each folder.

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
  """Maps ids of relations and annotations to those of config.data.directory."""

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
  """Puts a tag, which names the corpus, before each source that is not empty.

  The tag belongs to no word and is its own parent, as EOS is.
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
  """A corpus of a mixture.

  Attributes:
    name: Name in the log.
    examples: Its examples, with labels and tags of the mixture.
  """

  name: str
  examples: Examples


class MixedExamples(Examples):
  """The examples of several corpora, one corpus after the other.

  Attributes:
    corpora: The corpora.
    rates: How often an epoch reads each corpus.
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
    """Number of examples that an epoch reads."""
    corpora = zip(self.corpora, self.rates)
    return round(sum(len(one.examples) * rate for one, rate in corpora))

  @property
  def block_rates(self) -> np.ndarray:
    """How often an epoch reads each block."""
    blocks = [len(one.examples.block_start) - 1 for one in self.corpora]
    return np.repeat(self.rates, blocks)

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Reads blocks, given in ascending order."""
    blocks, first = np.fromiter(blocks, np.int64), 0
    for corpus in self.corpora:
      end = first + len(corpus.examples.block_start) - 1
      local = blocks[(blocks >= first) & (blocks < end)] - first
      yield from corpus.examples.read_blocks(local.tolist(), features)
      first = end

  def count(self, ids: np.ndarray) -> dict[str, int]:
    """Returns how many of some examples each corpus has, by its name."""
    corpus_of_id = np.searchsorted(self._ends, ids, "right")
    counts = np.bincount(corpus_of_id, minlength=len(self.corpora)).tolist()
    return {one.name: n for one, n in zip(self.corpora, counts)}

  def summary(self) -> str:
    """Describes how many examples of each corpus an epoch reads."""
    each = (
      f"{one.name} {len(one.examples):,} x {rate:.4g}"
      for one, rate in zip(self.corpora, self.rates)
    )
    return f"examples an epoch: {', '.join(each)}"


def open_splits(
  mixture: Mixture, name: str, required: Collection[str]
) -> list[Split]:
  """Opens a split of each folder of a mixture.

  Args:
    mixture: config.data.mixture.
    name: Name of the split.
    required: Features that modifiers and losses read.

  Raises:
    InputError: A folder is no dataset directory, or lacks a feature; names it.
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
  """Returns the examples of a mixture.

  Args:
    first: Split of config.data.directory, and its examples.
    others: Splits of the folders, of `open_splits`.
    data: config.data.
    seed: config.seed, for random trees.
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
  """Returns the last part of each path, or the path where parts are equal."""
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
  """Returns the ids in the first dataset of the other's labels, where they differ.

  Args:
    first: The dataset of config.data.directory.
    other: The other dataset.
    features: Names of the features that are read.
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
  """Yields warnings about relations without an id in the first dataset.

  Other annotations have an id for unknown labels, in any data.
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
