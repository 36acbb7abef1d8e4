"""Tests eigenvectors in batches against those of the trees in the batch."""

import dataclasses

import numpy as np
import pytest
from toy_folders import data_of, opened

from jaxsyn.data import schema
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.collate import pad
from jaxsyn.data.options import Mixture
from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.data.sentence.spectrum import eigenvectors
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError

READS = ("source_eigenvectors",)
NAMES = ("source_id", "source_word", "source_head", *READS)


@pytest.fixture(scope="module")
def records(prepared):
  return Dataset(prepared).split("test")


def check(batch):
  """Checks the eigenvectors of each row; returns the number of rows."""
  rows = 0
  for row, item in enumerate(batch["source_eigenvectors_BWE"]):
    words = batch["source_word_BS"][row].max() + 1
    head_W = batch["source_head_BW"][row, :words]
    (expected,) = eigenvectors([head_W])
    assert item[:words].tobytes() == expected.tobytes()
    assert not item[words:].any()
    rows += words > 0
  return rows


@pytest.mark.parametrize("tree", ["parsed", "linear", "random", "sampled"])
@pytest.mark.parametrize("gib", [1.0, 2e-6])
def test_batches_have_the_eigenvectors_of_their_trees(records, tree, gib):
  split = opened(
    records, READS, data=data_of(tree), seed=3, memory_gib=gib, tokens=512
  )
  assert split.features[2:] == (
    *("source_word", "source_parsed", "source_head", "source_eigenvectors"),
  )
  assert sum(map(check, split.in_order())) == len(records) == 24
  sampled = split.batches(Position())
  assert sum(check(next(sampled).batch) for _ in range(8)) > 24
  for empty in split.empty():
    rows, words = empty["source_head_BW"].shape
    result = empty["source_eigenvectors_BWE"]
    assert result.shape == (rows, words, EIGENVECTORS) and not result.any()


def test_auxiliary_tasks_and_mixtures_have_eigenvectors(records):
  train = Dataset(records.dataset.directory).split("train")
  second = opened(train, READS, data=data_of(task="parse"))
  assert len(second) > len(train)
  sampled = second.batches(Position())
  assert sum(check(next(sampled).batch) for _ in range(3)) > 50
  mixed = dataclasses.replace(
    data_of(),
    mixture=Mixture(folders=(str(records.dataset.directory),), tags=True),
  )
  sampled = opened(train, READS, data=mixed).batches(Position())
  assert sum(check(next(sampled).batch) for _ in range(3)) > 50


def test_pads_eigenvectors_of_unusual_trees():
  heads = [[1, 1, 1, 2], [0], [], [0, 0, 2, 2, 2], [0, 1, 2]]
  words = [[0, 3, -1], [0, -1], [-1], [0, 1, 2, 3, 4, -1], [2, -1]]
  examples = [
    {
      "source_id": np.arange(len(word)) + 3,
      "source_word": np.array(word),
      "source_head": np.array(head, np.int64),
    }
    for head, word in zip(heads, words)
  ]
  batch = pad(examples, NAMES, subwords=8, words=7, rows=6)
  result = batch["source_eigenvectors_BWE"]
  assert result.shape == (6, 7, EIGENVECTORS) and result.dtype == np.float32
  expected = eigenvectors([np.array(head, int) for head in heads])
  for item, one in zip(result, expected):
    np.testing.assert_array_equal(item[: len(one)], one)
    assert not item[len(one) :].any()
  assert not result[5].any()


def test_rejects_eigenvectors_without_trees(records):
  manifest = {**records.dataset.manifest, "sides": ["source"]}
  with pytest.raises(InputError, match=r"reads target_eigenvectors, .* trees"):
    schema.features_for(manifest, ["target_eigenvectors"])
