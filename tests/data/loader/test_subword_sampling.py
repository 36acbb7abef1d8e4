"""Tests subwords that are resampled in training."""

import collections
import dataclasses

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
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.preprocess import build

BOTH = ("source", "target")
REQUIRED = (
  "source_parent_mid",
  "source_tree_distance",
  "target_parent_mid",
  "source_relation",
  "target_head",
)


@pytest.fixture(scope="module", autouse=True)
def blocks_of_sixteen():
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
  folder = tmp_path_factory.mktemp(request.param)
  return Dataset(folder_of(shared_data, folder, request.param)).split("train")


def loader_of(records, required=REQUIRED, *, seed=3, tree="parsed", **options):
  sampling = Sampling(**{"sides": BOTH, "alpha": 0.3, **options})
  return opened(
    records,
    required,
    data=dataclasses.replace(data_of(tree), sampling=sampling),
    seed=seed,
    **{"tokens": 4000, "shapes": 2, "row_multiple": 2},
  )


def resampled(loader):
  """Returns the transform that resamples subwords."""
  (transform,) = loader.transforms
  return transform


def ids(row, name="source_id_BS"):
  return row[name][row[name] != PAD].tolist()


def word_of(i, pieces, parse):
  """Returns the word of a subword, by a loop over characters.

  It is the word of the first visible character, or that of the next subword
  with one.
  """
  spans = zip(pieces.begin[i:], pieces.end[i:])
  places = [p for begin, end in spans for p in range(begin, end)]
  visible = [p for p in places if is_visible(parse.text[p])]
  first = visible[0] if visible else len(parse.text) - 1
  (word,) = [
    word
    for word, (begin, end) in enumerate(zip(parse.start_W, parse.end_W))
    if begin <= first < end
  ]
  return word


def test_features_follow_from_the_resampled_subwords(records):
  """Compares with loops over characters and words."""
  loader = loader_of(records)
  rows = epoch_of(loader)
  parses = zip(*(records.dataset.sentences("train", side) for side in BOTH))
  changed = without_subword = 0
  for index, (stored, both) in enumerate(zip(records, parses)):
    row = rows[index]
    for side, axis, parse in zip(BOTH, "ST", both):
      pieces = resampled(loader).pieces(side, index, parse.text, 0)
      size = len(pieces.id)
      changed += pieces.id != stored[f"{side}_id"][:-1].tolist()
      assert ids(row, f"{side}_id_B{axis}") == [*pieces.id, EOS]
      word_S = [word_of(i, pieces, parse) for i in range(size)]
      without_subword += len({*word_S}) < len(parse.head_W)
      found_S = row[f"{side}_word_B{axis}"]
      assert found_S[:size].tolist() == word_S
      assert (found_S[size:] == -1).all()
      places = [np.flatnonzero(np.array(word_S) == w) for w in range(99)]
      middle_S = row[f"{side}_parent_mid_B{axis}"]
      for i, word in enumerate(word_S):
        parent = parse.head_W[word]
        while not len(places[parent]) and parse.head_W[parent] != parent:
          parent = parse.head_W[parent]
        where = places[parent] if len(places[parent]) else places[word]
        assert middle_S[i] == np.float32(np.mean(where))
      assert middle_S[size] == size  # of EOS
    words = len(both[0].head_W)
    square = stored["source_tree_distance"].reshape(words, words)
    np.testing.assert_array_equal(
      row["source_tree_distance_BWW"][:words, :words], square
    )
  assert changed > 100  # of 160 sentences
  assert without_subword > 10  # some subwords hold several words


def test_samples_differ_between_epochs_and_seeds(records):
  first, again, second = (epoch_of(loader_of(records), e) for e in (0, 0, 1))
  other = epoch_of(loader_of(records, seed=4))
  assert first.keys() == {*range(len(records))}
  for index in first:
    for name, array in first[index].items():
      np.testing.assert_array_equal(array, again[index][name])
  for rows in (second, other):
    equal = sum(ids(first[index]) == ids(rows[index]) for index in first)
    assert equal < len(records) / 2


def test_plans_batches_from_sampled_lengths(records):
  loader, stored = loader_of(records), records.lengths
  bounds = resampled(loader).bounds
  assert (bounds.source >= stored.source).all()
  small, largest = loader.batch_sampler.shapes
  assert 0 <= largest.source - bounds.source.max() < 4  # rounded up
  assert 0 <= largest.target - bounds.target.max() < 4
  # Each example is in the smallest shape that holds it, unless its batch was not
  # filled.
  fits = narrow = 0
  plan = loader.batch_sampler.epoch(0)
  for planned, train_batch in zip(plan, loader.batches(Position())):
    source_B, target_B = (
      (train_batch.batch[name] != PAD).sum(1)[: len(planned.ids)]
      for name in ("source_id_BS", "target_id_BT")
    )
    assert train_batch.batch["source_id_BS"].shape[1] == planned.shape.source
    assert train_batch.source == source_B.sum()  # for the log
    assert train_batch.target == target_B.sum()
    assert (source_B <= bounds.source[planned.ids]).all()
    fits += ((source_B <= small.source) & (target_B <= small.target)).sum()
    narrow += len(planned.ids) * (planned.shape == small)
  assert fits - small.rows < narrow <= fits


