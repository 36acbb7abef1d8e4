"""Complete preparations: repeated, repaired, interrupted, beside files of the user."""

import gzip
import itertools
import json
import os
import pathlib
import shutil

import disks
import numpy as np
import pytest
import web_server
import zstandard
from raw_corpora import (
  bracketed,
  chain,
  check_rejected,
  corpus,
  lines_of,
  raw_of,
  records_of,
  write_lines,
)

from jaxsyn import cli
from jaxsyn.config import read_config
from jaxsyn.configs import multi30k_de_en, pud
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import InvalidExampleError
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, inputs, publish, verify
from jaxsyn.storage import checksums

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """A small corpus, prepared: its config, its folder, the bytes of its files."""
  config = corpus(tmp_path_factory.mktemp("made"))
  folder = build.run(config)
  return config, folder, records_of(folder)


def copy_of(made, tmp_path, name="out"):
  """The same corpus in another folder, and a copy of its dataset."""
  config = corpus(tmp_path)
  config.data.directory = str(tmp_path / name)
  shutil.copytree(made[1], config.data.directory)
  return config, pathlib.Path(config.data.directory)


def change(path, old, new):
  data = path.read_bytes()
  assert old in data
  path.write_bytes(data.replace(old, new, 1))


def test_writes_all_files(made):
  config, folder, _ = made
  manifest = manifests.read(folder)
  assert list(manifest["splits"]) == ["train", "test"]
  train = manifest["splits"]["train"]
  counts = (train["examples"], train["lines"], train["unparsed"])
  assert counts == (60, 60, 0)
  assert manifest["relations"] == {"source": ["dep", "root"]}
  assert manifest["parser"]["source"]["file"] == ""
  assert manifest["options"]["vocabulary"]["size"] == 60
  vocabulary = Vocabulary(folder / "vocabulary.model")
  for side in schema.SIDES:
    loaded = manifests.vocabulary(folder, manifest, side)
    assert loaded.path == vocabulary.path
  for split, shards in (("train", 2), ("test", 1)):
    lines = lines_of(config, f"{split}.en")
    texts, trees = (
      manifests.sentence_files(folder, manifest, kind, split, "source")
      for kind in ("text", "conllu")
    )
    assert len(texts) == len(trees) == shards
    text = b"".join(gzip.decompress(path.read_bytes()) for path in texts)
    assert text.decode().split("\n")[:-1] == lines
    blocks = itertools.chain.from_iterable(map(conllu.read, trees))
    records = Dataset(folder).split(split)
    for i, (one, tree) in enumerate(zip(records, blocks, strict=True)):
      words = len(lines[i].split())
      assert one["line"] == i + 1
      assert f"# sent_id = {split}-{i + 1}" in tree.comments
      assert one["source_head"].tolist() == [0, *range(words - 1)]
      assert one["source_relation"].tolist() == [2] + [1] * (words - 1)
      assert one["source_tree_distance"].shape == (words**2,)
      assert one["source_id"][-1] == schema.EOS
      assert vocabulary.decode(one["source_id"]) == lines[i]
      assert vocabulary.decode(one["target_id"]) == lines[i].upper()
  assert (folder / "report.txt").read_text().startswith("toy: en to de")
  assert not list(folder.rglob("*.partial"))
  assert not list(folder.glob("work/stages-*"))


def several_files(config, raw):
  """Files of one side in parts, by name or pattern."""
  source = lines_of(config, "train.en")
  write_lines(raw / "a.en", source[:17])
  text = "".join(f"{line}\n" for line in source[17:]).encode()
  frames = zstandard.compress(text[:99]), zstandard.compress(text[99:])
  (raw / "b.en.zst").write_bytes(b"".join(frames))
  for i in range(3):
    part = source[25 * i : 25 * (i + 1)]
    write_lines(raw / f"train-{i}.de", map(str.upper, part))
  config.prepare.splits.train = ("a.en,b.en.zst", "train-?.de")


def table(config, raw):
  lines = [f"{x}\t{x.upper()}" for x in lines_of(config, "train.en")]
  write_lines(raw / "train.tsv.gz", lines)
  config.prepare.splits.train = ("train.tsv.gz",)


def json_lines(config, raw):
  """A line break in a text becomes a space."""
  for split in ("train", "test"):
    values = [
      {"translation": {"en": line.replace(" ", "\n", 1), "de": line.upper()}}
      for line in lines_of(config, f"{split}.en")
    ]
    write_lines(raw / f"{split}.jsonl", map(json.dumps, values))
    config.prepare.splits[split] = (f"{split}.jsonl",)


