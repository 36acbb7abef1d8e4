"""Columns of a prepared split: which trees they hold."""

from __future__ import annotations

import numpy as np
import pytest

from jaxsyn.data import example, tree
from jaxsyn.data.columns import examples_of, of_split
from jaxsyn.data.records import Records

TREE_FACTS = ("head", "parent_mid", "tree_distance")


@pytest.fixture(scope="module")
def records(prepared):
  return Records(prepared, "test")


@pytest.mark.parametrize("kind", ["linear", "random"])
def test_a_control_replaces_the_trees_of_both_sides(records, kind):
  changed = {"source": 0, "target": 0}
  for parsed, control in zip(records, examples_of(records, kind), strict=True):
    for side in changed:
      words = len(parsed[f"{side}_head"])
      if kind == "linear":
        assert control[f"{side}_head"].tolist() == tree.linear(words).tolist()
      alone = example.retree(parsed, side, kind)  # the other side as it was
      for name in TREE_FACTS:
        name = f"{side}_{name}"
        np.testing.assert_array_equal(control[name], alone[name])
      changed[side] += any(control[f"{side}_head"] != parsed[f"{side}_head"])
    for name in set(parsed) - {f"{s}_{n}" for s in changed for n in TREE_FACTS}:
      np.testing.assert_array_equal(control[name], parsed[name])
  assert min(changed.values()) > 20  # of 24 sentences


def test_parsed_trees_stay(records):
  for parsed, same in zip(records, examples_of(records, "parsed"), strict=True):
    assert parsed.keys() == same.keys()
    for name in parsed:
      np.testing.assert_array_equal(parsed[name], same[name])


def test_columns_hold_them(records):
  names = ("source_head", "target_head")
  ids = np.arange(len(records))
  found = of_split(records, names, "random", memory_gib=1.0)
  for name in names:
    wanted = [one[name] for one in examples_of(records, "random")]
    rows = found.rows(name, ids, max(map(len, wanted)), -1)
    for row, heads in zip(rows, wanted):
      assert row[row >= 0].tolist() == heads.tolist()
