"""Datasets of TFDS as raw text: built by a real builder, prepared, trained on."""

import json
import pathlib
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds
import toy_folders
from raw_corpora import corpus, lines_of, nothing_made, records_of

from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build

array_record = pytest.importorskip(
  "array_record.python.array_record_module", reason="not installed"
)


class Captions(tfds.core.GeneratorBasedBuilder):
  """Sentence pairs of a test, with a feature that no preparation reads."""

  VERSION = tfds.core.Version("1.0.0")
  pairs: ClassVar[dict[str, list[tuple[str, str]]]] = {}
  texts: ClassVar[dict[str, object]] = {}
  example: staticmethod

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(
        {
          **self.texts,
          "score": tfds.features.Scalar(np.float32),
          "tags": tfds.features.Sequence(tfds.features.Text()),
        }
      ),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    return {split: self._generate_examples(split) for split in self.pairs}

  def _generate_examples(self, split):
    for i, pair in enumerate(self.pairs[split]):
      yield i, {**self.example(*pair), "score": 0.5, "tags": ["a", "b"]}


class Translations(Captions):
  """Pairs as a `Translation` feature."""

  texts: ClassVar = {
    "translation": tfds.features.Translation(languages=["en", "de"])
  }
  example = staticmethod(lambda s, t: {"translation": {"en": s, "de": t}})


class TextPairs(Captions):
  """Pairs as two text features."""

  texts: ClassVar = {
    "query": tfds.features.Text(),
    "answer": {"text": tfds.features.Text()},
  }
  example = staticmethod(lambda s, t: {"query": s, "answer": {"text": t}})


def folder_of(builder_class, pairs, data_dir):
  """Builds a dataset; returns the folder of its version."""
  builder_class.pairs = pairs
  builder = builder_class(data_dir=data_dir, file_format="array_record")
  builder.download_and_prepare()
  return pathlib.Path(builder.data_dir)


def as_tfrecords(folder):
  """Rewrites a dataset as TFRecords, which TFDS writes with TensorFlow only."""
  for path in folder.glob("*.array_record-*"):
    reader = array_record.ArrayRecordReader(str(path))
    toy_folders.write_shard(
      folder / path.name.replace("array_record", "tfrecord"),
      reader.read(0, reader.num_records()),
    )
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


