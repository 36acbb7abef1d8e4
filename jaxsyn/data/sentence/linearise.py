"""Trees as brackets in a line: what a second task writes or reads.

A *bracketing* is one integer a sign: CLOSE; `opening(k)`, the bracket of label
k; or a number from 0, what stands between the brackets (a word, or a subword).
`skeleton` takes the words out: symbols that a model can learn to write.
`of_subwords` puts subwords for words: with brackets between them they are a
source that a model can read.

Symbols are no subwords: the id of symbol k is the size of the vocabulary + k,
so prepared data serves as it is. `jaxsyn.data.loader.tasks` makes examples of them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import numpy as np

CLOSE = -1  # in a bracketing

# Numbers of the symbols; OPEN + k opens the bracket of label k, and label 0 is
# one that training never saw.
TRANSLATE, PARSE, END, HEAD, OPEN = range(5)


def symbols(labels: Iterable[str]) -> tuple[str, ...]:
  """The symbols by number.

  Args:
    labels: of the brackets, from label 1: relations, or NP, VP and so on.
  """
  return ("<TR>", "<PA>", ")", "^", "(?", *(f"({label}" for label in labels))


def opening(label: int | np.ndarray) -> int | np.ndarray:
  """The sign of a label's bracket, from -2 down, and the label of the sign."""
  return -2 - label


def linearise(
  head_W: Sequence[int] | np.ndarray, relation_W: Sequence[int] | np.ndarray
) -> np.ndarray:
  """The bracketing of a dependency tree, between whose brackets words stand.

  A word is a bracket of its relation, and in it, in the order of the sentence,
  the brackets of the words that depend on it, and at its own place itself:

    (root (nsubj (det The ) monkey ) eats (obj (det a ) banana ) )

  Several roots are several brackets, one after the other. Arcs that cross
  cannot be shown: a word stands within the bracket of its head, so the words
  come in another order than in the sentence. The tree is then that of the words
  in this other order, no arc or relation lost.

  Args:
    head_W: parent of each word, from 0; a root is its own. No cycles.
    relation_W: label of each word's relation, from 0.

  Returns: int32, three signs a word.
  """
  dependents: dict[int, list[int]] = collections.defaultdict(list)
  roots: list[int] = []
  for word, head in enumerate(map(int, head_W)):
    (roots if head == word else dependents[head]).append(word)
  signs: list[int] = []
  # Not recursive: a chain may be deeper than Python's stack.
  todo: list[tuple[bool, int]] = [(True, root) for root in reversed(roots)]
  while todo:
    is_tree, value = todo.pop()
    if not is_tree:
      signs.append(value)
      continue
    signs.append(int(opening(int(relation_W[value]))))
    children = dependents[value]
    todo.append((False, CLOSE))
    todo += [(True, word) for word in reversed(children) if word > value]
    todo.append((False, value))
    todo += [(True, word) for word in reversed(children) if word < value]
  return np.array(signs, np.int32)


def numbers(bracketing: np.ndarray) -> np.ndarray:
  """The symbol of each sign; HEAD for what stands between brackets."""
  bracket = np.where(bracketing == CLOSE, END, OPEN + opening(bracketing))
  return np.where(bracketing >= 0, HEAD, bracket).astype(np.int32)


def skeleton(bracketing: np.ndarray, heads: bool) -> np.ndarray:
  """The symbols of a bracketing without its words.

    (root (nsubj (det ) ^ ) ^ (obj (det ) ^ ) )

  Args:
    bracketing: of a tree.
    heads: whether HEAD marks where a head stands among its dependents. A word
      that nothing depends on needs no mark. False for constituents.

  Returns: numbers of symbols.
  """
  if not len(bracketing):
    return np.zeros(0, np.int32)
  inside = bracketing >= 0
  before, after = np.roll(bracketing, 1), np.roll(bracketing, -1)
  leaf = inside & (before < CLOSE) & (after == CLOSE)
  is_kept = ~leaf if heads else ~inside
  return numbers(bracketing)[is_kept]


def of_subwords(bracketing: np.ndarray, word_S: np.ndarray) -> np.ndarray:
  """The bracketing of subwords where that of words is given.

  Args:
    bracketing: between whose brackets words stand.
    word_S: word of each subword. A word without subwords leaves no sign.

  Returns: a bracketing between whose brackets positions of subwords stand.
  """
  places = collections.defaultdict(list)
  for position, word in enumerate(word_S.tolist()):
    if word >= 0:
      places[word].append(position)
  signs: list[int] = []
  for sign in bracketing.tolist():
    signs += places[sign] if sign >= 0 else [sign]
  return np.array(signs, np.int32)
