"""Represents trees as bracketed sequences, for auxiliary parsing tasks.

A *bracketing* is an array of integers: CLOSE; `opening(k)`, the opening bracket of
label k; or an index from 0, a word or subword between the brackets. `skeleton` removes
the words, which leaves symbols that a model can learn to generate. `of_subwords`
replaces words by subwords, which gives a source with brackets.

The id of symbol k is the vocabulary size + k, so the vocabulary does not change.
`jaxsyn.data.loader.tasks` makes examples of the symbols.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import numpy as np

CLOSE = -1  # in a bracketing

# Indices of the symbols. OPEN + k opens the bracket of label k; label 0 is any label
# that the training data lacks.
TRANSLATE, PARSE, END, HEAD, OPEN = range(5)


def symbols(labels: Iterable[str]) -> tuple[str, ...]:
  """Returns the symbols of linearized trees: task tags, word mark, brackets."""
  return ("<TR>", "<PA>", ")", "^", "(?", *(f"({label}" for label in labels))


def opening(label: int | np.ndarray) -> int | np.ndarray:
  """Converts a label id to its opening bracket (an integer ≤ -2), or back."""
  return -2 - label


def linearise(
  head_W: Sequence[int] | np.ndarray, relation_W: Sequence[int] | np.ndarray
) -> np.ndarray:
  """Returns the bracketing of a dependency tree as an array of integers.

  Each word has a bracket labeled with its relation. It contains, in the order of
  the sentence, the word itself and the brackets of its dependents:

    (root (nsubj (det The ) monkey ) eats (obj (det a ) banana ) )

  Several roots give several brackets, one after the other. A word is always within
  the bracket of its parent, so words of a tree with crossing edges are in another
  order than in the sentence; no edge or relation is lost.

  Args:
    head_W: Parent of each word, from 0; a root is its own. No cycles.
    relation_W: Label of each word's relation, from 0.

  Returns: Bracketing (int32) with three elements for each word.
  """
  dependents: dict[int, list[int]] = collections.defaultdict(list)
  roots: list[int] = []
  for word, head in enumerate(map(int, head_W)):
    (roots if head == word else dependents[head]).append(word)
  elements: list[int] = []
  # Not recursive: a tree may be deeper than Python's stack.
  todo: list[tuple[bool, int]] = [(True, root) for root in reversed(roots)]
  while todo:
    is_tree, value = todo.pop()
    if not is_tree:
      elements.append(value)
      continue
    elements.append(int(opening(int(relation_W[value]))))
    children = dependents[value]
    todo.append((False, CLOSE))
    todo += [(True, word) for word in reversed(children) if word > value]
    todo.append((False, value))
    todo += [(True, word) for word in reversed(children) if word < value]
  return np.array(elements, np.int32)


def numbers(bracketing: np.ndarray) -> np.ndarray:
  """Converts a bracketed tree to symbol indices; words share one index."""
  bracket = np.where(bracketing == CLOSE, END, OPEN + opening(bracketing))
  return np.where(bracketing >= 0, HEAD, bracket).astype(np.int32)


def skeleton(bracketing: np.ndarray, heads: bool) -> np.ndarray:
  """Returns a bracketed tree without its words, as an array of symbol indices.

    (root (nsubj (det ) ^ ) ^ (obj (det ) ^ ) )

  Args:
    bracketing: Bracketing of a tree.
    heads: Whether HEAD marks the position of a word among its dependents. A word
      without dependents needs no mark. False for constituency trees.
  """
  if not len(bracketing):
    return np.zeros(0, np.int32)
  inside = bracketing >= 0
  before, after = np.roll(bracketing, 1), np.roll(bracketing, -1)
  leaf = inside & (before < CLOSE) & (after == CLOSE)
  is_kept = ~leaf if heads else ~inside
  return numbers(bracketing)[is_kept]


def of_subwords(bracketing: np.ndarray, word_S: np.ndarray) -> np.ndarray:
  """Replaces the words of a bracketed tree with their subword positions.

  A word without subwords is omitted.
  """
  positions = collections.defaultdict(list)
  for position, word in enumerate(word_S.tolist()):
    if word >= 0:
      positions[word].append(position)
  elements: list[int] = []
  for element in bracketing.tolist():
    elements += positions[element] if element >= 0 else [element]
  return np.array(elements, np.int32)
