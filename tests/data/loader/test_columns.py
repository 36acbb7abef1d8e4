"""Columns of a prepared split: which trees they hold."""

from __future__ import annotations

import numpy as np
import pytest

from jaxsyn.data.loader.columns import (
  cache_of,
  examples_of,
  of_split,
  rows_of,
  tree_facts,
)
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence import example, tree
from jaxsyn.data.store.records import Records
from jaxsyn.data.store.rows import Rows

TREE_FACTS = ("head", "parent_mid", "tree_distance")


@pytest.fixture(scope="module")
def records(prepared):
  return Records(prepared, "test")


@pytest.mark.parametrize("kind", ["linear", "random"])
def test_a_control_replaces_the_trees_of_both_sides(records, kind):
  changed = {"source": 0, "target": 0}
  controls = examples_of(records, kind, 7)
  for parsed, control in zip(records, controls, strict=True):
    for side in changed:
      words = len(parsed[f"{side}_head"])
      if kind == "linear":
        assert control[f"{side}_head"].tolist() == tree.linear(words).tolist()
      alone = example.retree(parsed, side, kind, 7)  # the other side as it was
      for name in TREE_FACTS:
        name = f"{side}_{name}"
        np.testing.assert_array_equal(control[name], alone[name])
      changed[side] += any(control[f"{side}_head"] != parsed[f"{side}_head"])
    for name in set(parsed) - {f"{s}_{n}" for s in changed for n in TREE_FACTS}:
      np.testing.assert_array_equal(control[name], parsed[name])
  assert min(changed.values()) > 20  # of 24 sentences


def test_parsed_trees_stay(records):
  examples = examples_of(records, "parsed", 7)
  for parsed, same in zip(records, examples, strict=True):
    assert parsed.keys() == same.keys()
    for name in parsed:
      np.testing.assert_array_equal(parsed[name], same[name])


@pytest.mark.parametrize(
  ("tree", "tag", "one_by_one"),
  [("parsed", None, False), ("parsed", 9, True), ("linear", None, True)],
)
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_rows_are_the_examples_and_made_of_them_only_if_they_change(
  records, tree, tag, one_by_one, count, monkeypatch
):
  expected = list(examples_of(records, tree, 7, tag))
  made, whole = [], Rows.examples
  monkeypatch.setattr("jaxsyn.data.store.rows.TOGETHER", count)
  monkeypatch.setattr("jaxsyn.data.store.records.TOGETHER", count)
  monkeypatch.setattr(
    Rows, "examples", lambda self: made.append(1) or whole(self)
  )
  found = list(rows_of(records, tree, 7, tag))
  assert bool(made) == one_by_one
  for name, feature in FEATURES.items():
    if name in records.features:
      values = [one[name].ravel() for one in expected]
      flat = np.concatenate([some.flat[name] for some in found])
      np.testing.assert_array_equal(flat, np.concatenate(values))
      assert flat.dtype == feature.dtype
      sizes = np.concatenate([some.size[name] for some in found])
      assert sizes.tolist() == [len(value) for value in values]


def test_columns_hold_those_of_their_seed(records):
  names = ("source_head", "target_head")
  ids = np.arange(len(records))
  drawn = []
  for seed in (0, 1, 0):  # made, made, and from the cache
    found = of_split(records, names, "random", seed, memory_gib=1.0)
    for name in names:
      wanted = [one[name] for one in examples_of(records, "random", seed)]
      drawn.append(found.rows(name, ids, max(map(len, wanted)), -1))
      for row, heads in zip(drawn[-1], wanted):
        assert row[row >= 0].tolist() == heads.tolist()
  assert (drawn[0] != drawn[2]).any(1).sum() > 20  # of 24 sentences
  np.testing.assert_array_equal(drawn[0], drawn[4])


@pytest.mark.parametrize("tree, folders", [("parsed", 1), ("random", 2)])
def test_only_random_trees_are_kept_by_seed(records, tree, folders):
  names = ("source_id", "source_head")
  caches = {cache_of(records, names, *tree_facts(tree, s)) for s in (0, 1)}
  assert len(caches) == folders


def test_lengths_are_of_subwords_and_words(records):
  names = ("source_id", "target_id", "source_tree_distance", "target_head")
  found = of_split(records, names, "parsed", 0, memory_gib=1.0).lengths()
  for own, one in zip(zip(*found, strict=True), records, strict=True):
    assert own == tuple(
      len(one[name])
      for name in ("source_id", "target_id", "source_head", "target_head")
    )
