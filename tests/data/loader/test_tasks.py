"""Tests examples of auxiliary tasks against worked examples."""

import dataclasses

import numpy as np
import pytest
import toy_folders
from toy_folders import SHA256, data_of, same, write_dataset

from jaxsyn.data import schema
from jaxsyn.data.loader import tasks
from jaxsyn.data.loader.batch_sampler import PlannedBatch
from jaxsyn.data.loader.collate import Shape
from jaxsyn.data.loader.loader import HostShard
from jaxsyn.data.loader.transforms import with_auxiliary_task
from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.linearise import CLOSE, linearise, opening
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

SOURCE, TARGET = 50, 60  # sizes of the vocabularies
TR, PA, END, HEAD, UNKNOWN, DET, OBJ, ROOT = range(8)  # symbols
EOS = schema.EOS
REQUIRED = ("source_parent_mid", "source_tree_distance", "source_head")


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


@pytest.fixture(autouse=True)
def short(monkeypatch):
  monkeypatch.setattr(tasks, "MAX_LENGTH", 14)


def folder_of(folder, *, brackets):
  """Prepares the examples with or without constituency trees."""
  manifest = {
    "sides": ["source"],
    "vocabulary": {
      side: {"file": f"{side}.model", "sha256": SHA256, "size": size}
      for side, size in (("source", SOURCE), ("target", TARGET))
    },
    "relations": {"source": ["det", "obj", "root"]},
  }
  if brackets:
    manifest["brackets"] = {"source": ["NP", "S"]}
  names = schema.features(manifest)
  examples = [{name: one[name] for name in names} for one in EXAMPLES]
  return write_dataset(folder, {"train": examples}, **manifest)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
  folder = folder_of(tmp_path_factory.mktemp("prepared"), brackets=True)
  return Dataset(folder).split("train")


def made(records, tree="parsed", task="parse", **options):
  data = data_of(tree, task=task, **options)
  examples, counts = with_auxiliary_task(records, data, 0, records.features)
  return examples.all.examples(), dict(counts)


def source(*symbols):
  """Returns ids of symbols, below 10, and of subwords; EOS follows."""
  return [*(SOURCE + s if s < 10 else s for s in symbols), EOS]


def target(*symbols):
  return [*(TARGET + s for s in symbols), EOS]


COUNTS = {"translations": 5, "second": 2, "no tree": 2, "too long": 1}


def test_every_source_is_translated_and_parsed(records):
  result, counts = made(records)
  assert counts == COUNTS
  assert [one["source_id"].tolist() for one in result] == [
    source(TR, 10, 11, 12, TR),
    source(TR, 10, 11, TR),
    source(TR, 10, 11, 12, TR),
    source(),
    source(TR, *range(10, 22), TR),
    source(PA, 10, 11, 12, PA),
    source(PA, 10, 11, 12, PA),
  ]
  assert [one["target_id"].tolist() for one in result] == [
    *([20 + i, 20 + i, EOS] for i in range(5)),
    target(ROOT, DET, END, HEAD, END),  # (root (det ) ^ )
    target(ROOT, OBJ, END, HEAD, OBJ, END, END),  # (root (obj ) ^ (obj ) )
  ]
  for i, one in zip((0, 1, 2, 3, 4, 0, 2), result):
    assert one["line"] == i + 1
    head_W = EXAMPLES[i]["source_head"]
    np.testing.assert_array_equal(one["source_head"], head_W)


def test_sources_contain_the_brackets_of_their_trees(records):
  result, counts = made(records, task="source")
  assert counts == COUNTS
  for one, plain in zip(result[:5], EXAMPLES):
    same(one, plain)
  one = result[5]  # (root (det 10 ) 11 12 )
  assert one["source_id"].tolist() == source(ROOT, DET, 10, END, 11, 12, END)
  assert one["target_id"].tolist() == [20, 20, EOS]
  # Brackets belong to no word and are their own parent. The middle of "duck" is
  # 4.5.
  assert one["source_word"].tolist() == [-1, -1, 0, -1, 1, 1, -1, -1]
  assert one["source_parent_mid"].tolist() == [0, 1, 4.5, 3, 4.5, 4.5, 6, 7]
  np.testing.assert_array_equal(
    one["source_tree_distance"], EXAMPLES[0]["source_tree_distance"]
  )