def treebank(config, raw):
  """The source is a treebank, whose comments are the text."""
  for split in ("train", "test"):
    name = f"{split}.gold.conllu.gz"
    blocks = [
      f"# text = {line}\n{chain(line)}"[:-1]
      for line in lines_of(config, f"{split}.en")
    ]
    write_lines(raw / name, blocks)
    config.prepare.splits[split] = (name, f"{split}.de.gz")
  config.prepare.parse.source_conllu = {}


def trees_in_the_raw_folder(config, raw):
  for split in ("train", "test"):
    config.prepare.parse.source_conllu[split] = f"{split}.conllu"


FORMATS = (several_files, table, json_lines, treebank)


@pytest.mark.parametrize("use", [*FORMATS, trees_in_the_raw_folder])
def test_other_formats_of_the_input_give_the_same_files(made, tmp_path, use):
  config = corpus(tmp_path)
  use(config, raw_of(config))
  raw_dir, config.prepare.raw_dir = config.prepare.raw_dir, ""
  folder = build.run(config, raw_dir)
  assert records_of(folder) == made[2]
  if use is several_files:
    named = manifests.read(folder)["splits"]["train"]["files"]
    assert named == ["a.en", "b.en.zst", *(f"train-{i}.de" for i in range(3))]


def test_a_part_of_a_treebank(tmp_path):
  """Lines of splits are counted in the file; other lines are not cleaned."""
  config = corpus(tmp_path)
  treebank(config, raw_of(config))
  target = [line.upper() for line in lines_of(config, "train.en")]
  target[2] = target[12] = ""  # line 3 is in no part, line 13 in "train"
  write_lines(raw_of(config) / "train.de", target)
  config.prepare.splits.train = ("train.gold.conllu.gz", "train.de", "11-60")
  folder = build.run(config)
  manifest = manifests.read(folder)
  train = manifest["splits"]["train"]
  assert (train["lines"], train["examples"]) == (50, 49)
  assert train["dropped"]["empty"] == 1
  numbers = [int(one["line"]) for one in Dataset(folder).split("train")]
  assert numbers == [11, 12, *range(14, 61)]
  assert manifest["parser"]["source"]["trees"] == "CoNLL-U"
  config.prepare.splits.test = ("test.en", "test.de.gz")
  check_rejected(config, "source files of train are treebanks, those of test a")


def test_a_named_parser_takes_precedence_over_treebanks(tmp_path, prepared):
  config = corpus(tmp_path)
  treebank(config, raw_of(config))
  model = str(prepared / "parser.source.udpipe")
  config.prepare.parse.source.udpipe.model = model
  config.prepare.workers = 1
  entry = manifests.read(build.run(config))["parser"]["source"]
  assert (entry["trees"], entry["name"]) == ("parser", "parser.source.udpipe")
  # With given trees, the parser is for translation only.
  trees_in_the_raw_folder(config, None)
  manifest = manifests.read(build.run(config))
  entry = manifest["parser"]["source"]
  assert (entry["trees"], entry["name"]) == ("CoNLL-U", "parser.source.udpipe")
  assert manifest["relations"] == {"source": ["dep", "root"]}


def test_parallel_treebanks(shared_data, tmp_path):
  """Real gold trees: multi-word tokens, crossing arcs, text without blanks."""
  config = pud.pud("de", "ja")
  config.data.directory = str(tmp_path / "out")
  ranges = {"train": "1-80", "validation": "81-90", "test": "91-100"}
  for split, lines in ranges.items():
    files = config.prepare.splits[split][:2]
    config.prepare.splits[split] = (*files, lines)
  folder = build.run(config, str(shared_data / "ud"))
  manifest = manifests.read(folder)
  assert manifest["sides"] == ["source", "target"]
  trees = [
    [*itertools.islice(conllu.read(shared_data / "ud" / name), 100)]
    for name in ("de_pud.conllu.gz", "ja_pud.conllu.gz")
  ]
  for split, lines in ranges.items():
    first, last = map(int, lines.split("-"))
    assert manifest["splits"][split]["unparsed"] == 0
    examples = [*Dataset(folder).split(split)]
    assert [one["line"] for one in examples] == [*range(first, last + 1)]
    for one in examples:
      for side, blocks in zip(schema.SIDES, trees):
        assert tuple(one[f"{side}_head"]) == blocks[one["line"] - 1].head_W


