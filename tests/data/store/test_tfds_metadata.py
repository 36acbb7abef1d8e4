"""Tests that TFDS reads a dataset directory, with and without TensorFlow."""

import importlib.util

import numpy as np
import pytest
import tensorflow_datasets as tfds
import toy_folders
from tensorflow_datasets.proto import tf_example_pb2
from toy_folders import EMPTY

from jaxsyn.data import schema
from jaxsyn.data.store import manifests, records, tfds_metadata, tfrecord
from jaxsyn.data.store.dataset import Dataset

STORED = tuple(schema.features({"sides": ["source"]}))
EXAMPLES = [
  example | {name: f"{name} é {i}" for name in schema.TEXTS}
  for i, example in enumerate([EMPTY, *map(toy_folders.example, range(6))])
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("tfds")
  splits = {"train": EXAMPLES, "validation": EXAMPLES[:2]}
  return toy_folders.write_dataset(folder, splits, shards=2, version="1.2.3")


def same(found, expected):
  assert found.keys() == expected.keys()
  for name in found:
    if name in schema.TEXTS:
      assert found[name].decode() == expected[name]
    else:
      np.testing.assert_array_equal(found[name], expected[name])


def payloads(builder, split):
  paths = builder.info.splits[split].filepaths
  return [payload for path in paths for payload in tfrecord.scan(path)]


def test_metadata_without_tensorflow(folder):
  builder = tfds.builder_from_directory(folder / "toy" / "1.2.3")
  info = builder.info
  assert info.full_name == "toy/1.2.3"
  assert info.disable_shuffling  # TFDS keeps the order of the text
  assert info.splits["train"].shard_lengths == [3, 4]
  assert info.splits["validation"].num_examples == 2
  assert tfds.builder("toy", data_dir=folder).info.full_name == "toy/1.2.3"
  for split, entry in manifests.read(folder)["splits"].items():
    found = [path.name for path in info.splits[split].filepaths]
    assert found == [shard["file"] for shard in entry["shards"]]
  # TFDS decodes the values that were written, and so does `records`. TFDS
  # writes the same record, but for the order of its map.
  stored = payloads(builder, "train")
  for payload, expected in zip(stored, EXAMPLES, strict=True):
    same(info.features.deserialize_example_np(payload), expected)
    ends = np.array([0]), np.array([len(payload)])
    rows = records.decode(payload, *ends, stored=STORED, wanted=STORED)
    same(rows.examples()[0], {name: expected[name] for name in STORED})
    theirs = info.features.serialize_example(expected)
    assert len(theirs) == len(payload)
    parsed = tf_example_pb2.Example.FromString
    assert parsed(theirs) == parsed(payload)


def test_tfds_reads_a_prepared_directory(prepared):
  """With texts, names of relations and the description of the dataset."""
  manifest = manifests.read(prepared)
  folder = manifests.tfds_folder(prepared, manifest)
  builder = tfds.builder_from_directory(folder)
  info = builder.info
  assert info.supervised_keys == ("source_text", "target_text")
  assert info.homepage == "none"
  assert "quickstart: en to qaa, vocabulary of 300 subwords" in info.description
  assert "source side (quickstart.udpipe)" in info.description
  assert "Sentence pairs: train 600" in info.description
  names = info.features["source_relation"].feature.names
  assert names == ["<none>", *manifest["relations"]["source"]]
  dataset = Dataset(prepared)
  (first, *_) = payloads(builder, "test")
  one = info.features.deserialize_example_np(first)
  for side in schema.SIDES:
    line, *_ = dataset.text("test", side)
    assert one[f"{side}_text"].decode() == line
  parse = next(dataset.sentences("test", "source"))
  relations = [names[label] for label in one["source_relation"]]
  assert relations == list(parse.relation_W)


def test_makes_valid_label_names():
  names = tfds_metadata.class_names(["<none>", "", "a\nb", "a b", "obj"])
  assert names == ["<none>", "<none>_", "_", "a b", "a b_", "obj"]


@pytest.mark.skipif(
  importlib.util.find_spec("tensorflow") is None,
  reason="TensorFlow is not installed, and nothing of jaxsyn needs it",
)
def test_as_dataset_with_tensorflow(folder):
  for data in (
    tfds.load("toy", data_dir=folder, split="train"),
    tfds.builder_from_directory(folder / "toy" / "1.2.3").as_dataset("train"),
  ):
    found = sorted(tfds.as_numpy(data), key=lambda one: one["line"])
    for one, expected in zip(found, EXAMPLES, strict=True):
      same(one, expected)
      assert one["source_tree_distance"].dtype == np.uint8
