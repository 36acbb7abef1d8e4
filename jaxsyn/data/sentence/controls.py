"""Which trees the model is given: the parser's, or others to compare with.

A control says nothing of the text, so it shows what a system gains from any
tree. `jaxsyn.data.sentence.example.retree` puts it in the place of the parser's.
Sampled trees are no control: the parser's, but for training, where
`jaxsyn.data.loader.tree_sampling` draws others. Trees with wrong parents are no
control either: they show how much a system suffers from errors of a parser.
"""

from __future__ import annotations

import dataclasses
import random as random_numbers
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import numpy as np

from jaxsyn.options import Choice, Registry, option
from jaxsyn.options.bounds import Range


@dataclasses.dataclass(frozen=True)
class TreeControl(Choice):
  """A kind of trees."""

  control: ClassVar[bool] = True  # says nothing about the text
  replaces: ClassVar[bool] = True  # `heads` differs from the parser's heads
  seeded: ClassVar[bool] = False  # `heads` depends on the number
  sampled: ClassVar[bool] = False  # training draws others, in every epoch

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, numbers: Sequence[int]
  ) -> np.ndarray:
    """Returns the parents in these trees, int32; sampled trees: without sampling.

    Args:
      head_W: The parser's parents, of all sentences one after the other.
      words: Words of each sentence.
      numbers: Number of each sentence in runs of this seed.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Parsed(TreeControl):
  """The parser's trees."""

  control: ClassVar[bool] = False
  replaces: ClassVar[bool] = False

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, numbers: Sequence[int]
  ) -> np.ndarray:
    return head_W


@dataclasses.dataclass(frozen=True)
class Sampled(Parsed):
  """The parser's trees; others in training, so that none is relied on alone.

  One of the parses that were given is drawn, then some parents are replaced, as
  if the parser erred. Source: ours.
  """

  sampled: ClassVar[bool] = True

  rate: Annotated[float, Range(0, 1)] = option(
    0.1,
    "How probably a word's parent is replaced, in each epoch anew, by any other "
    "word under which the sentence still is a tree; its relation is kept.",
  )
  alternatives: bool = option(
    True,
    "Draws one of all parses first, where more than the best were given "
    "(config.prepare.parse.source_alternatives): each equally often.",
  )


@dataclasses.dataclass(frozen=True)
class Linear(TreeControl):
  """Each word depends on the word before it."""

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, numbers: Sequence[int]
  ) -> np.ndarray:
    return linear_trees(words)


@dataclasses.dataclass(frozen=True)
class Random(TreeControl):
  """A random tree of the same words, another for each seed of a run."""

  seeded: ClassVar[bool] = True

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, numbers: Sequence[int]
  ) -> np.ndarray:
    return random_trees(words, numbers)


@dataclasses.dataclass(frozen=True)
class WrongParents(TreeControl):
  """The parser's trees with a fixed rate of wrong parents.

  A sentence has the same tree in every epoch, in validation and in translation,
  and another one in runs of other seeds. Source: ours.
  """

  control: ClassVar[bool] = False
  seeded: ClassVar[bool] = True

  rate: Annotated[float, Range(0, 1)] = option(
    0.3,
    "Share of each sentence's words whose parent is replaced by a wrong one, "
    "rounded to whole words at random. The sentence still is a tree with as many "
    "roots; relations are kept.",
  )

  def heads(
    self, head_W: np.ndarray, words: np.ndarray, numbers: Sequence[int]
  ) -> np.ndarray:
    sentences = np.split(head_W, np.cumsum(words))[:-1]
    made = [
      wrong_parents(own_W, self.rate, seed)
      for own_W, seed in zip(sentences, numbers, strict=True)
    ]
    return np.concatenate([np.zeros(0, np.int32), *made])


def linear_trees(words: np.ndarray) -> np.ndarray:
  """Returns the control trees in which each word's parent is the word before it.

  Args:
    words: Words of each tree.

  Returns: int32 parents, one tree after the other.
  """
  first_W = np.repeat(np.cumsum(words) - words, words)
  word_W = np.arange(len(first_W)) - first_W
  return np.maximum(word_W - 1, 0).astype(np.int32)


_TOGETHER = 512  # trees of similar size that are decoded in parallel


