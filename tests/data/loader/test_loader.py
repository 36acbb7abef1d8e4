"""Tests collation, windows and host shards of a data loader."""

import collections
import dataclasses
import itertools
import threading
import time

import numpy as np
import pytest
import toy_folders
from toy_folders import opened, stored

from jaxsyn.data.loader.batch_sampler import (
  BatchSampler,
  PlannedBatch,
  Position,
)
from jaxsyn.data.loader.batch_shapes import Shape, doubled
from jaxsyn.data.loader.collate import pad, words_of
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


def example(words: int, target: int, start: int):
  size = words + 1
  distance = np.abs(np.subtract.outer(np.arange(words), np.arange(words)))
  return {
    "source_id": np.arange(start, start + size, dtype=np.int32),
    "target_id": np.arange(start, start + target, dtype=np.int32),
    "source_word": np.r_[np.arange(words), -1].astype(np.int32),
    "source_parent_mid": np.arange(size, dtype=np.float32) + 0.5,
    "source_tree_distance": distance.astype(np.uint8).ravel(),
    "source_parsed": np.uint8(words % 2),
  }


def split_of(files, features=NAMES, share=SINGLE_HOST, windows=None, **sizes):
  sizes = {"shapes": 1, "row_multiple": 1, **sizes}
  plan = BatchSampler(
    files.lengths, windows, seed=0, length_multiple=1, **sizes
  )
  in_memory = windows is None
  return DataLoader(
    files, tuple(features), plan, in_memory=in_memory, shard=share
  )


def assembled(files, features, planned, share=SINGLE_HOST):
  split = split_of(files, features, share, tokens=64)
  return split.batch(planned)


@pytest.fixture
def examples():
  return [example(w, t, 4 + 10 * w) for w, t in [(1, 3), (3, 2), (2, 4)]]


@pytest.fixture
def files(examples):
  return stored(examples)


def test_collates_a_small_batch(files):
  shape = Shape(rows=3, source=5, target=4, source_words=6)
  planned = PlannedBatch(shape, np.array([2, 0]))
  batch = assembled(files, NAMES, planned)
  assert batch["source_id_BS"].tolist() == [
    [24, 25, 26, 0, 0],
    [14, 15, 0, 0, 0],
    [0, 0, 0, 0, 0],
  ]
  assert batch["target_id_BT"].tolist() == [
    [24, 25, 26, 27],
    [14, 15, 16, 0],
    [0, 0, 0, 0],
  ]
  assert batch["source_word_BS"][1].tolist() == [0, -1, -1, -1, -1]
  assert batch["source_parent_mid_BS"][0].tolist() == [0.5, 1.5, 2.5, 0, 0]
  assert batch["source_parsed_B"].tolist() == [0, 1, 0]
  assert batch["weight_B"].tolist() == [1, 1, 0]
  distance = batch["source_tree_distance_BWW"]
  assert distance.shape == (3, 6, 6)
  assert distance[0, :3, :3].tolist() == [[0, 1, 255], [1, 0, 255], [255] * 3]
  assert (distance[2] == 255).all()


def test_hosts_share_the_rows(files):
  planned = PlannedBatch(Shape(4, 5, 4, source_words=3), np.array([2, 0, 1]))
  complete = assembled(files, NAMES, planned)
  halves = [
    assembled(files, NAMES, planned, HostShard((host,), 2)) for host in (0, 1)
  ]
  # Devices of a host that are no neighbours on the mesh.
  middle = assembled(files, NAMES, planned, HostShard((1, 2), 4))
  ends = assembled(files, NAMES, planned, HostShard((0, 3), 4))
  for name, array in complete.items():
    joined = np.concatenate([half[name] for half in halves])
    np.testing.assert_array_equal(joined, array)
    np.testing.assert_array_equal(middle[name], array[[1, 2]])
    np.testing.assert_array_equal(ends[name], array[[0, 3]])


def test_translation_and_training_pad_equally(files, examples):
  names = [name for name in NAMES if name.startswith("source")]
  planned = PlannedBatch(Shape(4, 6, 4, source_words=5), np.arange(3))
  trained = assembled(files, names, planned)
  translated = pad(examples, names, subwords=6, words=5, rows=4)
  for name, array in translated.items():
    np.testing.assert_array_equal(array, trained[name])


NARROW = ("source_word", "source_head", "source_tree_distance")


def shared_piece():
  """An example of four words in one subword, as in Japanese."""
  distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
  return {
    "source_id": np.array([9, 3], np.int32),
    "target_id": np.array([9, 3], np.int32),
    "source_word": np.array([0, -1], np.int32),
    "source_head": np.array([1, 2, 3, 3], np.int32),
    "source_tree_distance": distance.astype(np.uint8).ravel(),
  }


