"""Trees as arrays: depths, distances, parent middles and crossing edges."""

from __future__ import annotations

import control_trees
import numpy as np
import pytest
import tree_references
from numpy.testing import assert_array_equal

from jaxsyn.data.schema import FAR
from jaxsyn.data.sentence import tree


def forest(rng, words: int) -> np.ndarray:
  """A random forest: parents are earlier words of a shuffled order."""
  order = rng.permutation(words)
  head_W = np.arange(words)
  for place, word in enumerate(order):
    if rng.random() < 0.9:
      head_W[word] = order[rng.integers(max(place, 1))]
  return head_W


def test_distances_and_depths_of_many_trees_equal_search():
  rng = np.random.default_rng(0)
  sizes = [*range(40), *rng.integers(1, 40, 20).tolist(), 200]
  trees = [forest(rng, words) for words in sizes]
  # A chain whose ends are further apart than FAR, and a single word.
  trees += [np.array([1, 1, 2]), np.append(control_trees.linear(290), 290)]
  rng.shuffle(trees)
  words = np.array([len(head_W) for head_W in trees])
  head_W = np.concatenate(trees)
  expected = [tree_references.distances(one) for one in trees]
  for one, distance_WW in zip(trees, expected, strict=True):
    assert_array_equal(tree.tree_distance(one), distance_WW)
    for word, depth in enumerate(tree.depth(one)):
      root = tree_references.path(one, word)[-1]
      assert min(depth, FAR) == distance_WW[word, root]
  distance = tree.tree_distances(head_W, words)
  assert distance.dtype == np.uint8
  flat = [distance_WW.ravel() for distance_WW in expected]
  assert_array_equal(distance, np.concatenate(flat))
  depths = np.concatenate([*map(tree.depth, trees)])
  assert_array_equal(tree.depth(head_W, words), depths)


@pytest.mark.parametrize(
  "word_S, head_W, expected",
  [
    # Words a | b | c | d, c = subwords 3 and 4, all on c but d on a;
    # subwords: a 0, b 1 2, c 3 4, d 5, EOS 6. Middles .0, 1.5, 3.5, 5.
    ([0, 1, 1, 2, 2, 3, -1], [2, 2, 2, 0], [3.5, 3.5, 3.5, 3.5, 3.5, 0, 6]),
    # 0 <- 1 <- 2 <- 3; words 1 and 2 have no subword: 3 sees 0.
    ([0, 3], [0, 0, 1, 2], [0, 0]),
    # The root itself has no subword: its dependents count as roots.
    ([1, 1, 2, -1], [0, 0, 1], [0.5, 0.5, 0.5, 3]),
    ([-1], [], [0]),
    ([-1], [0], [0]),
  ],
)
def test_parent_middles_by_hand(word_S, head_W, expected):
  assert tree.parent_mid(word_S, head_W).tolist() == expected


@pytest.mark.parametrize(
  "head_W, message",
  [
    ([1, 0], "cycle"),
    ([0, 2, 3, 1], "cycle above word [123]"),
    ([0, 2], "heads of 2 words must be from 0 to 1"),
    ([-1], "heads of 1 words"),
  ],
)
def test_rejects_invalid_heads(head_W, message):
  with pytest.raises(ValueError, match=message):
    tree.depth(head_W)
  with pytest.raises(ValueError, match=message):
    tree.tree_distance(head_W)
  with pytest.raises(ValueError, match=message):  # the tree among others
    tree.depth(np.array([1, 1, *head_W]), np.array([2, len(head_W)]))


def test_projective_trees_have_only_descendants_between_word_and_parent():
  # Two trees side by side; crossing edges; an edge across the root, 1.
  for head_W, expected in (
    ([], True),
    ([0, 0, 2, 2], True),
    ([2, 3, 3, 3], False),
    ([2, 1, 1], False),
  ):
    assert tree.projective(head_W) == expected
  results = set()
  for seed in range(300):
    head_W = control_trees.random(2 + seed % 5, seed)
    expected = all(
      head in tree_references.path(head_W, between)
      for word, head in enumerate(head_W.tolist())
      for between in range(min(word, head) + 1, max(word, head))
    )
    assert tree.projective(head_W) == expected, head_W
    results.add(expected)
  assert results == {True, False}
