"""Tests trees that are resampled in training, and the derived features."""

import collections
import dataclasses
import itertools

import control_trees
import numpy as np
import pytest
from toy_folders import data_of, epoch_of, opened, same, write_dataset

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.options import Mixture, Sampling
from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.controls import Parsed, Sampled
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve

BOTH = ("source", "target")
READS = tuple(
  f"{side}_{own}"
  for side in BOTH
  for own in ("parent_mid", "tree_distance", "relation")
)
RATE = 0.4


def heads(i, rng):
  """Returns a tree of 1 to 14 words, or a special case."""
  words = int(rng.integers(1, 15))
  return {
    0: [],
    1: [0],
    2: [0, 0, 1, 3, 3, 3],  # a forest of two trees
    3: [0, 1, 2, 3],  # without a tree: each its own root
    4: control_trees.linear(60).tolist(),
    5: [1, 1],
  }.get(i, control_trees.random(words, i).tolist())


def side_of(i, rng):
  head_W = np.array(heads(i, rng), np.int64)
  # Some words have no subword, as in Japanese; if none has, the first.
  pieces = rng.choice([0, 1, 1, 2, 3], len(head_W))
  if len(head_W) and not pieces.any():
    pieces[0] = 1
  word_S = np.append(np.repeat(np.arange(len(head_W)), pieces), -1)
  return {
    "id": np.append(np.full(len(word_S) - 1, 20 + i), EOS),
    "word": word_S,
    "head": head_W,
    "relation": rng.integers(1, 8, len(head_W)),
    "parent_mid": tree.parent_mid(word_S, head_W),
    "tree_distance": tree.tree_distance(head_W).reshape(-1),
    "parsed": int(i != 3),
    "word_end": np.arange(1, len(head_W) + 1),
  }


def examples(count, first=0):
  rng = np.random.default_rng(first)
  for i in range(first, first + count):
    made = {"line": i + 1}
    for side in BOTH:
      made |= {f"{side}_{k}": v for k, v in side_of(i, rng).items()}
    yield {k: np.asarray(v, schema.FEATURES[k].dtype) for k, v in made.items()}


def folder_of(folder, some):
  relations = {side: list("abcdefgh") for side in BOTH}
  splits = {"train": some}
  return write_dataset(folder, splits, sides=BOTH, relations=relations)


