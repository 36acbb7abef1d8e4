"""Tests collation, windows and host shards of a data loader."""

import collections
import dataclasses
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
import toy_folders
from toy_folders import opened, stored

from jaxsyn.data.loader.batch_sampler import (
  BatchSampler,
  PlannedBatch,
  Position,
)
from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.loader.collate import (
  Shape,
  apply_batch_transform,
  pad,
  words_of,
)
from jaxsyn.data.loader.loader import (
  SINGLE_HOST,
  DataLoader,
  HostShard,
  prefetch,
)
from jaxsyn.data.loader.windows import Windows
from jaxsyn.data.store import dataset
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError

NAMES = (
  "source_id",
  "target_id",
  "source_word",
  "source_parent_mid",
  "source_tree_distance",
  "source_parsed",
)
SOURCE_NAMES = tuple(name for name in NAMES if name != "target_id")


def distances(words: int):
  return np.abs(np.subtract.outer(np.arange(words), np.arange(words)))


def example(words: int, target: int, start: int):
  size = words + 1
  return {
    "source_id": np.arange(start, start + size, dtype=np.int32),
    "target_id": np.arange(start, start + target, dtype=np.int32),
    "source_word": np.r_[np.arange(words), -1].astype(np.int32),
    "source_parent_mid": np.arange(size, dtype=np.float32) + 0.5,
    "source_tree_distance": distances(words).astype(np.uint8).ravel(),
    "source_parsed": np.uint8(words % 2),
  }


EXAMPLES = [example(1, 3, 14), example(3, 2, 34), example(2, 4, 24)]


def loader_of(
  examples, features=NAMES, shard=SINGLE_HOST, windows=None, **options
):
  options = {"tokens": 64, "shapes": 1, "row_multiple": 1, **options}
  sampler = BatchSampler(
    examples.lengths, windows, seed=0, length_multiple=1, **options
  )
  in_memory = windows is None
  return DataLoader(
    examples, tuple(features), sampler, in_memory=in_memory, shard=shard
  )


def test_collates_a_small_batch():
  shape = Shape(rows=3, source=5, target=4, source_words=6)
  batch = loader_of(stored(EXAMPLES)).batch(
    PlannedBatch(shape, np.array([2, 0]))
  )
  expected = {
    "source_id_BS": [[24, 25, 26, 0, 0], [14, 15, 0, 0, 0], [0] * 5],
    "target_id_BT": [[24, 25, 26, 27], [14, 15, 16, 0], [0] * 4],
    "source_word_BS": [[0, 1, -1, -1, -1], [0, -1, -1, -1, -1], [-1] * 5],
    "source_parent_mid_BS": [
      [0.5, 1.5, 2.5, 0, 0],
      [0.5, 1.5, 0, 0, 0],
      [0] * 5,
    ],
    "source_parsed_B": [0, 1, 0],
    "weight_B": [1, 1, 0],
  }
  for name, array in expected.items():
    assert batch[name].tolist() == array
  distance = np.full((3, 6, 6), 255)
  distance[0, :2, :2] = [[0, 1], [1, 0]]
  distance[1, 0, 0] = 0
  np.testing.assert_array_equal(batch["source_tree_distance_BWW"], distance)


def test_hosts_share_the_rows():
  examples = stored(EXAMPLES)
  planned = PlannedBatch(Shape(4, 5, 4, source_words=3), np.array([2, 0, 1]))
  complete = loader_of(examples).batch(planned)
  # The last two have devices that are no neighbors on the mesh.
  for parts, of, rows in (
    ((0,), 2, [0, 1]),
    ((1,), 2, [2, 3]),
    ((1, 2), 4, [1, 2]),
    ((0, 3), 4, [0, 3]),
  ):
    batch = loader_of(examples, shard=HostShard(parts, of)).batch(planned)
    for name, array in complete.items():
      np.testing.assert_array_equal(batch[name], array[rows])


def test_translation_and_training_pad_equally():
  assert [doubled(n, 16) for n in (0, 16, 17, 65)] == [16, 16, 32, 128]
  planned = PlannedBatch(Shape(4, 6, 4, source_words=5), np.arange(3))
  trained = loader_of(stored(EXAMPLES), SOURCE_NAMES).batch(planned)
  sizes = {"subwords": 6, "words": 5, "rows": 4}
  empty = pad([], SOURCE_NAMES, **sizes)
  for name, array in pad(EXAMPLES, SOURCE_NAMES, **sizes).items():
    np.testing.assert_array_equal(array, trained[name])
    assert (array.shape, array.dtype) == (empty[name].shape, empty[name].dtype)


