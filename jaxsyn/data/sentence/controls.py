"""Types of dependency trees: parsed, noisy, and artificial control trees.

A control (linear or random trees) is independent of the text, so it shows what a
system gains from any tree. `sentence.example.replace_trees` replaces the parser's
trees. Sampled trees differ from the parser's in training only
(`loader.tree_sampling`). Trees with wrong parents show how much a system suffers from
parser errors.
"""

from __future__ import annotations

import dataclasses
import random as random_numbers
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np

from jaxsyn.data.sentence.noise import wrong_parents
from jaxsyn.options import Choice, Registry, option
from jaxsyn.options.bounds import Range


@dataclasses.dataclass(frozen=True)
class TreeControl(Choice):
  """Base class of tree types: parsed, noisy and artificial control trees.

  Attributes:
    control: Whether the trees are independent of the text.
    replaces: Whether `heads` differs from the parser's parents.
    seeded: Whether `heads` depends on the seeds.
    sampled: Whether training samples other trees in every epoch.
  """

  control: ClassVar[bool] = True
  replaces: ClassVar[bool] = True
  seeded: ClassVar[bool] = False
  sampled: ClassVar[bool] = False

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, seeds: Sequence[int]
  ) -> np.ndarray:
    """Returns the parent of each word in trees of this type (int32).

    Changes that are sampled in training are not included.

    Args:
      head_W: The parser's parents of all sentences, one after the other.
      words: Number of words of each sentence.
      seeds: Random seed of each sentence in this run.
    """
    return head_W


@dataclasses.dataclass(frozen=True)
class Parsed(TreeControl):
  """The parser's dependency trees, unchanged."""

  control: ClassVar[bool] = False
  replaces: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class Sampled(Parsed):
  """The parser's trees, changed at random in training to reduce overfitting.

  One of the given parses (config.prepare.parse.source_alternatives) is sampled,
  each equally often; then some parents are replaced, as if the parser had made
  errors. Source: ours.
  """

  sampled: ClassVar[bool] = True

  rate: Annotated[float, Range(0, 1)] = option(
    0.1,
    "Probability that a word's parent is replaced in an epoch. The new parent "
    "is a random word such that the result is still a tree; the relation is "
    "kept.",
  )


@dataclasses.dataclass(frozen=True)
class Linear(TreeControl):
  """Linear control trees: each word depends on the word before it."""

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, seeds: Sequence[int]
  ) -> np.ndarray:
    first_W = np.repeat(np.cumsum(words) - words, words)
    word_W = np.arange(len(first_W)) - first_W
    return np.maximum(word_W - 1, 0).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Random(TreeControl):
  """Random control trees over the same words, determined by the run's seed."""

  seeded: ClassVar[bool] = True

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, seeds: Sequence[int]
  ) -> np.ndarray:
    return random_trees(words, seeds)


@dataclasses.dataclass(frozen=True)
class WrongParents(TreeControl):
  """The parser's trees with a fixed fraction of wrong parents.

  A sentence has the same tree in every epoch, in validation and in translation, but
  different trees in runs of different seeds. Source: ours.
  """

  control: ClassVar[bool] = False
  seeded: ClassVar[bool] = True

  rate: Annotated[float, Range(0, 1)] = option(
    0.3,
    "Fraction of the words in each sentence whose parent is replaced by a "
    "wrong one, randomly rounded to a whole number of words. The result is "
    "still a tree with the same number of roots; relations are kept.",
  )

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, seeds: Sequence[int]
  ) -> np.ndarray:
    sentences = np.split(head_W, np.cumsum(words))[:-1]
    trees = [
      wrong_parents(sentence_W, self.rate, seed)
      for sentence_W, seed in zip(sentences, seeds, strict=True)
    ]
    return np.concatenate([np.zeros(0, np.int32), *trees])


_TREES_TOGETHER = 512  # trees of similar size that are decoded in parallel


def random_trees(words: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
  """Returns trees sampled uniformly from all rooted trees on the words.

  A random Prüfer sequence gives each labeled tree equally often. The random
  numbers come from Python's Mersenne Twister, whose floats never change, so a seed
  gives the same tree in any version and on any machine.

  Args:
    words: Number of words of each tree.
    seeds: Seed of each tree.
  """
  drawn: list[float] = []
  for size, seed in zip(words.tolist(), seeds, strict=True):
    if size > 1:
      draw = random_numbers.Random(seed).random
      drawn += [draw() for _ in range(size - 1)]
  draw_D = np.array(drawn)  # for each tree: its sequence, then its root
  count = np.maximum(words - 1, 0)
  first_draw, first_word = np.cumsum(count) - count, np.cumsum(words) - words
  head_W = np.zeros(int(words.sum()), np.int32)
  order = np.argsort(words, kind="stable")
  order = order[words[order] > 1]
  for i in range(0, len(order), _TREES_TOGETHER):
    trees = order[i : i + _TREES_TOGETHER]
    size = words[trees]
    word_W = np.arange(size[-1])
    index_BW = first_draw[trees, None] + np.minimum(word_W, size[:, None] - 2)
    number_BW = (draw_D[index_BW] * size[:, None]).astype(np.int64)
    root = number_BW[np.arange(len(trees)), size - 2]
    parent_BW = _decode_pruefer(number_BW, size)
    _reroot(parent_BW, root, size)
    is_word_BW = word_W < size[:, None]
    index_BW = first_word[trees, None] + word_W
    head_W[index_BW[is_word_BW]] = parent_BW[is_word_BW]
  return head_W


def _decode_pruefer(number_BW: np.ndarray, size: np.ndarray) -> np.ndarray:
  """Decodes Prüfer sequences into trees, given as parents of words.

  The root of each tree is its last word.

  Args:
    number_BW: Sequence of each tree in the first size - 2 columns.
    size: Number of words of each tree, ascending, at least 2.
  """
  trees, width = number_BW.shape
  tree_B, word_W = np.arange(trees), np.arange(width)
  in_sequence_BW = word_W < size[:, None] - 2
  # The word that the leaf of each step joins; after the sequence, the last word.
  joined_BW = np.where(in_sequence_BW, number_BW, size[:, None] - 1)
  degree_BW = (word_W < size[:, None]).astype(np.int32)
  tree, _ = np.nonzero(in_sequence_BW)
  np.add.at(degree_BW, (tree, joined_BW[in_sequence_BW]), 1)
  parent_BW = np.repeat(size[:, None] - 1, width, 1)
  for step in range(width - 1):
    live = tree_B[np.searchsorted(size, step + 2) :]  # trees with so many steps
    leaf = (degree_BW[live] == 1).argmax(1)  # the smallest one
    joined = joined_BW[live, step]
    parent_BW[live, leaf] = joined
    degree_BW[live, leaf] = 0
    degree_BW[live, joined] -= 1
  return parent_BW


def _reroot(parent_BW: np.ndarray, root: np.ndarray, size: np.ndarray) -> None:
  """Changes the root of each tree from its last word to a given word."""
  live = np.arange(len(root))
  word, new_parent = root, root
  while len(live):
    old_parent = parent_BW[live, word]
    parent_BW[live, word] = new_parent
    is_open = word != size[live] - 1
    live, new_parent, word = live[is_open], word[is_open], old_parent[is_open]


TREES: Registry[TreeControl] = Registry(
  "trees",
  {
    "parsed": Parsed,
    "sampled": Sampled,
    "wrong_parents": WrongParents,
    "linear": Linear,
    "random": Random,
  },
)