def test_multi30k_leaves_out_test_sets_that_are_missing(shared_data, tmp_path):
  config = multi30k_de_en.get_config()
  config.prepare.parse.sides = ()
  for name, url, sha256 in config.prepare.downloads:
    assert url.endswith(f"/data/task1/raw/{name}")
    assert bool(sha256) == ("2018" not in name and "coco" not in name)
  # Nothing is fetched.
  config.prepare.downloads = tuple(d for d in config.prepare.downloads if d[2])
  late = ("test_2018", "test_2017_mscoco")
  for path in (shared_data / "multi30k").glob("*.gz"):
    if not path.name.startswith(late):
      (tmp_path / path.name).symlink_to(path)
  found = inputs.read_inputs(read_config(config), str(tmp_path))
  assert set(found.left_out) == set(late)
  splits = {"train", "validation", *config.data.test}
  assert {s.name for s in found.splits} == splits - set(late)


def test_uses_the_vocabulary_of_another_folder(made, tmp_path):
  config = corpus(tmp_path, train=40)
  config.prepare.vocabulary.update(like=str(made[1]), size=200)
  folder = build.run(config)
  manifest, other = manifests.read(folder), manifests.read(made[1])
  assert manifest["vocabulary"] == other["vocabulary"]
  assert len(Dataset(folder).split("train")) == 40
  config.prepare.vocabulary.joint = False
  check_rejected(config, r"joint is False, but .* has one for both")
  config.prepare.vocabulary.like = str(tmp_path)
  check_rejected(config, "is not a prepared folder")


def test_two_vocabularies_and_no_trees(tmp_path):
  config = corpus(tmp_path)
  config.prepare.vocabulary.joint = False
  config.prepare.parse.sides = ()
  folder = build.run(config)
  manifest = manifests.read(folder)
  assert manifest["vocabulary"]["target"]["file"] == "target.model"
  assert (folder / "source.model").is_file()
  names = ("line", "source_id", "target_id")
  assert Dataset(folder).split("train").features == names


def test_drops_pairs_with_too_many_subwords(tmp_path):
  config = corpus(tmp_path)
  config.prepare.max_subwords = 9
  folder = build.run(config)
  records = Dataset(folder).split("train")
  dropped = manifests.read(folder)["splits"]["train"]["dropped"]["max_subwords"]
  assert 0 < dropped == 60 - len(records)
  assert max(len(one["source_id"]) for one in records) == 9
  config.prepare.max_subwords = 2
  check_rejected(config, r"is left of 60 \(dropped: max_subwords 60\)")


def test_a_prepared_folder_is_used_anywhere(made, tmp_path, capsys):
  config, folder = copy_of(made, tmp_path, "andere Stelle für 文")
  before = (folder / manifests.FILE).stat().st_mtime_ns
  build.run(config)
  assert "is prepared already" in capsys.readouterr().out
  assert (folder / manifests.FILE).stat().st_mtime_ns == before
  verify.run(folder)
  with disks.disk(tmp_path / "disk", "4m") as disk:
    shutil.copytree(folder, disk / "out")
    config.data.directory = str(disk / "out")
    disks.change(disk, "ro")  # also for root
    build.run(config)
    assert "is prepared already" in capsys.readouterr().out
    verify.run(disk / "out")
    config.prepare.shard_mib = 1.0
    check_rejected(config, r"no permission to write to .*/out")


def test_repairs_a_corrupt_manifest_and_prepares_for_other_options(
  made, tmp_path, capsys
):
  config, folder = copy_of(made, tmp_path)
  path = folder / "manifest.json"
  change(path, b"bpe", b"bqe")
  build.run(config)
  output = capsys.readouterr().out
  assert f"corrupt: {path} is corrupt, or of another version" in output
  assert f"rebuilding {folder}\n" in output
  assert records_of(folder) == made[2]
  config.prepare.shard_mib = 0.01
  build.run(config)
  assert len(manifests.read(folder)["splits"]["train"]["shards"]) == 3


def test_keeps_the_old_dataset_after_an_error(made, tmp_path):
  config, folder = copy_of(made, tmp_path)
  with config.unlocked():
    config.data.name = "another"
  check_rejected(config, "'toy', which would be replaced by")
  with config.unlocked():
    config.data.name = "toy"
  change(raw_of(config) / "test.conllu", b"\t_\t", b"\t")
  check_rejected(config, r"test\.conllu:1: 9 columns")
  assert records_of(folder) == made[2]
  assert manifests.read(folder)["splits"]["test"]["examples"] == 7


