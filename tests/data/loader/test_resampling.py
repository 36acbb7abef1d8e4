"""Tests subwords and trees that are resampled in training."""

import collections
import dataclasses
import functools
import itertools

import control_trees
import numpy as np
import pytest
import tree_references
from toy_folders import data_of, epoch_of, opened, same, write_dataset

from jaxsyn.config import read_config
from jaxsyn.configs import pud
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.subword_sampling import ResampledSubwords
from jaxsyn.data.options import Mixture, Sampling
from jaxsyn.data.schema import EOS, FEATURES, OTHER_TREE, PAD
from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.align import is_visible
from jaxsyn.data.sentence.controls import Sampled
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.preprocess import build

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
  write_dataset(folder, {"train": some}, **fields)
  return Dataset(folder).split("train")


def japanese(shared_data, folder, kind, sides=BOTH, count=80):
  """Prepares pairs of Japanese and English with gold trees."""
  config = pud.pud("ja", "en")
  config.data.directory = str(folder / "data")
  lines = {"train": f"1-{count}", "validation": "901-905"}
  for split in lines:
    files = config.prepare.splits[split][:2]
    config.prepare.splits[split] = (*files, lines[split])
  del config.prepare.splits["test"]
  config.data.test = ()
  config.prepare.parse.sides = sides
  config.prepare.vocabulary.update(size=2000, joint=False, type=kind)
  config.prepare.workers = 1
  build.run(config, str(shared_data / "ud"))
  return Dataset(folder / "data").split("train")


@pytest.fixture(scope="module", autouse=True)
def blocks_of_sixteen():
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataset, "BLOCK", 16)
    yield


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
  """Examples with difficult trees, and no text."""
  return split_of(tmp_path_factory.mktemp("toy"), list(examples(range(90))))


@pytest.fixture(scope="module")
def prepared_pairs(shared_data, tmp_path_factory):
  """A function from the type of a vocabulary to prepared pairs."""

  def make(kind):
    return japanese(shared_data, tmp_path_factory.mktemp(kind), kind)

  return functools.cache(make)


@pytest.fixture(params=["bpe", "unigram"])
def records(request, prepared_pairs):
  return prepared_pairs(request.param)


@pytest.fixture(params=["trees", "bpe", "unigram"])
def resampling(request, toy, prepared_pairs):
  """A function that opens a loader of resampled trees or subwords."""
  if request.param == "trees":
    split, default = toy, {"rate": 0.4}
  else:
    split = prepared_pairs(request.param)
    default = {"alpha": 0.6 if request.param == "bpe" else 0.3}
  required = (*REQUIRED, "source_head")
  return lambda **options: loader_of(split, required, **{**default, **options})


def loader_of(
  records,
  required=REQUIRED,
  *,
  rate=None,
  alpha=None,
  sides=BOTH,
  kind="parsed",
  **options,
):
  """Returns a loader that samples trees or subwords, or both, or neither."""
  data = data_of(kind)
  if rate is not None:
    data = dataclasses.replace(data, tree=Sampled(rate))
  if alpha is not None:
    sampling = Sampling(sides=sides, alpha=alpha)
    data = dataclasses.replace(data, sampling=sampling)
  sizes = {"tokens": 4000, "shapes": 2, "row_multiple": 2}
  return opened(records, required, data=data, **{"seed": 3} | sizes | options)


def heads_of(row, stored, side="source"):
  return row[f"{side}_head_BW"][: len(stored[f"{side}_head"])].tolist()


def ids(row, name="source_id_BS"):
  return row[name][row[name] != PAD].tolist()


def check_features(row, side, axis, word_S, head_W):
  """Compares middles of parents, distances and their padding with loops."""
  middle_S, words = row[f"{side}_parent_mid_B{axis}"], len(head_W)
  expected = tree_references.parent_middles(word_S, head_W)
  assert middle_S[: len(word_S)].tolist() == expected
  assert not middle_S[len(word_S) :].any()
  distance_WW = row[f"{side}_tree_distance_BWW"].copy()
  expected = tree_references.distances(head_W)
  np.testing.assert_array_equal(distance_WW[:words, :words], expected)
  distance_WW[:words, :words] = OTHER_TREE
  assert (distance_WW == OTHER_TREE).all()


def visible(row):
  """Returns subwords, parents and their middles, without padding."""
  words, size = row["source_word_BS"].max() + 1, len(ids(row))
  middles = row["source_parent_mid_BS"][:size].tolist()
  return ids(row), row["source_head_BW"][:words].tolist(), middles


def test_samples_differ_between_epochs_and_seeds(resampling):
  first, again, *rest = (
    epoch_of(resampling(seed=seed), epoch)
    for seed, epoch in ((3, 0), (3, 0), (3, 1), (4, 0))
  )
  assert first.keys() == {*range(len(resampling()))}
  for index, row in first.items():
    same(row, again[index])
  long = [i for i, row in first.items() if row["source_word_BS"].max() > 3]
  assert len(long) > 40
  for rows in rest:
    equal = sum(visible(rows[i]) == visible(first[i]) for i in long)
    assert equal < len(long) / 4