def test_keeps_words_that_outnumber_subwords(tmp_path):
  one = shared_piece()
  split = split_of(stored([one]), NARROW, tokens=8)
  (shape,) = split.batch_sampler.shapes
  assert (shape.source, shape.source_words, shape.target_words) == (2, 4, 1)
  (trained,) = split.in_order()
  assert words_of(one, NARROW) == words_of(one, NARROW[2:]) == 4
  translated = pad([one], NARROW, subwords=2, words=4, rows=shape.rows)
  for batch in (trained, translated):
    assert batch["source_head_BW"][0].tolist() == [1, 2, 3, 3]
    assert batch["source_tree_distance_BWW"][0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["source_id", *NARROW])
def test_rejects_examples_larger_than_the_shape(name, tmp_path):
  one = shared_piece()
  files = stored([one])
  source, words = (1, 4) if name in ("source_id", "source_word") else (2, 3)
  planned = PlannedBatch(Shape(1, source, 2, words), np.array([0]))
  why = (
    rf"{name}: an example of {source + 1 if source == 1 else 4} does not fit"
  )
  with pytest.raises(ValueError, match=why):
    assembled(files, [name], planned)
  with pytest.raises(ValueError, match=why):
    pad([one], [name], subwords=source, words=words, rows=1)


def test_collates_examples_without_words(tmp_path):
  none = {
    "source_id": np.array([3], np.int32),
    "target_id": np.array([3], np.int32),
    "source_head": np.zeros(0, np.int32),
    "source_tree_distance": np.zeros(0, np.uint8),
  }
  files = stored([none])
  (batch,) = split_of(files, none, tokens=8, row_multiple=8).in_order()
  assert batch["source_head_BW"].tolist() == [[0]] * 8
  assert batch["source_tree_distance_BWW"].tolist() == [[[255]]] * 8


def test_empty_batches_have_the_shapes_of_other_batches(examples):
  names = [name for name in NAMES if name.startswith("source")]
  sizes = {"subwords": 6, "words": 5, "rows": 4}
  full, empty = (pad(some, names, **sizes) for some in (examples, []))
  for name, array in full.items():
    assert (array.shape, array.dtype) == (empty[name].shape, empty[name].dtype)


def test_doubles_lengths():
  assert [doubled(n, 16) for n in (0, 16, 17, 65)] == [16, 16, 32, 128]


@pytest.fixture
def blocks_of_two(monkeypatch):
  """Thirteen examples in seven blocks, and their list."""
  monkeypatch.setattr(dataset, "BLOCK", 2)
  many = [example(1 + i % 4, 2 + i % 3, 10 + i) for i in range(13)]
  return stored(many), many


def windows_of(files, share_of_all, seed=0):
  complete = Windows.of(files, NAMES, memory_gib=1.0, seed=seed)
  assert complete.in_memory
  maximum = complete.bytes_U.sum() * share_of_all
  return dataclasses.replace(complete, max_bytes=maximum)


@pytest.mark.parametrize("share_of_all", [0.3, 0.5, 0.99])
def test_windows_hold_every_example_once_an_epoch(blocks_of_two, share_of_all):
  files, many = blocks_of_two
  windows = windows_of(files, share_of_all)
  split = split_of(files, windows=windows, tokens=12, shapes=2)
  for epoch in (0, 1):
    planned = split.batch_sampler.epoch(epoch)
    assert sorted(np.concatenate([p.ids for p in planned])) == list(range(13))
    of = {i: p.window for p in planned for i in p.ids}
    assert len(set(of.values())) > 1
    bytes_of = collections.Counter()
    for k, size in enumerate(windows.bytes_U):
      bytes_of[of[2 * k]] += size
    maximum = windows.max_bytes / 2 + windows.bytes_U.max()
    assert max(bytes_of.values()) <= maximum
    # A block is in one window; those of epochs differ.
    assert all(of[i] == of[i + 1] for i in range(0, 12, 2))
  epochs = [
    [p.ids.tolist() for p in split.batch_sampler.epoch(e)] for e in (0, 1)
  ]
  assert epochs[0] != epochs[1]
  count = len(epochs[0])
  batches = [
    d.batch for d in itertools.islice(split.batches(Position()), count)
  ]
  everything = split_of(files, tokens=12, shapes=2)
  for batch, planned in zip(batches, split.batch_sampler.epoch(0), strict=True):
    for name, array in everything.batch(planned).items():
      np.testing.assert_array_equal(batch[name], array)
  rows = np.concatenate([b["source_id_BS"][:, 0] for b in split.in_order()])
  assert sorted(rows[rows > 0]) == sorted(one["source_id"][0] for one in many)


