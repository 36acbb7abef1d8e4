"""Tests subwords that are resampled in training."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
from toy_folders import data_of, epoch_of, opened

from jaxsyn.config import read_config
from jaxsyn.configs import pud
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.subword_sampling import ResampledSubwords
from jaxsyn.data.options import Mixture, Sampling
from jaxsyn.data.schema import EOS, PAD
from jaxsyn.data.sentence.align import is_visible
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.preprocess import build

READS = (
  *("source_parent_mid", "source_tree_distance", "target_parent_mid"),
  *("source_relation", "target_head"),
)
BOTH = ("source", "target")


@pytest.fixture(scope="module", autouse=True)
def blocks_of_sixteen():
  """Blocks are of sixteen records in all tests of this file."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataset, "BLOCK", 16)
    yield


def folder_of(shared_data, folder, kind, sides=BOTH):
  """Prepares 80 pairs of Japanese and English with gold trees."""
  config = pud.pud("ja", "en")
  config.data.directory = str(folder / "data")
  for split, lines in (("train", "1-80"), ("validation", "901-905")):
    config.prepare.splits[split] = (*config.prepare.splits[split][:2], lines)
  del config.prepare.splits["test"]
  config.data.test = ()
  config.prepare.parse.sides = sides
  config.prepare.vocabulary.update(size=2000, joint=False, type=kind)
  config.prepare.workers = 1
  return build.run(config, str(shared_data / "ud"))


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def records(request, shared_data, tmp_path_factory):
  folder = folder_of(
    shared_data, tmp_path_factory.mktemp(request.param), request.param
  )
  return Dataset(folder).split("train")


def drawing(
  records,
  reads=READS,
  *,
  memory_gib=1.0,
  tokens=4000,
  share=None,
  seed=3,
  **options,
):
  data = dataclasses.replace(
    data_of(), sampling=Sampling(**{"sides": BOTH, "alpha": 0.3} | options)
  )
  split = opened(
    records,
    reads,
    data=data,
    seed=seed,
    tokens=tokens,
    shapes=2,
    row_multiple=2,
    memory_gib=memory_gib,
  )
  return split if share is None else dataclasses.replace(split, shard=share)


def resampled(split):
  """The transform that resamples subwords."""
  (transform,) = split.transforms
  return transform


def ids(row, name="source_id_BS"):
  return row[name][row[name] != PAD].tolist()


def test_features_follow_from_the_resampled_subwords(records):
  """Compares with `encode` and with loops over characters."""
  split = drawing(records)
  rows, crossing, bare = epoch_of(split), 0, 0
  parses = zip(*(records.dataset.sentences("train", side) for side in BOTH))
  draws = 0
  for index, (stored, both) in enumerate(zip(records, parses)):
    row = rows[index]
    for side, axis, parse in zip(BOTH, "ST", both):
      text = parse.text
      pieces = resampled(split).pieces(side, index, text, 0)
      draws += pieces.id != stored[f"{side}_id"][:-1].tolist()
      assert ids(row, f"{side}_id_B{axis}") == [*pieces.id, EOS]
      word_S = []
      for i, (begin, end) in enumerate(zip(pieces.begin, pieces.end)):
        seen = [p for p in range(begin, end) if is_visible(text[p])]
        if not seen:  # goes with the next that has a character
          later = zip(pieces.begin[i:], pieces.end[i:])
          spots = (p for b, e in later for p in range(b, e))
          seen = [p for p in spots if is_visible(text[p])]
        (word,) = [
          w
          for w, (b, e) in enumerate(zip(parse.start_W, parse.end_W))
          if b <= (seen or [len(text) - 1])[0] < e
        ]
        last = max((p for p in seen if p < end), default=begin)
        crossing += last >= parse.end_W[word]
        word_S.append(word)
      bare += len({*word_S}) < len(parse.head_W)
      size = len(pieces.id)
      if f"{side}_word_B{axis}" in row:
        result = row[f"{side}_word_B{axis}"]
        assert result[:size].tolist() == word_S
        assert (result[size:] == -1).all()
      places = [np.flatnonzero(np.array(word_S) == w) for w in range(99)]
      for i, word in enumerate(word_S):
        up = parse.head_W[word]
        while not len(places[up]) and parse.head_W[up] != up:
          up = parse.head_W[up]
        mean = np.mean(places[up] if len(places[up]) else places[word])
        assert row[f"{side}_parent_mid_B{axis}"][i] == np.float32(mean)
      assert row[f"{side}_parent_mid_B{axis}"][size] == size  # of EOS
    words = len(both[0].head_W)
    square = stored["source_tree_distance"].reshape(words, words)
    result = row["source_tree_distance_BWW"][:words, :words]
    np.testing.assert_array_equal(result, square)
  assert draws > 100  # of 160 sentences
  assert crossing > 20 and bare > 10  # pieces that hold several words


