"""The examples of a prepared split: which trees they hold."""

from __future__ import annotations

import numpy as np
import pytest
from toy_folders import data_of, opened, values

from jaxsyn.data.loader.column_cache import folder_of
from jaxsyn.data.loader.examples import Examples
from jaxsyn.data.schema import FEATURES
from jaxsyn.data.sentence import controls, example
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

OF_TREES = ("head", "parent_mid", "tree_distance")


@pytest.fixture(scope="module")
def records(prepared):
  return PreparedSplit(prepared, "test")


@pytest.mark.parametrize("kind", ["linear", "random"])
def test_a_control_replaces_the_trees_of_both_sides(records, kind):
  edited = {"source": 0, "target": 0}
  result = Examples(records, data_of(kind), 7)
  for parsed, control in zip(records, result, strict=True):
    for side in edited:
      words = len(parsed[f"{side}_head"])
      if kind == "linear":
        assert (
          control[f"{side}_head"].tolist() == controls.linear(words).tolist()
        )
      # The other side as it was.
      single = example.retree(parsed, side, tree=TREES[kind](), seed=7)
      for name in OF_TREES:
        name = f"{side}_{name}"
        np.testing.assert_array_equal(control[name], single[name])
      edited[side] += any(control[f"{side}_head"] != parsed[f"{side}_head"])
    for name in set(parsed) - {f"{s}_{n}" for s in edited for n in OF_TREES}:
      np.testing.assert_array_equal(control[name], parsed[name])
  assert min(edited.values()) > 20  # of 24 sentences


def test_trees_that_there_are_none_of_are_refused():
  with pytest.raises(
    InputError, match=r"data\.tree has no trees 'upside down'"
  ):
    data_of("upside down")


def test_parsed_trees_stay(records):
  examples = Examples(records, data_of(), 7)
  for parsed, same in zip(records, examples, strict=True):
    assert parsed.keys() == same.keys()
    for name in parsed:
      np.testing.assert_array_equal(parsed[name], same[name])


@pytest.mark.parametrize(
  ("tree", "task", "one_by_one"),
  [
    ("parsed", "none", False),
    ("parsed", "parse", True),
    ("linear", "none", True),
  ],
)
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_rows_are_the_examples_and_made_of_them_only_if_they_change(
  records, tree, task, one_by_one, count, monkeypatch
):
  examples = Examples(records, data_of(tree, task=task), 7)
  expected, made, complete = list(examples), [], Rows.examples
  monkeypatch.setattr("jaxsyn.data.store.rows.TOGETHER", count)
  monkeypatch.setattr(
    Rows, "examples", lambda self: made.append(1) or complete(self)
  )
  result = list(examples.rows({}))
  assert bool(made) == one_by_one
  for name, feature in FEATURES.items():
    if name in records.features:
      values = [one[name].ravel() for one in expected]
      flat = np.concatenate([some.flat[name] for some in result])
      np.testing.assert_array_equal(flat, np.concatenate(values))
      assert flat.dtype == feature.dtype
      sizes = np.concatenate([some.sizes(name) for some in result])
      assert sizes.tolist() == [len(value) for value in values]


def test_columns_hold_those_of_their_seed(records):
  names, data, sampled = ("source_head", "target_head"), data_of("random"), []
  for seed in (0, 1, 0):  # made, made, and from the cache
    loaded = opened(records, names, data=data, seed=seed).all_columns
    for name in names:
      sampled.append([values(loaded, name, i).tolist() for i in range(24)])
      wanted = [one[name].tolist() for one in Examples(records, data, seed)]
      assert sampled[-1] == wanted
  assert sum(a != b for a, b in zip(sampled[0], sampled[2])) > 20
  assert sampled[0] == sampled[4]


@pytest.mark.parametrize("tree, folders", [("parsed", 1), ("random", 2)])
def test_only_random_trees_are_kept_by_seed(records, tree, folders):
  names = ("source_id", "source_head")
  abouts = [Examples(records, data_of(tree), seed).about for seed in (0, 1)]
  assert len({folder_of(records, names, about) for about in abouts}) == folders


def test_lengths_are_of_subwords_and_words(records):
  loaded = opened(records, ("source_tree_distance", "target_head"))
  loaded = loaded.files.lengths
  for item, one in zip(zip(*loaded, strict=True), records, strict=True):
    assert item == tuple(
      len(one[name])
      for name in ("source_id", "target_id", "source_head", "target_head")
    )
