"""Tests examples of auxiliary tasks against worked examples."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import toy_folders
from toy_folders import SHA256, values

from jaxsyn.data import schema
from jaxsyn.data.loader import tasks
from jaxsyn.data.loader.batch_sampler import PlannedBatch
from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.loader.loader import HostShard
from jaxsyn.data.loader.transforms import with_auxiliary_task
from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.linearise import CLOSE, linearise, opening
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.errors import InputError

SOURCE, TARGET = 50, 60  # sizes of the vocabularies
TR, PA, END, HEAD, UNKNOWN, DET, OBJ, ROOT = range(8)  # symbols
EOS = schema.EOS
READS = ("source_parent_mid", "source_tree_distance", "source_head")


def example(i, word_S, head_W, relation_W, brackets=(), parsed=1):
  """Subwords 10, 11, ... to 20 + i, 20 + i, 3."""
  word_S = np.array([*word_S, -1])
  values = {
    "line": i + 1,
    "source_id": [*range(10, 9 + len(word_S)), EOS],
    "source_word": word_S,
    "source_head": head_W,
    "source_relation": relation_W,
    "source_parent_mid": tree.parent_mid(word_S, np.array(head_W, int)),
    "source_tree_distance": tree.tree_distance(np.array(head_W, int)).ravel(),
    "source_parsed": parsed,
    "source_word_end": np.arange(1, len(head_W) + 1),
    "source_brackets": brackets,
    "target_id": [20 + i, 20 + i, EOS],
  }
  features = schema.features(
    {"sides": ["source"], "brackets": {"source": ["S"]}}
  )
  return {k: np.asarray(v, features[k].dtype) for k, v in values.items()}


NP, S = opening(1), opening(2)
EXAMPLES = [
  # "a duck" with "duck" in two subwords, and (S (NP a duck ) )
  example(0, [0, 1, 1], [1, 1], [1, 3], [S, NP, 0, 1, 2, CLOSE, CLOSE]),
  example(1, [0, 1], [0, 1], [0, 0], parsed=0),
  example(2, [0, 1, 2], [1, 1, 1], [2, 3, 2], [S, 0, 1, 2, CLOSE]),
  example(3, [], [], [], parsed=0),  # an empty line
  example(4, [0] * 12, [0], [3], [NP, *range(12), CLOSE]),  # a long one
]


def data(**second):
  return toy_folders.data_of(**({"task": "parse"} | second))


@pytest.fixture(autouse=True)
def max_length(monkeypatch):
  """Sets a short maximum length; returns a function that sets another one."""

  def limit(length):
    monkeypatch.setattr(tasks, "MAX_LENGTH", length)

  limit(14)
  return limit


@pytest.fixture(scope="module")
def make(tmp_path_factory):
  """A function that prepares a folder with or without constituency trees."""

  def prepare(brackets: bool) -> Split:
    folder = tmp_path_factory.mktemp("prepared")
    manifest: dict[str, Any] = {
      "sides": ["source"],
      "vocabulary": {
        side: {"file": f"{side}.model", "sha256": SHA256, "size": size}
        for side, size in (("source", SOURCE), ("target", TARGET))
      },
      "relations": {"source": ["det", "obj", "root"]},
    }
    if brackets:
      manifest["brackets"] = {"source": ["NP", "S"]}
    saved = schema.features(manifest)
    examples = [{name: one[name] for name in saved} for one in EXAMPLES]
    toy_folders.write_dataset(folder, {"train": examples}, **manifest)
    return Dataset(folder).split("train")

  return prepare


@pytest.fixture(scope="module")
def records(make):
  return make(brackets=True)


def made(records, data):
  examples, counts = with_auxiliary_task(records, data, 0, records.features)
  return examples.all.examples(), dict(counts)


def source(*symbols):
  return [SOURCE + s if s < 10 else s for s in symbols]


def target(*symbols):
  return [*(TARGET + s for s in symbols), EOS]


def test_every_source_is_translated_and_parsed(records):
  result, messages = made(records, data())
  assert messages == {
    "translations": 5,
    "second": 2,
    "no tree": 2,
    "too long": 1,
  }
  ids = [one["source_id"].tolist() for one in result]
  assert ids == [
    [*source(TR, 10, 11, 12, TR), EOS],
    [*source(TR, 10, 11, TR), EOS],
    [*source(TR, 10, 11, 12, TR), EOS],
    [EOS],
    [*source(TR, *range(10, 22), TR), EOS],
    [*source(PA, 10, 11, 12, PA), EOS],
    [*source(PA, 10, 11, 12, PA), EOS],
  ]
  targets = [one["target_id"].tolist() for one in result]
  assert targets[:5] == [[20 + i, 20 + i, EOS] for i in range(5)]
  # (root (det ) ^ ) and (root (obj ) ^ (obj ) )
  assert targets[5:] == [
    target(ROOT, DET, END, HEAD, END),
    target(ROOT, OBJ, END, HEAD, OBJ, END, END),
  ]
  for i, one in zip((0, 1, 2, 3, 4, 0, 2), result):
    assert one["line"] == i + 1
    np.testing.assert_array_equal(
      one["source_head"], EXAMPLES[i]["source_head"]
    )


def test_sources_contain_the_brackets_of_their_trees(records):
  result, messages = made(records, data(task="source"))
  assert messages == {
    "translations": 5,
    "second": 2,
    "no tree": 2,
    "too long": 1,
  }
  for one, plain in zip(result[:5], EXAMPLES):
    for name, array in plain.items():
      np.testing.assert_array_equal(one[name], array)
  # (root (det 10 ) 11 12 ) EOS
  one = result[5]
  assert one["source_id"].tolist() == [
    *source(ROOT, DET, 10, END, 11, 12, END),
    EOS,
  ]
  assert one["target_id"].tolist() == [20, 20, EOS]
  # Facts for the parts that read them: brackets belong to no word and are
  # their own parent; the middle of "duck" is 4.5.
  assert one["source_word"].tolist() == [-1, -1, 0, -1, 1, 1, -1, -1]
  assert one["source_parent_mid"].tolist() == [0, 1, 4.5, 3, 4.5, 4.5, 6, 7]
  np.testing.assert_array_equal(
    one["source_tree_distance"], EXAMPLES[0]["source_tree_distance"]
  )
  for name, array in one.items():
    assert array.dtype == schema.FEATURES[name].dtype


def test_uses_constituency_trees(records):
  result, messages = made(records, data(brackets="constituency"))
  # NP is label 1, the symbol after (?; the long sentence has no tree left.
  assert messages == {
    "translations": 5,
    "second": 2,
    "no tree": 2,
    "too long": 1,
  }
  assert [one["target_id"].tolist() for one in result[5:]] == [
    target(UNKNOWN + 2, UNKNOWN + 1, END, END),
    target(UNKNOWN + 2, END),
  ]
  result, _ = made(records, data(brackets="constituency", task="source"))
  assert result[5]["source_id"].tolist() == [
    *source(UNKNOWN + 2, UNKNOWN + 1, 10, 11, 12, END, END),
    EOS,
  ]


def test_limits_the_length_with_tags_and_brackets(records, max_length):
  # Tags and EOS: 12 + 3 subwords; with brackets and EOS: 12 + 2 + 1.
  for length, examples in ((15, 3), (14, 2)):
    max_length(length)
    for task in ("parse", "source"):
      assert made(records, data(task=task))[1]["second"] == examples
  # The target of the third, (root (obj ) ^ (obj ) ) EOS, has 8.
  max_length(7)
  assert made(records, data())[1]["second"] == 1


def test_the_auxiliary_task_uses_control_trees(records):
  linear = data(tree="linear")
  result, _ = made(records, linear)
  # Word 1 depends on word 0: (det ^ (root ) ), relations as they were.
  assert result[5]["target_id"].tolist() == target(DET, HEAD, ROOT, END, END)


def opened(records, data):
  sizes = {"tokens": 32, "shapes": 1, "row_multiple": 1}
  return toy_folders.opened(records, READS, data=data, **sizes)


def test_a_split_holds_both_tasks(records):
  parse = data(weight=0.5)
  found, _ = made(records, parse)
  both = opened(records, parse)
  assert len(both) == 7
  assert (
    "2 examples in addition to 5 translations; omitted: 2 without a tree, 1"
    in both.messages[0]
  )
  for name in both.features:
    for i, one in enumerate(found):
      stored = values(both.all_examples, name, i)
      np.testing.assert_array_equal(stored, one[name].ravel())
  assert both.auxiliary == (5, 0.5)
  other = opened(records, data(task="source"))
  assert len(other) == 7
  plain = opened(records, data(task="none"))
  assert len(plain) == 5 and not plain.messages


def test_batches_have_the_weight_of_each_row(records):
  both = opened(records, data(weight=0.5))
  planned = PlannedBatch(Shape(4, 8, 9, source_words=3), np.array([5, 0, 6]))
  batch = both.batch(planned)
  assert batch["weight_B"].tolist() == [0.5, 1, 0.5, 0]
  assert batch["weight_B"].dtype == np.float32
  hosts = [dataclasses.replace(both, shard=HostShard((i,), 2)) for i in (0, 1)]
  halves = [half.batch(planned) for half in hosts]
  assert [h["weight_B"].tolist() for h in halves] == [[0.5, 1], [0.5, 0]]


def test_bracket_targets_have_no_tree(records):
  """For systems with parts on the target side."""
  one = dict(next(iter(records)))
  side = {f"target_{k.partition('_')[2]}": v for k, v in one.items()}
  names = schema.features({"sides": ["source", "target"]})
  one |= {k: v for k, v in side.items() if k in names and k != "target_id"}
  sizes = {"source": SOURCE, "target": TARGET}
  bracketing = linearise(one["source_head"], one["source_relation"])
  new = tasks.ParsingTask().make(one, bracketing, "dependency", sizes)
  assert new["target_word"].tolist() == [-1] * 6
  assert new["target_parent_mid"].tolist() == [*range(6)]
  assert new["target_head"].shape == new["target_tree_distance"].shape == (0,)
  assert new["target_parsed"] == 0 and new["source_parsed"] == 1
  for name, array in new.items():
    assert array.dtype == schema.FEATURES[name].dtype


def test_names_missing_trees(make, tmp_path):
  older = make(brackets=False)
  assert "source_brackets" not in older.features
  assert made(older, data())[1]["second"] == 2
  with pytest.raises(InputError, match=r"needs constituency trees .* has none"):
    opened(older, data(brackets="constituency"))
  older.dataset.manifest.update(sides=[], relations={})
  with pytest.raises(
    InputError, match=r"needs dependency trees .*parse\.sides"
  ):
    opened(older, data())


def test_rejects_a_task_without_examples(records, max_length):
  max_length(2)
  with pytest.raises(InputError, match=r"no example is left .* 3 too long"):
    opened(records, data())
