"""Replaced parents: trees with the requested number of wrong parents."""

import itertools

import control_trees
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tree_references import path, roots

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.controls import WrongParents
from jaxsyn.data.sentence.noise import replace_parents, wrong_parents

HALF, MOST = 2**31, 2**32 - 1  # random numbers: half of 2³², and the largest


def by_loops(head_W, is_replaced_W, random_W):
  """`replace_parents` of one tree, word by word."""
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
      head_W[word] = rest[int(random_W[word]) * len(rest) // 2**32]
  return head_W


@pytest.mark.parametrize(
  "tree, is_replaced, random, expected",
  [
    # 0 ← 1 ← 2, 1 ← 3: the new parent of word 2 is 0 or 3.
    ([0, 0, 1, 1], [0, 0, 1, 0], [0, 0, HALF - 1, 0], [0, 0, 0, 1]),
    ([0, 0, 1, 1], [0, 0, 1, 0], [0, 0, HALF, 0], [0, 0, 3, 1]),
    # The root stays. All other words are below word 1, so it stays too.
    ([0, 0, 1, 1], [1, 1, 0, 0], [MOST] * 4, [0, 0, 1, 1]),
    # Word 2 goes below 3, and then 3 can go below 0 alone.
    ([0, 0, 1, 1], [0, 0, 1, 1], [MOST] * 4, [0, 0, 3, 0]),
    ([0], [1], [HALF], [0]),
    ([0, 1, 2], [1] * 3, [HALF] * 3, [0, 1, 2]),  # a line without a tree
    # Two trees: 1 goes below 3, and then 3 can go below 0 alone.
    ([0, 0, 2, 2], [1] * 4, [HALF] * 4, [0, 3, 2, 0]),
  ],
)
def test_replaced_parents_by_hand(tree, is_replaced, random, expected):
  result = replace_parents(
    np.array(tree),
    np.array([len(tree)]),
    is_replaced_W=np.array(is_replaced, bool),
    random_W=np.array(random, np.uint64),
  )
  assert result.tolist() == expected


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
def test_replaced_parents_of_many_trees_equal_loops(rate):
  rng = np.random.default_rng(int(100 * rate))
  trees = [control_trees.linear(60), np.minimum(np.arange(60) + 1, 59)]
  for words in (0, 1, 2, 60, *rng.integers(1, 30, 100)):
    tree = control_trees.random(int(words), int(rng.integers(1e9)))
    if words > 3:  # a forest
      tree[words // 2] = words // 2
    trees.append(tree)
  words = np.array([len(tree) for tree in trees])
  is_replaced_W = rng.random(words.sum()) < rate
  random_W = rng.integers(0, 2**32, words.sum(), np.uint64)
  before = np.concatenate(trees)
  result = replace_parents(
    before.copy(), words, is_replaced_W=is_replaced_W, random_W=random_W
  )
  assert (result != before).any() and not (result != before)[
    ~is_replaced_W
  ].any()
  cuts = np.cumsum(words)[:-1]
  arrays = (result, before, is_replaced_W, random_W)
  for new, tree, *random in zip(*(np.split(x, cuts) for x in arrays)):
    assert new.tolist() == by_loops(tree.tolist(), *random)
    assert roots(new) == roots(tree)


def wrong_words(head_W, rate, seed):
  """Words with wrong parents; checks that there are as many trees as before."""
  new_W = wrong_parents(head_W, rate, seed).tolist()
  for word in range(len(new_W)):
    path(new_W, word)
  assert len(roots(new_W)) == len(roots(head_W))
  return [w for w, head in enumerate(head_W.tolist()) if new_W[w] != head]


@pytest.mark.parametrize("rate", [0.1, 0.3, 1.0])
def test_wrong_parents_of_real_trees_have_the_rate(shared_data, rate):
  """In each sentence to less than a word; in all to the sampling error."""
  path = shared_data / "multi30k" / "parsed" / "train.en.conllu.gz"
  blocks = [*itertools.islice(conllu.read(path), 1000)]
  trees = [np.array(block.head_W, np.int32) for block in blocks]
  wrong = roots_changed = 0
  for seed, head_W in enumerate(trees):
    changed = wrong_words(head_W, rate, seed)
    assert abs(len(changed) - rate * len(head_W)) < 1
    wrong += len(changed)
    roots_changed += any(head_W[word] == word for word in changed)
  # Rounding to whole words has a standard deviation of half a word at most.
  words = sum(map(len, trees))
  assert abs(wrong / words - rate) < 4 * 0.5 * len(trees) ** 0.5 / words
  if rate > 0.1:  # a root is never the only wrong word
    assert abs(roots_changed / len(trees) - rate) < 0.06


@pytest.mark.parametrize("words", [3, 4, 8, 40])
def test_wrong_parents_of_random_trees_have_exactly_the_rate(words):
  for seed in range(50):
    head_W = control_trees.random(words, seed)
    if words == 8 and seed % 2:
      head_W = np.array([0, 0, 1, 3, 3, 3, 6, 6], np.int32)  # a forest
    for rate in (0.5, 1.0):
      changed = wrong_words(head_W, rate, seed)
      # Of three words, one alone can be impossible: the middle of a chain.
      assert abs(len(changed) - rate * words) < (1 if words > 3 else 2)
      assert rate < 1 or len(changed) == words


def test_words_without_another_possible_parent_stay():
  for head_W in ([], [0], [0, 1, 2]):  # none, one, none with a parent
    new_W = wrong_parents(np.array(head_W, np.int32), 1.0, 7)
    assert new_W.tolist() == head_W
  pair_W = np.array([1, 1], np.int32)  # both words or none
  results = [wrong_parents(pair_W, 0.6, seed).tolist() for seed in range(20)]
  assert {*map(tuple, results)} == {(1, 1), (0, 0)}


def test_wrong_parents_reach_every_possible_parent():
  """Word 3 of 0 ← 1 ← 2 ← 3 may depend on 0 or 1, each equally often."""
  chain_W = np.array([0, 0, 1, 2], np.int32)
  trees = [
    tuple(wrong_parents(chain_W, 0.25, seed).tolist()) for seed in range(3000)
  ]
  # Word 1 has no other parent than the root, so another word is wrong instead.
  assert {*trees} == {(0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 0, 2)}
  last = [tree[3] for tree in trees if tree[3] != 2]
  assert abs(sum(last) / len(last) - 0.5) < 0.05


def test_wrong_parents_depend_on_rate_and_seed():
  for words in range(20):
    head_W = control_trees.random(words, words)
    result_W = WrongParents(0.0).heads(head_W, np.array([words]), [words])
    assert_array_equal(result_W, head_W)
    assert result_W.dtype == head_W.dtype
  sampled = [tuple(wrong_parents(head_W, 0.3, s).tolist()) for s in range(50)]
  assert len({*sampled}) > 45
