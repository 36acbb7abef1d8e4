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
from jaxsyn.data.options import Sampling
from jaxsyn.data.schema import EOS, FEATURES, OTHER_TREE
from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.controls import Parsed, Sampled
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve

BOTH = ("source", "target")
REQUIRED = tuple(
  f"{side}_{name}"
  for side in BOTH
  for name in ("parent_mid", "tree_distance", "relation")
)
# Trees of the first examples; others have 1 to 14 words.
SPECIAL_TREES = [
  [],
  [0],
  [0, 0, 1, 3, 3, 3],  # a forest of two trees
  [0, 1, 2, 3],  # without a tree: each word is a root
  control_trees.linear(60).tolist(),
  [1, 1],
]


def side_of(i, rng):
  if i < len(SPECIAL_TREES):
    head_W = np.array(SPECIAL_TREES[i], np.int64)
  else:
    head_W = control_trees.random(int(rng.integers(1, 15)), i)
  # Some words have no subword, as in Japanese, but not all.
  subwords_W = rng.choice([0, 1, 1, 2, 3], len(head_W))
  if len(head_W) and not subwords_W.any():
    subwords_W[0] = 1
  word_S = np.append(np.repeat(np.arange(len(head_W)), subwords_W), -1)
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


def examples(indices):
  rng = np.random.default_rng(indices[0])
  for i in indices:
    values = {"line": i + 1}
    for side in BOTH:
      values |= {f"{side}_{k}": v for k, v in side_of(i, rng).items()}
    yield {k: np.asarray(v, FEATURES[k].dtype) for k, v in values.items()}


def split_of(folder, some):
  relations = {side: list("abcdefgh") for side in BOTH}
  fields = {"sides": BOTH, "relations": relations}
  return Dataset(write_dataset(folder, {"train": some}, **fields)).split(
    "train"
  )


@pytest.fixture(scope="module", autouse=True)
def blocks_of_sixteen():
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataset, "BLOCK", 16)
    yield


@pytest.fixture(scope="module")
def records(tmp_path_factory):
  return split_of(tmp_path_factory.mktemp("toy"), list(examples(range(90))))


def loader_of(records, required=REQUIRED, *, rate=0.4, data=None, **options):
  """Returns a loader that samples trees; with the rate None, it does not."""
  sampled = Parsed() if rate is None else Sampled(rate)
  return opened(
    records,
    required,
    data=dataclasses.replace(data_of(), tree=sampled, **(data or {})),
    **{"seed": 3, "tokens": 4000, "shapes": 2, "row_multiple": 2} | options,
  )


def heads_of(row, stored, side="source"):
  return row[f"{side}_head_BW"][: len(stored[f"{side}_head"])].tolist()


def path(head_W, word):
  """Returns a word and its ancestors."""
  result = [word]
  while head_W[result[-1]] != result[-1]:
    result.append(head_W[result[-1]])
    assert len(result) <= len(head_W), "a cycle"
  return result


def check_derived_features(row, stored, side, axis):
  """Compares features of a row with loops over words.

  Returns: number of subwords whose parent has no subword.
  """
  head_W, word_S = heads_of(row, stored, side), stored[f"{side}_word"]
  words, size = len(head_W), len(word_S)
  paths = [path(head_W, word) for word in range(words)]
  distance_WW = row[f"{side}_tree_distance_BWW"]
  for w, one in enumerate(paths):
    for v, other in enumerate(paths):
      common = [x for x in one if x in other]
      edges = OTHER_TREE
      if common:
        edges = one.index(common[0]) + other.index(common[0])
      assert distance_WW[w, v] == edges
  padding = distance_WW.copy()
  padding[:words, :words] = OTHER_TREE
  assert (padding == OTHER_TREE).all()
  places, bare = [np.flatnonzero(word_S == w) for w in range(words)], 0
  middle_S = row[f"{side}_parent_mid_B{axis}"]
  for i, word in enumerate(word_S[:-1]):
    parent = head_W[word]
    bare += not len(places[parent])
    while not len(places[parent]) and head_W[parent] != parent:
      parent = head_W[parent]
    where = places[parent] if len(places[parent]) else places[word]
    assert middle_S[i] == np.float32(np.mean(where))
  assert middle_S[size - 1] == size - 1  # of EOS
  assert not middle_S[size:].any()
  return bare


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_features_follow_from_the_resampled_heads(records, rate):
  loader, bare = loader_of(records, rate=rate), 0
  changed = collections.Counter()
  for epoch in range(3):
    rows = epoch_of(loader, epoch)
    for (index, stored), (side, axis) in itertools.product(
      enumerate(records), zip(BOTH, "ST")
    ):
      row, before = rows[index], stored[f"{side}_head"].tolist()
      head_W = heads_of(row, stored, side)
      bare += check_derived_features(row, stored, side, axis)
      roots = [w for w, head in enumerate(before) if head == w]
      assert [w for w, head in enumerate(head_W) if head == w] == roots
      changed[side] += head_W != before
      if index in (0, 1, 3, 5):  # no parent can be replaced
        assert head_W == before
      for name, letter in (("id", axis), ("word", axis), ("relation", "W")):
        values = stored[f"{side}_{name}"]
        found = row[f"{side}_{name}_B{letter}"]
        assert found[: len(values)].tolist() == values.tolist()
      assert row[f"{side}_parsed_B"] == stored[f"{side}_parsed"]
  assert min(changed.values()) > 60 and bare > 60


