"""Several prepared folders as one training split: config.data.mixture.

Back-translations, other domains, other languages. The vocabulary is one, so that
ids mean the same; ids of relations, and of lemmas and the like, become those of
config.data.directory. An epoch
goes through a corpus as often as its rate says: so many whole times, and through
a part that is drawn anew each epoch (`windows`).

Before this file: `jaxsyn.data.store.prepared`. After it: `held`, `windows`.

Source: rates by temperature, n_i ∝ N_i^(1/T): Arivazhagan et al. 2019
(arXiv:1907.05019), section 4.2; tags: Caswell et al. 2019 (arXiv:1906.06442).

Letters: C corpus; U block.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data.annotations import NO_LABEL, UNKNOWN, label_ids
from jaxsyn.data.loader.examples import Blocks
from jaxsyn.data.options import Mixture
from jaxsyn.data.schema import (
  ALTERNATIVES,
  FEATURES,
  NO_RELATION,
  relation_ids,
)
from jaxsyn.data.store import manifests
from jaxsyn.data.store.lengths import Lengths
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError


def tags(mixture: Mixture, manifest: Mapping[str, Any]) -> list[int]:
  """Ids of the tags, one a folder of the mixture; none unless asked for."""
  first = manifest["vocabulary"]["source"]["size"]
  return [first + k for k in range(len(mixture.folders) * mixture.tags)]


def rates(mixture: Mixture, sizes: Sequence[int]) -> list[float]:
  """How often an epoch goes through each corpus.

  With a temperature of 1 that is its weight; else it is multiplied so that n_i
  examples of it, of as many as all have, are in proportion to N_i^(1/T).

  Args:
    mixture: config.data.mixture.
    sizes: N_i, examples of config.data.directory and of each folder.

  Raises:
    InputError: weights that do not fit the folders, or are all 0.
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


