"""Datasets of TFDS as raw text: built by a real builder, then prepared."""

import pathlib
import shutil
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds
import toy_folders
from raw_corpora import check_rejected, corpus, lines_of, raw_of, records_of

from jaxsyn.data.store import manifests
from jaxsyn.preprocess import build

array_record = pytest.importorskip(
  "array_record.python.array_record_module", reason="not installed"
)
FORMATS = ("array_record", "tfrecord")


class Captions(tfds.core.GeneratorBasedBuilder):
  """Sentence pairs of a test in two forms, and features that are not read."""

  VERSION = tfds.core.Version("1.0.0")
  pairs: ClassVar[dict[str, list[tuple[str, str]]]] = {}

  def _info(self):
    text = tfds.features.Text()
    features = {
      "translation": tfds.features.Translation(languages=["en", "de"]),
      "query": text,
      "answer": {"text": text},
      "score": tfds.features.Scalar(np.float32),
      "tags": tfds.features.Sequence(text),
    }
    features = tfds.features.FeaturesDict(features)
    return tfds.core.DatasetInfo(
      builder=self, features=features, disable_shuffling=True
    )

  def _split_generators(self, dl_manager):
    return {split: self._generate_examples(split) for split in self.pairs}

  def _generate_examples(self, split):
    for i, (source, target) in enumerate(self.pairs[split]):
      texts = {"query": source, "answer": {"text": target}}
      both = {"translation": {"en": source, "de": target}}
      yield i, {**texts, **both, "score": 0.5, "tags": ["a", "b"]}


def folder_of(pairs, data_dir):
  """Builds a dataset; returns the folder of its version."""
  Captions.pairs = pairs
  builder = Captions(data_dir=data_dir, file_format="array_record")
  builder.download_and_prepare()
  return pathlib.Path(builder.data_dir)


def as_tfrecords(folder):
  """Rewrites a dataset as TFRecords, which TFDS writes with TensorFlow only."""
  for path in folder.glob("*.array_record-*"):
    reader = array_record.ArrayRecordReader(str(path))
    records = reader.read(0, reader.num_records())
    name = path.name.replace("array_record", "tfrecord")
    toy_folders.write_shard(folder / name, records)
    path.unlink()
  for path in folder.glob("*.json"):
    path.write_text(path.read_text().replace("array_record", "tfrecord"))
  return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
  """A config of plain files, its records, and the pairs of each split."""
  config = corpus(tmp_path_factory.mktemp("plain"))
  config.prepare.workers = 1
  records = records_of(build.run(config))
  pairs = {}
  for split in ("train", "test"):
    source = lines_of(config, f"{split}.en")
    pairs[split] = [(line, line.upper()) for line in source]
  return config, records, pairs


@pytest.fixture(scope="module")
def folders(plain, tmp_path_factory):
  """The dataset in each file format; its split "both" has all pairs."""
  pairs = plain[2] | {"both": [*plain[2]["train"], *plain[2]["test"]]}
  folder = folder_of(pairs, tmp_path_factory.mktemp("tfds"))
  copy = tmp_path_factory.mktemp("copy") / folder.parent.name / folder.name
  shutil.copytree(folder, copy)
  return {"array_record": folder, "tfrecord": as_tfrecords(copy)}


