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

  def heads(self, head_W: np.ndarray, seed: int) -> np.ndarray:
    """The heads to be given; where they are sampled, those without sampling.

    Args:
      head_W: the parser's.
      seed: of this sentence in runs of this seed.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Parsed(TreeControl):
  """The parser's trees."""

  control: ClassVar[bool] = False
  replaces: ClassVar[bool] = False

  def heads(self, head_W: np.ndarray, seed: int) -> np.ndarray:
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

  def heads(self, head_W: np.ndarray, seed: int) -> np.ndarray:
    return linear(len(head_W))


@dataclasses.dataclass(frozen=True)
class Random(TreeControl):
  """A random tree of the same words, another for each seed of a run."""

  seeded: ClassVar[bool] = True

  def heads(self, head_W: np.ndarray, seed: int) -> np.ndarray:
    return random(len(head_W), seed)


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

  def heads(self, head_W: np.ndarray, seed: int) -> np.ndarray:
    return wrong_parents(head_W, self.rate, seed)


def linear(words: int) -> np.ndarray:
  """The control tree in which each word's parent is the word before it."""
  return np.maximum(np.arange(words, dtype=np.int32) - 1, 0)


def random(words: int, seed: int) -> np.ndarray:
  """A control tree: uniform among the labelled trees, root uniform too.

  A random Prüfer sequence names each labelled tree equally often. The numbers
  come from Python's Mersenne Twister, whose floats are the same for ever, so
  a seed means the same tree in any version and on any machine.
  """
  draw = random_numbers.Random(seed).random
  if words < 2:
    return np.zeros(words, np.int32)
  sequence = [int(draw() * words) for _ in range(words - 2)]
  root = int(draw() * words)

  # Decode in linear time: the smallest leaf joins the next of the sequence.
  degree = [1] * words
  for word in sequence:
    degree[word] += 1
  neighbours: list[list[int]] = [[] for _ in range(words)]
  pointer = leaf = degree.index(1)
  for word in [*sequence, words - 1]:
    neighbours[word].append(leaf)
    neighbours[leaf].append(word)
    degree[word] -= 1
    if degree[word] == 1 and word < pointer:
      leaf = word
    else:
      pointer = leaf = next(
        (i for i in range(pointer + 1, words) if degree[i] == 1), words - 1
      )

  head_W = np.zeros(words, np.int32)
  head_W[root] = root
  open_words = [root]
  while open_words:
    parent = open_words.pop()
    for child in neighbours[parent]:
      if child != head_W[parent]:
        head_W[child] = parent
        open_words.append(child)
  return head_W


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
    seed: of the draws, which come from Python's Mersenne Twister (see `random`).
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
