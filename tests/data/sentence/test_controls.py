"""Tests linear and random trees, and changes of many examples at once."""

from __future__ import annotations

import collections
import random as random_numbers

import control_trees
import numpy as np
import pytest
import toy_folders

from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence.controls import TREES, linear_trees, random_trees
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
  words = np.array([*range(60), 200] * 20)
  rng.shuffle(words)
  seeds = rng.integers(2**60, size=len(words)).tolist()
  expected = [one_random_tree(*one) for one in zip(words.tolist(), seeds)]
  found = random_trees(words, seeds)
  assert found.dtype == np.int32
  np.testing.assert_array_equal(found, np.concatenate(expected))
  # random.Random(0) draws .844 .758 .421 .259 .511 .405 | .784, times 8: the
  # sequence 6 6 3 2 4 3 and the root 6.
  assert control_trees.random(8, 0).tolist() == [6, 6, 6, 4, 2, 3, 6, 3]


def test_random_trees_are_uniform():
  # Cayley: 4 words have 4**2 = 16 trees, times 4 roots = 64 rooted ones.
  draws = 64 * 200
  trees = random_trees(np.full(draws, 4), range(draws)).reshape(draws, 4)
  counts = collections.Counter(map(tuple, trees.tolist()))
  assert len(counts) == 64
  # Chi-square with 63 degrees of freedom: 103 is exceeded once in 1000.
  assert sum((c - 200) ** 2 / 200 for c in counts.values()) < 103


def test_linear_trees_start_in_each_sentence():
  found = linear_trees(np.array([3, 0, 1, 4]))
  assert found.tolist() == [0, 0, 1, 0, 0, 0, 1, 2]
  assert found.dtype == np.int32
  none = np.array([], int)
  assert len(linear_trees(none)) == len(random_trees(none, [])) == 0


def example_of(rng: np.random.Generator, words: int) -> dict[str, np.ndarray]:
  """An example with several subwords a word, and words without any."""
  pieces = rng.choice([0, 1, 1, 2, 3], words)
  if words and not pieces.any():
    pieces[0] = 1
  word_S = np.append(np.repeat(np.arange(words), pieces), -1)
  head_W = one_random_tree(words, int(rng.integers(2**60)))
  made = {
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
  return {k: np.asarray(v, FEATURES[k].dtype) for k, v in made.items()}


def examples():
  rng = np.random.default_rng(0)
  sizes = [0, 0, 1, *range(30), 0, 70, *rng.integers(20, size=200), 0]
  return [example_of(rng, int(words)) for words in sizes]


@pytest.mark.parametrize("kind", [*TREES])
def test_retree_of_many_examples_equals_each_alone(kind):
  many, tree = examples(), TREES[kind]()
  rows = Rows.of(many, many[0])
  found = replace_trees(rows, "source", tree=tree, seed=11)
  for new, old in zip(found.examples(), many, strict=True):
    alone = control_trees.replace_trees(old, "source", tree=tree, seed=11)
    toy_folders.same(new, alone)
    words = len(old["source_head"])
    np.testing.assert_array_equal(
      new["source_tree_distance"], tree_distance(new["source_head"]).ravel()
    )
    np.testing.assert_array_equal(
      new["source_parent_mid"],
      parent_mid(old["source_word"], new["source_head"]),
    )
    if kind == "linear":
      assert new["source_head"].tolist() == [0, *range(words)][:words]
  for name in set(many[0]) - {
    "source_head",
    "source_parent_mid",
    "source_tree_distance",
  }:
    assert found.flat[name] is rows.flat[name]
  names = ("source_id", "source_head", "source_tree_distance")
  some = replace_trees(Rows.of(many, names), "source", tree=tree, seed=11)
  assert tuple(some.flat) == names
  for name in names:
    np.testing.assert_array_equal(some.flat[name], found.flat[name])


def test_tags_surround_each_source_except_empty_ones():
  many = examples()
  complete = insert_tags(Rows.of(many, many[0]), 77)
  empty = 0
  for new, old in zip(complete.examples(), many, strict=True):
    words = len(old["source_id"]) - 1
    if words:
      place_S = np.array([-1, *range(words), -1, words])
      expected = rearrange_source(old, place_S, np.full(len(place_S), 77))
      toy_folders.same(new, expected)
    else:
      toy_folders.same(new, old)
      empty += 1
    toy_folders.same(insert_tag(old, 77), new)
  assert empty > 2
  for name in many[0]:  # any feature may be missing
    rows = insert_tags(Rows.of(many, [name]), 77)
    np.testing.assert_array_equal(rows.flat[name], complete.flat[name])
    np.testing.assert_array_equal(rows.start[name], complete.start[name])