def random_trees(words: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
  """Returns control trees: uniform among the labelled trees, with a uniform root.

  A random Prüfer sequence names each labelled tree equally often. The numbers come
  from Python's Mersenne Twister, whose floats never change, so a seed means the same
  tree in any version and on any machine.

  Args:
    words: Words of each tree.
    seeds: Seed of each tree.

  Returns: int32 parents, one tree after the other.
  """
  drawn: list[float] = []
  for size, seed in zip(words.tolist(), seeds, strict=True):
    if size > 1:
      draw = random_numbers.Random(seed).random
      drawn += [draw() for _ in range(size - 1)]
  draw_D = np.array(drawn)  # of each tree its sequence, then its root
  count = np.maximum(words - 1, 0)
  first_draw, first_word = np.cumsum(count) - count, np.cumsum(words) - words
  head_W = np.zeros(int(words.sum()), np.int32)
  order = np.argsort(words, kind="stable")
  order = order[words[order] > 1]
  for i in range(0, len(order), _TOGETHER):
    some = order[i : i + _TOGETHER]
    size = words[some]
    word_W = np.arange(size[-1])
    place_BW = first_draw[some, None] + np.minimum(word_W, size[:, None] - 2)
    number_BW = (draw_D[place_BW] * size[:, None]).astype(np.int64)
    root = number_BW[np.arange(len(some)), size - 2]
    parent_BW = _of_pruefer(number_BW, size)
    _reroot(parent_BW, root, size)
    is_word_BW = word_W < size[:, None]
    place_BW = first_word[some, None] + word_W
    head_W[place_BW[is_word_BW]] = parent_BW[is_word_BW]
  return head_W


def _of_pruefer(number_BW: np.ndarray, size: np.ndarray) -> np.ndarray:
  """Decodes Prüfer sequences of several trees, each rooted at its last word.

  Args:
    number_BW: The sequence of each tree in its first size - 2 columns.
    size: Words of each tree, ascending, at least 2.
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
  """Turns the edges between each tree's root, its last word, and another word.

  Args:
    parent_BW: Parents, changed in place.
    root: The new root of each tree.
    size: Words of each tree.
  """
  live = np.arange(len(root))
  word, new_parent = root, root
  while len(live):
    old_parent = parent_BW[live, word]
    parent_BW[live, word] = new_parent
    goes_on = word != size[live] - 1
    live, new_parent, word = live[goes_on], word[goes_on], old_parent[goes_on]


def wrong_parents(head_W: np.ndarray, rate: float, seed: int) -> np.ndarray:
  """Replaces the parents of some words of a tree; returns a tree, int32 W.

  Of `rate * W` words, rounded up or down at random so that the expectation is
  exact, each gets a parent that it does not have in `head_W`. The words are
  drawn uniformly. The number of roots stays: where a root is drawn, another drawn
  word becomes a root in its place, and the old root gets a parent in the tree of
  the new one. So a root is never the only wrong word of a sentence. Any word
  outside the subtree of a word may become its new parent, each equally often.

  Fewer words are wrong where no tree has so many: one word, or words that are each
  their own root, stay as they are; of two words in a tree both or none are wrong.

  Args:
    head_W: parent of each word; a root is its own.
    rate: share of wrong parents, 0 to 1.
    seed: of the draws, which come from Python's Mersenne Twister (see `random_trees`).
  """
  draw = random_numbers.Random(seed).random
  parsed = head_W.tolist()
  count = int(rate * len(parsed) + draw())
  best, most_wrong = parsed, 0
  for _ in range(_TRIES):
    heads, wrong = _with_wrong_parents(parsed, count, draw)
    if wrong > most_wrong:
      best, most_wrong = heads, wrong
    if most_wrong == count:
      break
  return np.array(best, np.int32)


_TRIES = 20  # a draw of parents may leave none for the last words


def _with_wrong_parents(
  parsed: list[int], count: int, draw: Callable[[], float]
) -> tuple[list[int], int]:
  """Tries to replace `count` parents; returns the heads and how many it did."""
  heads, words, wrong = [*parsed], range(len(parsed)), 0
  order = sorted(words, key=[draw() for _ in words].__getitem__)
  roots = [word for word in order[:count] if parsed[word] == word]
  candidates = [word for word in order if parsed[word] != word]
  for root in roots:
    if wrong + 2 > count or not candidates:
      break
    new = candidates.pop(0)
    heads[new] = new
    heads[root] = _nth(_subtree(heads, new), draw())
    wrong += 2
  for word in candidates:
    if wrong == count:
      break
    below = set(_subtree(heads, word))
    free = [w for w in words if w not in below and w != heads[word]]
    if free:
      heads[word] = _nth(free, draw())
      wrong += 1
  return heads, wrong


def _nth(words: Sequence[int], part: float) -> int:
  """Returns the word at a relative position from 0 (included) to 1."""
  return words[int(part * len(words))]


def _subtree(heads: Sequence[int], top: int) -> list[int]:
  """Returns a word and all words below it, ascending."""
  children: list[list[int]] = [[] for _ in heads]
  for word, parent in enumerate(heads):
    if word != parent:
      children[parent].append(word)
  words = [top]
  for word in words:
    words += children[word]
  return sorted(words)


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
