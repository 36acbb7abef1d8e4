"""Tests rates, labels and tags of mixtures of corpora."""

import collections
import dataclasses
import shutil

import numpy as np
import pytest
from toy_folders import data_of, epoch_of, example, opened, write_dataset

from jaxsyn.data import schema
from jaxsyn.data.loader import mixture
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.options import Mixture
from jaxsyn.data.schema import EOS
from jaxsyn.data.store import dataset, manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError

REQUIRED = ("source_relation", "source_parent_mid", "source_tree_distance")
FIRST, SECOND = set(range(30)), set(range(30, 41))
SMALL = 2e-6  # GiB, a fraction of the memory of all examples


def folder_of(folder, examples, relations):
  for one in examples:
    one["source_relation"] += 1
  fields = {"relations": {"source": relations}}
  return write_dataset(folder, {"train": examples}, **fields)


@pytest.fixture(scope="module", autouse=True)
def blocks_of_four():
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataset, "BLOCK", 4)
    yield


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """A corpus of thirty pairs, and one of eleven with another relation."""
  base = tmp_path_factory.mktemp("corpora")
  examples = [example(i) for i in range(41)]
  main = folder_of(base / "main", examples[:30], ["a", "b", "c", "d"])
  other = folder_of(base / "other", examples[30:], ["b", "c", "d", "x"])
  return main, str(other)


def mixed(corpora, *, memory_gib=1.0, **options):
  main, other = corpora
  options = Mixture(folders=(other,), **options)
  return opened(
    Dataset(main).split("train"),
    REQUIRED,
    data=dataclasses.replace(data_of(), mixture=options),
    **{"memory_gib": memory_gib, "tokens": 32, "shapes": 2, "row_multiple": 2},
  )


def occurrences(loader, epoch):
  """Returns the number of times that an epoch reads each example."""
  ids = [planned.ids for planned in loader.batch_sampler.epoch(epoch)]
  return collections.Counter(np.concatenate(ids).tolist())


@pytest.mark.parametrize("memory_gib", [1.0, SMALL])
def test_an_epoch_reads_a_corpus_as_often_as_its_weight(corpora, memory_gib):
  def loader():
    return mixed(corpora, weights=(1.0, 2.3), memory_gib=memory_gib)

  windows = {planned.window for planned in loader().batch_sampler.epoch(0)}
  assert loader().in_memory == (memory_gib == 1) == (len(windows) == 1)
  third = []  # examples that an epoch reads for the third time
  for epoch in (0, 1, 2):
    result = occurrences(loader(), epoch)
    assert result == occurrences(loader(), epoch)
    assert {result[i] for i in FIRST} == {1}
    assert {result[i] for i in SECOND} == {2, 3}
    third.append({i for i in SECOND if result[i] == 3})
    assert abs(len(third[-1]) - 0.3 * 11) < 1
  assert third[0] != third[1] or third[1] != third[2]


def test_fractional_rates_are_sampled_in_every_epoch(corpora):
  # 3 or 4 of 11 · 0.3, on average 3.3.
  loader = mixed(corpora, weights=(0.0, 0.3))
  counts = [occurrences(loader, epoch).total() for epoch in range(100)]
  assert {*counts} == {3, 4}
  assert 3.1 < np.mean(counts) < 3.5
  loader = mixed(corpora, weights=(0.5, 0.0))
  first, second = (occurrences(loader, epoch) for epoch in (3, 4))
  assert first != second
  assert set(first) <= FIRST and set(first.values()) == {1}
  assert len(first) == 15


def test_rates_of_weights_and_temperatures():
  for options, expected in (
    ({"weights": (1.0, 0.5)}, [1, 0.5]),
    # n ∝ sqrt(N): 30 to 10, of 1,000 in all 750 and 250.
    ({"temperature": 2.0}, [750 / 900, 2.5]),
    ({"temperature": 2.0, "weights": (1.0, 2.0)}, [750 / 900, 5.0]),
  ):
    rates = mixture.rates(Mixture(**options), [900, 100])
    assert rates == pytest.approx(expected)
  for weights in ((1.0,), (0.0, 0.0)):
    with pytest.raises(InputError, match=r"mixture.weights=.* one above 0"):
      mixture.rates(Mixture(weights=weights), [900, 100])


def test_examples_are_counted_by_corpus(corpora):
  loader = mixed(corpora, weights=(1.0, 2.0))
  assert loader.messages[0] == "examples an epoch: main 30 x 1, other 11 x 2"
  count = collections.Counter()
  for _, one in zip(loader.batch_sampler.epoch(0), loader.batches(Position())):
    count.update(one.corpora)
    assert sum(one.corpora.values()) == one.batch["weight_B"].sum()
  assert count == {"main": 30, "other": 22}


def test_maps_relations_to_those_of_the_first_corpus(corpora):
  loader = mixed(corpora)
  rows = epoch_of(loader)
  # The ids 1, 2, 3, 4 are a, b, c, d in the first corpus and b, c, d, x in the
  # second one; the first corpus has no x.
  assert rows[2]["source_relation_BW"][:4].tolist() == [1, 2, 3, 4]
  assert rows[32]["source_relation_BW"][:4].tolist() == [2, 3, 4, 0]
  (message,) = loader.messages[1:]
  assert message.startswith(f"{corpora[1]}: source relations that config.data")
  assert message.endswith("are read as unknown: x")


def test_maps_unknown_lemmas_to_the_unknown_label():
  first, other = (
    {
      "annotations": ["lemma"],
      "labels": {"source": {"lemma": ["<unk>", *labels]}},
      "relations": {"source": ["a"]},
    }
    for labels in (["a", "b"], ["b", "x", "a"])
  )
  names = ["source_lemma", "source_relation"]
  tables = mixture._label_tables(first, other, names)
  assert tables.keys() == {"source_lemma"}  # relations are equal
  assert tables["source_lemma"].tolist() == [0, 1, 3, 1, 2]


def test_tags_precede_the_sources_of_other_corpora(corpora):
  tagged, plain = epoch_of(mixed(corpora, tags=True)), epoch_of(mixed(corpora))
  tag = 1000  # after the vocabulary
  assert tagged[3]["source_id_BS"][0] == plain[3]["source_id_BS"][0]
  row, bare = tagged[32], plain[32]
  assert row["source_id_BS"][:6].tolist() == [tag, 10, 11, 12, 13, EOS]
  assert row["source_word_BS"][:6].tolist() == [-1, 0, 1, 2, 3, -1]
  middle_S = bare["source_parent_mid_BS"][:5] + 1
  assert row["source_parent_mid_BS"][:6].tolist() == [0, *middle_S]
  np.testing.assert_array_equal(
    row["source_tree_distance_BWW"][:4, :4],
    bare["source_tree_distance_BWW"][:4, :4],
  )


def test_names_a_corpus_that_does_not_match(corpora, tmp_path):
  main, other = corpora
  folder = shutil.copytree(other, tmp_path / "strange")
  manifest = manifests.read(folder)
  for side in schema.SIDES:
    manifest["vocabulary"][side]["sha256"] = "6" * 64
  manifests.write(folder, manifest)
  write_dataset(tmp_path / "bare", {"train": [example(0)]}, sides=[])
  for name, message in (
    ("strange", r"strange/vocabulary.model.*is not that"),
    ("nowhere", r"nowhere is missing"),
    ("bare", r"mixture, .*bare: this system reads"),
  ):
    with pytest.raises(InputError, match=message):
      mixed((main, str(tmp_path / name)))
