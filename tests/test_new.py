"""Tests the config that `jaxsyn new` writes, its commands, and its errors."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest
import spacy_udpipe.utils
import web_server

from jaxsyn import cli, new
from jaxsyn import corpus as corpora
from jaxsyn.config import read_config
from jaxsyn.corpus import Files
from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent
GERMAN = "german-gsd-ud-2.5-191206.udpipe"
# Different lines that py3langid identifies as English and as French.
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
  files = ("train.en", "train.fr")
  assert config.prepare.splits == {
    "train": (*files, "81-"),
    "validation": (*files, "1-40"),
    "test": (*files, "41-80"),
  }
  assert config.prepare.raw_dir == str(folder / "text")
  assert config.data.directory == str(folder / "My first-1" / "data")
  data = config.data
  assert (data.name, data.source_language, data.target_language) == (
    "my_first_1",
    "en",
    "fr",
  )
  assert config.prepare.parse.sides == ()
  assert config.prepare.vocabulary.size == 1000
  assert (config.train.steps, config.train.patience) == (2000, 10)
  assert config.train.evaluate_every == config.train.save_every == 100
  assert config.batch.tokens == 2048
  assert type(config.optimiser.name).__name__ == "Muon"
  assert made.commands == (
    "python -m jaxsyn.preprocess.build --config 'My first-1/my_first_1.py'",
    "python -m jaxsyn.train --config 'My first-1/my_first_1.py' --workdir"
    " 'My first-1/runs/transformer'",
    f"echo {shlex.quote(ENGLISH.format(0))} | python -m jaxsyn.translate --workdir"
    " 'My first-1/runs/transformer'",
  )
  assert not [line for line in made.messages if "warning" in line]


def test_the_config_is_formatted():
  train, rest = corpus(30, "m/train"), corpus(3, "m/dev", 100)
  for name, options in {
    "cut": {},
    "given": {"dev": rest, "test": rest},
  }.items():
    made = unparsed("m", train, name=name, **options)
    ruff = [sys.executable, "-m", "ruff", "--config", ROOT / "pyproject.toml"]
    for words in (["check", "--select", "B,F,I,W"], ["format", "--check"]):
      command = [*ruff[:3], *words, *ruff[3:], made.path]
      done = subprocess.run(command, capture_output=True, text=True)
      assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_given_validation_and_test_files(folder):
  train, dev = corpus(5), corpus(3, "elsewhere/dev", first=100)
  config = loaded(unparsed("mine", train, dev=dev, test=dev))
  dev_files = ("elsewhere/dev.en", "elsewhere/dev.fr")
  assert config.prepare.splits == {
    "train": ("text/train.en", "text/train.fr"),
    "validation": dev_files,
    "test": dev_files,
  }
  assert config.prepare.raw_dir == str(folder)
  made = unparsed("other", corpus(50, "text/more"), dev=dev)
  splits = loaded(made).prepare.splits
  assert splits["test"][2] == "1-5" and splits["train"][2] == "6-"


def test_files_in_the_folder_move_with_it(folder):
  unparsed("mine", corpus(20, "mine/train"))
  (folder / "mine").rename(folder / "moved")
  config = cli.load("moved/mine.py")
  assert config.prepare.raw_dir == str(folder / "moved")
  assert config.data.directory == str(folder / "moved" / "data")


def test_a_table_of_two_columns():
  rows = (f"{ENGLISH.format(i)}\t{FRENCH.format(i)}" for i in range(20))
  made = unparsed("mine", Files(write("pairs.tsv", rows)))
  assert loaded(made).prepare.splits["test"] == ("pairs.tsv", "3-4")
  assert "en, by the text" in made.messages[0]


def test_warns_of_a_language_that_contradicts_the_file_name():
  train = Files(
    write("train.de", map(ENGLISH.format, range(20))),
    write("train.fr", map(FRENCH.format, range(20))),
  )
  made = unparsed("mine", train)
  assert loaded(made).data.source_language == "de"
  assert made.messages[1] == (
    "warning: the source is de by the file's name, but 100 % of it looks like en."
    " If so: --source_language en"
  )
  made = unparsed("declared", train, languages=("en", ""))
  assert loaded(made).data.source_language == "en"
  assert not [line for line in made.messages if "warning" in line]


def test_too_few_lines_to_hold_out(folder):
  for count in (1, 19):
    message = f"{count} pairs, {count} different ones; to hold .* 20 are needed"
    with pytest.raises(InputError, match=message):
      unparsed("mine", corpus(count))
  same = Files(write("train.en", ["a"] * 100), write("train.fr", ["b"] * 100))
  with pytest.raises(InputError, match="100 pairs, 1 different ones; to hold"):
    unparsed("mine", same)
  assert not (folder / "mine").exists()


def test_one_line_is_enough_if_the_splits_are_given():
  one = corpus(1)
  made = unparsed("mine", one, dev=one, test=one)
  assert [line for line in made.messages if "in training" in line] == [
    f"warning: 1 of the 1 sources of {split} are in training too: scores will "
    "be too high"
    for split in ("validation", "test")
  ]


def test_adds_a_parser_to_a_config_that_was_not_edited(shared_data):
  train, model = corpus(20), str(shared_data / "udpipe" / "english.udpipe")
  assert not unparsed("mine", train).replaces
  made = new.run("mine", train, parsers=(model, "none"))
  assert made.replaces and os.listdir("mine") == ["mine.py"]
  config = cli.load(str(made.path))
  assert config.prepare.parse.source.udpipe.model == model


def test_never_overwrites_an_edited_config_or_one_of_another_corpus():
  train = corpus(20)
  path = unparsed("mine", train).path
  written = path.read_text()
  with pytest.raises(InputError, match=r"mine/mine\.py exists\. Choose"):
    unparsed("mine", corpus(20, "text/other"))
  assert path.read_text() == written
  for edited in (written.replace("patience=10", "patience=11"), written + "\n"):
    path.write_text(edited)
    with pytest.raises(InputError, match=r"udpipe\.model"):
      unparsed("mine", train)
    assert path.read_text() == edited
  assert os.listdir("mine") == ["mine.py"]
  # Neither of two configs prepares what the other trains on.
  other = unparsed("mine", train, name="other")
  assert other.path == pathlib.Path("mine/other.py")
  assert pathlib.Path(loaded(other).data.directory).name == "data_other"


def test_dataset_names():
  for name, message in {
    "Mine": "--name Mine: lower case letters",
    "raw": "--name raw: .* none of conllu, raw, text, work",
    "../mine": "--name ../mine: lower case",
  }.items():
    with pytest.raises(InputError, match=message):
      unparsed("mine", corpus(20), name=name)
  for called, name in {"text": "corpus_text", "2026": "corpus_2026"}.items():
    made = unparsed(called, corpus(20))
    assert made.path == pathlib.Path(called, f"{name}.py")


def test_a_language_that_cannot_be_detected():
  numbers = [*map(str, range(20))]
  train = Files(write("a", numbers), write("b", numbers))
  with pytest.raises(
    InputError, match=r"a: which language is the source\?.* --source_language"
  ):
    unparsed("mine", train)


def test_without_a_network_there_are_no_trees(monkeypatch):
  monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens
  made = new.run("mine", corpus(20))
  assert loaded(made).prepare.parse.sides == ()
  (why,) = (m for m in made.messages if "the source is not parsed" in m.lower())
  assert "UDPipe's model of en could not be downloaded." in why
  assert "config.prepare.parse.source.udpipe.model" in why
  assert "--source_parser FILE" in why
  assert made.commands[1].endswith(
    "mine/mine.py --workdir mine/runs/transformer"
  )


def test_a_language_without_a_model_has_no_trees():
  made = new.run("mine", corpus(20), languages=("th", ""))
  assert loaded(made).prepare.parse.sides == ()
  assert "UDPipe has no model of th" in "".join(made.messages)


def test_downloads_a_model_to_the_folder_of_raw_files(
  folder, monkeypatch, shared_data
):
  model = (shared_data / "udpipe" / "german.udpipe").read_bytes()
  with web_server.serve() as server:
    monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", server.url("udpipe"))
    server.answers[f"udpipe/{GERMAN}"] = model
    made = new.run("mine", corpus(20), languages=("de", ""))
  config = cli.load(f"{made.path}:pascal")
  assert config.prepare.parse.sides == ("source",)
  assert (folder / "mine" / "data" / "raw" / GERMAN).is_file()
  assert made.commands[1].endswith(
    "--config mine/mine.py:pascal --workdir mine/runs/pascal"
  )
  assert config.prepare.parse.source.udpipe.model == ""


def test_a_given_parser_model(shared_data):
  model = str(shared_data / "udpipe" / "english.udpipe")
  config = loaded(new.run("mine", corpus(20), parsers=(model, model)))
  assert config.prepare.parse.sides == ("source", "target")
  assert config.prepare.parse.source.parser.model == model
  assert config.prepare.parse.target.parser.model == model
  write("no.udpipe", ["no model"])
  with pytest.raises(InputError, match=r"no\.udpipe"):
    new.run("other", corpus(20), parsers=("no.udpipe", "none"))


def test_a_large_corpus_has_published_options(monkeypatch):
  for pairs, dropout, updates in (
    (200_000, 0.3, 20_000),
    (1_000_000, 0.1, 100_000),
  ):
    size = corpora.SIZES[pairs]
    with monkeypatch.context() as patch:
      patch.setattr(corpora, "SIZES", {16: size})
      made = unparsed(f"n{pairs}", corpus(20))
    config = cli.load(str(made.path))
    assert config.model.width == 512
    assert config.model.transformer.dropout == dropout
    assert config.batch.tokens == 32_768
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