def test_evaluation_does_not_resample(resampling):
  """Neither a validation split nor the evaluation pass is resampled."""

  def evaluated(loader):
    rows = []
    for batch in loader.in_order():
      each = (dict(zip(batch, one)) for one in zip(*batch.values()))
      rows += [visible(row) for row in each if row["weight_B"]]
    return sorted(rows)

  training, evaluation = resampling(), resampling(training=False)
  assert training.transforms and not evaluation.transforms
  plain = resampling(rate=None, alpha=None)
  assert not plain.transforms
  assert evaluated(training) == evaluated(evaluation) == evaluated(plain)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_features_follow_from_the_resampled_heads(toy, rate):
  loader, without_subword = loader_of(toy, rate=rate), 0
  changed = collections.Counter()
  for epoch in range(3):
    rows = epoch_of(loader, epoch)
    for (index, stored), (side, axis) in itertools.product(
      enumerate(toy), zip(BOTH, "ST")
    ):
      row, before = rows[index], stored[f"{side}_head"].tolist()
      head_W, word_S = heads_of(row, stored, side), stored[f"{side}_word"]
      check_features(row, side, axis, word_S, head_W)
      parents = {head_W[word] for word in word_S[:-1]}
      without_subword += len(parents - {*word_S.tolist()})
      assert tree_references.roots(head_W) == tree_references.roots(before)
      changed[side] += head_W != before
      if index in (0, 1, 3, 5):  # no parent can be replaced
        assert head_W == before
      for name, letter in (("id", axis), ("word", axis), ("relation", "W")):
        values = stored[f"{side}_{name}"]
        found = row[f"{side}_{name}_B{letter}"]
        assert found[: len(values)].tolist() == values.tolist()
      assert row[f"{side}_parsed_B"] == stored[f"{side}_parsed"]
  assert min(changed.values()) > 60 and without_subword > 60


@pytest.mark.parametrize("memory_gib", [1.0, 40e3 / 2**30])
def test_a_rate_of_0_keeps_the_stored_trees(toy, memory_gib):
  required = (*REQUIRED, "source_head", "target_head")
  sampled, plain = (
    loader_of(toy, required, rate=rate, memory_gib=memory_gib)
    for rate in (0.0, None)
  )
  assert sampled.in_memory == (memory_gib == 1)
  assert sampled.transforms and not plain.transforms
  for epoch in range(2):
    rows = epoch_of(sampled, epoch)
    for index, row in epoch_of(plain, epoch).items():
      same(rows[index], row)


def test_computes_only_required_features(toy):
  """PASCAL reads only the middles, which are those of resampled trees."""
  complete = loader_of(toy, rate=0.4)
  (message,) = complete.messages
  assert "(source and target)" in message and "probability 0.4" in message
  rows = epoch_of(complete)
  for index, row in epoch_of(loader_of(toy, REQUIRED[:1], rate=0.4)).items():
    assert set(row) == {
      *("source_id_BS", "target_id_BT", "source_word_BS", "source_parsed_B"),
      *("source_parent_mid_BS", "source_head_BW", "weight_B"),
    }
    assert visible(row) == visible(rows[index])
  (message,) = loader_of(toy, ("source_relation",), rate=0.4).messages
  assert "does nothing: no tree is read" in message


