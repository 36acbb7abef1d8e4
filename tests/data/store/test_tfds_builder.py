"""The folder as TFDS reads it: without TensorFlow, and with it if it is there."""

import importlib.util

import numpy as np
import pytest
import tensorflow_datasets as tfds
import toy_folders
from tensorflow_datasets.proto import tf_example_pb2

from configs import base
from jaxsyn.data import schema
from jaxsyn.data.store import (
  decoding,
  manifests,
  records,
  tfds_builder,
  tfrecord,
)
from jaxsyn.errors import InputError
from preprocess import build

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
  return tfds_builder.write(
    folder,
    name="toy",
    version="1.2.3",
    features=features,
    splits=splits,
    shards=2,
  )


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
  # What TFDS decodes by features.json is what went in, and what we decode; and
  # what it writes itself is what we write, but for the order of its map.
  features = builder.info.features
  decode = decoding.decoder(schema.features(SIDES))
  payloads = [
    payload
    for path in builder.info.splits["train"].filepaths
    for payload in tfrecord.scan(path)
  ]
  for payload, expected in zip(payloads, EXAMPLES, strict=True):
    same(features.deserialize_example_np(payload), expected)
    same(decode([payload]).examples()[0], expected)
    theirs = tf_example_pb2.Example.FromString(
      features.serialize_example(expected)
    )
    assert theirs.SerializeToString(deterministic=True) == payload


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
    tfds_builder.write(
      tmp_path, name="toy", version="1.0.0", features=features, splits=splits
    )
  assert list(tmp_path.rglob("*.tfrecord*")) == []


def test_old_folder_stays_when_writing_fails(tmp_path):
  write(tmp_path)
  before = sorted(tmp_path.rglob("*"))
  features = schema.tfds_features(SIDES)
  with pytest.raises(ValueError, match=r"does not hold"):
    tfds_builder.write(
      tmp_path,
      name="toy",
      version="1.2.3",
      features=features,
      splits={"train": (9, EXAMPLES)},
    )
  assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(scope="module")
def prepared(shared_data, tmp_path_factory):
  """Three pairs prepared with a real parser."""
  model = shared_data / "udpipe" / "english.udpipe"
  if not model.is_file():
    pytest.skip(f"no parser at {model}")
  folder = tmp_path_factory.mktemp("prepared")
  (folder / "x.en").write_text("Two men play.\n\nI can't see it.\n")
  (folder / "x.de").write_text(
    "Zwei Männer spielen.\nleer\nIch sehe es nicht.\n"
  )
  config = base.get_config()
  config.data.name = "toy"
  config.data.directory = str(folder / "out")
  config.prepare.raw_dir = str(folder)
  config.data.validation, config.data.test = "train", ()
  config.prepare.splits.train = ("x.en", "x.de")
  config.prepare.clean.empty = False
  config.prepare.parse.source_model = str(model)
  config.prepare.vocabulary.size = 50
  return build.run(config)


def made(builder):
  builder.download_and_prepare()
  source = builder.as_data_source("train")
  return sorted(
    (source[i] for i in range(len(source))), key=lambda e: e["line"]
  )


@pytest.mark.parametrize("beam", [False, True])
def test_builder_makes_what_preprocess_made(prepared, tmp_path, beam):
  if beam:
    pytest.importorskip("apache_beam", reason="Apache Beam is an extra")
  builder = tfds_builder.SyntaxPairs(
    prepared=str(prepared),
    data_dir=tmp_path,
    file_format="array_record",
    beam=beam,
  )
  assert builder.info.full_name == "syntax_pairs/source/1.0.0"
  expected = records.Records(prepared, "train")
  for one, other in zip(made(builder), expected, strict=True):
    same(one, other)


def test_builder_of_other_texts(prepared, tmp_path):
  for name, text in (("a.en", "Men play.\n"), ("a.de", "Männer spielen.\n")):
    (tmp_path / name).write_text(text)
  builder = tfds_builder.SyntaxPairs(
    prepared=str(prepared),
    texts={"train": (str(tmp_path / "a.en"), str(tmp_path / "a.de"))},
    data_dir=tmp_path / "out",
    file_format="array_record",
  )
  (one,) = made(builder)
  assert one["source_head"].tolist()[1] == 1  # "play" is the root


@pytest.mark.parametrize(
  ("data", "message"),
  [
    (b"1\n", r"^\S*/a and \S*/b must have as many lines \(.* shorter"),
    (b"1\n2\n3\n", r"^\S*/a and \S*/b must have as many lines \(.* longer"),
    (b"1\n\xff\n", r"^\S*/b:2: byte 1 \(0xff\) is not UTF-8"),
    (None, r"^\S*/b is missing or no file"),
  ],
)
def test_builder_of_faulty_texts(tmp_path, data, message):
  (tmp_path / "a").write_text("1\n2\n")
  if data is not None:
    (tmp_path / "b").write_bytes(data)
  with pytest.raises(InputError, match=message):
    list(tfds_builder._line_pairs(str(tmp_path / "a"), str(tmp_path / "b")))


def test_builder_of_data_without_trees(tmp_path):
  toy_folders.write(tmp_path, {"sides": []})
  with pytest.raises(InputError, match=r"without trees.*parse\.sides"):
    tfds_builder.SyntaxPairs(prepared=str(tmp_path), data_dir=tmp_path)


def test_builder_with_the_wrong_sides(prepared, tmp_path):
  builder = tfds_builder.SyntaxPairs(
    prepared=str(prepared),
    config="both",
    data_dir=tmp_path,
    file_format="array_record",
  )
  with pytest.raises(InputError, match=r"has trees on \['source'\].*'both'"):
    builder.download_and_prepare()


def test_builder_without_a_parser(prepared, tmp_path):
  manifest = manifests.read(prepared)
  manifest["parser"]["source"] |= {"file": "", "sha256": ""}
  manifests.write(tmp_path, manifest)
  (tmp_path / "vocabulary.model").write_bytes(
    (prepared / "vocabulary.model").read_bytes()
  )
  work = tfds_builder._Encode(str(tmp_path))
  with pytest.raises(InputError, match=r"names no parser for the source"):
    work((1, "a", "b"))


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
