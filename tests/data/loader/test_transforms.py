"""Tests control trees and tags of the examples of a split."""

from __future__ import annotations

import control_trees
import numpy as np
import pytest
from toy_folders import (
  data_of,
  example,
  opened,
  prepare,
  same,
  stored,
  values,
)

from jaxsyn.data.loader.transforms import (
  ControlTrees,
  ExamplesInMemory,
  SourceTags,
  TransformedExamples,
  iterate_translations,
  translations,
)
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.example import insert_tag
from jaxsyn.data.store import dataset as store
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.data.store.rows import Rows, lengths_of

OF_TREES = ("head", "parent_mid", "tree_distance")


@pytest.fixture(scope="module")
def records(prepared):
  return Dataset(prepared).split("test")


def all_rows(blocks, features):
  return Rows.joined([*blocks.rows(features)])


def with_transforms(examples, kind, seed, tag):
  """Examples with control trees and tags."""
  tree = TREES[kind]()
  trees = [ControlTrees(tree, seed)] if tree.replaces else []
  tags = [] if tag is None else [SourceTags(tag, at_end=True)]
  return TransformedExamples(examples, [*trees, *tags])


def same_rows(found, expected):
  assert found.flat.keys() == expected.flat.keys()
  for name, flat in expected.flat.items():
    np.testing.assert_array_equal(found.flat[name], flat, name)
    np.testing.assert_array_equal(found.start[name], expected.start[name])
    assert found.flat[name].dtype == FEATURES[name].dtype


@pytest.mark.parametrize("kind", ["linear", "random"])
def test_a_control_replaces_the_trees_of_both_sides(records, kind):
  edited = {"source": 0, "target": 0}
  result = iterate_translations(records, data_of(kind), 7)
  for parsed, control in zip(records, result, strict=True):
    for side in edited:
      words = len(parsed[f"{side}_head"])
      if kind == "linear":
        assert (
          control[f"{side}_head"].tolist()
          == control_trees.linear(words).tolist()
        )
      # The other side as it was.
      tree = TREES[kind]()
      single = control_trees.replace_trees(parsed, side, tree=tree, seed=7)
      for name in OF_TREES:
        name = f"{side}_{name}"
        np.testing.assert_array_equal(control[name], single[name])
      edited[side] += any(control[f"{side}_head"] != parsed[f"{side}_head"])
    for name in set(parsed) - {f"{s}_{n}" for s in edited for n in OF_TREES}:
      np.testing.assert_array_equal(control[name], parsed[name])
  assert min(edited.values()) > 20  # of 24 sentences


@pytest.mark.parametrize(
  ("tree", "task", "kind"),
  [
    ("parsed", "none", Split),
    ("parsed", "parse", TransformedExamples),
    ("linear", "none", TransformedExamples),
    ("wrong_parents", "source", TransformedExamples),
  ],
)
@pytest.mark.parametrize("block", [1, 5, 4096])
def test_blocks_hold_the_examples(
  prepared, tree, task, kind, block, monkeypatch
):
  monkeypatch.setattr(store, "BLOCK", block)
  records = Dataset(prepared).split("test")
  data = data_of(tree, task=task)
  blocks = translations(records, data, 7)
  assert isinstance(blocks, kind)
  assert len(blocks) == 24
  examples = iterate_translations(records, data, 7)
  expected = Rows.of([*examples], records.features)
  same_rows(all_rows(blocks, records.features), expected)


@pytest.mark.parametrize("tag", [None, 9])
@pytest.mark.parametrize("kind", ["parsed", "linear", "random"])
def test_transformed_examples_do_not_depend_on_the_features(
  prepared, monkeypatch, kind, tag
):
  monkeypatch.setattr(store, "BLOCK", 7)
  records = Dataset(prepared).split("test")
  blocks = with_transforms(records, kind, 3, tag)
  complete = all_rows(blocks, records.features)
  for name in records.features:
    same_rows(all_rows(blocks, [name]), complete.of_features([name]))
  some = ("target_tree_distance", "line", "source_parent_mid")
  same_rows(all_rows(blocks, some), complete.of_features(some))
  for number in (3, 0):
    (rows,) = blocks.read_blocks([number], records.features)
    same_rows(rows, complete.part(*blocks.block_start[number : number + 2]))


