"""Control trees, and changes of many examples at once."""

from __future__ import annotations

import random as random_numbers

import control_trees
import numpy as np
import pytest
import toy_folders
from numpy.testing import assert_array_equal

from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence.controls import TREES, Linear, random_trees
from jaxsyn.data.sentence.example import (
  insert_tag,
  insert_tags,
  rearrange_source,
  replace_trees,
)
from jaxsyn.data.sentence.tree import parent_mid, tree_distance
from jaxsyn.data.store.rows import Rows


def one_random_tree(words: int, seed: int) -> np.ndarray:
  """Decodes a Prüfer sequence of one tree step by step, with lists."""
  draw = random_numbers.Random(seed).random
  if words < 2:
    return np.zeros(words, np.int32)
  sequence = [int(draw() * words) for _ in range(words - 2)]
  root = int(draw() * words)
  degree = [1 + sequence.count(word) for word in range(words)]
  neighbors: list[list[int]] = [[] for _ in range(words)]
  for word in [*sequence, words - 1]:
    leaf = degree.index(1)  # the smallest one
    neighbors[word].append(leaf)
    neighbors[leaf].append(word)
    degree[leaf] = 0
    degree[word] -= 1
  head_W = np.zeros(words, np.int32)
  head_W[root] = root
  open_words = [root]
  while open_words:
    parent = open_words.pop()
    for child in neighbors[parent]:
      if child != head_W[parent]:
        head_W[child] = parent
        open_words.append(child)
  return head_W


def test_random_trees_equal_step_by_step_decoding():
  rng = np.random.default_rng(0)
  words = np.array([*range(60), 200] * 10)
  rng.shuffle(words)
  seeds = rng.integers(2**60, size=len(words)).tolist()
  expected = [one_random_tree(*one) for one in zip(words.tolist(), seeds)]
  result = random_trees(words, seeds)
  assert result.dtype == np.int32
  assert_array_equal(result, np.concatenate(expected))
  # random.Random(0) draws .844 .758 .421 .259 .511 .405 | .784, times 8: the
  # sequence 6 6 3 2 4 3 and the root 6.
  assert control_trees.random(8, 0).tolist() == [6, 6, 6, 4, 2, 3, 6, 3]


def test_linear_trees_start_in_each_sentence():
  words = np.array([3, 0, 1, 4])
  trees = Linear().heads(np.zeros(8), words, range(4))
  assert trees.tolist() == [0, 0, 1, 0, 0, 0, 1, 2]
  assert trees.dtype == np.int32
  assert len(random_trees(np.array([], int), [])) == 0


def example_of(rng: np.random.Generator, words: int) -> dict[str, np.ndarray]:
  """An example with several subwords a word, and words without any."""
  pieces = rng.choice([0, 1, 1, 2, 3], words)
  if words and not pieces.any():
    pieces[0] = 1
  word_S = np.append(np.repeat(np.arange(words), pieces), -1)
  head_W = one_random_tree(words, int(rng.integers(2**60)))
  values = {
    "line": rng.integers(1, 99),
    "source_id": np.append(rng.integers(4, 99, len(word_S) - 1), 3),
    "source_word": word_S,
    "source_unit": word_S,
    "source_head": head_W,
    "source_relation": rng.integers(9, size=words),
    "source_parent_mid": parent_mid(word_S, head_W),
    "source_tree_distance": tree_distance(head_W).ravel(),
    "target_id": [5, 3],
  }
  return {k: np.asarray(v, FEATURES[k].dtype) for k, v in values.items()}


@pytest.fixture(scope="module")
def examples():
  rng = np.random.default_rng(0)
  sizes = [0, 0, 1, *range(30), 0, 70, *rng.integers(20, size=60), 0]
  return [example_of(rng, int(words)) for words in sizes]


@pytest.mark.parametrize("kind", [*TREES])
def test_replaced_trees_of_many_examples_equal_each_alone(examples, kind):
  tree = TREES[kind]()
  rows = Rows.of(examples, examples[0])
  result = replace_trees(rows, "source", tree=tree, seed=11)
  changed = ("source_head", "source_parent_mid", "source_tree_distance")
  for new, old in zip(result.examples(), examples, strict=True):
    alone = control_trees.replace_trees(old, "source", tree=tree, seed=11)
    toy_folders.same(new, alone)
    head_W = new["source_head"]
    derived = parent_mid(old["source_word"], head_W), tree_distance(head_W)
    for name, expected in zip(changed[1:], derived):
      assert_array_equal(new[name], expected.ravel())
  for name in set(rows.flat) - {*changed}:
    assert result.flat[name] is rows.flat[name]
  # Features that are missing are not computed.
  names = ("source_id", "source_head", "source_tree_distance")
  some = replace_trees(Rows.of(examples, names), "source", tree=tree, seed=11)
  assert tuple(some.flat) == names
  for name in names:
    assert_array_equal(some.flat[name], result.flat[name])


def test_tags_surround_each_source_except_empty_ones(examples):
  result = insert_tags(Rows.of(examples, examples[0]), 77)
  for new, old in zip(result.examples(), examples, strict=True):
    words = len(old["source_id"]) - 1
    place_S = np.array([-1, *range(words), -1, words] if words else [0])
    expected = rearrange_source(old, place_S, np.full(len(place_S), 77))
    toy_folders.same(new, expected)
    toy_folders.same(insert_tag(old, 77), new)
  for name in examples[0]:  # any feature may be missing
    rows = insert_tags(Rows.of(examples, [name]), 77)
    assert_array_equal(rows.flat[name], result.flat[name])
    assert_array_equal(rows.start[name], result.start[name])
