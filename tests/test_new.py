"""Tests configs of the user's own text: of `jaxsyn new`, and configs/own.py."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from jaxsyn import cli, new
from jaxsyn.config import read_config
from jaxsyn.configs import own
from jaxsyn.errors import InputError
from jaxsyn.preprocess import reading
from jaxsyn.preprocess.corpus import Files

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Different lines in English and in French.
ENGLISH = "The {} dogs are running through the green grass of the park ."
FRENCH = "Les {} chiens courent à travers l'herbe verte du parc ."


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  return tmp_path


def write(name, lines):
  path = pathlib.Path(name)
  path.parent.mkdir(exist_ok=True)
  path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
  return name


def corpus(count, stem="text/train", first=0):
  """Returns the files of a corpus with a number of pairs."""
  numbers = range(first, first + count)
  return Files(
    write(f"{stem}.en", map(ENGLISH.format, numbers)),
    write(f"{stem}.fr", map(FRENCH.format, numbers)),
  )


def unparsed(folder, train, **options):
  return new.run(folder, train, parsers=("none", "none"), **options)


def loaded(made):
  return read_config(cli.load(str(made.path)))


def test_the_config_of_two_files(folder):
  made = unparsed("My first-1", corpus(400))
  assert made.path == pathlib.Path("My first-1/my_first_1.py")
  config = loaded(made)
  files = ("../text/train.en", "../text/train.fr")
  ranges = {"train": "81-", "validation": "1-40", "test": "41-80"}
  assert config.prepare.splits == {s: (*files, r) for s, r in ranges.items()}
  assert config.prepare.raw_dir == str(folder / "My first-1")
  data = config.data
  assert data.directory == str(folder / "My first-1" / "data")
  assert data.name == "my_first_1"
  assert (data.source_language, data.target_language) == ("en", "fr")
  assert config.prepare.parse.sides == ()
  assert config.prepare.vocabulary.size == 1000
  assert (config.train.steps, config.train.patience) == (2000, 10)
  assert config.train.evaluate_every == config.train.save_every == 100
  assert config.batch.tokens == 2048
  assert type(config.optimiser.name).__name__ == "Muon"
  assert made.commands == [
    "python -m jaxsyn.preprocess.build --config 'My first-1/my_first_1.py'",
    "python -m jaxsyn.train --config 'My first-1/my_first_1.py' --workdir"
    " 'My first-1/runs/transformer'",
    f"echo {shlex.quote(ENGLISH.format(0))} | python -m jaxsyn.translate --workdir"
    " 'My first-1/runs/transformer'",
  ]
  assert not [line for line in made.messages if "warning" in line]
  made.path.parent.rename(folder / "moved")
  config = cli.load("moved/my_first_1.py")
  assert config.prepare.raw_dir == str(folder / "moved")
  assert config.data.directory == str(folder / "moved" / "data")


def test_given_validation_and_test_files_and_a_table():
  train, dev = corpus(5), corpus(3, "elsewhere/dev", first=100)
  given = unparsed("mine", train, dev=dev, test=dev)
  dev_files = ("../elsewhere/dev.en", "../elsewhere/dev.fr")
  assert loaded(given).prepare.splits == {
    "train": ("../text/train.en", "../text/train.fr"),
    "validation": dev_files,
    "test": dev_files,
  }
  mixed = unparsed("other", corpus(50, "text/more"), dev=dev)
  splits = loaded(mixed).prepare.splits
  assert splits["test"][2] == "1-5" and splits["train"][2] == "6-"
  rows = (f"{ENGLISH.format(i)}\t{FRENCH.format(i)}" for i in range(20))
  table = unparsed("table", Files(write("pairs.en-fr.tsv", rows)))
  assert loaded(table).prepare.splits["test"] == ("../pairs.en-fr.tsv", "3-4")


def test_languages_of_names_and_flags():
  made = unparsed("mine", corpus(20), languages=("de", ""))
  data = loaded(made).data
  assert (data.source_language, data.target_language) == ("de", "fr")
  numbers = [*map(str, range(20))]
  train = Files(write("a", numbers), write("b", numbers))
  with pytest.raises(
    InputError, match=r"a: the language of the source .* --source_lang"
  ):
    unparsed("unknown", train)


def test_needs_enough_pairs_to_hold_some_out(folder):
  same = Files(write("train.en", ["a"] * 100), write("train.fr", ["b"] * 100))
  for train, counts in ((corpus(19), "19 pairs, 19"), (same, "100 pairs, 1")):
    with pytest.raises(
      InputError, match=rf"{counts} of them distinct; at least 20"
    ):
      unparsed("mine", train)
  assert not (folder / "mine").exists()
  one = corpus(1)
  made = unparsed("mine", one, dev=one, test=one)
  assert [line for line in made.messages if "in training" in line] == [
    f"warning: 1 of the 1 sources of {split} also occur in training, so scores will "
    "be too high. Remove them from the training files"
    for split in ("validation", "test")
  ]


def test_repeated_sources_are_removed_by_the_command_in_the_warning(folder):
  words = [f"word {i % 30}" for i in range(100)]
  train = Files(write("train.en", words), write("train.fr", words))
  (warning,) = [m for m in unparsed("a", train).messages if "too high" in m]
  command = warning.partition("source: ")[2]
  for name, file in zip(("SOURCE", "TARGET"), train.names):
    command = command.replace(name, file)
  subprocess.run(command, shell=True, check=True)
  pairs = pathlib.Path("pairs.tsv").read_text().splitlines()
  assert pairs == [f"word {i}\tword {i}" for i in range(30)]
  made = unparsed("b", Files("pairs.tsv"), languages=("en", "fr"))
  assert not [m for m in made.messages if "too high" in m]


def test_never_replaces_a_config_and_names_the_dataset_after_its_folder():
  train = corpus(20)
  path = unparsed("mine", train).path
  written = path.read_text()
  with pytest.raises(InputError, match=r"mine/mine\.py exists\. Delete it, or"):
    unparsed("mine", train)
  assert path.read_text() == written
  for called, name in {"text": "corpus_text", "2026": "corpus_2026"}.items():
    made = unparsed(called, train)
    assert made.path == pathlib.Path(called, f"{name}.py")


@pytest.mark.parametrize(
  ("language", "model", "message"),
  [
    ("de", "", "The source is parsed by UDPipe's model of de."),
    ("zh-CN", "zh", "The source is parsed by UDPipe's model of zh."),
    (
      "th",
      None,
      "UDPipe has no model of th. To parse it, delete the config and",
    ),
  ],
)
def test_names_the_parser_model_of_the_language(language, model, message):
  made = new.run("mine", corpus(20), languages=(language, ""))
  parse = loaded(made).prepare.parse
  assert parse.sides == (() if model is None else ("source",))
  assert parse.source.parser.model == (model or "")
  assert message in "".join(made.messages)
  run = "mine/mine.py" if model is None else "mine/mine.py:pascal"
  assert f"--config {run} --workdir" in made.commands[1]


def test_a_given_parser_model(prepared):
  model = str(prepared / "parser.source.udpipe")
  config = loaded(new.run("mine", corpus(20), parsers=(model, model)))
  assert config.prepare.parse.sides == ("source", "target")
  assert config.prepare.parse.source.parser.model == model
  assert config.prepare.parse.target.parser.model == model
  write("no.udpipe", ["no model"])
  with pytest.raises(InputError, match=r"no\.udpipe"):
    new.run("other", corpus(20), parsers=("no.udpipe", "none"))


def test_a_large_corpus_has_published_options(monkeypatch):
  sizes = {200_000: (0.3, 20_000), 1_000_000: (0.1, 100_000)}
  for pairs, (dropout, updates) in sizes.items():
    size = new.size_of(pairs)
    with monkeypatch.context() as patch:
      patch.setattr(new, "SIZES", {16: size})
      config = cli.load(str(unparsed(f"large{pairs}", corpus(20)).path))
    assert (config.model.width, config.batch.tokens) == (512, 32_768)
    assert config.model.transformer.dropout == dropout
    assert config.train.steps == updates


def test_the_command_does_not_import_jax():
  train = corpus(20)
  code = (
    "import runpy, sys\n"
    "try: runpy.run_module('jaxsyn', run_name='__main__', alter_sys=True)\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "assert 'jax' not in sys.modules and 'flax' not in sys.modules"
  )
  flags = ["--source", train.source, "--target", train.target]
  done = subprocess.run(
    [sys.executable, "-c", code, "new", "mine", *flags, "--source_parser=none"],
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert "wrote mine/mine.py. Next:\n" in done.stdout
  assert "vocabulary: 1,000 subwords" in done.stdout


def test_splits_of_two_plain_files_leave_nothing_out():
  config = own.corpus(("corpus.en", "corpus.fr"), held_out=2)
  chosen = []
  for name in ("validation", "test", "train"):
    *files, lines = config.prepare.splits[name]
    assert files == ["corpus.en", "corpus.fr"]
    chosen += range(7)[reading.selected(name, lines)]
  assert chosen == [*range(7)]


def test_names_of_two_plain_files_determine_their_dataset():
  files = ("raw/Web-1.zh_Hant.gz", "raw/Web-1.en")
  config = own.get_config("pascal", files=files)
  data = config.data
  assert (data.source_language, data.target_language) == ("zh_Hant", "en")
  assert data.name == "web_1_zh_hant_en"
  assert data.directory == "data/web_1_zh_hant_en"
  assert config.system == "pascal" and config.parts.encoder.parent_scaled
  for name in ("corpus", ".en", "corpus.gz"):
    with pytest.raises(InputError, match=f"^{name}: call it NAME.LANGUAGE"):
      own.corpus((name, "corpus.fr"))
