"""Bracketings of trees: worked examples and round trips."""

import control_trees
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from jaxsyn.data.sentence.linearise import (
  CLOSE,
  END,
  HEAD,
  OPEN,
  linearise,
  numbers,
  of_subwords,
  opening,
  skeleton,
  symbols,
)

NAMES = symbols(("det", "nsubj", "obj", "root"))  # 1, 2, 3, 4


def delinearise(index):
  """The parents and relations in a skeleton; words count in its order."""
  head, relation = [], []
  # Of each open bracket: label, words that depend on its word, its own word.
  todo: list[tuple[int, list[int], list[int]]] = [(0, [], [])]

  def place(entry) -> None:
    entry[2].append(len(head))
    head.append(-1)
    relation.append(entry[0])

  for symbol in map(int, index):
    if symbol >= OPEN:
      todo.append((symbol - OPEN, [], []))
    elif symbol == HEAD:
      place(todo[-1])
    else:
      assert symbol == END
      entry = todo.pop()
      _, dependents, word = entry
      if not dependents and not word:
        place(entry)
      (parent,) = word
      for dependent in dependents:
        head[dependent] = parent
      todo[-1][1].append(parent)
  ((_, roots, _),) = todo
  for root in roots:
    head[root] = root
  return head, relation


def shown(bracketing, words):
  """A bracketing as text."""
  return " ".join(
    words[element] if element >= 0 else NAMES[k]
    for element, k in zip(bracketing, numbers(bracketing))
  )


def skeleton_of(bracketing, heads=True):
  """The symbols of a skeleton as text."""
  return " ".join(NAMES[k] for k in skeleton(bracketing, heads=heads))


@pytest.mark.parametrize(
  "tree, words, bracketing, symbols",
  [
    (
      ([1, 2, 2, 4, 2], [1, 2, 4, 1, 3]),
      "The monkey eats a banana",
      "(root (nsubj (det The ) monkey ) eats (obj (det a ) banana ) )",
      # A word without dependents needs no mark of its position.
      "(root (nsubj (det ) ^ ) ^ (obj (det ) ^ ) )",
    ),
    # Several roots and an unknown label.
    (
      ([0, 0, 2], [4, 0, 4]),
      "a b c",
      "(root a (? b ) ) (root c )",
      "(root ^ (? ) ) (root )",
    ),
    # b depends on d over the root c; a depends on c: the order is a c b d.
    (
      ([2, 3, 2, 2], [1, 2, 4, 3]),
      "a b c d",
      "(root (det a ) c (obj (nsubj b ) d ) )",
      "(root (det ) ^ (obj (nsubj ) ^ ) )",
    ),
    (([], []), "", "", ""),
  ],
)
def test_bracketings_by_hand(tree, words, bracketing, symbols):
  result = linearise(*tree)
  assert result.dtype == np.int32
  assert shown(result, words.split()) == bracketing
  assert skeleton_of(result) == symbols
  head, relation = delinearise(skeleton(result, heads=True))
  order = [w for w in result if w >= 0]  # words by place
  assert [order[h] for h in head] == [tree[0][w] for w in order]
  assert relation == [tree[1][w] for w in order]


def test_symbol_indices_are_fixed():
  """They are in checkpoints."""
  fixed = ("<TR>", "<PA>", ")", "^", "(?")
  assert (*fixed, "(det", "(nsubj", "(obj", "(root") == NAMES
  assert (CLOSE, opening(0), opening(3)) == (-1, -2, -5)
  assert opening(opening(3)) == 3


def random_projective(rng, words):
  """Heads of a random tree without crossing arcs, or of several."""
  head_W = np.zeros(words, np.int64)

  def grow(low, high, parent):
    while low < high:  # one dependent's span after the other
      stop = int(rng.integers(low + 1, high + 1))
      word = int(rng.integers(low, stop))
      head_W[word] = word if parent is None else parent
      grow(low, word, word)
      grow(word + 1, stop, word)
      low = stop

  grow(0, words, None)
  return head_W


def test_projective_trees_round_trip():
  rng = np.random.default_rng(0)
  for _ in range(600):
    words = int(rng.integers(0, 25))
    head_W, relation_W = (
      random_projective(rng, words),
      rng.integers(0, 9, words),
    )
    bracketing = linearise(head_W, relation_W)
    assert bracketing[bracketing >= 0].tolist() == list(range(words))
    index = skeleton(bracketing, heads=True)
    has_dependents = {h for w, h in enumerate(head_W.tolist()) if h != w}
    assert len(index) == 2 * words + len(has_dependents)
    head, relation = delinearise(index)
    assert (head, relation) == (head_W.tolist(), relation_W.tolist())


def test_deep_chain():
  chain_W = control_trees.linear(5000)
  bracketing = linearise(chain_W, [0] * 5000)
  head, _ = delinearise(skeleton(bracketing, heads=True))
  assert_array_equal(head, chain_W)


def test_subwords_replace_words():
  bracketing = linearise([1, 1, 1], [1, 4, 3])
  # Word 0 is subwords 0 and 1, word 1 has no subword, word 2 is subword 2; EOS.
  placed = of_subwords(bracketing, np.array([0, 0, 2, -1]))
  assert shown(placed, "xyz.") == "(root (det x y ) (obj z ) )"


def test_skeleton_of_constituents_has_no_head_marks():
  # (root (det x y ) z )
  bracketing = np.array([opening(4), opening(1), 0, 1, CLOSE, 2, CLOSE])
  assert skeleton_of(bracketing, heads=False) == "(root (det ) )"