def test_applies_the_batch_transform_of_the_caller():
  def add(batch):
    return {**batch, "weighting_BSS": np.ones((3, 5, 5))}

  loader = dataclasses.replace(loader_of(stored(EXAMPLES)), batch_transform=add)
  planned = PlannedBatch(Shape(3, 5, 4, source_words=3), np.arange(3))
  assert loader.batch(planned)["weighting_BSS"].dtype == np.float32
  for result, message in (
    (None, "batch transform returned NoneType"),
    ({"x": 1.0}, r"made x of shape \(\); its first axis must be the 3 rows"),
    ({"x": np.ones((2, 5))}, r"made x of shape \(2, 5\); its first axis"),
  ):
    with pytest.raises(InputError, match=message):
      apply_batch_transform(
        {"source_id_BS": np.zeros((3, 5))}, lambda _, result=result: result
      )


NARROW = ("source_word", "source_head", "source_tree_distance")
# Four words in one subword, as in Japanese.
SHARED_SUBWORD = {
  "source_id": np.array([9, 3], np.int32),
  "target_id": np.array([9, 3], np.int32),
  "source_word": np.array([0, -1], np.int32),
  "source_head": np.array([1, 2, 3, 3], np.int32),
  "source_tree_distance": distances(4).astype(np.uint8).ravel(),
}


def test_keeps_words_that_outnumber_subwords():
  loader = loader_of(stored([SHARED_SUBWORD]), NARROW, tokens=8)
  (shape,) = loader.batch_sampler.shapes
  assert (shape.source, shape.source_words, shape.target_words) == (2, 4, 1)
  assert {
    words_of(SHARED_SUBWORD, names) for names in (NARROW, NARROW[2:])
  } == {4}
  (trained,) = loader.in_order()
  translated = pad(
    [SHARED_SUBWORD], NARROW, subwords=2, words=4, rows=shape.rows
  )
  for batch in (trained, translated):
    assert batch["source_head_BW"][0].tolist() == [1, 2, 3, 3]
    assert batch["source_tree_distance_BWW"][0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
  ("name", "source", "words", "size", "limit"),
  [
    ("source_id", 1, 4, 2, 1),
    ("source_word", 1, 4, 2, 1),
    ("source_head", 2, 3, 4, 3),
    ("source_tree_distance", 2, 3, 4, 3),
  ],
)
def test_rejects_examples_larger_than_the_shape(
  name, source, words, size, limit
):
  loader = loader_of(stored([SHARED_SUBWORD]), [name])
  planned = PlannedBatch(Shape(1, source, 2, words), np.array([0]))
  error = rf"{name}: an example of {size} does not fit into an array of {limit}"
  with pytest.raises(ValueError, match=error):
    loader.batch(planned)


def test_collates_examples_without_words():
  none = {
    "source_id": np.array([3], np.int32),
    "target_id": np.array([3], np.int32),
    "source_head": np.zeros(0, np.int32),
    "source_tree_distance": np.zeros(0, np.uint8),
  }
  loader = loader_of(stored([none]), none, tokens=8, row_multiple=8)
  (batch,) = loader.in_order()
  assert batch["source_head_BW"].tolist() == [[0]] * 8
  assert batch["source_tree_distance_BWW"].tolist() == [[[255]]] * 8


@pytest.fixture
def blocks_of_two(monkeypatch):
  monkeypatch.setattr(dataset, "BLOCK", 2)


# Examples of different first subwords, in seven blocks of two.
THIRTEEN = [example(1 + i % 4, 2 + i % 3, 10 + i) for i in range(13)]


def windows_of(examples, fraction):
  """Returns windows if a fraction of the examples fits in memory."""
  complete = Windows.of(examples, NAMES, memory_gib=1.0, seed=0)
  assert complete.in_memory
  limit = complete.bytes_U.sum() * fraction
  return dataclasses.replace(complete, max_bytes=limit)


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.99])
def test_windows_hold_every_example_once_an_epoch(blocks_of_two, fraction):
  examples = stored(THIRTEEN)
  windows = windows_of(examples, fraction)
  loader = loader_of(examples, windows=windows, tokens=12, shapes=2)
  plans = [loader.batch_sampler.epoch(epoch) for epoch in (0, 1)]
  for plan in plans:
    ids = np.concatenate([planned.ids for planned in plan])
    assert sorted(ids) == list(range(13))
    window_of = {i: planned.window for planned in plan for i in planned.ids}
    assert len(set(window_of.values())) > 1
    bytes_of = collections.Counter()
    for block, size in enumerate(windows.bytes_U):
      bytes_of[window_of[2 * block]] += size
    limit = windows.max_bytes / 2 + windows.bytes_U.max()
    assert max(bytes_of.values()) <= limit
    # A block is in one window.
    assert all(window_of[i] == window_of[i + 1] for i in range(0, 12, 2))
  first, second = ([p.ids.tolist() for p in plan] for plan in plans)
  assert first != second
  in_memory = loader_of(examples, tokens=12, shapes=2)
  for planned, train_batch in zip(plans[0], loader.batches(Position())):
    for name, array in in_memory.batch(planned).items():
      np.testing.assert_array_equal(train_batch.batch[name], array)
  first_id = np.concatenate(
    [batch["source_id_BS"][:, 0] for batch in loader.in_order()]
  )
  assert sorted(first_id[first_id > 0]) == list(range(10, 23))