@pytest.fixture(scope="module", autouse=True)
def blocks_of_sixteen():
  """Blocks are of sixteen records in all tests of this file."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataset, "BLOCK", 16)
    yield


@pytest.fixture(scope="module")
def records(tmp_path_factory):
  folder = tmp_path_factory.mktemp("toy")
  return Dataset(folder_of(folder, list(examples(90)))).split("train")


def drawing(
  records, reads=READS, *, rate=RATE, share=None, training=True, **options
):
  data = dataclasses.replace(
    data_of(), tree=Parsed() if rate is None else Sampled(rate)
  )
  split = opened(
    records,
    reads,
    data=dataclasses.replace(data, **options.pop("data", {})),
    training=training,
    **{"seed": 3, "tokens": 4000, "shapes": 2, "row_multiple": 2} | options,
  )
  return split if share is None else dataclasses.replace(split, shard=share)


def heads_of(row, stored, side="source"):
  return row[f"{side}_head_BW"][: len(stored[f"{side}_head"])].tolist()


def path(head_W, word):
  result = [word]
  while head_W[result[-1]] != result[-1]:
    result.append(head_W[result[-1]])
    assert len(result) <= len(head_W), "a cycle"
  return result


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_features_follow_from_the_resampled_heads(records, rate):
  """Compares with loops over words, in five epochs of both sides."""
  split, bare, merged = drawing(records, rate=rate), 0, 0
  edited = collections.Counter()
  for epoch in range(5):
    rows = epoch_of(split, epoch)
    assert rows.keys() == {*range(len(records))}
    for (index, stored), (side, axis) in itertools.product(
      enumerate(records), zip(BOTH, "ST")
    ):
      row, name = rows[index], f"{side}_{{}}_B{{}}".format
      head_W, word_S = heads_of(row, stored, side), stored[f"{side}_word"]
      above = [path(head_W, word) for word in range(len(head_W))]
      before = stored[f"{side}_head"].tolist()
      edited[side] += head_W != before
      roots = [w for w, up in enumerate(before) if up == w]
      assert [w for w, up in enumerate(head_W) if up == w] == roots
      if index in (0, 1, 3, 5):  # nothing can be replaced
        assert head_W == before
      merged += index == 2 and len({p[-1] for p in above[:3]}) == 2
      for w, one in enumerate(above):
        for v, other in enumerate(above):
          common = [x for x in one if x in other]
          edges = schema.OTHER_TREE
          if common:
            edges = one.index(common[0]) + other.index(common[0])
          assert row[name("tree_distance", "WW")][w, v] == edges
      places = [np.flatnonzero(word_S == w) for w in range(len(head_W))]
      for i, word in enumerate(word_S[:-1]):
        up = head_W[word]
        bare += not len(places[up])
        while not len(places[up]) and head_W[up] != up:
          up = head_W[up]
        mean = np.mean(places[up] if len(places[up]) else places[word])
        assert row[name("parent_mid", axis)][i] == np.float32(mean)
      last = len(word_S) - 1
      assert row[name("parent_mid", axis)][last] == last  # of EOS
      # All else is as it is stored, and beyond all is padding.
      for item in ("id", "word", "relation"):
        saved = stored[f"{side}_{item}"]
        result = row[name(item, axis if item != "relation" else "W")]
        assert result[: len(saved)].tolist() == saved.tolist()
        fill = schema.FEATURES[f"{side}_{item}"].fill
        assert (result[len(saved) :] == fill).all()
      assert row[f"{side}_parsed_B"] == stored[f"{side}_parsed"]
      square = row[name("tree_distance", "WW")].copy()
      square[: len(head_W), : len(head_W)] = schema.OTHER_TREE
      assert (square == schema.OTHER_TREE).all()
      assert not row[name("parent_mid", axis)][last + 1 :].any()
  assert min(edited.values()) > 100 and bare > 100 and merged > 0


def test_a_rate_of_0_keeps_the_stored_trees(records):
  """The batches are equal bit for bit, also in windows."""
  required = (*READS, "source_head", "target_head")
  for memory_gib in (1.0, 40e3 / 2**30):
    splits = [
      drawing(records, required, rate=rate, memory_gib=memory_gib)
      for rate in (0.0, None)
    ]
    assert splits[0].in_memory == (memory_gib == 1)
    assert splits[0].transforms and not splits[1].transforms
    for epoch in range(2):
      one, other = (epoch_of(split, epoch) for split in splits)
      for index in other:
        same(one[index], other[index])


def test_computes_only_required_features(records):
  """PASCAL reads only the middles, which are those of resampled trees."""
  all_ids = epoch_of(drawing(records))
  rows = epoch_of(drawing(records, ("source_parent_mid",)))
  for index, row in rows.items():
    assert set(row) == {
      *("source_id_BS", "target_id_BT", "source_word_BS", "source_parsed_B"),
      *("source_parent_mid_BS", "source_head_BW", "weight_B"),
    }
    size = min(
      len(r["source_parent_mid_BS"]) for r in (row, all_ids[index])
    )  # of another shape, maybe
    np.testing.assert_array_equal(
      row["source_parent_mid_BS"][:size],
      all_ids[index]["source_parent_mid_BS"][:size],
    )


def test_replaces_heads_at_the_given_rate(records):
  """Counts words with another possible parent; 90 sentences, 60 epochs."""
  split = drawing(records, ("source_head", "target_head"), rate=0.15)
  replaced = may = 0
  for epoch in range(60):
    rows = epoch_of(split, epoch)
    for index, stored in enumerate(records):
      if index == 4:  # a chain: a word before it is all there is to take
        continue
      for side in BOTH:
        before = stored[f"{side}_head"].tolist()
        now = heads_of(rows[index], stored, side)
        below = collections.Counter(
          up for w in range(len(before)) for up in path(before, w)
        )
        for word, up in enumerate(before):
          if up != word and below[word] < len(before) - 1:
            may += 1
            replaced += now[word] != up
  # A word may come to have all others below it, or none to take: seldom.
  deviation = (0.15 * 0.85 / may) ** 0.5
  assert may > 20_000
  assert abs(replaced / may - 0.15) < 5 * deviation + 0.002


def test_samples_differ_between_epochs_and_are_reproducible(records):
  split = drawing(records)
  first, again, second = (epoch_of(split, e) for e in (0, 0, 1))
  other = epoch_of(drawing(records, seed=4))
  counts = collections.Counter()
  for index, stored in enumerate(records):
    same(first[index], again[index])
    heads = [heads_of(x[index], stored) for x in (first, second, other)]
    if len(heads[0]) > 4:
      counts["all"] += 1
      counts["epoch"] += heads[0] == heads[1]
      counts["seed"] += heads[0] == heads[2]
  assert counts["all"] > 50
  assert max(counts["epoch"], counts["seed"]) < counts["all"] / 4


def test_samples_differ_between_sides_and_sentences(tmp_path):
  """The dataset has one pair many times, whose two sides are equal."""
  one = next(examples(1, first=17))
  one |= {f"target_{k[7:]}": v for k, v in one.items() if k[:6] == "source"}
  assert len(one["source_head"]) > 6
  some = [{**one, "line": np.int64(i + 1)} for i in range(40)]
  records = Dataset(folder_of(tmp_path, some)).split("train")
  rows = epoch_of(drawing(records))
  collected = [
    [tuple(heads_of(row, one, side)) for row in rows.values()] for side in BOTH
  ]
  assert min(len({*item}) for item in collected) > 20
  assert sum(a == b for a, b in zip(*collected)) < 10


def test_evaluation_does_not_resample(records):
  """Neither a validation split nor the evaluation pass is resampled."""
  splits = [
    drawing(records, training=False),
    drawing(records, ("source_head", *READS), training=True),
  ]
  assert not splits[0].transforms and splits[1].transforms
  plain = drawing(records, rate=None, training=False)
  for split in splits:
    for one, other in zip(split.in_order(), plain.in_order(), strict=True):
      same({k: one[k] for k in other}, other)


def test_resamples_trees_and_subwords_together(prepared):
  """The middles are those of sampled parents in sampled subwords."""
  records, sampled = Dataset(prepared).split("train"), 0
  split = drawing(
    records,
    ("source_parent_mid",),
    data={"sampling": Sampling(sides=("source",), alpha=0.3)},
  )
  trees, rows = epoch_of(drawing(records, ("source_head",))), epoch_of(split)
  for index, stored in enumerate(itertools.islice(records, 100)):
    head_W = heads_of(rows[index], stored)
    assert head_W == heads_of(trees[index], stored)
    row = rows[index]
    size = (row["source_id_BS"] != 0).sum()
    sampled += size != len(stored["source_id"])
    expected = tree.parent_mid(row["source_word_BS"][:size], np.array(head_W))
    np.testing.assert_array_equal(row["source_parent_mid_BS"][:size], expected)
  assert sampled > 30


def test_resamples_all_corpora_of_a_mixture(records, tmp_path):
  """Tags stay: a tag belongs to no word and is its own parent."""
  rest = list(examples(20, first=100))
  folder = folder_of(tmp_path, rest)
  split = drawing(
    records,
    ("source_parent_mid",),
    data={"mixture": Mixture(folders=(str(folder),), tags=True)},
  )
  rows, edited = epoch_of(split), 0
  assert len(rows) == 110
  for i, stored in enumerate(rest):
    row, head_W = rows[90 + i], heads_of(rows[90 + i], stored)
    edited += head_W != stored["source_head"].tolist()
    word_S = np.append(-1, stored["source_word"])
    np.testing.assert_array_equal(
      row["source_parent_mid_BS"][: len(word_S)],
      tree.parent_mid(word_S, np.array(head_W)),
    )
  assert edited > 10
  assert any("resampled" in message for message in split.messages)


def test_messages_describe_the_resampling(records):
  (message,) = drawing(records, rate=0.25).messages
  assert message == (
    "trees resampled in every epoch (source and target): each word's parent is "
    "replaced with probability 0.25"
  )
  (message,) = drawing(records, ()).messages
  assert message == "config.data.tree='sampled' does nothing: no tree is read"
  # Relations stay as they are.
  split = drawing(records, ("source_relation",))
  assert split.messages == [message]
  epoch_of(split)
  assert drawing(records, rate=None).messages == []


def test_rejects_auxiliary_tasks():
  config = base.get_config()
  config.data.tree, config.data.second.task = "sampled", "parse"
  with pytest.raises(
    InputError, match=r"config\.data\.tree='sampled'.*second\.task='parse'"
  ):
    resolve(read_config(config), {})
