"""Tests linear and random trees, and changes of many examples at once."""

from __future__ import annotations

import random as random_numbers

import control_trees
import numpy as np
import pytest
import toy_folders

from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence.controls import TREES, linear_trees, random_trees
from jaxsyn.data.sentence.example import (
  rearranged,
  retree,
  tagged,
  tagged_rows,
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


SIZES = [*range(60), 200]


def test_random_trees_equal_step_by_step_decoding():
  rng = np.random.default_rng(0)
  words = np.array(SIZES * 20)
  rng.shuffle(words)
  seeds = rng.integers(2**60, size=len(words)).tolist()
  expected = [one_random_tree(*one) for one in zip(words.tolist(), seeds)]
  found = random_trees(words, seeds)
  assert found.dtype == np.int32
  np.testing.assert_array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("words", SIZES)
def test_random_tree_does_not_depend_on_other_trees(words):
  found = random_trees(np.array([words]), [words + 7])
  np.testing.assert_array_equal(found, one_random_tree(words, words + 7))


def test_random_trees_of_same_size_and_seed_are_equal():
  found = random_trees(np.array([9] * 1100), [4] * 1100).reshape(1100, 9)
  assert (found == found[0]).all()


@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [0, 1, 0, 1]])
def test_trees_of_zero_or_one_word(sizes):
  words = np.array(sizes, np.int64)
  for found in (random_trees(words, sizes), linear_trees(words)):
    assert found.tolist() == [0] * sum(sizes)
    assert found.dtype == np.int32


def test_linear_trees_start_in_each_sentence():
  found = linear_trees(np.array([3, 0, 1, 4]))
  assert found.tolist() == [0, 0, 1, 0, 0, 0, 1, 2]


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
  sizes = [0, 0, 1, *range(30), 0, 70, *rng.integers(20, size=600), 0]
  return [example_of(rng, int(words)) for words in sizes]


@pytest.mark.parametrize("kind", [*TREES])
def test_retree_of_many_examples_equals_each_alone(kind):
  many, tree = examples(), TREES[kind]()
  rows = Rows.of(many, many[0])
  found = retree(rows, "source", tree=tree, seed=11)
  for new, old in zip(found.examples(), many, strict=True):
    alone = control_trees.retree(old, "source", tree=tree, seed=11)
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


def test_retree_changes_only_present_features():
  many = examples()[:40]
  names = ("source_id", "source_head", "source_tree_distance")
  tree = TREES["random"]()
  complete = retree(Rows.of(many, many[0]), "source", tree=tree, seed=5)
  some = retree(Rows.of(many, names), "source", tree=tree, seed=5)
  assert tuple(some.flat) == names
  for name in names:
    np.testing.assert_array_equal(some.flat[name], complete.flat[name])


def tagged_one(example, tag):
  """Puts a tag before a source and before its EOS, by position."""
  words = len(example["source_id"]) - 1
  if not words:
    return example
  old_S = np.array([-1, *range(words), -1, words])
  return rearranged(example, old_S, np.full(len(old_S), tag))


def test_tags_surround_each_source_except_empty_ones():
  many = examples()
  found = tagged_rows(Rows.of(many, many[0]), 77).examples()
  empty = 0
  for new, old in zip(found, many, strict=True):
    toy_folders.same(new, tagged_one(old, 77))
    toy_folders.same(tagged(old, 77), new)
    empty += len(new["source_id"]) == 1
  assert empty > 20


def test_tagged_rows_accepts_any_selection_of_features():
  many = examples()[:50]
  complete = tagged_rows(Rows.of(many, many[0]), 77)
  for name in many[0]:
    rows = tagged_rows(Rows.of(many, [name]), 77)
    np.testing.assert_array_equal(rows.flat[name], complete.flat[name])
    np.testing.assert_array_equal(rows.start[name], complete.start[name])