def test_a_host_loads_only_its_rows_of_a_window(blocks_of_two, monkeypatch):
  """`test_same_batches` compares the batches."""
  files, _ = blocks_of_two
  loaded = []

  load = dataset.Examples.load

  def watched(*args):
    loaded.append(load(*args))
    return loaded[-1]

  monkeypatch.setattr(dataset.Examples, "load", watched)
  windows = windows_of(files, 0.5)
  for host in (0, 1):
    loaded.clear()
    share = HostShard((host,), 2)
    split = split_of(
      files, share=share, windows=windows, tokens=24, row_multiple=2
    )
    planned = split.batch_sampler.epoch(0)
    stream = split.batches(Position())
    for _ in planned:
      next(stream)
    stream.close()
    examples = collections.Counter()
    for one in planned:
      examples[one.window] += len(one.ids)
    for rows, count in zip(loaded, examples.values()):
      assert len(rows) <= count // 2 + 1


@pytest.mark.parametrize(
  ("row_multiple", "devices"), [(8, (1, 2, 4, 8)), (64, (16, 32, 64))]
)
def test_plans_the_same_batches_for_any_number_of_devices(
  prepared, row_multiple, devices
):
  plans = []
  for count in devices:
    split = opened(
      Dataset(prepared).split("train"),
      ["source_head"],
      share=HostShard((count - 1,), count),
      row_multiple=row_multiple,
      tokens=row_multiple * 75,
    )
    epochs = [
      planned
      for index in (0, 1)
      for planned in split.batch_sampler.epoch(index)
    ]
    plans.append([(one.shape, one.ids.tolist()) for one in epochs])
    train_batch = next(split.batches(Position()))
    assert len(train_batch.batch["weight_B"]) * count == epochs[0].shape.rows
  assert len(plans[0]) > 6
  assert all(plan == plans[0] for plan in plans)


@pytest.mark.parametrize(
  ("devices", "remedy"),
  [(3, 24), (6, 24), (16, 16), (12, 24)],
)
def test_rejects_devices_that_rows_cannot_be_split_over(
  prepared, devices, remedy
):
  with pytest.raises(InputError) as error:
    opened(Dataset(prepared).split("train"), (), share=HostShard((0,), devices))
  message = str(error.value)
  assert (
    f"config.batch.row_multiple=8 is not a multiple of {devices} devices"
    in message
  )
  assert f"--config.batch.row_multiple={remedy}" in message
  assert "1, 2, 4 or 8 devices" in message


def test_names_a_corrupt_record_when_its_window_is_read(monkeypatch, tmp_path):
  """Earlier windows are read, and complete records are checked."""
  monkeypatch.setattr(dataset, "BLOCK", 2)
  folder = toy_folders.prepare(tmp_path / "data")
  path = folder / "toy/1.0.0/toy-train.tfrecord-00001-of-00003"
  data = path.read_bytes()
  place = data.index(b"source_text 6")
  path.write_bytes(data[:place] + b"S" + data[place + 1 :])
  files = Dataset(folder).split("train")
  windows = windows_of(files, 0.5)
  for names in (NAMES, ["source_id"]):
    split = split_of(files, names, windows=windows, tokens=12, shapes=2)
    of = {i: p.window for p in split.batch_sampler.epoch(0) for i in p.ids}
    before = sum(p.window < of[5] for p in split.batch_sampler.epoch(0))
    stream, read = split.batches(Position()), 0
    with pytest.raises(
      InputError, match=r"00001-of-00003: record 2 is corrupt.*checksum"
    ):
      for _ in stream:
        read += 1
    assert read == before


def test_prefetch_keeps_the_order_and_raises_errors_of_the_thread():
  assert list(prefetch(iter(range(20)), 3)) == list(range(20))

  def items():
    yield 1
    raise InputError("bad record")

  reader = prefetch(items(), 2)
  assert next(reader) == 1
  with pytest.raises(InputError, match="bad record"):
    next(reader)


def test_closing_prefetch_ends_the_thread():
  reader = prefetch(itertools.count(), 2)
  assert next(reader) == 0
  reader.close()
  for _ in range(50):
    if not any(t.name.startswith("batches") for t in threading.enumerate()):
      return
    time.sleep(0.1)
  raise AssertionError("the thread still runs")
