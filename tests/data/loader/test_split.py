"""A split and its batches: the same numbers as the examples, padded."""

import itertools
import threading
import time

import numpy as np
import pytest
from toy_folders import values

from jaxsyn.data.loader.batch_plan import (
  BatchPlan,
  Planned,
  Position,
  Shape,
  doubled,
)
from jaxsyn.data.loader.column_cache import open_columns
from jaxsyn.data.loader.columns import Columns, pad, words_of
from jaxsyn.data.loader.split import ALL_ROWS, Share, Split, ahead
from jaxsyn.data.store.rows import together
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


def split_of(columns, features=None, share=ALL_ROWS, **sizes):
  sizes = {"shapes": 1, "row_multiple": 1, **sizes}
  plan = BatchPlan(columns.lengths(), seed=0, length_multiple=1, **sizes)
  features = tuple(features or columns.flat)
  return Split(columns, features, plan, share=share)


def assembled(columns, features, planned, share=ALL_ROWS):
  split = split_of(columns, features, share, tokens=64)
  return split.batch(planned)


@pytest.fixture
def examples():
  return [example(w, t, 4 + 10 * w) for w, t in [(1, 3), (3, 2), (2, 4)]]


@pytest.fixture(params=[1.0, 0.0], ids=["memory", "mapped"])
def columns(examples, tmp_path, request):
  return open_columns(
    lambda _: together(examples),
    NAMES,
    tmp_path / "cache",
    memory_gib=request.param,
  )


def test_a_batch_by_hand(columns):
  shape = Shape(rows=3, source=5, target=4, source_words=6)
  planned = Planned(shape, np.array([2, 0]))
  batch = assembled(columns, NAMES, planned)
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


def test_hosts_share_the_rows(columns):
  planned = Planned(Shape(4, 5, 4, source_words=3), np.array([2, 0, 1]))
  whole = assembled(columns, NAMES, planned)
  halves = [
    assembled(columns, NAMES, planned, Share((host,), 2)) for host in (0, 1)
  ]
  # Devices of a host that are no neighbours on the mesh.
  middle = assembled(columns, NAMES, planned, Share((1, 2), 4))
  ends = assembled(columns, NAMES, planned, Share((0, 3), 4))
  for name, array in whole.items():
    joined = np.concatenate([half[name] for half in halves])
    np.testing.assert_array_equal(joined, array)
    np.testing.assert_array_equal(middle[name], array[[1, 2]])
    np.testing.assert_array_equal(ends[name], array[[0, 3]])


def test_a_translation_batch_is_the_same_as_a_training_batch(columns, examples):
  names = [name for name in NAMES if name.startswith("source")]
  planned = Planned(Shape(4, 6, 4, source_words=5), np.arange(3))
  trained = assembled(columns, names, planned)
  translated = pad(examples, names, subwords=6, words=5, rows=4)
  for name, array in translated.items():
    np.testing.assert_array_equal(array, trained[name])


NARROW = ("source_word", "source_head", "source_tree_distance")


def shared_piece():
  """Four words in one subword, as "という" may be: three have none."""
  distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
  return {
    "source_id": np.array([9, 3], np.int32),
    "target_id": np.array([9, 3], np.int32),
    "source_word": np.array([0, -1], np.int32),
    "source_head": np.array([1, 2, 3, 3], np.int32),
    "source_tree_distance": distance.astype(np.uint8).ravel(),
  }


def test_words_that_outnumber_subwords_are_all_there():
  one = shared_piece()
  split = split_of(Columns.of([one], one), NARROW, tokens=8)
  (shape,) = split.plan.shapes
  assert (shape.source, shape.source_words, shape.target_words) == (2, 4, 1)
  (trained,) = split.in_order()
  assert words_of(one, NARROW) == words_of(one, NARROW[2:]) == 4
  translated = pad([one], NARROW, subwords=2, words=4, rows=shape.rows)
  for batch in (trained, translated):
    assert batch["source_head_BW"][0].tolist() == [1, 2, 3, 3]
    assert batch["source_tree_distance_BWW"][0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["source_id", *NARROW])
def test_nothing_is_cut(name):
  one = shared_piece()
  columns = Columns.of([one], one)
  source, words = (1, 4) if name in ("source_id", "source_word") else (2, 3)
  planned = Planned(Shape(1, source, 2, words), np.array([0]))
  why = (
    rf"{name}: an example of {source + 1 if source == 1 else 4} does not fit"
  )
  with pytest.raises(ValueError, match=why):
    assembled(columns, [name], planned)
  with pytest.raises(ValueError, match=why):
    pad([one], [name], subwords=source, words=words, rows=1)


def test_a_split_without_any_word(tmp_path):
  none = {
    "source_id": np.array([3], np.int32),
    "target_id": np.array([3], np.int32),
    "source_head": np.zeros(0, np.int32),
    "source_tree_distance": np.zeros(0, np.uint8),
  }
  columns = open_columns(
    lambda _: together([none]), tuple(none), tmp_path / "cache", memory_gib=1.0
  )
  (batch,) = split_of(columns, tokens=8, row_multiple=8).in_order()
  assert batch["source_head_BW"].tolist() == [[0]] * 8
  assert batch["source_tree_distance_BWW"].tolist() == [[[255]]] * 8


def test_a_batch_of_nobody_has_the_shapes_of_any_other(examples):
  names = [name for name in NAMES if name.startswith("source")]
  sizes = {"subwords": 6, "words": 5, "rows": 4}
  full, empty = (pad(some, names, **sizes) for some in (examples, []))
  for name, array in full.items():
    assert (array.shape, array.dtype) == (empty[name].shape, empty[name].dtype)


def test_lengths_are_padded_to_few():
  assert [doubled(n, 16) for n in (0, 16, 17, 65)] == [16, 16, 32, 128]


def test_the_cache_is_used_and_made_again(examples, tmp_path):
  cache = tmp_path / "cache"

  def opened(make=lambda _: together(examples)):
    return open_columns(make, NAMES, cache, memory_gib=1.0)

  def never(_):
    raise AssertionError("read again")

  opened()
  assert values(opened(never), "target_id", 1).tolist() == [34, 35]
  (cache / "columns.json").unlink()  # as if a kill had come in between
  opened()
  assert (cache / "columns.json").is_file()
  assert [p.name for p in tmp_path.iterdir()] == ["cache"]


def test_the_stream_goes_on_from_any_position(columns):
  split = split_of(columns, tokens=8, shapes=2)
  whole = list(itertools.islice(split.batches(Position()), 9))
  rest = itertools.islice(split.batches(whole[4].after), 4)
  for a, b in zip(whole[5:], rest):
    assert a.after == b.after
    for name, array in a.batch.items():
      np.testing.assert_array_equal(array, b.batch[name])


def test_items_ahead_are_the_same_items_in_order():
  assert list(ahead(iter(range(20)), 3)) == list(range(20))


def test_an_error_ahead_reaches_the_reader():
  def items():
    yield 1
    raise InputError("bad record")

  reader = ahead(items(), 2)
  assert next(reader) == 1
  with pytest.raises(InputError, match="bad record"):
    next(reader)


def test_closing_ends_the_thread():
  reader = ahead(itertools.count(), 2)
  assert next(reader) == 0
  reader.close()
  for _ in range(50):
    if not any(t.name.startswith("batches") for t in threading.enumerate()):
      return
    time.sleep(0.1)
  raise AssertionError("the thread still runs")