def config_of(plain, tmp_path, **splits):
  config = plain[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  config.prepare.splits.update(splits)
  return config


@pytest.mark.parametrize("file_format", FORMATS)
def test_translation_features_give_the_records_of_plain_files(
  plain, folders, tmp_path, file_format
):
  entry = f"tfds:{folders[file_format]}"
  config = config_of(plain, tmp_path, train=(entry,), test=(entry, "test"))
  assert records_of(build.run(config)) == plain[1]


@pytest.mark.parametrize("file_format", FORMATS)
def test_named_text_features_slices_and_lines(
  plain, folders, tmp_path, monkeypatch, file_format
):
  """A dataset by name, in the data directory of TFDS."""
  monkeypatch.setenv("TFDS_DATA_DIR", str(folders[file_format].parents[1]))
  config = config_of(
    plain,
    tmp_path,
    train=("tfds:captions", "both[:60]"),
    test=("tfds:captions:1.0.0", "both", "61-"),
  )
  config.prepare.fields = ("query", "answer/text")
  raw = raw_of(config)
  trees = [(raw / f"{name}.conllu").read_text() for name in plain[2]]
  (tmp_path / "all.conllu").write_text("".join(trees))
  config.prepare.parse.source_conllu.test = str(tmp_path / "all.conllu")
  records = records_of(build.run(config))
  test = manifests.read(config.data.directory)["splits"]["test"]
  assert test["files"] == [f"captions-both.{file_format}-00000-of-00001"]
  # The line of each test record counts from the start of the dataset.
  shards = [name for name in records if "train" in name and "toy-" in name]
  assert shards and all(records[name] == plain[1][name] for name in shards)
  config.prepare.splits.test = ("tfds:captions", "both[60:]")
  trees = str(raw / "test.conllu")
  config.prepare.parse.source_conllu.test = trees
  assert records_of(build.run(config)) == plain[1]


def test_line_breaks_in_a_text_become_blanks(plain, tmp_path):
  pairs = {name: [*some] for name, some in plain[2].items()}
  source, target = pairs["train"][0]
  pairs["train"][0] = source.replace(" ", "\n", 1), target
  entry = f"tfds:{folder_of(pairs, tmp_path / 'tfds')}"
  folder = build.run(config_of(plain, tmp_path, train=(entry,)))
  assert records_of(folder) == plain[1]


@pytest.mark.parametrize(
  ("entry", "fields", "message"),
  [
    (("{}", "dev"), (), r"there is no split 'dev' in .* splits are t"),
    (("{}",), ("title", "query"), r"no text feature 'title' for the source; its"
      r" text features are answer/text, query, translation/de, .*\. .*fields"),
    (("{}",), ("translation/en", "tags"), r"no text feature 'tags'"),
    (("tfds:nothing/here",), (), r"there is no dataset nothing/here.*TFDS_DATA"),
    (("tfds:../raw",), (), r"nor as a folder with dataset_info\.json"),
  ],
)  # fmt: skip
def test_reports_a_missing_split_feature_or_dataset(
  plain, folders, tmp_path, entry, fields, message
):
  folder = folders["array_record"]
  entry = tuple(part.format(f"tfds:{folder}") for part in entry)
  config = config_of(plain, tmp_path, train=entry)
  config.prepare.fields = fields
  check_rejected(config, message, nothing_made=True)


def flip(data):
  for place in range(100, 400, 50):
    data[place] ^= 1
  return data


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(
  ("corrupt", "message"),
  [
    (lambda data: data[:200], ""),
    (flip, ""),
    (lambda data: data[:0], "(has 0 examples|missing or corrupt)"),
    (None, "is missing"),
  ],
  ids=["cut", "flipped", "empty", "missing"],
)
def test_reports_corrupt_shards(
  plain, folders, tmp_path, file_format, corrupt, message
):
  folder = shutil.copytree(folders[file_format], tmp_path / "tfds")
  (shard,) = folder.glob(f"*-train.{file_format}-*")
  data = bytearray(shard.read_bytes())
  shard.unlink()
  if corrupt:
    shard.write_bytes(corrupt(data))
  config = config_of(plain, tmp_path, train=(f"tfds:{folder}",))
  check_rejected(config, rf"{shard.name}.*{message}", nothing_made=True)


def test_reading_a_dataset_loads_neither_tensorflow_nor_jax(folders):
  code = (
    "import sys\n"
    "from jaxsyn.preprocess import tfds_input\n"
    f"found = tfds_input.sources('tfds:{folders['tfrecord']}', 'test',"
    " raw_dir='', wanted={'source': 'en', 'target': 'de'})\n"
    "print(len(list(tfds_input.texts(*found['source']))))\n"
    "print(*{'jax', 'tensorflow'} & set(sys.modules))\n"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.split() == ["7"]