def test_replaces_heads_at_the_given_rate(toy):
  """Counts words that can have another parent, in 40 epochs."""
  loader = loader_of(toy, ("source_head",), rate=0.15)
  candidates = collections.defaultdict(list)
  for index, stored in enumerate(toy):
    before = stored["source_head"].tolist()
    below = collections.Counter(
      word
      for w in range(len(before))
      for word in tree_references.path(before, w)
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


def test_sampled_trees_differ_between_sides_and_sentences(tmp_path):
  """The dataset has one pair many times, whose two sides are equal."""
  one = next(examples([17]))
  one |= {f"target_{k[7:]}": v for k, v in one.items() if k[:6] == "source"}
  assert len(one["source_head"]) > 6
  some = [{**one, "line": np.int64(i + 1)} for i in range(40)]
  rows = epoch_of(loader_of(split_of(tmp_path, some), rate=0.4)).values()
  heads = [[tuple(heads_of(row, one, side)) for row in rows] for side in BOTH]
  assert min(len(set(of_side)) for of_side in heads) > 20
  assert sum(source == target for source, target in zip(*heads)) < 10


def resampled(loader):
  """Returns the transform that resamples subwords."""
  (transform,) = loader.transforms
  return transform


def word_of(i, pieces, parse):
  """Returns the word of a subword, by a loop over characters.

  It is the word of the first visible character, or that of the next subword
  with one.
  """
  spans = zip(pieces.begin[i:], pieces.end[i:])
  places = [p for begin, end in spans for p in range(begin, end)]
  visible = [p for p in places if is_visible(parse.text[p])]
  first = visible[0] if visible else len(parse.text) - 1
  spans = enumerate(zip(parse.start_W, parse.end_W))
  (word,) = [word for word, (begin, end) in spans if begin <= first < end]
  return word


@pytest.mark.parametrize("rate", [None, 0.4])
def test_features_follow_from_the_resampled_subwords(records, rate):
  """The trees are those of the parser, or resampled as without subwords."""
  required = (*REQUIRED, "source_head", "target_head")
  loader = loader_of(records, required, rate=rate, alpha=0.3)
  rows = epoch_of(loader)
  trees = epoch_of(loader_of(records, required, rate=rate))
  parses = zip(*(records.dataset.sentences("train", side) for side in BOTH))
  changed = without_subword = 0
  for index, (stored, both) in enumerate(zip(records, parses)):
    row = rows[index]
    for side, axis, parse in zip(BOTH, "ST", both):
      pieces = loader.transforms[0].pieces(side, index, parse.text, 0)
      size, head_W = len(pieces.id), heads_of(row, stored, side)
      changed += pieces.id != stored[f"{side}_id"][:-1].tolist()
      assert ids(row, f"{side}_id_B{axis}") == [*pieces.id, EOS]
      word_S = [*(word_of(i, pieces, parse) for i in range(size)), -1]
      without_subword += len({*word_S}) <= len(head_W)
      found_S = row[f"{side}_word_B{axis}"]
      assert found_S[: size + 1].tolist() == word_S
      assert (found_S[size:] == -1).all()
      assert head_W == heads_of(trees[index], stored, side)
      assert rate or head_W == list(parse.head_W)
      check_features(row, side, axis, word_S, head_W)
  assert changed > 100  # of 160 sentences
  assert without_subword > 10  # some subwords hold several words


def test_plans_batches_from_sampled_lengths(records):
  loader, stored = loader_of(records, alpha=0.3), records.lengths
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
  loader, count = loader_of(records, alpha=0.3), collections.Counter()
  sample = ResampledSubwords.pieces

  def counted(self, side, index, text, epoch):
    count[epoch] += 1
    return sample(self, side, index, text, epoch)

  monkeypatch.setattr(ResampledSubwords, "pieces", counted)
  loader.batch_sampler.first_used(Position(), 100)
  for train_batch in loader.batches(Position()):
    if train_batch.after.epoch == 2:
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
  bound = np.ones(len(records))
  sampler.__dict__["bounds"] = records.lengths._replace(source=bound)
  stored = records[0]["source_id"][:-1].tolist()
  assert sampler.pieces("source", 0, text, 0).id == stored


def test_resamples_a_side_without_trees(shared_data, tmp_path):
  """The other side does not change."""
  records = japanese(shared_data, tmp_path, "bpe", ("source",), count=20)
  loader = loader_of(records, REQUIRED[:1], alpha=0.3, sides=("target",))
  lines = records.dataset.text("train", "target")
  rows, changed = epoch_of(loader), 0
  for index, (stored, line) in enumerate(zip(records, lines)):
    sample = resampled(loader).pieces("target", index, line, 0).id
    assert ids(rows[index], "target_id_BT") == [*sample, EOS]
    assert ids(rows[index]) == stored["source_id"].tolist()
    changed += sample != stored["target_id"][:-1].tolist()
  assert changed > len(records) / 2


def test_resampled_subwords_follow_control_trees(records):
  row = epoch_of(loader_of(records, alpha=0.3, kind="linear"))[0]
  word_S = row["source_word_BS"][: len(ids(row))]
  head_W = control_trees.linear(len(records[0]["source_head"]))
  check_features(row, "source", "S", word_S, head_W)


def test_rejects_a_vocabulary_with_one_segmentation(records, monkeypatch):
  monkeypatch.setattr(Vocabulary, "can_sample", False)
  message = r"sampling\.sides=.*source\.model has only one segmentation"
  with pytest.raises(InputError, match=message):
    loader_of(records, alpha=0.3)


PARSING = data_of(task="parse").second


@pytest.mark.parametrize(
  ("sections", "names"),
  [
    (
      {"sampling": Sampling(sides=BOTH), "mixture": Mixture(folders=("a",))},
      r"data\.sampling\.sides.*data\.mixture",
    ),
    (
      {"sampling": Sampling(sides=BOTH), "second": PARSING},
      r"data\.sampling\.sides.*data\.second\.task",
    ),
    (
      {"tree": Sampled(0.1), "second": PARSING},
      r"data\.tree='sampled'.*second\.task='parse'",
    ),
  ],
)
def test_rejects_incompatible_options(sections, names):
  config = read_config(pud.pud("ja", "en"))
  data = dataclasses.replace(config.data, **sections)
  with pytest.raises(InputError, match=names):
    resolve(dataclasses.replace(config, data=data), {})
