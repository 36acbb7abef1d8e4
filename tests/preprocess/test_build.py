"""Complete preparations: repeated, repaired, killed, and beside files of the user."""

import gzip
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import disks
import pytest
import web_server
import zstandard
from raw_corpora import chain, command, corpus, lines_of, records_of

from jaxsyn.configs import base, multi30k_de_en, pud
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, quickstart, verify

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
    manifests.check_vocabulary(manifest, vocabulary, side)
  for split, shards in (("train", 2), ("test", 1)):
    texts = lines_of(config, f"{split}.en")
    paths = [
      manifests.sentence_files(folder, manifest, kind, split, "source")
      for kind in ("text", "conllu")
    ]
    assert [*map(len, paths)] == [shards, shards]
    text = b"".join(gzip.decompress(path.read_bytes()) for path in paths[0])
    assert text.decode().split("\n")[:-1] == texts
    trees = (block for path in paths[1] for block in conllu.read(path))
    records = Dataset(folder).split(split)
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
  assert not list(folder.glob("work/stages-*"))


def several_files(config, raw):
  """Files of one side in parts, by name or pattern."""
  source = (raw / "train.en").read_bytes().splitlines(keepends=True)
  target = gzip.decompress((raw / "train.de.gz").read_bytes())
  target = target.splitlines(keepends=True)
  (raw / "a.en").write_bytes(b"".join(source[:17]))
  (raw / "b.en.gz").write_bytes(gzip.compress(b"".join(source[17:])))
  for i in range(3):
    (raw / f"train-{i}.de").write_bytes(b"".join(target[25 * i : 25 * (i + 1)]))
  config.prepare.splits.train = ("a.en,b.en.gz", "train-?.de")


def table(config, raw):
  lines = lines_of(config, "train.en")
  text = "".join(f"{line}\t{line.upper()}\n" for line in lines)
  (raw / "train.tsv.gz").write_bytes(gzip.compress(text.encode()))
  config.prepare.splits.train = ("train.tsv.gz",)


def json_lines(config, raw):
  for split in ("train", "test"):
    with (raw / f"{split}.jsonl").open("w") as file:
      for line in lines_of(config, f"{split}.en"):
        value = {"id": 1, "translation": {"en": line, "de": line.upper()}}
        file.write(json.dumps(value) + "\n")
    config.prepare.splits[split] = (f"{split}.jsonl",)


def zstandard_frames(config, raw):
  text, pack = (raw / "train.en").read_bytes(), zstandard.compress
  (raw / "train.en.zst").write_bytes(pack(text[:99]) + pack(text[99:]))
  config.prepare.splits.train = ("train.en.zst", "train.de.gz")


def treebank(config, raw):
  """The source is a treebank, whose comments are the text."""
  for split in ("train", "test"):
    lines = lines_of(config, f"{split}.en")
    text = "".join(f"# text = {line}\n{chain(line)}" for line in lines)
    (raw / f"{split}.gold.conllu.gz").write_bytes(gzip.compress(text.encode()))
    names = (f"{split}.gold.conllu.gz", f"{split}.de.gz")
    config.prepare.splits[split] = names
  config.prepare.parse.source_conllu = {}


def trees_in_the_raw_folder(config, raw):
  for split in ("train", "test"):
    config.prepare.parse.source_conllu[split] = f"{split}.conllu"


@pytest.mark.parametrize(
  "use",
  [
    several_files,
    table,
    json_lines,
    zstandard_frames,
    treebank,
    trees_in_the_raw_folder,
  ],
)
def test_other_formats_of_the_input_give_the_same_files(made, tmp_path, use):
  config = corpus(tmp_path)
  use(config, pathlib.Path(config.prepare.raw_dir))
  raw_dir, config.prepare.raw_dir = config.prepare.raw_dir, ""
  folder = build.run(config, raw_dir)
  assert records_of(folder) == made[2]
  if use is several_files:
    named = manifests.read(folder)["splits"]["train"]["files"]
    assert named == ["a.en", "b.en.gz", *(f"train-{i}.de" for i in range(3))]


