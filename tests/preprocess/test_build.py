"""Complete preparations: repeated, repaired, killed, and with bad input."""

import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from raw_corpora import (
  chain,
  command,
  corpus,
  lines_of,
  records_of,
)

from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build

ROOT = pathlib.Path(__file__).resolve().parents[2]


def change(path, old, new):
  data = path.read_bytes()
  assert old in data
  path.write_bytes(data.replace(old, new, 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """The tiny corpus, prepared once: its config and its folder."""
  config = corpus(tmp_path_factory.mktemp("made"))
  return config, build.run(config)


def copy_of(made, tmp_path):
  """The same corpus and a copy of its dataset, in another folder."""
  config = corpus(tmp_path)
  shutil.copytree(made[1], config.data.directory)
  return config, pathlib.Path(config.data.directory)


def test_uses_the_vocabulary_of_another_folder(made, tmp_path):
  config = corpus(tmp_path, train=40)
  config.prepare.vocabulary.update(like=str(made[1]), size=200)
  folder = build.run(config)
  manifest, other = manifests.read(folder), manifests.read(made[1])
  assert manifest["vocabulary"] == other["vocabulary"]
  assert [len(Dataset(folder).split(name)) for name in ("train", "test")] == [
    40,
    7,
  ]
  config.prepare.vocabulary.joint = False
  with pytest.raises(
    InputError, match=r"joint is False, but .* has one for both"
  ):
    build.run(config)
  config.prepare.vocabulary.like = str(tmp_path)
  with pytest.raises(InputError, match="is not a prepared folder"):
    build.run(config)


def test_writes_all_files(made):
  config, folder = made
  manifest = manifests.read(folder)
  assert manifest["splits"]["train"]["examples"] == 60
  assert manifest["splits"]["train"]["lines"] == 60
  assert manifest["splits"]["train"]["unparsed"] == 0
  assert manifest["relations"] == {"source": ["dep", "root"]}
  assert manifest["parser"]["source"]["file"] == ""
  assert manifest["options"]["vocabulary"]["size"] == 60
  assert list(manifest["splits"]) == ["train", "test"]
  vocabulary = Vocabulary(folder / "vocabulary.model")
  for side in schema.SIDES:
    manifests.check_vocabulary(manifest, vocabulary, side)
  for split in ("train", "test"):
    records = Dataset(folder).split(split)
    texts = lines_of(config, f"{split}.en")
    assert len(records) == len(texts)
    packed = manifests.sentence_files(folder, manifest, "text", split, "source")
    text = b"".join(gzip.decompress(path.read_bytes()) for path in packed)
    assert text.decode().split("\n")[:-1] == texts
    files = manifests.sentence_files(
      folder, manifest, "conllu", split, "source"
    )
    assert len(files) == len(packed) == (2 if split == "train" else 1)
    trees = (block for path in files for block in conllu.read(path))
    for i, (one, tree) in enumerate(zip(records, trees, strict=True)):
      words = len(texts[i].split())
      assert one["line"] == i + 1
      assert f"# sent_id = {split}-{i + 1}" in tree.comments
      assert one["source_head"].tolist() == [0, *range(words - 1)]
      assert one["source_relation"].tolist() == [2] + [1] * (words - 1)
      assert one["source_tree_distance"].shape == (words**2,)
      assert one["source_id"][-1] == schema.EOS
      assert vocabulary.decode(one["source_id"]) == texts[i]
      assert vocabulary.decode(one["target_id"]) == texts[i].upper()
  assert (folder / "report.txt").read_text().startswith("toy: en to de")
  assert not list(folder.rglob("*.partial"))
  names = [path.name for path in (folder / "work").iterdir()]
  assert not any(name.startswith("stages-") for name in names)


def test_does_nothing_if_all_is_prepared(made, tmp_path, capsys):
  config, folder = copy_of(made, tmp_path)
  before = (folder / "manifest.json").stat().st_mtime_ns
  build.run(config)
  assert "is prepared already" in capsys.readouterr().out
  assert (folder / "manifest.json").stat().st_mtime_ns == before


def test_repairs_a_corrupt_manifest_and_reports_it_once(made, tmp_path, capsys):
  config, folder = copy_of(made, tmp_path)
  change(folder / "manifest.json", b"bpe", b"bqe")
  build.run(config)
  output = capsys.readouterr().out
  path = folder / "manifest.json"
  assert f"corrupt: {path} is corrupt, or of another version" in output
  assert f"rebuilding {folder}\n" in output


def test_prepares_again_for_other_options(made, tmp_path):
  config, _ = copy_of(made, tmp_path)
  with config.unlocked():
    config.prepare.shard_mib = 0.01
  folder = build.run(config)
  assert len(manifests.read(folder)["splits"]["train"]["shards"]) == 3


def test_does_not_replace_another_dataset(made, tmp_path):
  config, folder = copy_of(made, tmp_path)
  before = (folder / manifests.FILE).read_bytes()
  with config.unlocked():
    config.data.name = "another"
  with pytest.raises(
    InputError, match=r"has the dataset 'toy', which would be replaced by"
  ):
    build.run(config)
  assert (folder / manifests.FILE).read_bytes() == before


def test_cleans_the_training_split_only(tmp_path):
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  for split in ("train", "test"):
    source = lines_of(config, f"{split}.en")
    source[2], source[4] = "", " ".join(["dog"] * 200)
    source[5] = "a\x01b"
    (raw / f"{split}.en").write_text("".join(f"{x}\n" for x in source))
    text = "".join(map(chain, source)).replace("a\x01b", "ab")
    (raw / f"{split}.conllu").write_text(text)
  # U+0001 in the text cannot be seen, so "ab" of the CoNLL-U covers it.
  folder = build.run(config)
  manifest = manifests.read(folder)
  assert manifest["splits"]["train"]["dropped"] == {
    "empty": 1,
    "control": 1,
    "max_words": 1,
    "max_characters": 0,
    "max_subwords": 0,
  }
  assert [int(one["line"]) for one in Dataset(folder).split("train")][:5] == [
    1,
    2,
    4,
    7,
    8,
  ]
  test = list(Dataset(folder).split("test"))
  assert len(test) == 7
  assert test[2]["source_id"].tolist() == [schema.EOS]
  assert test[2]["source_head"].tolist() == []
  assert len(test[4]["source_head"]) == 200
  report = (folder / "report.txt").read_text()
  assert "dropped    empty 1, control 1, max_words 1" in report


def test_drops_pairs_with_too_many_subwords(tmp_path):
  config = corpus(tmp_path)
  config.prepare.max_subwords = 9
  folder = build.run(config)
  records = Dataset(folder).split("train")
  dropped = manifests.read(folder)["splits"]["train"]["dropped"]["max_subwords"]
  assert 0 < dropped == 60 - len(records)
  assert max(len(one["source_id"]) for one in records) <= 9
  config.prepare.max_subwords = 2
  with pytest.raises(InputError, match=r"max_subwords=2 drops all"):
    build.run(config)


def test_two_vocabularies_and_no_trees(tmp_path):
  config = corpus(tmp_path)
  config.prepare.vocabulary.joint = False
  config.prepare.parse.sides = ()
  folder = build.run(config)
  manifest = manifests.read(folder)
  assert manifest["vocabulary"]["target"]["file"] == "target.model"
  assert (folder / "source.model").is_file()
  assert Dataset(folder).split("train").features == (
    "line",
    "source_id",
    "target_id",
  )


def test_keeps_the_old_dataset_after_an_error(made, tmp_path):
  config, folder = copy_of(made, tmp_path)
  expected = records_of(folder)
  path = pathlib.Path(config.prepare.raw_dir) / "test.conllu"
  change(path, b"\t_\t", b"\t")
  with pytest.raises(InputError, match=r"test\.conllu:1: 9 columns"):
    build.run(config)
  assert records_of(folder) == expected
  assert manifests.read(folder)["splits"]["test"]["examples"] == 7


def test_reports_a_folder_that_cannot_be_written(tmp_path):
  config = corpus(tmp_path)
  (tmp_path / "out").write_text("a file")
  with pytest.raises(
    InputError, match=r"config.data.directory \S* is a file; name a folder"
  ):
    build.run(config)


def test_continues_if_killed_while_parsing(shared_data, tmp_path):
  model = shared_data / "udpipe" / "english.udpipe"
  if not model.is_file():
    pytest.skip(f"no parser at {model}")
  for side in ("en", "de"):
    with gzip.open(shared_data / "multi30k" / f"train.{side}.gz", "rt") as file:
      (tmp_path / f"train.{side}").write_text(
        "".join(next(file) for _ in range(300))
      )

  config = base.get_config()
  config.data.update(name="toy", validation="train", test=())
  config.prepare.update(raw_dir=str(tmp_path), workers=2)
  config.prepare.splits.train = ("train.en", "train.de")
  config.prepare.vocabulary.size = 500
  config.prepare.parse.source.udpipe.model = str(model)

  def start():
    return subprocess.Popen(
      command(config),
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def chunks(out):
    return {p.name: p.stat().st_mtime_ns for p in out.glob("work/parse/*.gz")}

  config.data.directory = str(tmp_path / "whole")
  complete = build.run(config)
  out = tmp_path / "killed"
  config.data.directory = str(out)
  process = start()
  deadline = time.monotonic() + 120
  while len(chunks(out)) < 2 and time.monotonic() < deadline:
    time.sleep(0.02)
  children = subprocess.run(
    ["ps", "-o", "pid=", "--ppid", str(process.pid)],
    capture_output=True,
    text=True,
    check=False,
  ).stdout.split()
  os.kill(process.pid, signal.SIGKILL)
  process.communicate(timeout=60)  # ends when no child holds the output
  early = chunks(out)
  assert 2 <= len(early) < len(chunks(complete))
  assert not (out / "manifest.json").exists()
  with pytest.raises(
    InputError, match=r"is not a prepared folder.*interrupted"
  ):
    Dataset(out).split("train")
  for child in children:  # the parser processes do not outlive it
    while pathlib.Path(f"/proc/{child}").exists():
      assert time.monotonic() < deadline, f"process {child} lives on"
      time.sleep(0.05)

  process = start()
  output, _ = process.communicate(timeout=120)
  assert process.returncode == 0, output
  late = chunks(out)
  assert early.items() <= late.items()  # used again, not made again
  assert records_of(out) == records_of(complete)
  sums = [
    json.loads((folder / "manifest.json").read_text())["splits"]
    for folder in (out, complete)
  ]
  assert sums[0] == sums[1]