def test_plans_shorter_samples_with_their_stored_lengths(request, records):
  """The shape must hold all words, whose number does not change."""
  sampler = resampled(loader_of(records, alpha=0.6))
  stored, all_ids = records.lengths, np.arange(len(records))
  excess = 0
  for epoch in range(4):
    sizes = np.array(sampler.sizes((epoch, 0), all_ids))
    assert (sizes >= stored[:2]).all()
    excess += sizes.sum() - sum(sampler.subwords((epoch, 0), all_ids))
  kind = request.node.callspec.params["records"]
  assert (excess > 0) == (kind == "unigram")  # BPE-dropout never shortens


def test_samples_each_window_once(records, monkeypatch):
  """A window is cached while it is planned and used."""
  loader, count = loader_of(records), collections.Counter()
  sample = ResampledSubwords.pieces

  def counted(self, side, index, text, epoch):
    count[epoch] += 1
    return sample(self, side, index, text, epoch)

  monkeypatch.setattr(ResampledSubwords, "pieces", counted)
  loader.batch_sampler.first_used(Position(), 100)
  for train_batch in loader.batches(Position()):
    if train_batch.after.epoch == 3:
      break
  assert {*count.values()} == {2 * len(records)}


@pytest.mark.parametrize("room", [0, 1])
def test_a_sample_has_at_most_the_length_of_its_bound(records, room):
  """Otherwise the sentence is segmented without sampling."""
  sampler = resampled(loader_of(records, alpha=0.9))
  text = next(records.dataset.sentences("train", "source")).text
  samples = [sampler.pieces("source", 0, text, epoch).id for epoch in range(9)]
  longest = max(map(len, samples))
  bound = np.full(len(records), longest + room)  # with EOS
  sampler.__dict__["bounds"] = records.lengths._replace(source=bound)
  for epoch, sample in enumerate(samples):
    again = sampler.pieces("source", 0, text, epoch).id
    assert (again == sample) == (len(sample) < longest + room)
  sampler.__dict__["bounds"] = records.lengths._replace(
    source=np.ones(len(records))
  )
  stored = records[0]["source_id"][:-1].tolist()
  assert sampler.pieces("source", 0, text, 0).id == stored


def test_resamples_a_side_without_trees(shared_data, tmp_path):
  """The other side does not change."""
  folder = folder_of(shared_data, tmp_path, "bpe", ("source",))
  records = Dataset(folder).split("train")
  loader = loader_of(records, ("source_parent_mid",), sides=("target",))
  lines = records.dataset.text("train", "target")
  rows, changed = epoch_of(loader), 0
  for index, (stored, line) in enumerate(zip(records, lines)):
    sample = resampled(loader).pieces("target", index, line, 0).id
    assert ids(rows[index], "target_id_BT") == [*sample, EOS]
    assert ids(rows[index]) == stored["source_id"].tolist()
    changed += sample != stored["target_id"][:-1].tolist()
  assert changed > len(records) / 2


def test_resampled_subwords_follow_control_trees(records):
  row = epoch_of(loader_of(records, tree="linear"))[0]
  size = len(ids(row)) - 1
  word_S, middle_S = row["source_word_BS"][:size], row["source_parent_mid_BS"]
  second = np.flatnonzero(word_S == word_S[word_S > word_S[0]][0])[0]
  # The parent of the next word is the first one.
  assert middle_S[second] == np.flatnonzero(word_S == word_S[0]).mean()


def test_evaluation_does_not_resample(records):
  data = dataclasses.replace(data_of(), sampling=Sampling(sides=BOTH))
  assert not opened(records, REQUIRED, data=data, training=False).transforms
  batches = loader_of(records).in_order()
  found = [row for one in batches for row in one["source_id_BS"]]
  stored = {tuple(one["source_id"].tolist()) for one in records}
  assert {tuple(row[row != PAD].tolist()) for row in found} - {()} == stored


def test_rejects_a_vocabulary_with_one_segmentation(records, monkeypatch):
  monkeypatch.setattr(Vocabulary, "can_sample", False)
  message = r"sampling\.sides=.*source\.model has only one segmentation"
  with pytest.raises(InputError, match=message):
    loader_of(records)


@pytest.mark.parametrize(
  ("section", "value", "name"),
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
