"""Tests rates, labels and tags of mixtures of corpora."""

import collections
import dataclasses
import shutil

import numpy as np
import pytest
from toy_folders import data_of, example, opened, write_dataset

from jaxsyn.data import schema
from jaxsyn.data.loader import mixture
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.options import Mixture
from jaxsyn.data.schema import EOS
from jaxsyn.data.store import dataset, manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError

READS = ("source_relation", "source_parent_mid", "source_tree_distance")


def folder_of(folder, first, count, relations, **fields):
  """Writes examples whose first subword is 100 plus their index."""
  examples = []
  for i in range(first, first + count):
    one = example(i)
    one["source_id"][0] = 100 + i
    one["source_relation"] += 1
    examples.append(one)
  fields = {"sides": ["source"], "relations": {"source": relations}} | fields
  return write_dataset(folder, {"train": examples}, **fields)


@pytest.fixture(scope="module", autouse=True)
def blocks_of_four():
  """Blocks are of four records in all tests of this file."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataset, "BLOCK", 4)
    yield


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """A corpus of thirty pairs, and one of eleven with another relation."""
  base = tmp_path_factory.mktemp("corpora")
  main = folder_of(base / "main", 0, 30, list("abcd"))
  other = folder_of(base / "other", 50, 11, ["b", "c", "d", "x"])
  return main, str(other)


def mixed(corpora, *, memory_gib=1.0, share=None, **options):
  main, other = corpora
  data = dataclasses.replace(
    data_of(), mixture=Mixture(folders=(other,), **options)
  )
  batch = {"tokens": 32, "shapes": 2, "row_multiple": 2}
  split = opened(
    Dataset(main).split("train"),
    READS,
    data=data,
    memory_gib=memory_gib,
    **batch,
  )
  return split if share is None else dataclasses.replace(split, shard=share)


def drawn(split, epoch):
  """Returns the number of occurrences of each sentence in an epoch."""
  by_name = collections.Counter()
  for train_batch in split.batches(Position(epoch)):
    ids = train_batch.batch["source_id_BS"]
    by_name.update((ids[ids >= 100] - 100).tolist())
    if train_batch.after.epoch > epoch:
      return by_name


SMALL = 2e-6  # GiB, of which the thirty and eleven take several times as much


@pytest.mark.parametrize("memory_gib", [1.0, SMALL])
def test_an_epoch_reads_a_corpus_as_often_as_its_weight(corpora, memory_gib):
  split = mixed(corpora, weights=(1.0, 2.3), memory_gib=memory_gib)
  assert split.in_memory == (memory_gib == 1)
  windows = {p.window for p in split.batch_sampler.epoch(0)}
  assert (len(windows) == 1) == split.in_memory
  parts = []
  for epoch in (0, 1, 2):
    result = drawn(split, epoch)
    assert [result[i] for i in range(30)] == [1] * 30
    more = [i for i in range(50, 61) if result[i] == 3]
    assert {result[i] for i in range(50, 61)} == {2, 3}
    assert abs(len(more) - 0.3 * 11) < 1
    assert sum(result.values()) == 30 + 22 + len(more)
    parts.append(more)
  assert parts[0] != parts[1] or parts[1] != parts[2]
  assert drawn(
    mixed(corpora, weights=(1.0, 2.3), memory_gib=memory_gib), 1
  ) == (drawn(split, 1))


def test_weights_of_zero_and_one_half(corpora):
  split = mixed(corpora, weights=(0.5, 0.0))
  result = drawn(split, 3)
  assert result != drawn(split, 4)
  assert set(result) <= set(range(30)) and set(result.values()) == {1}
  assert len(result) == 15


def test_rates():
  assert mixture.rates(Mixture(weights=(1.0, 0.5)), [900, 100]) == [1, 0.5]
  # n ∝ sqrt(N): 30 to 10, of 1,000 in all 750 and 250.
  even = mixture.rates(Mixture(temperature=2.0), [900, 100])
  assert even == pytest.approx([750 / 900, 2.5])
  both = mixture.rates(Mixture(temperature=2.0, weights=(1.0, 2.0)), [900, 100])
  assert both == pytest.approx([750 / 900, 5.0])
  for weights in ((1.0,), (0.0, 0.0)):
    with pytest.raises(InputError, match=r"mixture.weights=.* one above 0"):
      mixture.rates(Mixture(weights=weights), [900, 100])


def test_examples_are_counted_by_corpus(corpora):
  split = mixed(corpora, weights=(1.0, 2.0))
  count = collections.Counter()
  for train_batch in split.batches(Position()):
    count.update(train_batch.corpora)
    assert (
      sum(train_batch.corpora.values()) == train_batch.batch["weight_B"].sum()
    )
    if train_batch.after.epoch:
      break
  assert count == {"main": 30, "other": 22}
  assert split.messages[0] == "examples an epoch: main 30 x 1, other 11 x 2"


def by_number(split):
  """Returns the source features of each sentence by its index."""
  by_name = {}
  for train_batch in split.batches(Position()):
    batch = train_batch.batch
    for row in range(len(batch["weight_B"])):
      ids = batch["source_id_BS"][row]
      index = ids[(ids >= 100) & (ids < 900)] - 100
      if len(index):
        by_name[int(index[0])] = {k: v[row] for k, v in batch.items()}
    if train_batch.after.epoch:
      return by_name


def test_maps_relations_to_those_of_the_first_corpus(corpora):
  split = mixed(corpora)
  result = by_number(split)
  # There: b c d x = 1 2 3 4; here b c d = 2 3 4, and x is not known.
  assert result[1]["source_relation_BW"][:3].tolist() == [1, 2, 3]
  assert result[50]["source_relation_BW"][:4].tolist() == [2, 3, 4, 0]
  # 50, 53, 56 and 59 have four words.
  (message,) = split.messages[1:]
  assert message.startswith(f"{corpora[1]}: 4 words have a relation that ")
  assert message.endswith("are read without it: x")


def test_maps_lemmas_to_those_of_the_first_corpus(corpora):
  """Lemmas that the first corpus lacks become unknown."""
  main, other = (Dataset(folder) for folder in corpora)
  open_ = {"annotations": ["lemma"]}
  ours, theirs = ["<unk>", "a", "b"], ["<unk>", "b", "x", "a"]
  main.manifest.update(open_, labels={"source": {"lemma": ours}})
  other.manifest.update(open_, labels={"source": {"lemma": theirs}})
  result = mixture._label_tables(
    main.manifest, other.manifest, ["source_lemma", "source_relation"]
  )
  # There: none, <unk>, b, x and a are 0 to 4.
  assert result["source_lemma"].tolist() == [0, 1, 3, 1, 2]
  assert "source_lemma" not in mixture._label_tables(
    main.manifest, other.manifest, []
  )
  assert "source_lemma" not in mixture._label_tables(
    main.manifest, main.manifest, ["source_lemma"]
  )


def test_tags_precede_the_sources_of_other_corpora(corpora):
  result, plain = (
    by_number(mixed(corpora, tags=True)),
    by_number(mixed(corpora)),
  )
  tag = 1000  # after the vocabulary
  assert result[3]["source_id_BS"][0] == 103
  one, bare = result[50], plain[50]
  words = 4
  assert one["source_id_BS"][: words + 2].tolist() == [
    tag,
    *bare["source_id_BS"][:words],
    EOS,
  ]
  assert one["source_word_BS"][: words + 2].tolist() == [-1, 0, 1, 2, 3, -1]
  assert one["source_parent_mid_BS"][: words + 2].tolist() == [
    0,
    *(bare["source_parent_mid_BS"][: words + 1] + 1),
  ]
  np.testing.assert_array_equal(
    one["source_tree_distance_BWW"][:4, :4],
    bare["source_tree_distance_BWW"][:4, :4],
  )


def test_names_a_corpus_that_does_not_match(corpora, tmp_path):
  main, other = corpora
  strange = shutil.copytree(other, tmp_path / "strange")
  manifest = manifests.read(strange)
  for side in schema.SIDES:
    manifest["vocabulary"][side]["sha256"] = "6" * 64
  manifests.write(strange, manifest)
  with pytest.raises(
    InputError, match=r"strange/vocabulary.model.*is not that"
  ):
    mixed((main, str(strange)))
  with pytest.raises(InputError, match=r"nowhere is missing"):
    mixed((main, str(tmp_path / "nowhere")))
  bare = folder_of(tmp_path / "bare", 0, 3, [], sides=[])
  with pytest.raises(InputError, match=r"mixture, .*bare: this system reads"):
    mixed((main, str(bare)))
