"""Parents replaced by others: what comes out is a tree, drawn as it is said."""

import collections

import control_trees
import numpy as np
import pytest

from jaxsyn.data.sentence.noise import noised
from jaxsyn.data.sentence.tree import depth

HALF, MOST = 2**31, 2**32 - 1  # of what is drawn, half of 2³² and the most


def path(head_W, word):
  """A word and those above it, up to its root; fails where there is a cycle."""
  result = [word]
  while head_W[result[-1]] != result[-1]:
    result.append(head_W[result[-1]])
    assert len(result) <= len(head_W), f"a cycle: {head_W}"
  return result


def by_loops(head_W, is_replaced_W, index_W):
  """The same of one tree, word by word."""
  head_W = list(head_W)
  for word, replaced in enumerate(is_replaced_W):
    if not replaced or head_W[word] == word:
      continue
    rest = [
      other
      for other in range(len(head_W))
      if other != head_W[word] and word not in path(head_W, other)
    ]
    if rest:
      head_W[word] = rest[int(index_W[word]) * len(rest) // 2**32]
  return head_W


def one(head_W, is_replaced_W, index_W):
  return noised(
    np.array(head_W),
    np.array([len(head_W)]),
    is_replaced_W=np.array(is_replaced_W, bool),
    random_W=np.array(index_W, np.uint64),
  ).tolist()


def test_by_hand():
  """0 ← 1 ← 2, 1 ← 3: what may take in word 2 is 0 and 3, as 1 has it."""
  tree = [0, 0, 1, 1]
  assert one(tree, [0, 0, 1, 0], [0, 0, HALF - 1, 0]) == [0, 0, 0, 1]
  assert one(tree, [0, 0, 1, 0], [0, 0, HALF, 0]) == [0, 0, 3, 1]
  # The root stays; of word 1 all others are descendants, so it stays too.
  assert one(tree, [1, 1, 0, 0], [MOST] * 4) == tree
  # Word 2 goes below 3, and then 3 can go below 0 alone.
  assert one(tree, [0, 0, 1, 1], [0, 0, MOST, MOST]) == [0, 0, 3, 0]


@pytest.mark.parametrize(
  ("tree", "expected"),
  [
    ([], []),
    ([0], [0]),
    ([0, 1, 2], [0, 1, 2]),  # a line without a tree: each its own root
    ([1, 1], [1, 1]),  # nothing else can be
    # Two trees: 1 goes below 3, and then 3 can go below 0 alone.
    ([0, 0, 2, 2], [0, 3, 2, 0]),
  ],
)
def test_all_replaced(tree, expected):
  assert one(tree, [1] * len(tree), [HALF] * len(tree)) == expected


def trees(rng):
  """Trees, forests and sentences without words, of up to 60."""
  for words in (0, 1, 2, 60, *rng.integers(1, 30, 30)):
    tree = control_trees.random(int(words), int(rng.integers(1e9)))
    if words > 3:  # a forest
      tree[words // 2] = words // 2
    yield tree
  yield control_trees.linear(60)
  yield np.minimum(np.arange(60) + 1, 59)


@pytest.mark.parametrize("seed", range(25))
def test_of_many_trees_each_is_as_by_loops_and_a_tree(seed):
  rng = np.random.default_rng(seed)
  some = list(trees(rng))
  words = np.array([len(tree) for tree in some])
  rate = rng.choice([0.05, 0.3, 1.0])
  is_replaced_W = rng.random(words.sum()) < rate
  index_W = rng.integers(0, 2**32, words.sum(), np.uint64)
  before = np.concatenate(some)
  result = noised(
    before.copy(), words, is_replaced_W=is_replaced_W, random_W=index_W
  )
  cuts = np.cumsum(words)[:-1]
  edited = 0
  for item, tree, replaced, index in zip(
    *(np.split(x, cuts) for x in (result, before, is_replaced_W, index_W))
  ):
    assert item.tolist() == by_loops(tree.tolist(), replaced, index)
    depth(item)  # raises where there is a cycle
    # As many roots as there were, and none but those that were drawn changed.
    word_W = np.arange(len(item))
    assert (
      np.flatnonzero(item == word_W) == np.flatnonzero(tree == word_W)
    ).all()
    assert not (item != tree)[~replaced].any()
    edited += (item != tree).sum()
  assert edited > 0
  assert (before == np.concatenate(some)).all()  # what was given stays


def test_none_replaced_is_the_same():
  tree = control_trees.random(40, 3)
  assert one(tree, [0] * 40, [MOST] * 40) == tree.tolist()


def test_other_parents_come_equally_often():
  """Of word 3 below 2 in 0 ← 1, 0 ← 2 ← 3 ← 4: 0 and 1, whatever is below."""
  count, times = collections.Counter(), 8000
  rng = np.random.default_rng(1)
  tree = np.array([0, 0, 0, 2, 3])
  result = noised(
    np.tile(tree, times),
    np.full(times, 5),
    is_replaced_W=np.tile(np.arange(5) == 3, times),
    random_W=rng.integers(0, 2**32, 5 * times, np.uint64),
  ).reshape(times, 5)
  assert (np.delete(result, 3, 1) == np.delete(tree, 3)).all()
  count.update(result[:, 3].tolist())
  assert count.keys() == {0, 1}
  # Half of them: the standard deviation is 45.
  assert abs(count[0] - times / 2) < 4 * 45
