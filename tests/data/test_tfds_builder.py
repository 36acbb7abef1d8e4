"""The folder as TFDS reads it: without TensorFlow, and with it if it is there."""

import importlib.util

import numpy as np
import pytest
import tensorflow_datasets as tfds

from jaxsyn.data import records, schema, tfds_builder, tfrecord

SIDES = ("source", "target")


def example(i: int) -> dict[str, np.ndarray]:
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
    }
  features = schema.features(SIDES)
  return {k: np.asarray(values[k], f.dtype) for k, f in features.items()}


EXAMPLES = [example(i) for i in range(7)]


def write(folder):
  splits = {"train": (7, iter(EXAMPLES)), "validation": (2, EXAMPLES[:2])}
  features = schema.tfds_features(SIDES)
  return tfds_builder.write(folder, "toy", "1.2.3", features, splits, 2)


def same(a, b):
  assert a.keys() == b.keys()
  for name in a:
    np.testing.assert_array_equal(a[name], b[name])


def test_metadata_without_tensorflow(tmp_path):
  facts = write(tmp_path)
  folder = tmp_path / "toy" / "1.2.3"
  builder = tfds.builder_from_directory(folder)
  assert builder.info.full_name == "toy/1.2.3"
  assert builder.info.splits["train"].shard_lengths == [3, 4]
  assert builder.info.splits["validation"].num_examples == 2
  assert tfds.builder("toy", data_dir=tmp_path).info.full_name == "toy/1.2.3"
  for split, facts_of in facts.items():
    named = [path.name for path in builder.info.splits[split].filepaths]
    assert named == [shard["file"] for shard in facts_of["shards"]]
  # What TFDS decodes by features.json is what went in, and what we decode.
  decode = records.decoder(schema.features(SIDES))
  payloads = [
    payload
    for path in builder.info.splits["train"].filepaths
    for _, payload in tfrecord.scan(path)
  ]
  for payload, expected in zip(payloads, EXAMPLES, strict=True):
    same(builder.info.features.deserialize_example_np(payload), expected)
    same(decode(payload), expected)


def test_same_bytes_always(tmp_path):
  for name in "ab":
    write(tmp_path / name)
  for path in (tmp_path / "a").rglob("*"):
    if path.is_file():
      twin = tmp_path / "b" / path.relative_to(tmp_path / "a")
      assert path.read_bytes() == twin.read_bytes(), path


@pytest.mark.parametrize("count", [6, 8])
def test_wrong_count_leaves_nothing(tmp_path, count):
  features = schema.tfds_features(SIDES)
  splits = {"train": (count, EXAMPLES)}
  with pytest.raises(ValueError, match=rf"does not hold {count} examples"):
    tfds_builder.write(tmp_path, "toy", "1.0.0", features, splits)
  assert list(tmp_path.rglob("*.tfrecord*")) == []


def test_old_folder_stays_when_writing_fails(tmp_path):
  write(tmp_path)
  before = sorted(tmp_path.rglob("*"))
  features = schema.tfds_features(SIDES)
  with pytest.raises(ValueError, match=r"does not hold"):
    tfds_builder.write(
      tmp_path, "toy", "1.2.3", features, {"train": (9, EXAMPLES)}
    )
  assert sorted(tmp_path.rglob("*")) == before


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
    found = sorted(tfds.as_numpy(data), key=lambda e: e["line"])
    for one, expected in zip(found, EXAMPLES, strict=True):
      same(one, expected)
      assert one["source_tree_distance"].dtype == np.uint8