@pytest.mark.parametrize("tag", [None, 9])
def test_transformed_examples_have_their_lengths(tmp_path, monkeypatch, tag):
  """Among the sentences are empty ones, to which no tag is added."""
  monkeypatch.setattr(store, "BLOCK", 2)
  records = Dataset(prepare(tmp_path)).split("train")
  empty = records.index["source"] == 1
  assert not empty.any()  # see `test_tags_are_not_added_to_empty_sentences`
  for kind in ("parsed", "linear", "random"):
    blocks = with_transforms(records, kind, 3, tag)
    names = [name for name in records.features if name != "target_head"]
    measured = lengths_of(all_rows(blocks, names))
    for own, expected in zip(blocks.lengths, measured, strict=True):
      assert own.tolist() == expected.tolist()
      assert own.dtype == np.uint8
    assert blocks.block_start is records.block_start


EMPTY = {
  name: array if name in ("line", "source_parsed") else array[:0]
  for name, array in example(0).items()
} | {
  "source_id": np.array([3], np.int32),
  "target_id": np.array([3], np.int32),
  "source_word": np.array([-1], np.int32),
  "source_parent_mid": np.array([0], np.float32),
}


def test_tags_are_not_added_to_empty_sentences():
  some = [EMPTY, example(1), EMPTY, EMPTY, example(2), EMPTY]
  blocks = with_transforms(stored(some), "parsed", 3, 9)
  rows = all_rows(blocks, tuple(some[0]))
  assert rows.sizes("source_id").tolist() == [1, 6, 1, 1, 7, 1]
  for own, measured in zip(blocks.lengths, lengths_of(rows), strict=True):
    assert own.tolist() == measured.tolist()
  for found, one in zip(rows.examples(), some, strict=True):
    expected = insert_tag(one, 9)
    expected["source_parent_mid"] = found["source_parent_mid"]
    same(found, expected)


def test_lengths_with_tags_do_not_overflow():
  long = np.arange(254, dtype=np.int32)
  one = {**EMPTY, "source_id": long, "source_word": long}
  records = stored([one, EMPTY])
  assert records.lengths.source.tolist() == [254, 1]
  records.lengths = records.lengths._replace(
    source=records.lengths.source.astype(np.uint8)
  )
  blocks = with_transforms(records, "parsed", 0, 9)
  assert blocks.lengths.source.tolist() == [256, 1]


def test_reads_blocks_of_examples_in_memory(monkeypatch):
  monkeypatch.setattr(store, "BLOCK", 4)
  many = [example(i) for i in range(11)]
  blocks = stored(many)
  assert len(blocks) == 11
  assert blocks.block_start.tolist() == [0, 4, 8, 11]
  names = ("target_id", "line")
  for number, rows in zip([2, 0, 0], blocks.read_blocks([2, 0, 0], names)):
    expected = many[4 * number : 4 * number + 4]
    same_rows(rows, Rows.of(expected, names))
    assert tuple(rows.flat) == names
  for own, measured in zip(blocks.lengths, lengths_of(blocks.all)):
    np.testing.assert_array_equal(own, measured)
  empty = ExamplesInMemory(Rows.of([], names))
  assert empty.block_start.tolist() == [0]


def test_random_trees_depend_on_the_seed(records):
  names, data, drawn = ("source_head", "target_head"), data_of("random"), []
  for seed in (0, 1, 0):
    found = opened(records, names, data=data, seed=seed).all_examples
    for name in names:
      drawn.append([values(found, name, i).tolist() for i in range(24)])
      wanted = [
        one[name].tolist() for one in iterate_translations(records, data, seed)
      ]
      assert drawn[-1] == wanted
  assert sum(a != b for a, b in zip(drawn[0], drawn[2])) > 20
  assert drawn[0] == drawn[4]
