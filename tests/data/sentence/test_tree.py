"""Tests depths, distances, parent middles and control trees."""

from __future__ import annotations

import collections
import itertools

import control_trees
import numpy as np
import pytest

from jaxsyn.data.schema import FAR, OTHER_TREE
from jaxsyn.data.sentence import conllu, tree

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


def test_depths_of_worked_examples():
  assert tree.depth(MONKEY).tolist() == [2, 1, 0, 2, 1]
  # "My father bought a red car ."
  assert tree.depth([1, 2, 2, 5, 5, 2, 2]).tolist() == [2, 1, 0, 2, 2, 1, 1]
  assert tree.depth([0, 0, 2, 2]).tolist() == [0, 1, 0, 1]
  assert tree.depth([]).tolist() == []
  for words in (1, 2, 3, 8, 9, 100):
    assert tree.depth(control_trees.linear(words)).tolist() == list(
      range(words)
    )


def test_distances_of_the_worked_example():
  # Edges The-monkey, monkey-eats, banana-eats, a-banana.
  assert tree.tree_distance(MONKEY).tolist() == [
    [0, 1, 2, 4, 3],
    [1, 0, 1, 3, 2],
    [2, 1, 0, 2, 1],
    [4, 3, 2, 0, 1],
    [3, 2, 1, 1, 0],
  ]
  assert tree.tree_distance(MONKEY).dtype == np.uint8


def test_distance_to_other_trees_is_marked():
  other = OTHER_TREE
  assert tree.tree_distance([0, 0, 2, 2]).tolist() == [
    [0, 1, other, other],
    [1, 0, other, other],
    [other, other, 0, 1],
    [other, other, 1, 0],
  ]
  assert tree.tree_distance([]).shape == (0, 0)


def test_long_distances_saturate():
  distance_WW = tree.tree_distance([*control_trees.linear(300), 300])
  assert distance_WW[0, 253] == 253
  assert distance_WW[0, 254] == distance_WW[0, 299] == FAR
  assert distance_WW[299, 0] == FAR
  assert distance_WW[0, 300] == distance_WW[300, 299] == OTHER_TREE


@pytest.mark.parametrize("seed", range(40))
def test_distances_of_random_forests_equal_search(seed):
  rng = np.random.default_rng(seed)
  words = int(rng.integers(1, 40))
  # Any function to an earlier place of a shuffled order is a forest.
  order = rng.permutation(words)
  head_W = np.zeros(words, int)
  for place, word in enumerate(order):
    head_W[word] = order[rng.integers(max(place, 1))]
    if rng.random() < 0.1:
      head_W[word] = word
  expected_WW = distances_by_search(head_W)
  np.testing.assert_array_equal(tree.tree_distance(head_W), expected_WW)


@pytest.mark.parametrize(
  "name", ["cs_pud", "de_pud", "en_pud", "fr_pud", "ja_pud", "tr_pud", "zh_pud"]
)
def test_distances_of_gold_trees_equal_search(shared_data, name):
  path = shared_data / "ud" / f"{name}.conllu.gz"
  for block in itertools.islice(conllu.read(path), 0, None, 10):
    distance_WW = tree.tree_distance(block.head_W)
    np.testing.assert_array_equal(distance_WW, distance_WW.T)
    np.testing.assert_array_equal(
      distance_WW, distances_by_search(block.head_W)
    )
    root = next(w for w, head in enumerate(block.head_W) if w == head)
    np.testing.assert_array_equal(distance_WW[root], tree.depth(block.head_W))


def test_parent_middles_of_the_worked_example():
  # One subword a word, then EOS, which is its own parent.
  middle_S = tree.parent_mid([0, 1, 2, 3, 4, -1], MONKEY)
  assert middle_S.tolist() == [1, 2, 2, 4, 2, 5]
  assert middle_S.dtype == np.float32


def test_parent_of_two_subwords_has_a_fractional_middle():
  # Words a | b | c | d, c = subwords 3 and 4, all on c but d on a;
  # subwords: a 0, b 1 2, c 3 4, d 5, EOS 6. Middles .0, 1.5, 3.5, 5.
  middle_S = tree.parent_mid([0, 1, 1, 2, 2, 3, -1], [2, 2, 2, 0])
  assert middle_S.tolist() == [3.5, 3.5, 3.5, 3.5, 3.5, 0, 6]


def test_parent_of_three_subwords_has_the_middle_position():
  assert tree.parent_mid([0, 0, 0, 1], [0, 0]).tolist() == [1, 1, 1, 1]


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


def test_random_trees_are_trees_and_repeatable():
  for words in (0, 1, 2, 3, 10, 57):
    for seed in range(20):
      head_W = control_trees.random(words, seed)
      tree.depth(head_W)  # raises for a cycle
      assert len(head_W) == words
      assert np.sum(head_W == np.arange(words)) == min(words, 1)  # one root
      np.testing.assert_array_equal(head_W, control_trees.random(words, seed))
  # random.Random(0) draws .844 .758 .421 .259 .511 .405 | .784, times 8: the
  # sequence 6 6 3 2 4 3 and the root 6. Smallest leaf by smallest leaf it
  # names the edges 0-6, 1-6, 5-3, 6-2, 2-4, 4-3, 3-7.
  assert control_trees.random(8, 0).tolist() == [6, 6, 6, 4, 2, 3, 6, 3]


def test_random_trees_are_uniform():
  # Cayley: 4 words have 4**2 = 16 trees, times 4 roots = 64 rooted ones.
  draws = 64 * 200
  counts = collections.Counter(
    tuple(control_trees.random(4, seed).tolist()) for seed in range(draws)
  )
  assert len(counts) == 64
  # Chi-square with 63 degrees of freedom: 103 is exceeded once in 1000.
  assert sum((c - 200) ** 2 / 200 for c in counts.values()) < 103


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


def test_many_trees_equal_each_alone():
  """Of all sizes, so that some are filled up and some are alone."""
  trees = [
    control_trees.random(words, words) for words in (*range(40), 200, 300)
  ]
  trees += [np.array([1, 1, 2]), control_trees.linear(290), np.array([0])]
  rng = np.random.default_rng(0)
  for _ in range(3):
    rng.shuffle(trees)
    words = np.array([len(head_W) for head_W in trees])
    head_W = np.concatenate(trees)
    expected = [distances_by_search(one).ravel() for one in trees]
    np.testing.assert_array_equal(
      tree.tree_distances(head_W, words), np.concatenate(expected)
    )
    expected = [tree.depth(one) for one in trees]
    np.testing.assert_array_equal(
      tree.depth(head_W, words), np.concatenate(expected)
    )
  none = np.array([], int)
  assert tree.tree_distances(none, none).tolist() == []


def test_error_names_the_invalid_tree_of_many():
  words = np.array([2, 3])
  with pytest.raises(ValueError, match=r"heads of 3 words.*got \[0, 3, 0\]"):
    tree.depth(np.array([1, 1, 0, 3, 0]), words)
  with pytest.raises(ValueError, match=r"cycle above word"):
    tree.tree_distances(np.array([1, 1, 1, 0, 0]), words)
