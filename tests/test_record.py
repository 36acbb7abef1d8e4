"""Tests digests of shards and the comparison of records."""

import copy
import json

import pytest

from benchmarks import record


@pytest.fixture(scope="module")
def digests(prepared):
  return record.digests(prepared)


def test_hashes_every_shard_and_feature(digests, prepared):
  names = {name.split("/")[1] for name in digests["features"]}
  assert {"source_id", "source_parent_mid", "target_tree_distance"} <= names
  splits = {name.split("/")[0] for name in digests["features"]}
  assert splits == {"train", "validation", "test"}
  assert len(digests["shards"]) == len(list(prepared.rglob("*.tfrecord-*")))


def test_a_flipped_byte_changes_the_value_of_one_feature(prepared):
  data = next(prepared.rglob("*-test.tfrecord-*")).read_bytes()
  lines = [value for name, value in record.features(data) if name == "line"]
  assert len(lines) == 24 and len(set(lines)) == 24
  first = bytearray(data[: 16 + data[0] + (data[1] << 8)])  # the first record
  before = dict(record.features(bytes(first)))
  first[first.index(before["source_id"]) + len(before["source_id"]) - 1] ^= 1
  after = dict(record.features(bytes(first)))
  changed = {name for name in before if before[name] != after[name]}
  assert changed == {"source_id"}


def test_compares_records_to_the_last_digit(tmp_path, capsys):
  before = {
    "systems": {"pascal": {"log": [{"step": 1, "loss": 0.1 + 0.2}]}},
  }
  after = copy.deepcopy(before)
  paths = tmp_path / "before.json", tmp_path / "after.json"
  for path, content in zip(paths, (before, after), strict=True):
    path.write_text(json.dumps(content))
  assert record.compare(*paths) == 0
  assert "no differences" in capsys.readouterr().out
  after["systems"]["pascal"]["log"][0]["loss"] = 0.3
  after["systems"]["gru_sdr"] = {}
  paths[1].write_text(json.dumps(after))
  assert record.compare(*paths) == 1
  printed = capsys.readouterr().out
  assert "systems / pascal / log[0] / loss: 0.30000000000000004" in printed
  assert "systems / gru_sdr: only after" in printed
  for old, new in (([1, 2], [1]), ([1], [1, 2])):
    message = f"log: {len(old)} entries before, {len(new)} after"
    assert list(record.differences({"log": old}, {"log": new})) == [message]
