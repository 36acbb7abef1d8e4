"""Tests replaced parents: the results are trees with the requested changes."""

import itertools

import control_trees
import numpy as np
import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.controls import WrongParents
from jaxsyn.data.sentence.noise import replace_parents, wrong_parents
from jaxsyn.data.sentence.tree import depth

RATES = (0.1, 0.3, 0.6, 1.0)

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
  return replace_parents(
    np.array(head_W),
    np.array([len(head_W)]),
    is_replaced_W=np.array(is_replaced_W, bool),
    random_W=np.array(index_W, np.uint64),
  ).tolist()


def test_noised_worked_example():
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
def test_noised_with_all_parents_replaced(tree, expected):
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


@pytest.mark.parametrize("seed", range(10))
def test_noised_equals_loops_and_gives_trees(seed):
  rng = np.random.default_rng(seed)
  some = list(trees(rng))
  words = np.array([len(tree) for tree in some])
  rate = rng.choice([0.05, 0.3, 1.0])
  is_replaced_W = rng.random(words.sum()) < rate
  index_W = rng.integers(0, 2**32, words.sum(), np.uint64)
  before = np.concatenate(some)
  result = replace_parents(
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


def test_noised_parents_are_uniform():
  """Of word 3 below 2 in 0 ← 1, 0 ← 2 ← 3 ← 4: 0 and 1, whatever is below."""
  times = 8000
  rng = np.random.default_rng(1)
  tree = np.array([0, 0, 0, 2, 3])
  result = replace_parents(
    np.tile(tree, times),
    np.full(times, 5),
    is_replaced_W=np.tile(np.arange(5) == 3, times),
    random_W=rng.integers(0, 2**32, 5 * times, np.uint64),
  ).reshape(times, 5)
  assert (np.delete(result, 3, 1) == np.delete(tree, 3)).all()
  assert {*result[:, 3].tolist()} == {0, 1}
  # Half of them: the standard deviation is 45.
  assert abs(result[:, 3].sum() - times / 2) < 4 * 45


def roots(head_W):
  return sum(parent == word for word, parent in enumerate(head_W))


def wrong_words(head_W, rate, seed):
  """Words with wrong parents; checks that there are as many trees as before."""
  new_W = wrong_parents(head_W, rate, seed).tolist()
  for word in range(len(new_W)):
    path(new_W, word)
  assert roots(new_W) == roots(head_W)
  return [w for w, head in enumerate(head_W.tolist()) if new_W[w] != head]


@pytest.mark.parametrize("rate", RATES)
def test_wrong_parents_of_real_trees_have_the_rate(shared_data, rate):
  """Each sentence to less than a word, all together to the sampling error."""
  path = shared_data / "multi30k" / "parsed" / "train.en.conllu.gz"
  trees = [
    np.array(block.head_W, np.int32)
    for block in itertools.islice(conllu.read(path), 3000)
  ]
  wrong = words = roots_changed = 0
  for index, head_W in enumerate(trees):
    changed = wrong_words(head_W, rate, index)
    assert abs(len(changed) - rate * len(head_W)) < 1
    wrong, words = wrong + len(changed), words + len(head_W)
    roots_changed += any(head_W[word] == word for word in changed)
  # Rounding to whole words has a standard deviation of half a word at most.
  assert abs(wrong / words - rate) < 4 * 0.5 * len(trees) ** 0.5 / words
  if rate > 0.1:  # where a single word is wrong it is never the root
    assert abs(roots_changed / len(trees) - rate) < 0.04


@pytest.mark.parametrize("words", [3, 4, 8, 40])
def test_wrong_parents_of_random_trees_have_exactly_the_rate(words):
  for index in range(200):
    head_W = control_trees.random(words, index)
    if words == 8 and index % 2:
      head_W = np.array([0, 0, 1, 3, 3, 3, 6, 6], np.int32)  # a forest
    for rate in (0.5, 1.0):
      changed = wrong_words(head_W, rate, index)
      # Of three words, one alone can be impossible: the middle of a chain.
      assert abs(len(changed) - rate * words) < (1 if words > 3 else 2)
      assert rate < 1 or len(changed) == words


@pytest.mark.parametrize("rate", RATES)
def test_words_without_another_possible_parent_stay(rate):
  for head_W in ([], [0], [0, 1, 2]):  # none, one, none with a parent
    new_W = wrong_parents(np.array(head_W, np.int32), rate, 7)
    assert new_W.tolist() == head_W
  for index in range(20):  # of two words both or none
    pair = wrong_parents(np.array([1, 1], np.int32), rate, index).tolist()
    assert pair in ([1, 1], [0, 0])
    assert pair == [0, 0] or rate < 1


def test_wrong_parents_reach_every_possible_parent():
  """Word 3 of 0 ← 1 ← 2 ← 3 may depend on 0 or 1, each equally often."""
  chain_W = np.array([0, 0, 1, 2], np.int32)
  collected = [
    tuple(wrong_parents(chain_W, 0.25, index).tolist()) for index in range(3000)
  ]
  for tree in ((0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 0, 2)):
    assert tree in collected
  # Word 1 has no other parent than the root, so another word is wrong instead.
  assert {*collected} == {(0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 0, 2)}
  last = [tree for tree in collected if tree[3] != 2]
  assert abs(sum(tree[3] for tree in last) / len(last) - 0.5) < 0.05


def test_wrong_parents_depend_on_rate_and_seed():
  for index in range(50):
    head_W = control_trees.random(index, index)
    result_W = WrongParents(0.0).heads(head_W, np.array([index]), [index])
    np.testing.assert_array_equal(result_W, head_W)
    assert result_W.dtype == head_W.dtype
  head_W = control_trees.random(20, 1)
  sampled = [tuple(wrong_parents(head_W, 0.3, s).tolist()) for s in range(50)]
  assert len({*sampled}) == 50
