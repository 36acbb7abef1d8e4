"""Transforms that change decoded examples while data is read.

No transformed example is stored. A run applies these transforms, in this order:

  transform           option                applied to           file
  ControlTrees        config.data.tree      blocks of records    transforms
  SourceTags          config.data.second    blocks of records    transforms
  CorpusLabels        config.data.mixture   blocks of records    transforms
  SourceTags          config.data.mixture   blocks of records    transforms
  ResampledSubwords   config.data.sampling  batches of training  subword_sampling
  ResampledTrees      config.data.tree      batches of training  tree_sampling

The first four give the same result in every epoch, and so are applied when a
block of records is read (`TransformedExamples`). The examples of an auxiliary
task are made from transformed examples when a split is opened
(`with_auxiliary_task`).
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import (
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)

import numpy as np

from jaxsyn.data.loader import tasks
from jaxsyn.data.loader.windows import Window
from jaxsyn.data.options import Data
from jaxsyn.data.schema import COMPUTED_FROM, OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TreeControl, WrongParents
from jaxsyn.data.sentence.example import insert_tags, replace_trees
from jaxsyn.data.store.dataset import Examples, Split, block_starts
from jaxsyn.data.store.rows import (
  Example,
  Lengths,
  Rows,
  join_examples,
  lengths_of,
)
from jaxsyn.errors import InputError


class Transform:
  """Base class of transforms, which change examples after they are read.

  Attributes:
    tags: Number of subwords that are added to each nonempty source.
    summary: Description for the log; may be empty.
    recomputed: Features that are computed without reading their stored values.
  """

  tags: int = 0
  summary: str = ""
  recomputed: frozenset[str] = frozenset()

  def required(self, features: Collection[str]) -> set[str]:
    """Returns which features the transform reads to compute the given ones."""
    del features
    return set()

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    """Returns the transformed examples.

    Args:
      rows: Decoded examples.
      ids: Indices of the examples in the split.
      window: Epoch, and shuffling window that the examples are read for.
    """
    raise NotImplementedError


class ControlTrees(Transform):
  """Transform that replaces parse trees with linear, random or noisy trees."""

  def __init__(self, tree: TreeControl, seed: int):
    self._tree, self._seed = tree, seed

  def required(self, features: Collection[str]) -> set[str]:
    return {
      f"{side}_{name}"
      for side, name in itertools.product(
        sides_of_heads(features), ("id", "word", "head")
      )
    }

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    for side in sides_of_heads(rows.flat):
      rows = replace_trees(rows, side, tree=self._tree, seed=self._seed)
    return rows


def sides_of_heads(features: Iterable[str]) -> tuple[str, ...]:
  """Returns the sides (source, target) that have features based on parents."""
  stored = {COMPUTED_FROM.get(name, name) for name in features}
  return tuple(s for s in SIDES if {f"{s}_{n}" for n in OF_HEADS} & stored)


class SourceTags(Transform):
  """Transform that puts tag symbols before, or around, each nonempty source.

  Tags around the source select the task of translation, and a tag before it
  identifies the corpus of a mixture.
  """

  def __init__(self, tag: int, *, at_end: bool):
    self._tag, self._at_end = tag, at_end
    self.tags = 1 + at_end

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    return insert_tags(rows, self._tag, at_end=self._at_end)


class CorpusLabels(Transform):
  """Transform that converts a corpus's label ids to the main dataset's ids.

  Labels are dependency relations and annotations of words.
  """

  def __init__(self, tables: Mapping[str, np.ndarray]):
    self._tables = tables

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    names = self._tables.keys() & rows.flat.keys()
    mapped = {name: self._tables[name][rows.flat[name]] for name in names}
    return Rows({**rows.flat, **mapped}, rows.start)


class TransformedExamples(Examples):
  """Examples that are transformed when their block of records is read."""

  def __init__(self, examples: Examples, transforms: Sequence[Transform]):
    self._examples, self._transforms = examples, transforms
    self.block_start = examples.block_start

  @functools.cached_property
  def lengths(self) -> Lengths:  # type: ignore[override]  # computed on first use
    lengths = self._examples.lengths
    tags = sum(transform.tags for transform in self._transforms)
    source = lengths.source.astype(np.int32) + tags * (lengths.source > 1)
    dtype = np.min_scalar_type(source.max(initial=0))
    return lengths._replace(source=source.astype(dtype))

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    blocks = list(blocks)
    required = dict.fromkeys(features)
    for transform in self._transforms:
      required |= dict.fromkeys(sorted(transform.required(features)))
    decoded = self._examples.read_blocks(blocks, tuple(required))
    for block, rows in zip(blocks, decoded):
      ids = np.arange(*self.block_start[block : block + 2])
      for transform in self._transforms:
        rows = transform(rows, ids, (0, 0))
      yield rows.of_features(features)


class ExamplesInMemory(Examples):
  """Examples that are kept in memory because they are not stored as records.

  Attributes:
    all: Features of all examples.
  """

  def __init__(self, examples: Rows):
    self.all = examples
    self.block_start = block_starts(np.array([0, len(examples)]))

  @functools.cached_property
  def lengths(self) -> Lengths:  # type: ignore[override]  # computed on first use
    return lengths_of(self.all)

  def read_blocks(
    self, blocks: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    rows = self.all.of_features(features)
    for block in blocks:
      yield rows.take(np.arange(*self.block_start[block : block + 2]))


def translations(
  split: Split,
  data: Data,
  seed: int,
  *,
  transforms: Sequence[Transform] = (),
  tagged: bool = True,
) -> Examples:
  """Returns a split's examples with the configured tree type and task tags.

  Args:
    split: Opened split.
    data: Section config.data, with the kind of trees and the auxiliary task.
    seed: Value of config.seed, for random trees.
    transforms: Further transforms that do not depend on the epoch.
    tagged: Whether to add the tags that select translation.
  """
  applied: list[Transform] = []
  if data.tree.replaces:
    applied.append(ControlTrees(data.tree, seed))
  tag = tasks.tag(data.second, split.dataset.manifest)
  if tagged and tag is not None:
    applied.append(SourceTags(tag, at_end=True))
  applied += transforms
  return TransformedExamples(split, applied) if applied else split


def iterate_translations(
  split: Split, data: Data, seed: int
) -> Iterator[Example]:
  """Yields each translation example of a split with all its features."""
  for rows in translations(split, data, seed).rows(split.features):
    yield from rows.examples()


def with_auxiliary_task(
  split: Split, data: Data, seed: int, features: Sequence[str]
) -> tuple[ExamplesInMemory, collections.Counter[str]]:
  """Returns translation examples with auxiliary-task examples appended.

  Args:
    split: Opened split.
    data: Section config.data.
    seed: Value of config.seed, for random trees.
    features: Names of the features to keep.

  Returns: the examples, and the counts of `tasks.make_examples`.

  Raises:
    InputError: The auxiliary task has no example.
  """
  counts = collections.Counter[str]()
  parsed = translations(split, data, seed, tagged=False).rows(split.features)
  made = tasks.make_examples(
    itertools.chain.from_iterable(rows.examples() for rows in parsed),
    data.second,
    split.dataset.manifest,
    counts,
  )
  parts = [Rows.of([], features)]
  parts += translations(split, data, seed).rows(features)
  parts += [rows.of_features(features) for rows in join_examples(made)]
  if not counts["second"]:
    raise InputError(
      f"config.data.second: no example is left of {len(split)} pairs "
      f"({tasks.summary(counts)}). Look at the {data.second.brackets} trees."
    )
  return ExamplesInMemory(Rows.joined(parts)), counts


def wrong_parents(split: Split, data: Data, seed: int) -> dict[str, float]:
  """Returns the fraction of words given an artificial wrong parent, by side.

  All trees are read. Sentences without a tree do not count; roots and one-word
  sentences do. The result is empty unless config.data.tree is "wrong_parents".
  """
  if not isinstance(data.tree, WrongParents):
    return {}
  words, wrong = collections.Counter[str](), collections.Counter[str]()
  sides = [side for side in SIDES if f"{side}_head" in split.features]
  pairs = itertools.product(sides, ("id", "word", "head", "parsed"))
  for rows in split.rows([f"{side}_{name}" for side, name in pairs]):
    for side in sides:
      head = f"{side}_head"
      replaced = replace_trees(rows, side, tree=data.tree, seed=seed)
      counts_W = np.repeat(rows.flat[f"{side}_parsed"] > 0, rows.sizes(head))
      differs_W = replaced.flat[head] != rows.flat[head]
      words[side] += int(counts_W.sum())
      wrong[side] += int((differs_W & counts_W).sum())
  return {side: wrong[side] / words[side] for side in sides if words[side]}
