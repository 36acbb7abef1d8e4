"""Tests that TFDS reads a dataset directory, with and without TensorFlow."""

import importlib.util
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds
import toy_folders
from tensorflow_datasets.proto import tf_example_pb2

from jaxsyn.data import schema
from jaxsyn.data.store import (
  manifests,
  records,
  tfds_metadata,
  tfrecord,
)
from jaxsyn.data.store.dataset import Dataset

SIDES = ("source", "target")
MANIFEST = {
  "sides": SIDES,
  "relations": {side: ["det", "root"] for side in SIDES},
}


def example(i: int) -> dict[str, Any]:
  words = i % 3  # a sentence without words too
  values = {"line": i}
  for side in SIDES:
    values |= {
      f"{side}_id": [*range(10, 10 + words), schema.EOS],
      f"{side}_word": [*range(words), -1],
      f"{side}_head": [0] * words,
      f"{side}_relation": [1] * words,
      f"{side}_parent_mid": [0.5] * words + [words],
      f"{side}_tree_distance": [255] * words**2,
      f"{side}_parsed": words > 0,
      f"{side}_word_end": [*range(3, 3 + words)],
    }
  features = schema.features(MANIFEST)
  made = {k: np.asarray(values[k], f.dtype) for k, f in features.items()}
  return made | {name: f"{name} é {i}" for name in schema.TEXTS}


EXAMPLES = [example(i) for i in range(7)]


def write(folder):
  splits = {"train": EXAMPLES, "validation": EXAMPLES[:2]}
  toy_folders.write_dataset(
    folder, splits, shards=2, version="1.2.3", **MANIFEST
  )
  return manifests.read(folder)["splits"]


def same(a, b):
  assert a.keys() == b.keys()
  for name in a:
    if name in schema.TEXTS:
      assert a[name].decode() == b[name]
    else:
      np.testing.assert_array_equal(a[name], b[name])


def payloads(builder, split):
  return [
    payload
    for path in builder.info.splits[split].filepaths
    for payload in tfrecord.scan(path)
  ]


def test_metadata_without_tensorflow(tmp_path):
  facts = write(tmp_path)
  folder = tmp_path / "toy" / "1.2.3"
  builder = tfds.builder_from_directory(folder)
  assert builder.info.full_name == "toy/1.2.3"
  assert builder.info.disable_shuffling  # TFDS keeps the order of the text
  assert builder.info.splits["train"].shard_lengths == [3, 4]
  assert builder.info.splits["validation"].num_examples == 2
  assert tfds.builder("toy", data_dir=tmp_path).info.full_name == "toy/1.2.3"
  for split, facts_of in facts.items():
    named = [path.name for path in builder.info.splits[split].filepaths]
    assert named == [shard["file"] for shard in facts_of["shards"]]
  # What TFDS decodes by features.json is what went in, and what we decode; and
  # what it writes itself is what we write, but for the order of its map.
  features = builder.info.features
  stored = tuple(schema.features(MANIFEST))
  for payload, expected in zip(
    payloads(builder, "train"), EXAMPLES, strict=True
  ):
    same(features.deserialize_example_np(payload), expected)
    arrays = {k: v for k, v in expected.items() if k not in schema.TEXTS}
    ends = np.array([0]), np.array([len(payload)])
    rows = records.decode(payload, *ends, stored=stored, wanted=stored)
    same(rows.examples()[0], arrays)
    theirs = features.serialize_example(expected)
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
  for side in SIDES:
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
def test_as_dataset_with_tensorflow(tmp_path):
  write(tmp_path)
  for data in (
    tfds.load("toy", data_dir=tmp_path, split="train"),
    tfds.builder_from_directory(tmp_path / "toy" / "1.2.3").as_dataset("train"),
  ):
    names = sorted(tfds.as_numpy(data), key=lambda e: e["line"])
    for one, expected in zip(names, EXAMPLES, strict=True):
      same(one, expected)
      assert one["source_tree_distance"].dtype == np.uint8
