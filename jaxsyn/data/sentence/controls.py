"""Which trees the model is given: the parser's, or others to compare with.

A control says nothing of the text, so it shows what a system gains from any
tree. `jaxsyn.data.sentence.example.retree` puts it in the place of the parser's.
Sampled trees are no control: the parser's, but for training, where
`jaxsyn.data.loader.tree_sampling` draws others.
"""

from __future__ import annotations

import dataclasses
import random as random_numbers
from typing import Annotated, ClassVar

import numpy as np

from jaxsyn.options import Choice, Table, option
from jaxsyn.options.bounds import Range


@dataclasses.dataclass(frozen=True)
class Tree(Choice):
  """A kind of trees."""

  control: ClassVar[bool] = True  # it is not the parser's
  seeded: ClassVar[bool] = False  # `heads` looks at the number
  sampled: ClassVar[bool] = False  # training draws others, in every epoch

  def heads(self, head_W: np.ndarray, number: int) -> np.ndarray:
    """The heads to be given; where they are sampled, those without sampling.

    Args:
      head_W: the parser's.
      number: of this sentence in runs of this seed.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Parsed(Tree):
  """The parser's trees."""

  control: ClassVar[bool] = False

  def heads(self, head_W: np.ndarray, number: int) -> np.ndarray:
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
class Linear(Tree):
  """Each word depends on the word before it."""

  def heads(self, head_W: np.ndarray, number: int) -> np.ndarray:
    return linear(len(head_W))


@dataclasses.dataclass(frozen=True)
class Random(Tree):
  """A random tree of the same words, another for each seed of a run."""

  seeded: ClassVar[bool] = True

  def heads(self, head_W: np.ndarray, number: int) -> np.ndarray:
    return random(len(head_W), number)


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


TREES: Table[Tree] = Table(
  "trees",
  {"parsed": Parsed, "sampled": Sampled, "linear": Linear, "random": Random},
)
