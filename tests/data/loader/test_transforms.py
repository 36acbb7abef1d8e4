"""Tests control trees and tags of the examples of a split."""

from __future__ import annotations

import control_trees
import numpy as np
import pytest
from toy_folders import EMPTY, data_of, example, opened, same, stored

from jaxsyn.data.loader.transforms import (
  ControlTrees,
  SourceTags,
  TransformedExamples,
  iterate_translations,
)
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.example import insert_tag
from jaxsyn.data.store import dataset as store
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import Rows, lengths_of


@pytest.fixture(scope="module")
def records(prepared):
  return Dataset(prepared).split("test")


def all_rows(examples, features):
  return Rows.joined([*examples.rows(features)])


def transformed(examples, *, tree="parsed", tag=None):
  """Returns examples with control trees and tags."""
  trees = [] if tree == "parsed" else [ControlTrees(TREES[tree](), 3)]
  tags = [] if tag is None else [SourceTags(tag, at_end=True)]
  return TransformedExamples(examples, [*trees, *tags])


def same_rows(found, expected):
  assert found.flat.keys() == expected.flat.keys()
  for name, flat in expected.flat.items():
    np.testing.assert_array_equal(found.flat[name], flat, name)
    np.testing.assert_array_equal(found.start[name], expected.start[name])
    assert found.flat[name].dtype == FEATURES[name].dtype


def same_lengths(examples, names):
  measured = lengths_of(all_rows(examples, names))
  for found, expected in zip(examples.lengths, measured, strict=True):
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["linear", "random"])
def test_a_control_replaces_the_trees_of_both_sides(records, kind):
  changed = {"source": 0, "target": 0}
  result = iterate_translations(records, data_of(kind), 7)
  for parsed, control in zip(records, result, strict=True):
    expected = parsed
    for side in changed:
      expected = control_trees.replace_trees(
        expected, side, tree=TREES[kind](), seed=7
      )
      changed[side] += any(control[f"{side}_head"] != parsed[f"{side}_head"])
    same(control, expected)
  assert min(changed.values()) > 20  # of 24 sentences


def test_random_trees_depend_on_the_seed(records):
  first, other, again = (
    opened(records, ["source_head"], data=data_of("random"), seed=seed)
    for seed in (0, 1, 0)
  )
  first, other, again = (
    loader.all_examples.flat["source_head"].tolist()
    for loader in (first, other, again)
  )
  assert first == again != other


@pytest.mark.parametrize(
  ("tree", "tag"), [("random", None), ("parsed", 9), ("linear", 9)]
)
def test_transformed_examples_do_not_depend_on_blocks_and_features(
  prepared, monkeypatch, tree, tag
):
  def examples(block):
    monkeypatch.setattr(store, "BLOCK", block)
    return transformed(Dataset(prepared).split("test"), tree=tree, tag=tag)

  names = Dataset(prepared).features
  complete, blocks = all_rows(examples(4096), names), examples(7)
  same_rows(all_rows(blocks, names), complete)
  some = ("target_tree_distance", "line", "source_parent_mid")
  for part in (some, *((name,) for name in names)):
    same_rows(all_rows(blocks, part), complete.of_features(part))
  for block in (3, 0):
    (rows,) = blocks.read_blocks([block], names)
    same_rows(
      rows, complete.take(np.arange(*blocks.block_start[block : block + 2]))
    )
  # Without the parents, the words of a side are counted from its distances.
  same_lengths(blocks, [name for name in names if name != "target_head"])


def test_tags_are_not_added_to_empty_sentences():
  some = [EMPTY, example(1), EMPTY, EMPTY, example(2), EMPTY]
  tagged = transformed(stored(some), tag=9)
  same_lengths(tagged, tuple(EMPTY))
  rows = all_rows(tagged, tuple(EMPTY))
  assert rows.sizes("source_id").tolist() == [1, 6, 1, 1, 7, 1]
  for found, one in zip(rows.examples(), some, strict=True):
    expected = insert_tag(one, 9)
    expected["source_parent_mid"] = found["source_parent_mid"]
    same(found, expected)


def test_lengths_with_tags_do_not_overflow():
  long = np.arange(254, dtype=np.int32)
  examples = stored([{**EMPTY, "source_id": long, "source_word": long}, EMPTY])
  lengths = examples.lengths
  examples.lengths = lengths._replace(source=lengths.source.astype(np.uint8))
  tagged = transformed(examples, tag=9)
  assert tagged.lengths.source.tolist() == [256, 1]


def test_reads_blocks_of_examples_in_memory(monkeypatch):
  monkeypatch.setattr(store, "BLOCK", 4)
  many = [example(i) for i in range(11)]
  examples = stored(many)
  assert examples.block_start.tolist() == [0, 4, 8, 11]
  names = ("target_id", "line")
  blocks = [2, 0, 0]
  for block, rows in zip(blocks, examples.read_blocks(blocks, names)):
    same_rows(rows, Rows.of(many[4 * block : 4 * block + 4], names))
  same_lengths(examples, tuple(many[0]))