def test_a_part_of_a_treebank(tmp_path):
  """Lines of splits are counted in the file; other lines are not cleaned."""
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  treebank(config, raw)
  target = [line.upper() for line in lines_of(config, "train.en")]
  target[2] = target[12] = ""  # line 3 is in no part, line 13 in "train"
  (raw / "train.de").write_text("".join(f"{line}\n" for line in target))
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
  with pytest.raises(
    InputError, match=r"source files of train are treebanks, those of test are"
  ):
    build.run(config)


def test_a_named_parser_takes_precedence_over_treebanks(tmp_path, prepared):
  config = corpus(tmp_path)
  treebank(config, pathlib.Path(config.prepare.raw_dir))
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
  paths = [
    shared_data / "ud" / f"{code}_pud.conllu.gz" for code in ("de", "ja")
  ]
  trees = [[*itertools.islice(conllu.read(path), 100)] for path in paths]
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
  config.data.directory = str(tmp_path / "out")
  config.prepare.parse.sides = ()
  config.prepare.subset.pairs = 300
  config.prepare.vocabulary.size = 500
  late = {"test_2018", "test_2017_mscoco"}
  for name, url, sha256 in config.prepare.downloads:
    assert url.startswith("https://raw.githubusercontent.com/multi30k/")
    assert url.endswith(f"/data/task1/raw/{name}")
    assert bool(sha256) == ("2018" not in name and "coco" not in name)
  # Nothing is fetched.
  config.prepare.downloads = tuple(d for d in config.prepare.downloads if d[2])
  raw = tmp_path / "raw"
  raw.mkdir()
  for path in (shared_data / "multi30k").glob("*.gz"):
    if not path.name.startswith(("test_2018", "test_2017_mscoco")):
      (raw / path.name).symlink_to(path)
  manifest = manifests.read(build.run(config, str(raw)))
  splits = {"train", "validation", *config.data.test}
  assert set(manifest["left_out"]) == late
  assert set(manifest["splits"]) == splits - late
  assert manifest["splits"]["train"]["lines"] == 29_000


def test_uses_the_vocabulary_of_another_folder(made, tmp_path):
  config = corpus(tmp_path, train=40)
  config.prepare.vocabulary.update(like=str(made[1]), size=200)
  folder = build.run(config)
  manifest, other = manifests.read(folder), manifests.read(made[1])
  assert manifest["vocabulary"] == other["vocabulary"]
  assert len(Dataset(folder).split("train")) == 40
  config.prepare.vocabulary.joint = False
  with pytest.raises(
    InputError, match=r"joint is False, but .* has one for both"
  ):
    build.run(config)
  config.prepare.vocabulary.like = str(tmp_path)
  with pytest.raises(InputError, match="is not a prepared folder"):
    build.run(config)


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
  with pytest.raises(InputError, match=r"max_subwords=2 drops all"):
    build.run(config)


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
    disks.read_only(disk)
    build.run(config)
    assert "is prepared already" in capsys.readouterr().out
    verify.run(disk / "out")
    config.prepare.shard_mib = 1.0
    with pytest.raises(InputError, match=r"no permission to write to .*/out"):
      build.run(config)


def test_repairs_a_corrupt_manifest_and_reports_it_once(made, tmp_path, capsys):
  config, folder = copy_of(made, tmp_path)
  change(folder / "manifest.json", b"bpe", b"bqe")
  build.run(config)
  output = capsys.readouterr().out
  path = folder / "manifest.json"
  assert f"corrupt: {path} is corrupt, or of another version" in output
  assert f"rebuilding {folder}\n" in output
  assert records_of(folder) == made[2]


def test_prepares_again_for_other_options(made, tmp_path):
  config, _ = copy_of(made, tmp_path)
  config.prepare.shard_mib = 0.01
  folder = build.run(config)
  assert len(manifests.read(folder)["splits"]["train"]["shards"]) == 3


def test_keeps_the_old_dataset_after_an_error(made, tmp_path):
  config, folder = copy_of(made, tmp_path)
  with config.unlocked():
    config.data.name = "another"
  with pytest.raises(InputError, match=r"'toy', which would be replaced by"):
    build.run(config)
  with config.unlocked():
    config.data.name = "toy"
  path = pathlib.Path(config.prepare.raw_dir) / "test.conllu"
  change(path, b"\t_\t", b"\t")
  with pytest.raises(InputError, match=r"test\.conllu:1: 9 columns"):
    build.run(config)
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