def prepared_records(plain, tmp_path, **splits):
  config = plain[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  config.prepare.splits.update(splits)
  return records_of(build.run(config))


@pytest.mark.parametrize("file_format", ["array_record", "tfrecord"])
def test_translation_features_give_the_records_of_plain_files(
  plain, tmp_path, file_format
):
  folder = folder_of(Translations, plain[2], tmp_path / "tfds")
  if file_format == "tfrecord":
    as_tfrecords(folder)
  entry = f"tfds:{folder}"
  records = prepared_records(
    plain, tmp_path, train=(entry,), test=(entry, "test")
  )
  assert records == plain[1]


def test_named_text_features_slices_and_lines(plain, tmp_path, monkeypatch):
  """A dataset by name, in the data directory of TFDS."""
  both = {"pairs": [*plain[2]["train"], *plain[2]["test"]]}
  folder_of(TextPairs, both, tmp_path / "tfds")
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
  config = plain[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  config.prepare.fields = ("query", "answer/text")
  raw = pathlib.Path(config.prepare.raw_dir)
  trees = [(raw / f"{name}.conllu").read_text() for name in plain[2]]
  (tmp_path / "all.conllu").write_text("".join(trees))
  config.prepare.parse.source_conllu.test = str(tmp_path / "all.conllu")
  config.prepare.splits.train = ("tfds:text_pairs", "pairs[:60]")
  config.prepare.splits.test = ("tfds:text_pairs:1.0.0", "pairs", "61-")
  records = records_of(build.run(config))
  test = manifests.read(config.data.directory)["splits"]["test"]
  assert test["files"] == ["text_pairs-pairs.array_record-00000-of-00001"]
  # The line of each test record counts from the start of the dataset.
  shards = [name for name in records if "train" in name and "toy-" in name]
  assert shards and all(records[name] == plain[1][name] for name in shards)


def test_json_lines_give_the_records_of_plain_files(plain, tmp_path):
  config = plain[0].copy_and_resolve_references()
  for split, pairs in plain[2].items():
    path = tmp_path / f"{split}.jsonl"
    with path.open("w") as file:
      for source, target in pairs:
        value = {"id": 1, "translation": {"en": source, "de": target}}
        file.write(json.dumps(value) + "\n")
    config.prepare.splits[split] = (f"{split}.jsonl",)
  config.prepare.raw_dir = str(tmp_path)
  config.data.directory = str(tmp_path / "out")
  assert records_of(build.run(config)) == plain[1]


def test_line_breaks_in_a_text_become_blanks(plain, tmp_path, capsys):
  pairs = {name: [*some] for name, some in plain[2].items()}
  source, target = pairs["train"][0]
  pairs["train"][0] = source.replace(" ", "\n", 1), target
  entry = f"tfds:{folder_of(Translations, pairs, tmp_path / 'tfds')}"
  records = prepared_records(plain, tmp_path, train=(entry,))
  assert records == plain[1]
  assert "1 texts have line breaks" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("entry", "fields", "message"),
  [
    (("{}", "dev"), (), r"there is no split 'dev' in .* splits are t"),
    (("{}",), ("query", "title"), r"no text feature 'query' for the source; its"
      r" text features are translation/de, translation/en\. .*fields"),
    (("{}",), ("translation/en", "tags"), r"no text feature 'tags'"),
    (("tfds:nothing/here",), (), r"there is no dataset nothing/here.*TFDS_DATA"),
    (("tfds:../raw",), (), r"nor as a folder with dataset_info\.json"),
  ],
)  # fmt: skip
def test_reports_what_a_dataset_lacks(plain, tmp_path, entry, fields, message):
  config = plain[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  folder = folder_of(Translations, plain[2], tmp_path / "tfds")
  entry = tuple(part.format(f"tfds:{folder}") for part in entry)
  config.prepare.splits.train, config.prepare.fields = entry, fields
  with pytest.raises(InputError, match=message):
    build.run(config)
  assert nothing_made(config)


@pytest.mark.parametrize("file_format", ["array_record", "tfrecord"])
@pytest.mark.parametrize("fault", ["cut", "flipped", "missing"])
def test_reports_corrupt_shards(plain, tmp_path, file_format, fault):
  config = plain[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  folder = folder_of(Translations, plain[2], tmp_path / "tfds")
  if file_format == "tfrecord":
    as_tfrecords(folder)
  (shard,) = folder.glob(f"*-train.{file_format}-*")
  data = bytearray(shard.read_bytes())
  if fault == "flipped":
    for place in range(100, 400, 50):
      data[place] ^= 1
  shard.write_bytes(data[:200] if fault == "cut" else data)
  if fault == "missing":
    shard.unlink()
  config.prepare.splits.train = (f"tfds:{folder}",)
  with pytest.raises(InputError, match=rf"{shard.name}"):
    build.run(config)
  assert nothing_made(config)


def test_reading_a_dataset_loads_neither_tensorflow_nor_jax(plain, tmp_path):
  folder = folder_of(Translations, plain[2], tmp_path / "tfds")
  code = (
    "import sys\n"
    "from jaxsyn.preprocess import tfds_input\n"
    "from jaxsyn.preprocess.readers import READERS\n"
    f"found = tfds_input.sources('tfds:{folder}', 'test', raw_dir='',"
    " wanted={'source': 'en', 'target': 'de'})\n"
    "(source,) = found['source']\n"
    "print(len(list(READERS['tfds'].texts(source))))\n"
    "print(*{'jax', 'tensorflow'} & set(sys.modules))\n"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  count = len(plain[2]["test"])
  assert done.stdout.split() == [str(count)]