@pytest.mark.parametrize("memory_gib", [1.0, 40e3 / 2**30])
def test_a_rate_of_0_keeps_the_stored_trees(records, memory_gib):
  required = (*REQUIRED, "source_head", "target_head")
  sampled, plain = (
    loader_of(records, required, rate=rate, memory_gib=memory_gib)
    for rate in (0.0, None)
  )
  assert sampled.in_memory == (memory_gib == 1)
  assert sampled.transforms and not plain.transforms
  for epoch in range(2):
    rows = epoch_of(sampled, epoch)
    for index, row in epoch_of(plain, epoch).items():
      same(rows[index], row)


def test_computes_only_required_features(records):
  """PASCAL reads only the middles, which are those of resampled trees."""
  complete = epoch_of(loader_of(records))
  for index, row in epoch_of(loader_of(records, REQUIRED[:1])).items():
    assert set(row) == {
      "source_id_BS",
      "target_id_BT",
      "source_word_BS",
      "source_parsed_B",
      "source_parent_mid_BS",
      "source_head_BW",
      "weight_B",
    }
    middles = [r["source_parent_mid_BS"] for r in (row, complete[index])]
    size = min(map(len, middles))  # the shapes of their batches may differ
    np.testing.assert_array_equal(middles[0][:size], middles[1][:size])


def test_replaces_heads_at_the_given_rate(records):
  """Counts words that can have another parent, in 40 epochs."""
  loader = loader_of(records, ("source_head",), rate=0.15)
  candidates = collections.defaultdict(list)
  for index, stored in enumerate(records):
    before = stored["source_head"].tolist()
    below = collections.Counter(
      word for w in range(len(before)) for word in path(before, w)
    )
    for word, head in enumerate(before):
      # In the chain, example 4, a word can only depend on an earlier one.
      if index != 4 and head != word and below[word] < len(before) - 1:
        candidates[index].append((word, head))
  replaced = total = 0
  for epoch in range(40):
    rows = epoch_of(loader, epoch)
    for index, pairs in candidates.items():
      head_W = rows[index]["source_head_BW"]
      replaced += sum(head_W[word] != head for word, head in pairs)
      total += len(pairs)
  # In rare cases, replaced parents leave a word without another possible parent.
  deviation = (0.15 * 0.85 / total) ** 0.5
  assert total > 8_000
  assert abs(replaced / total - 0.15) < 5 * deviation + 0.002


def test_samples_differ_between_epochs_and_seeds(records):
  first, again, second = (epoch_of(loader_of(records), e) for e in (0, 0, 1))
  other = epoch_of(loader_of(records, seed=4))
  counts = collections.Counter()
  for index, stored in enumerate(records):
    same(first[index], again[index])
    heads = [heads_of(rows[index], stored) for rows in (first, second, other)]
    if len(heads[0]) > 4:
      counts["all"] += 1
      counts["epoch"] += heads[0] == heads[1]
      counts["seed"] += heads[0] == heads[2]
  assert counts["all"] > 50
  assert max(counts["epoch"], counts["seed"]) < counts["all"] / 4


def test_samples_differ_between_sides_and_sentences(tmp_path):
  """The dataset has one pair many times, whose two sides are equal."""
  one = next(examples([17]))
  one |= {f"target_{k[7:]}": v for k, v in one.items() if k[:6] == "source"}
  assert len(one["source_head"]) > 6
  some = [{**one, "line": np.int64(i + 1)} for i in range(40)]
  rows = epoch_of(loader_of(split_of(tmp_path, some))).values()
  heads = [[tuple(heads_of(row, one, side)) for row in rows] for side in BOTH]
  assert min(len(set(of_side)) for of_side in heads) > 20
  assert sum(source == target for source, target in zip(*heads)) < 10


def test_evaluation_does_not_resample(records):
  """Neither a validation split nor the evaluation pass is resampled."""
  evaluation = loader_of(records, training=False)
  training = loader_of(records, ("source_head", *REQUIRED))
  assert not evaluation.transforms and training.transforms
  plain = loader_of(records, rate=None, training=False)
  for loader in (evaluation, training):
    for one, other in zip(loader.in_order(), plain.in_order(), strict=True):
      same({k: one[k] for k in other}, other)


def test_resamples_trees_and_subwords_together(prepared):
  """The middles are those of sampled parents in sampled subwords."""
  split, changed = Dataset(prepared).split("test"), 0
  sampling = Sampling(sides=("source",), alpha=0.3)
  rows = epoch_of(loader_of(split, REQUIRED[:1], data={"sampling": sampling}))
  trees = epoch_of(loader_of(split, ("source_head",)))
  for index, stored in enumerate(split):
    row, head_W = rows[index], heads_of(rows[index], stored)
    assert head_W == heads_of(trees[index], stored)
    size = (row["source_id_BS"] != 0).sum()
    changed += size != len(stored["source_id"])
    expected = tree.parent_mid(row["source_word_BS"][:size], np.array(head_W))
    np.testing.assert_array_equal(row["source_parent_mid_BS"][:size], expected)
  assert changed > 12


@pytest.mark.parametrize(
  ("required", "message"),
  [
    (
      REQUIRED,
      "trees resampled in every epoch (source and target): each word's parent "
      "is replaced with probability 0.4",
    ),
    (
      ("source_relation",),
      "config.data.tree='sampled' does nothing: no tree is read",
    ),
  ],
)
def test_messages_describe_the_resampling(records, required, message):
  assert loader_of(records, required).messages == [message]


def test_rejects_auxiliary_tasks():
  config = base.get_config()
  config.data.tree, config.data.second.task = "sampled", "parse"
  message = r"config\.data\.tree='sampled'.*second\.task='parse'"
  with pytest.raises(InputError, match=message):
    resolve(read_config(config), {})