def test_work_on_another_disk(made, tmp_path):
  config = corpus(tmp_path)
  folder = pathlib.Path(config.data.directory)
  folder.mkdir()
  with disks.disk(tmp_path / "scratch", "4m") as disk:
    (folder / "work").symlink_to(disk)
    build.run(config)
    assert records_of(folder) == made[2]
  assert not list(folder.glob(".*"))


@pytest.mark.parametrize("name", ["text/mine.txt", "conllu/a.conllu", "toy"])
def test_files_of_the_user_are_not_replaced(made, tmp_path, name):
  for config in (corpus(tmp_path), copy_of(made, tmp_path / "prepared")[0]):
    mine = pathlib.Path(config.data.directory) / name
    if mine.is_dir():  # "toy" of the prepared dataset
      continue
    config.prepare.shard_mib = 1.0
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    check_rejected(config, rf"out/{name} would be deleted.*Move it")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("place", ["text", "conllu", "toy"])
def test_input_files_are_not_replaced(tmp_path, place):
  config = corpus(tmp_path)
  trees_in_the_raw_folder(config, None)
  new = pathlib.Path(config.data.directory) / place
  new.parent.mkdir()
  os.rename(config.prepare.raw_dir, new)
  config.prepare.raw_dir = str(new)
  before = {path: path.read_bytes() for path in new.iterdir()}
  check_rejected(config, rf"out/{place}/.* would be deleted")
  assert {path: path.read_bytes() for path in new.iterdir()} == before


def test_prepared_text_that_is_the_input_is_not_replaced(made, tmp_path):
  config, folder = copy_of(made, tmp_path)
  for split in ("train", "test"):
    config.prepare.splits[split] = ("test.source.gz", "test.target.gz")
  config.prepare.parse.sides = ()
  config.prepare.parse.source_conllu = {}
  config.prepare.raw_dir = str(folder / "text")
  check_rejected(config, r"text/.* would be deleted.*Move it")
  assert records_of(folder) == made[2]


MISSING = ("late.en", "late.de")


def with_optional(tmp_path, *names):
  """A corpus whose optional test splits have no files."""
  config = corpus(tmp_path)
  for name in names:
    config.prepare.splits[name] = MISSING
  config.data.test = ("test", *names)
  config.prepare.parse.sides = ()
  config.prepare.parse.source_conllu = {}
  config.prepare.optional = names
  return config


def test_missing_splits_are_left_out_until_their_files_exist(tmp_path, capsys):
  config = with_optional(tmp_path, "late", "later")
  raw_dir = config.prepare.raw_dir
  config.prepare.raw_dir = f"{raw_dir}/../{os.path.basename(raw_dir)}"
  folder = build.run(config)
  output = capsys.readouterr().out
  assert f"reading test: {raw_dir}/test.en, " in output
  (warning,) = [x for x in output.splitlines() if x.startswith("warning")]
  assert "2 of 3 test splits are left out" in warning
  manifest = manifests.read(folder)
  assert set(manifest["splits"]) == {"train", "test"}
  assert set(manifest["left_out"]) == {"late", "later"}
  assert "left out: late" in (folder / "report.txt").read_text()
  verify.run(folder)
  raw = raw_of(config)
  for name in MISSING:
    assert f"late ({name} does not exist in " in output
    assert f"later ({name} does not exist in " in output
    shutil.copy(raw / "test.en", raw / name)
    build.run(config)
    output = capsys.readouterr().out
  assert "warning" not in output
  changed = manifests.read(folder)
  assert set(changed["splits"]) == {"train", "test", "late", "later"}
  assert "left_out" not in changed
  assert changed["splits"]["train"] == manifest["splits"]["train"]


def test_a_left_out_split_needs_neither_trees_nor_links(tmp_path):
  config = with_optional(tmp_path, "late")
  lines = lines_of(config, "train.en")
  write_lines(raw_of(config) / "train.penn", map(bracketed, lines))
  write_lines(raw_of(config) / "train.align", ["0-0"] * len(lines))
  names = ("train", "test", "late")
  config.prepare.parse.update(
    sides=("source",),
    source_conllu={name: f"{name}.conllu" for name in names},
    source_alternatives={"train": ("train.conllu",), "late": ("late.conllu",)},
    source_brackets={"train": "train.penn", "late": "l"},
  )
  config.prepare.alignments = {"train": ("train.align",), "late": ("l.align",)}
  assert set(manifests.read(build.run(config))["splits"]) == {"train", "test"}