@pytest.mark.parametrize("place", ["text", "conllu", "toy"])
def test_input_files_are_not_replaced(tmp_path, place):
  config = corpus(tmp_path)
  trees_in_the_raw_folder(config, None)
  new = pathlib.Path(config.data.directory) / place
  new.parent.mkdir()
  os.rename(config.prepare.raw_dir, new)
  config.prepare.raw_dir = str(new)
  before = {path: path.read_bytes() for path in new.iterdir()}
  with pytest.raises(InputError, match=rf"out/{place}/.* would be deleted"):
    build.run(config)
  assert {path: path.read_bytes() for path in new.iterdir()} == before


@pytest.mark.parametrize("name", ["text/mine.txt", "conllu/a.conllu", "toy"])
def test_other_files_of_the_user_are_not_replaced(tmp_path, name):
  config = corpus(tmp_path)
  mine = pathlib.Path(config.data.directory) / name
  mine.parent.mkdir(parents=True)
  mine.write_text("mine")
  message = rf"out/{name} would be deleted.*Move it"
  with pytest.raises(InputError, match=message):
    build.run(config)
  assert mine.read_text() == "mine"


def test_prepared_text_that_is_the_input_is_not_replaced(made, tmp_path):
  config, folder = copy_of(made, tmp_path)
  mine = folder / "text/mine.txt"
  mine.write_text("mine")
  config.prepare.shard_mib = 1.0
  with pytest.raises(InputError, match=r"mine\.txt would be deleted.*Move it"):
    build.run(config)
  assert mine.read_text() == "mine"
  mine.unlink()
  for split in ("train", "test"):
    config.prepare.splits[split] = ("test.source.gz", "test.target.gz")
  config.prepare.parse.sides = ()
  config.prepare.parse.source_conllu = {}
  config.prepare.raw_dir = str(folder / "text")
  with pytest.raises(InputError, match=r"text/.* would be deleted.*Move it"):
    build.run(config)
  assert records_of(folder) == made[2]


MISSING = ("late.en", "late.de")


def with_optional(tmp_path, *more, files=MISSING):
  """A corpus whose optional test splits `late` and `more` have no files."""
  config = corpus(tmp_path)
  names = ("late", *more)
  for name in names:
    config.prepare.splits[name] = files
  config.data.test = ("test", *names)
  config.prepare.parse.source_conllu = {}
  config.prepare.parse.sides = ()
  config.prepare.optional = names
  return config


def test_missing_splits_are_left_out_until_their_files_exist(tmp_path, capsys):
  config = with_optional(tmp_path, "later")
  folder = build.run(config)
  output = capsys.readouterr().out
  (warning,) = [x for x in output.splitlines() if x.startswith("warning")]
  assert "2 of 3 test splits are left out" in warning
  for name in ("late", "later"):
    assert f"{name} (late.en is not found in " in warning
  manifest = manifests.read(folder)
  assert set(manifest["splits"]) == {"train", "test"}
  assert set(manifest["left_out"]) == {"late", "later"}
  assert "left out: late" in (folder / "report.txt").read_text()
  verify.run(folder)
  raw = pathlib.Path(config.prepare.raw_dir)
  shutil.copy(raw / "test.en", raw / "late.en")
  build.run(config)
  assert "late (late.de is not found in " in capsys.readouterr().out
  shutil.copy(raw / "test.en", raw / "late.de")
  changed = manifests.read(build.run(config))
  assert "warning" not in capsys.readouterr().out
  assert set(changed["splits"]) == {"train", "test", "late", "later"}
  assert "left_out" not in changed
  assert changed["splits"]["train"] == manifest["splits"]["train"]