def test_uses_constituency_trees(records):
  result, counts = made(records, brackets="constituency")
  assert counts == COUNTS
  np_, s = UNKNOWN + 1, UNKNOWN + 2  # the symbols of the labels NP and S
  assert result[5]["target_id"].tolist() == target(s, np_, END, END)
  assert result[6]["target_id"].tolist() == target(s, END)
  result, _ = made(records, task="source", brackets="constituency")
  expected = source(s, np_, 10, 11, 12, END, END)
  assert result[5]["source_id"].tolist() == expected


@pytest.mark.parametrize(
  ("task", "length", "count"),
  [
    # 12 subwords, two tags and EOS, or two brackets and EOS.
    *(("parse", 15, 3), ("parse", 14, 2), ("source", 15, 3), ("source", 14, 2)),
    # The target of the third example, (root (obj ) ^ (obj ) ) EOS, has 8.
    ("parse", 7, 1),
  ],
)
def test_limits_the_length_with_tags_and_brackets(
  records, monkeypatch, task, length, count
):
  monkeypatch.setattr(tasks, "MAX_LENGTH", length)
  assert made(records, task=task)[1]["second"] == count


def test_the_auxiliary_task_uses_control_trees(records):
  result, _ = made(records, "linear")
  # Word 1 depends on word 0, with unchanged relations: (det ^ (root ) ).
  assert result[5]["target_id"].tolist() == target(DET, HEAD, ROOT, END, END)


def opened(records, task="parse", **options):
  data = data_of(task=task, **options)
  sizes = {"tokens": 32, "shapes": 1, "row_multiple": 1}
  return toy_folders.opened(records, REQUIRED, data=data, **sizes)


def test_a_split_has_the_examples_and_weights_of_both_tasks(records):
  expected, _ = made(records)
  loader = opened(records, weight=0.5)
  (message,) = loader.messages
  assert "2 examples in addition to 5 translations; omitted: 2 " in message
  rows = Rows.of(expected, loader.features)
  for name in loader.features:
    found = loader.all_examples.flat[name]
    np.testing.assert_array_equal(found, rows.flat[name])
  planned = PlannedBatch(Shape(4, 8, 9, source_words=3), np.array([5, 0, 6]))
  weight_B = loader.batch(planned)["weight_B"]
  assert weight_B.tolist() == [0.5, 1, 0.5, 0]
  assert weight_B.dtype == np.float32
  for host, weights in enumerate(([0.5, 1], [0.5, 0])):
    part = dataclasses.replace(loader, shard=HostShard((host,), 2))
    assert part.batch(planned)["weight_B"].tolist() == weights
  plain = opened(records, task="none")
  assert len(plain) == 5 and not plain.messages


def test_bracket_targets_have_no_tree(records):
  """For systems that read trees of the target."""
  one = dict(next(iter(records)))
  names = schema.features({"sides": ["source", "target"]})
  for name in names:
    side, _, field = name.partition("_")
    if side == "target" and field != "id":
      one[name] = one[f"source_{field}"]
  sizes = {"source": SOURCE, "target": TARGET}
  bracketing = linearise(one["source_head"], one["source_relation"])
  new = tasks.ParsingTask().make(one, bracketing, "dependency", sizes)
  assert new["target_word"].tolist() == [-1] * 6
  assert new["target_parent_mid"].tolist() == [*range(6)]
  assert new["target_head"].shape == new["target_tree_distance"].shape == (0,)
  assert new["target_parsed"] == 0 and new["source_parsed"] == 1
  for name, array in new.items():
    assert array.dtype == schema.FEATURES[name].dtype


def test_names_missing_trees(tmp_path):
  split = Dataset(folder_of(tmp_path, brackets=False)).split("train")
  assert made(split)[1] == COUNTS
  with pytest.raises(InputError, match=r"needs constituency trees .* has none"):
    opened(split, brackets="constituency")
  split.dataset.manifest.update(sides=[], relations={})
  with pytest.raises(
    InputError, match=r"needs dependency trees .*parse\.sides"
  ):
    opened(split)


def test_rejects_a_task_without_examples(records, monkeypatch):
  monkeypatch.setattr(tasks, "MAX_LENGTH", 2)
  with pytest.raises(InputError, match=r"no example is left .* 3 too long"):
    opened(records)