def test_samples_differ_between_epochs_and_are_reproducible(records):
  split = drawing(records)
  first, again, second = (epoch_of(split, e) for e in (0, 0, 1))
  assert first.keys() == second.keys() == {*range(len(records))}
  same = 0
  for index in first:
    for name, array in first[index].items():
      np.testing.assert_array_equal(array, again[index][name])
    same += ids(first[index]) == ids(second[index])
  assert same < len(records) / 2
  other = epoch_of(drawing(records, seed=4))
  assert sum(ids(first[n]) == ids(other[n]) for n in first) < len(records) / 2


def test_plans_batches_from_sampled_lengths(records):
  split, stored = drawing(records), records.lengths
  bounds = resampled(split).bounds
  assert (bounds.source >= stored.source).all()
  small, largest = split.batch_sampler.shapes
  assert 0 <= largest.source - bounds.source.max() < 4  # rounded up
  assert 0 <= largest.target - bounds.target.max() < 4
  for epoch in range(3):
    for planned, train_batch in zip(
      split.batch_sampler.epoch(epoch), split.batches(Position(epoch))
    ):
      batch = train_batch.batch
      assert batch["source_id_BS"].shape[1] == planned.shape.source
      sampled = (batch["source_id_BS"] != PAD).sum()
      assert train_batch.source == sampled  # what the log counts
      assert train_batch.target == (batch["target_id_BT"] != PAD).sum()
      sizes = (batch["source_id_BS"] != PAD).sum(1)[: len(planned.ids)]
      assert (sizes <= bounds.source[planned.ids]).all()
  # Each in the smallest shape that holds it, unless its batch was not filled.
  rows = epoch_of(split)
  fits = sum(
    len(ids(row)) <= small.source
    and len(ids(row, "target_id_BT")) <= small.target
    for row in rows.values()
  )
  narrow = sum(
    row["source_id_BS"].size == small.source for row in rows.values()
  )
  assert fits - small.rows < narrow <= fits
  one = drawing(records, sides=("target",))
  train_batch = [
    *itertools.islice(one.batches(Position()), len(one.batch_sampler.epoch(0)))
  ]
  assert sum(each.source for each in train_batch) == stored.source.sum()


def test_plans_shorter_samples_with_their_stored_lengths(request, records):
  """The shape must hold all words, whose number does not change."""
  sampler = resampled(drawing(records, alpha=0.6))
  stored, all_ids = records.lengths, np.arange(len(records))
  beyond = 0
  for epoch in range(4):
    sizes = np.array(sampler.sizes((epoch, 0), all_ids))
    assert (sizes >= stored[:2]).all()
    beyond += sizes.sum() - sum(sampler.subwords((epoch, 0), all_ids))
  kind = request.node.callspec.params["records"]
  assert (beyond > 0) == (kind == "unigram")  # BPE-dropout never shortens


def test_samples_each_window_once(records, monkeypatch):
  """A window is cached while it is planned and used."""
  split, count = drawing(records), collections.Counter()
  draw = ResampledSubwords.pieces

  def counted(self, side, size, text, epoch):
    count[epoch] += 1
    return draw(self, side, size, text, epoch)

  monkeypatch.setattr(ResampledSubwords, "pieces", counted)
  split.batch_sampler.first_used(Position(), 100)
  for train_batch in split.batches(Position()):
    if train_batch.after.epoch == 3:
      break
  assert {*count.values()} == {2 * len(records)}