def test_a_left_out_split_needs_neither_trees_nor_links(tmp_path):
  config = with_optional(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  lines = lines_of(config, "train.en")
  words = ["(S (X " + ") (X ".join(line.split()) + "))\n" for line in lines]
  (raw / "train.penn").write_text("".join(words))
  (raw / "train.align").write_text("0-0\n" * len(lines))
  config.prepare.parse.sides = ("source",)
  names = ("train", "test", "late")
  config.prepare.parse.source_conllu = {
    name: f"{name}.conllu" for name in names
  }
  more = {"train": ("train.conllu",), "late": ("late.conllu",)}
  config.prepare.parse.source_alternatives = more
  config.prepare.alignments = {"train": ("train.align",), "late": ("l.align",)}
  config.prepare.parse.source_brackets = {"train": "train.penn", "late": "l"}
  assert set(manifests.read(build.run(config))["splits"]) == {"train", "test"}


def test_a_split_that_the_server_lacks_is_left_out(tmp_path, capsys):
  config = with_optional(tmp_path)
  with web_server.serve() as server:
    server.answers["late.en"] = b"a man\n"
    config.prepare.downloads = tuple(
      (name, server.url(name), "") for name in MISSING
    )
    folder = build.run(config)
    output = capsys.readouterr().out
    assert "1 of 2 test splits" in output
    assert "late.de" in output and "404" in output
    assert set(manifests.read(folder)["left_out"]) == {"late"}
    server.answers["late.de"] = b"EIN MANN\n"
    manifest = manifests.read(build.run(config))
    assert manifest["splits"]["late"]["examples"] == 1
  # The server has ended, but the files were fetched.
  shutil.rmtree(folder / "work")
  (folder / "manifest.json").unlink()
  assert "late" in manifests.read(build.run(config))["splits"]
  (folder / "raw" / "late.de").unlink()
  with pytest.raises(InputError, match=r"raw file late\.de cannot be fetched"):
    build.run(config)


@pytest.mark.parametrize(
  ("name", "sha256"), [("late.en", "0" * 64), ("late.en.gz", "")]
)
def test_a_wrong_download_is_an_error_also_if_optional(tmp_path, name, sha256):
  config = with_optional(tmp_path, files=(name, "test.en"))
  with web_server.serve() as server:
    server.answers[name] = b"neither this hash nor gzip"
    config.prepare.downloads = ((name, server.url(name), sha256),)
    with pytest.raises(InputError, match=f"raw file {name} cannot be fetched"):
      build.run(config)


def test_continues_if_killed_while_parsing(prepared, tmp_path):
  """Finished parses are used again; parser processes end with their parent."""
  raw = prepared.parent / "raw"
  config = base.get_config()
  config.data.update(name="toy", validation="train", test=())
  config.prepare.update(raw_dir=str(raw), workers=2)
  config.prepare.splits.train = ("train.en", "train.qaa", "1-400")
  config.prepare.vocabulary.size = 300
  model = str(raw / quickstart.PARSER)
  config.prepare.parse.source.udpipe.model = model

  def parses(folder):
    return {
      p.name: p.stat().st_mtime_ns for p in folder.glob("work/parse/*.gz")
    }

  config.data.directory = str(tmp_path / "complete")
  complete = build.run(config)
  config.data.directory = str(tmp_path / "killed")
  killed = tmp_path / "killed"
  process = subprocess.Popen(
    command(config), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
  )
  deadline = time.monotonic() + 120
  while not parses(killed) and time.monotonic() < deadline:
    time.sleep(0.01)
  words = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
  children = subprocess.run(
    words, capture_output=True, text=True
  ).stdout.split()
  os.kill(process.pid, signal.SIGKILL)
  process.communicate(timeout=60)  # ends when no child holds the output
  early = parses(killed)
  assert 1 <= len(early) < len(parses(complete))
  with pytest.raises(
    InputError, match=r"is not a prepared folder.*interrupted"
  ):
    Dataset(killed).split("train")
  for child in children:
    while pathlib.Path(f"/proc/{child}").exists():
      assert time.monotonic() < deadline, f"process {child} lives on"
      time.sleep(0.05)
  build.run(config)
  assert early.items() <= parses(killed).items()
  assert records_of(killed) == records_of(complete)
  assert manifests.read(killed)["splits"] == manifests.read(complete)["splits"]
