"""Transforms of decoded examples, which are applied while data is read.

No transformed example is stored. A run applies these transforms, in this order:

  transform             option                    scope   file
  ControlTrees          config.data.tree          block   transforms
  TaskTags              config.data.second        block   transforms
  CorpusLabels          config.data.mixture       block   mixture
  CorpusTag             config.data.mixture       block   mixture
  ResampledSubwords     config.data.sampling      window  subword_sampling
  ResampledTrees        config.data.tree          batch   tree_sampling

The scope is the set of examples that a transform receives at a time. A
transform with the scope "block" gives the same result in every epoch, so it is
applied when a block of records is read. The examples of an auxiliary task are
made from transformed examples when a split is opened (`with_auxiliary_task`).
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np

from jaxsyn.data.loader import tasks
from jaxsyn.data.options import Data
from jaxsyn.data.schema import OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TreeControl, WrongParents
from jaxsyn.data.sentence.example import retree, tagged_rows
from jaxsyn.data.store.dataset import Examples, Split, block_starts
from jaxsyn.data.store.index import Lengths, lengths_of
from jaxsyn.data.store.rows import Example, Rows, together

# Index of an epoch, and index of a shuffling window of examples in it.
Window = tuple[int, int]


class Transform:
  """Base class of functions that change decoded examples.

  Attributes:
    scope: Set of examples that is passed at a time.
    summary: Description for the log; empty for none.
    recomputed: Features that are computed without reading their stored values.
  """

  recomputed: frozenset[str] = frozenset()
  scope: ClassVar[Literal["block", "window", "batch"]] = "block"
  summary: str = ""

  def required(self, features: Collection[str]) -> set[str]:
    """Returns the features that must be read to compute given features."""
    del features
    return set()

  def lengths(self, lengths: Lengths) -> Lengths:
    """Returns the lengths of all examples after the transform."""
    return lengths

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    """Returns the transformed examples.

    Args:
      rows: Decoded examples.
      ids: Indices of the examples in the split, ascending.
      window: Epoch, and shuffling window that the examples are read for.
    """
    raise NotImplementedError


class ControlTrees(Transform):
  """Transform that replaces parse trees with linear, random or wrong trees."""

  def __init__(self, tree: TreeControl, seed: int):
    self._tree, self._seed = tree, seed

  def _sides(self, features: Collection[str]) -> list[str]:
    return [
      side
      for side in SIDES
      if any(f"{side}_{name}" in features for name in OF_HEADS)
    ]

  def required(self, features: Collection[str]) -> set[str]:
    sides = self._sides(features)
    return {f"{side}_{n}" for side in sides for n in ("id", "word", "head")}

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    for side in self._sides(rows.flat):
      rows = retree(rows, side, tree=self._tree, seed=self._seed)
    return rows


class TaskTags(Transform):
  """Transform that puts tags around each source to select translation.

  Empty sources have no tags.
  """

  def __init__(self, tag: int):
    self._tag = tag

  def lengths(self, lengths: Lengths) -> Lengths:
    return longer_sources(lengths, 2)

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    return tagged_rows(rows, self._tag)


def longer_sources(lengths: Lengths, tags: int) -> Lengths:
  """Returns lengths with a number of tags added to each nonempty source."""
  longer = lengths.source.astype(np.int32) + tags * (lengths.source > 1)
  dtype = np.min_scalar_type(longer.max(initial=0))
  return lengths._replace(source=longer.astype(dtype))


class TransformedExamples(Examples):
  """Examples to which transforms are applied when a block of them is read."""

  def __init__(self, examples: Examples, transforms: Sequence[Transform]):
    self._examples, self._transforms = examples, transforms
    self.block_start = examples.block_start

  @functools.cached_property
  def lengths(self) -> Lengths:  # type: ignore[override]  # computed on first use
    return functools.reduce(
      lambda lengths, transform: transform.lengths(lengths),
      self._transforms,
      self._examples.lengths,
    )

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
  """Examples that are all in memory, since they are not stored in records.

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
      yield rows.part(*self.block_start[block : block + 2].tolist())


def transformed(
  examples: Examples, transforms: Sequence[Transform]
) -> Examples:
  """Returns examples that are transformed when a block of them is read.

  Args:
    examples: Original examples.
    transforms: Transforms with the scope "block", in order.
  """
  return TransformedExamples(examples, transforms) if transforms else examples


def control_trees(data: Data, seed: int) -> list[Transform]:
  """Returns a list with the transform that replaces parse trees, if any."""
  return [ControlTrees(data.tree, seed)] if data.tree.replaces else []


def translations(split: Split, data: Data, seed: int) -> Examples:
  """Returns a split's examples of translation, with control trees and tags.

  Args:
    split: Opened split.
    data: Section config.data, with the kind of trees and the auxiliary task.
    seed: Value of config.seed, for random trees.
  """
  tag = tasks.tag(data.second, split.dataset.manifest)
  tags = [] if tag is None else [TaskTags(tag)]
  return transformed(split, [*control_trees(data, seed), *tags])


def iterate_translations(
  split: Split, data: Data, seed: int
) -> Iterator[Example]:
  """Yields each example of `translations` with all of its features."""
  for rows in translations(split, data, seed).rows(split.features):
    yield from rows.examples()


def with_auxiliary_task(
  split: Split, data: Data, seed: int, features: Sequence[str]
) -> tuple[ExamplesInMemory, collections.Counter[str]]:
  """Returns examples of translation followed by auxiliary-task examples.

  Args:
    split: Opened split.
    data: Section config.data.
    seed: Value of config.seed, for random trees.
    features: Names of the features to keep.

  Returns: the examples, and the counts of `tasks.make_examples`.
  """
  counts = collections.Counter[str]()
  parsed = transformed(split, control_trees(data, seed))
  made = tasks.make_examples(
    (one for rows in parsed.rows(split.features) for one in rows.examples()),
    data.second,
    split.dataset.manifest,
    counts,
  )
  first = translations(split, data, seed).rows(features)
  parts = [*first, *(rows.of_features(features) for rows in together(made))]
  return ExamplesInMemory(Rows.joined([Rows.of([], features), *parts])), counts


def wrong_parents(split: Split, data: Data, seed: int) -> dict[str, float]:
  """Returns the fraction of words in a split with a wrong parent, by side.

  All trees are read. Sentences without a tree do not count; roots and one-word
  sentences do. The result is empty unless config.data.tree is "wrong_parents".
  """
  if not isinstance(data.tree, WrongParents):
    return {}
  words, wrong = collections.Counter[str](), collections.Counter[str]()
  sides = [side for side in SIDES if f"{side}_head" in split.features]
  parts = ("id", "word", "head", "parsed")
  for rows in split.rows([f"{side}_{n}" for side in sides for n in parts]):
    for side in sides:
      head = f"{side}_head"
      replaced = retree(rows, side, tree=data.tree, seed=seed)
      parsed = rows.flat[f"{side}_parsed"] > 0
      counts_W = np.repeat(parsed, rows.sizes(head))
      words[side] += int(counts_W.sum())
      differs_W = replaced.flat[head] != rows.flat[head]
      wrong[side] += int((differs_W & counts_W).sum())
  return {side: wrong[side] / words[side] for side in sides if words[side]}