@dataclasses.dataclass(frozen=True)
class _Corpus:
  """A corpus, and what makes its examples those of the mixture.

  Attributes:
    name: for the log.
    files: its examples.
    relations: feature -> id here of each id there; of lemmas and the like too.
    tag: put before each source; None: none.
  """

  name: str
  files: Blocks
  relations: Mapping[str, np.ndarray]
  tag: int | None

  @property
  def lengths(self) -> Lengths:
    lengths = self.files.lengths
    if self.tag is None:
      return lengths
    longer = lengths.source.astype(np.int32) + (lengths.source > 1)
    return lengths._replace(
      source=longer.astype(np.min_scalar_type(longer.max(initial=0)))
    )

  def read(
    self, numbers: Sequence[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    for rows in self.files.read(numbers, features):
      flat, start = dict(rows.flat), dict(rows.start)
      for name in features:
        if name in self.relations:
          flat[name] = self.relations[name][flat[name]]
        if self.tag is not None and FEATURES[name].axes == "S":
          flat[name], start[name] = _tagged(rows, name, self.tag)
      yield Rows(flat, start)


def _tagged(rows: Rows, name: str, tag: int) -> tuple[np.ndarray, np.ndarray]:
  """Values and starts with a tag before each source that is not empty.

  It belongs to no word and is its own parent, as EOS is.
  """
  size = rows.sizes(name)
  grown = size > 1
  start = np.cumsum(np.append(0, size + grown))
  new = np.zeros(start[-1], bool)
  new[start[:-1][grown]] = True
  flat = np.empty(start[-1], rows.flat[name].dtype)
  if name == "source_parent_mid":  # places, one further on
    flat[~new] = rows.flat[name] + np.repeat(grown, size)
  else:
    flat[~new] = rows.flat[name]
  # Of a subword that is new, what pads have: it is of no word, and so on.
  flat[new] = tag if name == "source_id" else FEATURES[name].fill
  return flat, start


@dataclasses.dataclass(frozen=True)
class MixedCorpora:
  """Columns of several corpora, one after the other; see `Blocks`.

  Attributes:
    corpora: the corpora.
    lengths, start: of all of them.
    rates: how often an epoch goes through each.
    notes: what the reader is told.
  """

  corpora: Sequence[_Corpus]
  lengths: Lengths
  start: np.ndarray
  rates: Sequence[float]
  messages: Sequence[str] = ()

  def __len__(self) -> int:
    return len(self.lengths.source)

  @property
  def rate_U(self) -> np.ndarray:
    """How often an epoch goes through each block."""
    blocks = [len(corpus.files.start) - 1 for corpus in self.corpora]
    return np.repeat(self.rates, blocks)

  def read(
    self, numbers: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Some blocks, ascending."""
    numbers, first = np.fromiter(numbers, np.int64), 0
    for corpus in self.corpora:
      end = first + len(corpus.files.start) - 1
      local_ids = numbers[(numbers >= first) & (numbers < end)] - first
      yield from corpus.read(local_ids.tolist(), features)
      first = end

  def count(self, ids: np.ndarray) -> dict[str, int]:
    """How many of some examples are of which corpus."""
    sizes = [len(corpus.files) for corpus in self.corpora]
    corpus_of_id = np.searchsorted(np.cumsum(sizes), ids, "right")
    counts = np.bincount(corpus_of_id, minlength=len(sizes)).tolist()
    return {c.name: n for c, n in zip(self.corpora, counts)}


def mix(
  first: PreparedSplit,
  others: Mapping[str, PreparedSplit],
  files: Sequence[Blocks],
  *,
  mixture: Mixture,
  features: Collection[str],
) -> MixedCorpora:
  """The split of a mixture.

  Args:
    first: of config.data.directory.
    others: by folder.
    files: the columns of each of them, in this order.
    mixture: config.data.mixture.
    features: names of those that are read.

  Raises:
    InputError: vocabularies differ, or weights do not fit.
  """
  tagged: Sequence[int | None] = tags(mixture, first.manifest)
  put = [None, *(tagged or [None] * len(others))]
  messages, corpora = list[str](), list[_Corpus]()
  names = _names([str(first.directory), *others])
  splits = [first, *others.values()]
  for name, split, columns, tag in zip(names, splits, files, put):
    _check_vocabulary(first, split)
    relations = _relations(first, split, features)
    messages += _unknown(split, columns, relations)
    corpora.append(_Corpus(name, columns, relations, tag))
  lengths = zip(*(corpus.lengths for corpus in corpora))
  sizes = [len(columns) for columns in files]
  ends = np.cumsum([0, *sizes])
  start = [columns.start[:-1] + end for columns, end in zip(files, ends)]
  return MixedCorpora(
    corpora,
    Lengths(*map(np.concatenate, lengths)),
    np.concatenate([*start, ends[-1:]]),
    rates(mixture, sizes),
    messages,
  )


def _names(folders: Sequence[str]) -> list[str]:
  """Short and different."""
  short = [pathlib.PurePath(folder).name for folder in folders]
  often = collections.Counter(short)
  return [
    name if often[name] == 1 else folder for name, folder in zip(short, folders)
  ]


def _check_vocabulary(first: PreparedSplit, other: PreparedSplit) -> None:
  for side, expected in first.manifest["vocabulary"].items():
    sha256 = other.manifest["vocabulary"][side]
    if sha256["sha256"] != expected["sha256"]:
      raise InputError(
        f"config.data.mixture: {other.directory / sha256['file']}, the {side} "
        f"vocabulary, is not that of {first.directory} (SHA-256 "
        f"{sha256['sha256']} and {expected['sha256']}). Prepare it anew with "
        f"--config.prepare.vocabulary.like={first.directory}."
      )


def _relations(
  first: PreparedSplit, other: PreparedSplit, features: Collection[str]
) -> dict[str, np.ndarray]:
  """Feature -> id of the first of each id of the other, where they differ."""
  relations = {}
  for side, labels in other.manifest["relations"].items():
    ours = first.manifest["relations"].get(side, [])
    if f"{side}_relation" in features and labels != ours:
      ids = relation_ids(ours)
      table = [NO_RELATION, *(ids.get(label, NO_RELATION) for label in labels)]
      relations[f"{side}_relation"] = np.array(table, np.int32)
      relations[f"{side}_other_relation"] = relations[f"{side}_relation"]
  for side, of_side in other.manifest.get("labels", {}).items():
    known = first.manifest.get("labels", {}).get(side, {})
    for name, labels in of_side.items():
      ours = known.get(name, labels)
      if f"{side}_{name}" in features and labels != ours:
        ids = label_ids(ours)
        table = [NO_LABEL, *(ids.get(label, ids[UNKNOWN]) for label in labels)]
        relations[f"{side}_{name}"] = np.array(table, np.int32)
  return relations


def _unknown(
  split: PreparedSplit, files: Blocks, relations: Mapping[str, np.ndarray]
) -> Iterator[str]:
  """What is to be told of relations that have no id in the first corpus."""
  for name, table in relations.items():
    if not name.endswith("_relation") or name in ALTERNATIVES:
      continue  # of others that are unknown there are in any data
    lost = np.flatnonzero(table[1:] == NO_RELATION) + 1
    if not len(lost):
      continue
    count = 0
    for rows in files.read(range(len(files.start) - 1), [name]):
      count += int(np.isin(rows.flat[name], lost).sum())
    labels = split.manifest["relations"][name.partition("_")[0]]
    named = ", ".join(labels[i - 1] for i in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    yield (
      f"{split.directory}: {count:,} words have a relation that "
      f"config.data.directory does not know, and are read without: {named}{more}"
    )


def open_corpora(
  mixture: Mixture, name: str, required: Collection[str]
) -> dict[str, PreparedSplit]:
  """The splits of the folders, by folder.

  Args:
    mixture: config.data.mixture.
    name: of the split.
    required: features that parts and losses read.

  Raises:
    InputError: a folder is none, or lacks what is read; names it.
  """
  splits = {}
  for folder in mixture.folders:
    if folder in splits:
      raise InputError(
        f"config.data.mixture.folders has {folder} twice; raise its weight."
      )
    splits[folder] = PreparedSplit(folder, name)
    try:
      manifests.features_for(splits[folder].manifest, required)
    except InputError as error:
      raise InputError(f"config.data.mixture, {folder}: {error}") from None
  return splits