def test_windows_are_shuffled_independently(monkeypatch):
  """Four windows of sixteen equally long examples."""
  monkeypatch.setattr(dataset, "BLOCK", 16)
  examples = stored([example(2, 2, 10)] * 64)
  loader = loader_of(examples, windows=windows_of(examples, 0.5), tokens=12)
  orders = collections.defaultdict(list)
  for planned in loader.batch_sampler.epoch(0):
    orders[planned.window] += (planned.ids % 16).tolist()
  assert len(orders) == len({*map(tuple, orders.values())}) == 4


def test_a_large_split_has_about_as_many_batches_as_estimated(blocks_of_two):
  examples = stored(THIRTEEN * 20)
  windows = windows_of(examples, 0.3)
  sampler = loader_of(examples, windows=windows, tokens=12).batch_sampler
  count = len(sampler.epoch(0))
  assert sampler.batches_per_epoch() == pytest.approx(count, rel=0.05)


@pytest.mark.parametrize("host", [0, 1])
def test_a_host_loads_only_its_rows_of_a_window(
  blocks_of_two, monkeypatch, host
):
  """`test_same_batches` compares the batches."""
  loaded, load = [], dataset.Examples.load

  def record_sizes(*args):
    rows = load(*args)
    loaded.append(len(rows))
    return rows

  monkeypatch.setattr(dataset.Examples, "load", record_sizes)
  examples = stored(THIRTEEN)
  loader = loader_of(
    examples,
    shard=HostShard((host,), 2),
    windows=windows_of(examples, 0.5),
    tokens=24,
    row_multiple=2,
  )
  planned = loader.batch_sampler.epoch(0)
  for _ in zip(planned, loader.batches(Position())):
    pass
  counts = collections.Counter()
  for one in planned:
    counts[one.window] += len(one.ids)
  for size, count in zip(loaded, counts.values()):
    assert size <= count // 2 + 1


@pytest.mark.parametrize(("devices", "remedy"), [(6, 24), (16, 16), (12, 24)])
def test_rejects_devices_that_rows_cannot_be_split_over(
  prepared, devices, remedy
):
  message = rf"{devices} devices .*row_multiple={remedy} .* that divides 8"
  with pytest.raises(InputError, match=message):
    opened(Dataset(prepared).split("train"), (), share=HostShard((0,), devices))


@pytest.mark.parametrize("names", [NAMES, ["source_id"]])
def test_names_a_corrupt_record_when_its_window_is_read(
  blocks_of_two, tmp_path, names
):
  """Earlier windows are read, and complete records are checked."""
  folder = toy_folders.prepare(tmp_path / "data")
  path = folder / "toy/1.0.0/toy-train.tfrecord-00001-of-00003"
  data = path.read_bytes()
  assert b"source_text 6" in data
  path.write_bytes(data.replace(b"source_text 6", b"Source_text 6"))
  split = Dataset(folder).split("train")
  windows = windows_of(split, 0.5)
  loader = loader_of(split, names, windows=windows, tokens=12, shapes=2)
  plan = loader.batch_sampler.epoch(0)
  (window,) = (planned.window for planned in plan if 5 in planned.ids)
  batches = loader.batches(Position())
  for _ in range(sum(planned.window < window for planned in plan)):
    next(batches)
  message = r"00001-of-00003: record 2 is corrupt.*checksum"
  with pytest.raises(InputError, match=message):
    next(batches)


def test_prefetch_keeps_the_order_raises_errors_and_ends_its_thread():
  assert list(prefetch(iter(range(20)), 3)) == list(range(20))

  def items():
    yield 1
    raise InputError("bad record")

  reader = prefetch(items(), 2)
  assert next(reader) == 1
  with pytest.raises(InputError, match="bad record"):
    next(reader)
  before = set(threading.enumerate())
  reader = prefetch(itertools.count(), 2)
  assert next(reader) == 0
  assert set(threading.enumerate()) - before
  reader.close()
  assert not set(threading.enumerate()) - before


def test_prefetch_may_be_open_when_python_exits():
  code = """
import itertools, threading
from jaxsyn.data.loader.loader import prefetch
batches = prefetch(itertools.count(), 2)
print(next(batches))
threading.keep = lambda: batches  # longer than most modules
"""
  command = [sys.executable, "-c", code]
  done = subprocess.run(command, capture_output=True, text=True, check=True)
  assert (done.stdout, done.stderr) == ("0\n", "")
