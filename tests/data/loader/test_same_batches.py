"""Tests that batches do not depend on resuming, hosts and windows."""

import dataclasses
import itertools
import shutil

import numpy as np
import pytest
from toy_folders import data_of, epoch_of, opened, same, write_dataset

from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import HostShard
from jaxsyn.data.options import Mixture, Sampling
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence.controls import Sampled, WrongParents
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset

REQUIRED = (
  "source_parent_mid",
  "source_tree_distance",
  "source_relation",
  "target_head",
  "target_parent_mid",
)
BOTH = Sampling(sides=("source", "target"), alpha=0.3)
SETTINGS = {
  "parsed": {},
  "wrong_parents": {"tree": WrongParents()},
  "parse": {"second": data_of(task="parse", weight=0.25).second},
  "subwords and trees": {"sampling": BOTH, "tree": Sampled(0.4)},
  "mixture of sampled trees": {
    "mixture": Mixture(weights=(1.0, 1.5), tags=True),
    "tree": Sampled(0.4),
  },
}
SMALL = 80e3 / 2**30  # GiB: several windows an epoch


@pytest.fixture(scope="module")
def folder(prepared, tmp_path_factory):
  """A dataset directory with the first 200 pairs of the prepared corpus."""
  folder, dataset = tmp_path_factory.mktemp("pairs"), Dataset(prepared)
  for path in prepared.iterdir():  # vocabulary and parser
    if path.is_file():
      shutil.copy(path, folder)
  names = ("sides", "vocabulary", "parser", "relations")
  fields = {name: dataset.manifest[name] for name in names}
  examples = [one for _, one in zip(range(200), dataset.split("train"))]
  for side in SIDES:
    for one, line in zip(examples, dataset.text("train", side)):
      one[f"{side}_text"] = line
  return write_dataset(folder, {"train": examples}, **fields)


@pytest.fixture(autouse=True)
def blocks_of_sixteen(monkeypatch):
  monkeypatch.setattr(dataset, "BLOCK", 16)


@pytest.fixture(params=SETTINGS)
def loader(request, folder):
  """A function that opens a loader of a setting."""
  data = dataclasses.replace(data_of(), **SETTINGS[request.param])
  if data.mixture.tags:
    mixture = dataclasses.replace(data.mixture, folders=(str(folder),))
    data = dataclasses.replace(data, mixture=mixture)

  def make(**options):
    split = Dataset(folder).split("train")
    options = {"tokens": 1500, "shapes": 3, **options}
    return opened(split, REQUIRED, data=data, seed=3, **options)

  return make


def rows_of(loader, epoch):
  """Source subwords and parents' middles of each example in an epoch."""
  rows = {}
  for index, row in epoch_of(loader, epoch).items():
    size = (row["source_id_BS"] != 0).sum()
    names = ("source_id_BS", "source_parent_mid_BS")
    rows[index] = [row[name][:size].tolist() for name in names]
  return rows


@pytest.mark.parametrize("memory_gib", [1.0, SMALL])
def test_a_resumed_run_and_two_hosts_have_the_same_batches(loader, memory_gib):
  complete, resumed = (loader(memory_gib=memory_gib) for _ in range(2))
  assert complete.in_memory == (memory_gib == 1)
  complete.batch_sampler.epoch(1)  # planned before it is used
  walk = [*itertools.islice(complete.batches(Position()), 46)]
  assert walk[44].after.epoch >= 1
  for start in (44, 3):
    one, expected = next(resumed.batches(walk[start].after)), walk[start + 1]
    same(one.batch, expected.batch)
    assert (one.after, *one[2:]) == (expected.after, *expected[2:])
  hosts = [
    dataclasses.replace(resumed, shard=HostShard((part,), 2)).batches(
      Position()
    )
    for part in (0, 1)
  ]
  for train_batch, *halves in zip(walk[:30], *hosts):
    for name, array in train_batch.batch.items():
      joined = np.concatenate([half.batch[name] for half in halves])
      np.testing.assert_array_equal(joined, array)


def test_examples_do_not_depend_on_order_or_windows(loader):
  plain, other = loader(), loader(memory_gib=SMALL, tokens=1000)
  if other.batch_sampler.examples_per_epoch == len(
    other
  ):  # else, other examples are read
    assert rows_of(other, 1) == rows_of(plain, 1)


def test_batches_do_not_depend_on_the_features_of_a_system(folder):
  """So that systems are compared on the same batches."""
  plans = []
  for required in ((), REQUIRED):
    split = Dataset(folder).split("train")
    loader = opened(split, required, memory_gib=SMALL, tokens=1500)
    plan = loader.batch_sampler.epoch(0)
    assert plan[-1].window[1] > 1
    plans.append([(planned.window, planned.ids.tolist()) for planned in plan])
  assert plans[0] == plans[1]