def test_a_split_that_the_server_lacks_is_left_out(tmp_path, capsys):
  config = with_optional(tmp_path, "late")
  with web_server.serve() as server:
    server.answers["late.en"] = b"a man\n"
    addresses = tuple((name, server.url(name), "") for name in MISSING)
    config.prepare.downloads = addresses
    folder = build.run(config)
    output = capsys.readouterr().out
    assert "1 of 2 test splits" in output
    assert "late.de" in output and "404" in output
    assert set(manifests.read(folder)["left_out"]) == {"late"}
    server.answers["late.de"] = b"EIN MANN\n"
    manifest = manifests.read(build.run(config))
    assert manifest["splits"]["late"]["examples"] == 1
    record = manifest["downloads"]["late.de"]
    assert record.startswith(f"downloaded from {server.url('late.de')}, 20")
  # The server has ended, but the files were fetched.
  shutil.rmtree(folder / "work")
  (folder / "manifest.json").unlink()
  assert "late" in manifests.read(build.run(config))["splits"]
  (folder / "raw" / "late.de").unlink()
  check_rejected(config, r"raw file late\.de cannot be downloaded")
  # A wrong file is an error also if it is optional.
  config.data.directory = str(tmp_path / "other")
  with web_server.serve() as server:
    server.answers["late.en"] = server.answers["late.de"] = b"other"
    addresses = ((name, server.url(name), "0" * 64) for name in MISSING)
    config.prepare.downloads = tuple(addresses)
    check_rejected(config, r"raw file late\.en cannot be downloaded")


TEXT, TREES = "text/test.target.gz", "conllu/test.source.conllu.gz"
MORE = b"\n\n1\tx\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


@pytest.mark.parametrize(
  ("name", "old", "new", "error"),
  [
    (TEXT, b"A", b"I", "split test, record 0: target_id differs from that of"),
    # Another space does not change the subwords.
    (TEXT, b" ", b"  ", "split test, record 0: target_text differs from its"),
    (TEXT, b"\n", b"\n\n", "has 8 lines, but the shard has 7 records"),
    (TREES, b"\tdep", b"\troot", "record 0: source_relation differs from"),
    (TREES, b"\n\n", MORE, "test.source.gz"),
  ],
)
def test_verification_compares_records_with_the_text(
  made, tmp_path, capsys, name, old, new, error
):
  """The checksums are right, as if another program had written the files."""
  _, folder = copy_of(made, tmp_path)
  text = gzip.decompress(made[2][name])
  (folder / name).write_bytes(gzip.compress(text.replace(old, new, 1)))
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, [name])
  manifests.write(folder, manifest)
  with pytest.raises(InputError, match="out is corrupt: "):
    verify.run(folder)
  assert error in capsys.readouterr().out


def test_verification_compares_line_numbers(made):
  rows = next(Dataset(made[1]).split("train").rows(["line"]))
  verify.check_lines(rows.flat["line"], 0)
  with pytest.raises(InvalidExampleError, match="line 1 comes after 1"):
    verify.check_lines(rows.flat["line"], 1)
  with pytest.raises(InvalidExampleError, match="line 2 comes after 3"):
    verify.check_lines(np.array([3, 2]), 0)


@pytest.mark.parametrize("renamed", [1, 4])
def test_publishing_is_atomic(made, tmp_path, monkeypatch, renamed):
  """After a kill, the folder is rejected, and the next call completes it."""
  config, folder = copy_of(made, tmp_path)
  (folder / TEXT).write_bytes(b"")
  rename, moves = os.rename, iter(range(renamed))

  def die(old, new):
    if pathlib.Path(new).parent == folder and next(moves, None) is None:
      raise KeyboardInterrupt
    rename(old, new)

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(publish.os, "rename", die)
    build.run(config)
  for read in (manifests.read, verify.run):
    with pytest.raises(InputError, match=r"not a prepared folder.*interrupted"):
      read(folder)
  build.run(config)
  assert records_of(folder) == made[2]


def test_disk_full_anywhere(made, tmp_path, capsys):
  config, failures = corpus(tmp_path), 0
  with disks.disk(tmp_path / "out", "4k") as disk:
    for size in (4, 200, 600, 4000):
      disks.change(disk, f"size={size}k")
      try:
        with pytest.raises(SystemExit) as stop:
          cli.guarded(lambda: build.run(config))
      except pytest.fail.Exception:  # it was enough
        break
      failures += 1
      assert stop.value.code == 2
      message = capsys.readouterr().err.strip().splitlines()[-1]
      full = f"error: No space left on device: {disk}"
      assert message.startswith(full) and "Free some space" in message
      assert not (disk / "manifest.json").exists()
    assert failures > 1
    assert records_of(disk) == made[2]
