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

FEATURE = "source_eigenvectors"


def check(batch):
  """Checks the eigenvectors of each row; returns the number of rows."""
  rows = 0
  for row, vector_WE in enumerate(batch["source_eigenvectors_BWE"]):
    words = batch["source_word_BS"][row].max() + 1
    (expected,) = eigenvectors([batch["source_head_BW"][row, :words]])
    assert vector_WE[:words].tobytes() == expected.tobytes()
    assert not vector_WE[words:].any()
    rows += words > 0
  return rows


@pytest.mark.parametrize(
  ("tree", "gib"), [("parsed", 2e-6), ("random", 1.0), ("sampled", 2e-6)]
)
def test_batches_have_the_eigenvectors_of_their_trees(prepared, tree, gib):
  split = Dataset(prepared).split("test")
  loader = opened(
    split, [FEATURE], data=data_of(tree), memory_gib=gib, tokens=512
  )
  assert loader.features[2:] == (
    "source_word",
    "source_parsed",
    "source_head",
    FEATURE,
  )
  assert sum(map(check, loader.in_order())) == len(split) == 24
  batches = loader.batches(Position())
  assert sum(check(next(batches).batch) for _ in range(8)) > 24
  for empty in loader.empty():
    size = (*empty["source_head_BW"].shape, EIGENVECTORS)
    np.testing.assert_array_equal(
      empty["source_eigenvectors_BWE"], np.zeros(size)
    )


@pytest.mark.parametrize("kind", ["task", "mixture"])
def test_auxiliary_tasks_and_mixtures_have_eigenvectors(prepared, kind):
  data = data_of(task="parse" if kind == "task" else "none")
  if kind == "mixture":
    mixture = Mixture(folders=(str(prepared),), tags=True)
    data = dataclasses.replace(data, mixture=mixture)
  loader = opened(Dataset(prepared).split("test"), [FEATURE], data=data)
  assert len(loader) == 48
  batches = loader.batches(Position())
  assert sum(check(next(batches).batch) for _ in range(2)) > 24


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
  names = ("source_id", "source_word", "source_head", FEATURE)
  batch = pad(examples, names, subwords=8, words=7, rows=6)
  result = batch["source_eigenvectors_BWE"]
  assert result.shape == (6, 7, EIGENVECTORS) and result.dtype == np.float32
  assert check(batch) == 4
  assert not result[5].any()


def test_rejects_eigenvectors_without_trees(prepared):
  manifest = {**Dataset(prepared).manifest, "sides": ["source"]}
  with pytest.raises(InputError, match=r"reads target_eigenvectors, .* trees"):
    schema.features_for(manifest, ["target_eigenvectors"])
