"""Tests depths, distances, parent middles and control trees."""

from __future__ import annotations

import collections

import control_trees
import numpy as np
import pytest

from jaxsyn.data.schema import FAR, OTHER_TREE
from jaxsyn.data.sentence import tree

MONKEY = [1, 2, 2, 4, 2]  # The monkey eats a banana; "eats" is the root


def distances_by_search(head_W) -> np.ndarray:
  """Breadth-first search from every word: slow, and nothing else."""
  words = len(head_W)
  neighbours = collections.defaultdict(set)
  for word, head in enumerate(head_W):
    if word != head:
      neighbours[word].add(head)
      neighbours[head].add(word)
  result = np.full((words, words), OTHER_TREE, np.uint8)
  for start in range(words):
    queue, seen = collections.deque([(start, 0)]), {start}
    while queue:
      word, steps = queue.popleft()
      result[start, word] = min(steps, FAR)
      for other in neighbours[word] - seen:
        seen.add(other)
        queue.append((other, steps + 1))
  return result


def forest(rng, words: int) -> np.ndarray:
  """Any function to an earlier place of a shuffled order is a forest."""
  order = rng.permutation(words)
  head_W = np.arange(words)
  for place, word in enumerate(order):
    if rng.random() < 0.9:
      head_W[word] = order[rng.integers(max(place, 1))]
  return head_W


def test_distances_and_depths_of_many_trees_equal_search():
  """Of all sizes, so that some are filled up and some are alone."""
  rng = np.random.default_rng(0)
  sizes = [*range(40), *rng.integers(1, 40, 40).tolist(), 200, 300]
  trees = [forest(rng, words) for words in sizes]
  trees += [np.array([1, 1, 2]), control_trees.linear(290)]
  rng.shuffle(trees)
  words = np.array([len(head_W) for head_W in trees])
  head_W = np.concatenate(trees)
  expected = [distances_by_search(one) for one in trees]
  for one, distance_WW in zip(trees, expected, strict=True):
    np.testing.assert_array_equal(tree.tree_distance(one), distance_WW)
    for word, depth in enumerate(tree.depth(one)):
      root = word
      while one[root] != root:
        root = one[root]
      assert min(depth, FAR) == distance_WW[word, root]
  distance = tree.tree_distances(head_W, words)
  assert distance.dtype == np.uint8
  flat = [distance_WW.ravel() for distance_WW in expected]
  np.testing.assert_array_equal(distance, np.concatenate(flat))
  np.testing.assert_array_equal(
    tree.depth(head_W, words), np.concatenate([*map(tree.depth, trees)])
  )


def test_long_distances_saturate():
  distance_WW = tree.tree_distance([*control_trees.linear(300), 300])
  assert distance_WW[0, 253] == 253
  assert distance_WW[0, 254] == distance_WW[0, 299] == FAR
  assert distance_WW[299, 0] == FAR
  assert distance_WW[0, 300] == distance_WW[300, 299] == OTHER_TREE


def test_parent_of_two_subwords_has_a_fractional_middle():
  # Words a | b | c | d, c = subwords 3 and 4, all on c but d on a;
  # subwords: a 0, b 1 2, c 3 4, d 5, EOS 6. Middles .0, 1.5, 3.5, 5.
  middle_S = tree.parent_mid([0, 1, 1, 2, 2, 3, -1], [2, 2, 2, 0])
  assert middle_S.tolist() == [3.5, 3.5, 3.5, 3.5, 3.5, 0, 6]


def test_parents_without_subwords_are_skipped():
  # 0 <- 1 <- 2 <- 3; words 1 and 2 have no subword: 3 sees 0.
  assert tree.parent_mid([0, 3], [0, 0, 1, 2]).tolist() == [0, 0]
  # The root itself has none: its dependants count as roots.
  assert tree.parent_mid([1, 1, 2, -1], [0, 0, 1]).tolist() == [
    0.5,
    0.5,
    0.5,
    3,
  ]
  assert tree.parent_mid([-1], []).tolist() == [0]
  assert tree.parent_mid([-1], [0]).tolist() == [0]


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


def test_error_names_the_invalid_tree_of_many():
  words = np.array([2, 3])
  with pytest.raises(ValueError, match=r"heads of 3 words.*got \[0, 3, 0\]"):
    tree.depth(np.array([1, 1, 0, 3, 0]), words)


def test_projective_trees_have_only_descendants_between_word_and_parent():
  assert tree.projective(MONKEY)
  assert tree.projective([]) and tree.projective([0])
  assert tree.projective([0, 0, 2, 2])  # two trees side by side
  # 0 hangs under 2 and 1 under 3: the edges cross.
  assert not tree.projective([2, 3, 3, 3])
  # 0 hangs under 2 across the root, 1.
  assert not tree.projective([2, 1, 1])
  seen = set()
  for seed in range(300):
    head_W = control_trees.random(2 + seed % 5, seed)
    dominates = {(w, w) for w in range(len(head_W))}
    for word in range(len(head_W)):
      above = word
      while head_W[above] != above:
        above = int(head_W[above])
        dominates.add((above, word))
    expected = all(
      (head, between) in dominates
      for word, head in enumerate(head_W.tolist())
      for between in range(min(word, head) + 1, max(word, head))
    )
    assert tree.projective(head_W) == expected, head_W
    seen.add(expected)
  assert seen == {True, False}