def test_keeps_the_stored_subwords_if_no_sample_fits(records):
  split = drawing(records, alpha=0.9)
  lengths = records.lengths
  sampler = resampled(split)
  sampler.__dict__["bounds"] = lengths._replace(
    source=np.ones_like(lengths.source)
  )
  text = next(records.dataset.sentences("train", "source"))
  result = sampler.pieces("source", 0, text.text, 0)
  assert result.id == records[0]["source_id"][:-1].tolist()


def test_resamples_one_side(records):
  """The other side does not change."""
  rows, sampled = epoch_of(drawing(records, sides=("target",))), 0
  for index, one in enumerate(records):
    assert ids(rows[index]) == one["source_id"].tolist()
    sampled += ids(rows[index], "target_id_BT") != one["target_id"].tolist()
  assert sampled > len(records) / 2


@pytest.mark.parametrize("sides", [("source",), ()], ids=["source", "none"])
def test_resamples_a_side_without_trees(shared_data, tmp_path, sides):
  folder = folder_of(shared_data, tmp_path, "bpe", sides)
  records = Dataset(folder).split("train")
  required = ("source_parent_mid",) if sides else ()
  split = drawing(records, required)
  rows, sampled = epoch_of(split), 0
  lines = records.dataset.sentences("train", "target")
  for index, (one, line) in enumerate(zip(records, lines)):
    result = resampled(split).pieces("target", index, line, 0).id
    assert ids(rows[index], "target_id_BT") == [*result, EOS]
    sampled += result != one["target_id"][:-1].tolist()
    if not sides:
      assert set(rows[index]) == {"source_id_BS", "target_id_BT", "weight_B"}
  assert sampled > len(records) / 2


def test_resampled_subwords_follow_control_trees(records):
  linear = dataclasses.replace(data_of("linear"), sampling=Sampling(sides=BOTH))
  split = opened(records, READS, data=linear, seed=3, tokens=4000, shapes=2)
  row = epoch_of(split)[0]
  size = len(ids(row)) - 1
  word_S, middle_S = row["source_word_BS"][:size], row["source_parent_mid_BS"]
  second = np.flatnonzero(word_S == word_S[word_S > word_S[0]][0])[0]
  # The parent of the next word is the first one.
  assert middle_S[second] == np.flatnonzero(word_S == word_S[0]).mean()
  assert TREES.name_of(linear.tree) == "linear"


def test_evaluation_does_not_resample(records):
  data = dataclasses.replace(data_of(), sampling=Sampling(sides=BOTH))
  split = opened(records, READS, data=data, training=False)
  assert not split.transforms
  training = drawing(records)
  stored = {tuple(one["source_id"].tolist()) for one in records}
  by_name = {
    tuple(row[row != PAD].tolist())
    for batch in training.in_order()
    for row in batch["source_id_BS"]
  }
  assert by_name - {()} == stored


def test_rejects_a_vocabulary_with_one_segmentation(shared_data, tmp_path):
  folder = folder_of(shared_data, tmp_path, "char")
  message = r"sampling\.sides=.*source\.model has only one segmentation"
  with pytest.raises(InputError, match=message):
    drawing(Dataset(folder).split("train"))


@pytest.mark.parametrize(
  "section, value, name",
  [
    ("mixture", Mixture(folders=("data/a",)), r"data\.mixture"),
    ("second", data_of(task="parse").second, r"data\.second\.task"),
  ],
)
def test_rejects_incompatible_options(section, value, name):
  config = read_config(pud.pud("ja", "en"))
  data = dataclasses.replace(
    config.data, sampling=Sampling(sides=BOTH), **{section: value}
  )
  with pytest.raises(InputError, match=rf"data\.sampling\.sides.*{name}"):
    resolve(dataclasses.replace(config, data=data), {})
