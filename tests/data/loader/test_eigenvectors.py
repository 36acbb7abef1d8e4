"""Tests eigenvectors in batches against those of the trees in the batch."""

import dataclasses

import numpy as np
import pytest
from toy_folders import data_of, opened

from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.collate import pad
from jaxsyn.data.options import Mixture
from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.spectrum import eigenvectors
from jaxsyn.data.store.dataset import Dataset

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
  ("kind", "gib", "count"),
  [
    ("parsed", 2e-6, 24),
    ("random", 1.0, 24),
    ("sampled", 2e-6, 24),
    ("task", 1.0, 48),
    ("mixture", 1.0, 48),
  ],
)
def test_batches_have_the_eigenvectors_of_their_trees(
  prepared, kind, gib, count
):
  data = data_of(task="parse") if kind == "task" else data_of()
  if kind in TREES:
    data = data_of(kind)
  if kind == "mixture":
    mixture = Mixture(folders=(str(prepared),), tags=True)
    data = dataclasses.replace(data, mixture=mixture)
  split = Dataset(prepared).split("test")
  loader = opened(split, [FEATURE], data=data, memory_gib=gib, tokens=512)
  names = ("source_word", "source_parsed", "source_head", FEATURE)
  assert loader.features[2:] == names
  if count == 24:
    assert sum(map(check, loader.in_order())) == len(split) == 24
  assert len(loader) == count
  batches = loader.batches(Position())
  assert sum(check(next(batches).batch) for _ in range(8)) > 24
  for empty in loader.empty():
    assert not empty["source_eigenvectors_BWE"].any()
    words = empty["source_head_BW"].shape
    assert empty["source_eigenvectors_BWE"].shape == (*words, EIGENVECTORS)


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
