"""`jaxsyn new`: the config that it writes, its commands, and what it refuses."""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest
import spacy_udpipe.utils
import web_server

from jaxsyn import cli, new
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.new import CorpusSpec
from jaxsyn.survey.pairs import Files

ROOT = pathlib.Path(__file__).resolve().parent.parent
GERMAN = "german-gsd-ud-2.5-191206.udpipe"
# No two lines alike, of what py3langid knows for English and for French.
ENGLISH = "The {} dogs are running through the green grass of the park ."
FRENCH = "Les {} chiens courent à travers l'herbe verte du parc ."


@pytest.fixture
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  return tmp_path


def write(name, lines):
  path = pathlib.Path(name)
  path.parent.mkdir(exist_ok=True)
  path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
  return name


def corpus(count, stem="text/train", first=0):
  """Files of so many pairs."""
  numbers = range(first, first + count)
  return Files(
    write(f"{stem}.en", map(ENGLISH.format, numbers)),
    write(f"{stem}.fr", map(FRENCH.format, numbers)),
  )


def no_parser(train, **more):
  return CorpusSpec(train, source_parser="none", **more)


def test_the_config_of_two_files(folder):
  made = new.run("My first-1", no_parser(corpus(400)))
  assert made.path == pathlib.Path("My first-1/my_first_1.py")
  config = read_config(cli.load(str(made.path)))
  files = ("train.en", "train.fr")
  assert config.prepare.splits == {
    "train": (*files, "81-"),
    "validation": (*files, "1-40"),
    "test": (*files, "41-80"),
  }
  current = folder / "My first-1"
  assert config.prepare.raw_dir == str(folder / "text")
  assert config.data.directory == str(current / "data")
  assert (config.data.name, config.data.source_language, config.data.target_language) == ("my_first_1", "en", "fr")  # fmt: skip
  assert config.prepare.parse.sides == ()
  assert config.prepare.vocabulary.size == 1000
  assert (config.train.steps, config.train.patience) == (2000, 10)
  assert config.train.evaluate_every == config.train.save_every == 100
  assert (config.batch.tokens, config.optimiser.name.__class__.__name__) == (
    2048,
    "Muon",
  )
  assert made.commands == (
    "python -m jaxsyn.preprocess.build --config 'My first-1/my_first_1.py'",
    "python -m jaxsyn.train --config 'My first-1/my_first_1.py' --workdir"
    " 'My first-1/runs/transformer'",
    f"echo {shlex.quote(ENGLISH.format(0))} | python -m jaxsyn.translate --workdir"
    " 'My first-1/runs/transformer'",
  )
  assert not [line for line in made.messages if "warning" in line]


def test_the_config_is_written_as_ruff_would_have_it(folder):
  """Whatever the choices were."""
  train = corpus(30, "m/train")  # no path of a folder, however long it is
  rest = corpus(3, "m/dev", 100)
  for name, inputs in {
    "cut": no_parser(train),
    "given": no_parser(train, dev=rest, test=rest),
  }.items():
    made = new.run("m", inputs, name)
    ruff = [sys.executable, "-m", "ruff", "--config", ROOT / "pyproject.toml"]
    for words in (["check", "--select", "B,F,I,W"], ["format", "--check"]):
      done = subprocess.run(
        [*ruff[:3], *words, *ruff[3:], made.path],
        capture_output=True,
        text=True,
      )
      assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_files_of_ones_own_splits(folder):
  train, dev = corpus(5), corpus(3, "elsewhere/dev", first=100)
  made = new.run("mine", no_parser(train, dev=dev, test=dev))
  config = read_config(cli.load(str(made.path)))
  dev_files = ("elsewhere/dev.en", "elsewhere/dev.fr")
  assert config.prepare.splits == {
    "train": ("text/train.en", "text/train.fr"),
    "validation": dev_files,
    "test": dev_files,
  }
  assert config.prepare.raw_dir == str(folder)
  train = corpus(50, "text/more")
  made = new.run("other", no_parser(train, dev=dev))
  splits = read_config(cli.load(str(made.path))).prepare.splits
  assert splits["test"][2] == "1-5" and splits["train"][2] == "6-"


def test_files_in_the_folder_move_with_it(folder):
  train = corpus(20, "mine/train")
  new.run("mine", no_parser(train))
  (folder / "mine").rename(folder / "moved")
  config = cli.load("moved/mine.py")
  assert config.prepare.raw_dir == str(folder / "moved")
  assert config.data.directory == str(folder / "moved" / "data")


def test_a_table_of_two_columns(folder):
  rows = (f"{ENGLISH.format(i)}\t{FRENCH.format(i)}" for i in range(20))
  made = new.run("mine", no_parser(Files(write("pairs.tsv", rows))))
  config = read_config(cli.load(str(made.path)))
  assert config.prepare.splits["test"] == ("pairs.tsv", "3-4")
  assert made.plan.languages == ("en", "fr")
  assert (
    "en, by the text" in made.messages[0]
    and "fr, by the text" in made.messages[1]
  )


def test_a_language_that_does_not_fit_its_name_is_told(folder):
  train = Files(
    write("train.de", map(ENGLISH.format, range(20))),
    write("train.fr", map(FRENCH.format, range(20))),
  )
  made = new.run("mine", no_parser(train))
  assert made.plan.languages == ("de", "fr")
  assert made.messages[1] == (
    "warning: the source is de by the file's name, but 100 % of it looks like en."
    " If so: --source_language en"
  )
  made = new.run("said", no_parser(train, source_language="en"))
  assert made.plan.languages == ("en", "fr")
  assert not [line for line in made.messages if "warning" in line]


@pytest.mark.parametrize(
  ("count", "message"),
  [
    (1, "1 pairs; to hold some out .* 20 are needed"),
    (3, "3 pairs; to hold some out .* 20 are needed"),
    (19, "19 pairs; to hold some out .* 20 are needed"),
  ],
)
def test_too_few_lines_to_split(folder, count, message):
  with pytest.raises(InputError, match=message):
    new.run("mine", no_parser(corpus(count)))
  assert not (folder / "mine").exists()


def test_one_line_is_enough_where_the_splits_are_given(folder):
  one = corpus(1)
  made = new.run("mine", no_parser(one, dev=one, test=one))
  message = [line for line in made.messages if "stand in training" in line]
  assert message == [
    f"warning: of 1 pairs of {split} 1 stand in training too, and 1 of their"
    " sources: scores will flatter"
    for split in ("validation", "test")
  ]


def test_the_same_line_all_over_is_refused(folder):
  train = Files(write("train.en", ["a"] * 100), write("train.fr", ["b"] * 100))
  with pytest.raises(InputError, match="100 pairs, 1 different ones; to hold"):
    new.run("mine", no_parser(train))


def test_a_config_is_never_written_over(folder):
  train = corpus(20)
  path = new.run("mine", no_parser(train)).path
  path.write_text("changed")
  with pytest.raises(
    InputError, match=r"mine/mine\.py is there already\. Choose"
  ):
    new.run("mine", no_parser(train))
  assert path.read_text() == "changed"
  assert os.listdir("mine") == ["mine.py"]
  other = new.run("mine", no_parser(train), name="other").path
  assert other == pathlib.Path("mine/other.py")
  # Neither prepares what the other trains on.
  folders = [
    pathlib.Path(read_config(cli.load(str(one))).data.directory).name
    for one in (new.run("own", no_parser(train)).path, other)
  ]
  assert folders == ["data", "data_other"]


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("Mine", "--name Mine: lower case letters"),
    ("raw", "--name raw: .* none of conllu, raw, text, work"),
    ("../mine", "--name ../mine: lower case"),
  ],
)
def test_names_that_are_refused(folder, name, message):
  with pytest.raises(InputError, match=message):
    new.run("mine", no_parser(corpus(20)), name=name)


@pytest.mark.parametrize(
  ("called", "name"), [("text", "corpus_text"), ("2026", "corpus_2026")]
)
def test_a_folder_of_another_name(folder, called, name):
  made = new.run(called, no_parser(corpus(20)))
  assert made.path == pathlib.Path(called, f"{name}.py")


def test_names_of_files_that_a_config_cannot_say(folder):
  train = Files(write("a,b.en", "xy"), write("a,b.fr", "xy"))
  with pytest.raises(InputError, match=r"a,b\.en: in a config a comma parts"):
    new.run("mine", no_parser(train))
  with pytest.raises(InputError, match="here files on this machine"):
    new.run("mine", no_parser(Files("s3://b/a.en", "s3://b/a.fr")))


def test_a_language_that_nothing_tells(folder):
  train = Files(
    write("a", map(str, range(20))), write("b", map(str, range(20)))
  )
  with pytest.raises(InputError, match=r"a: which language is the source\?.* --source_language"):  # fmt: skip
    new.run("mine", no_parser(train))


def test_without_a_network_there_are_no_trees(folder, monkeypatch):
  monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody listens
  made = new.run("mine", CorpusSpec(corpus(20)))
  assert read_config(cli.load(str(made.path))).prepare.parse.sides == ()
  why = made.plan.parsers["source"].why
  assert why.startswith("UDPipe's model of en could not be fetched: the source")
  assert "config.prepare.parse.source.udpipe.model" in why
  assert "--source_parser FILE" in why
  assert made.commands[1].endswith(
    "mine/mine.py --workdir mine/runs/transformer"
  )


def command(*words):
  """Runs `jaxsyn new` in a process that reaches no network."""
  environment = os.environ | {
    "PYTHONPATH": str(ROOT),
    **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),
  }
  return subprocess.run(
    [sys.executable, "-m", "jaxsyn", "new", *words],
    env=environment,
    capture_output=True,
    text=True,
  )


def test_adds_a_parser_to_a_project_that_was_made_offline(folder, shared_data):
  train = corpus(400)
  words = ["mine", "--source", train.source, "--target", train.target]
  first = command(*words)
  assert first.returncode == 0, first.stderr
  assert "could not be fetched: the source is not parsed" in first.stdout
  model = shared_data / "udpipe" / "english.udpipe"
  second = command(*words, "--source_parser", str(model))
  assert second.returncode == 0, second.stderr
  assert "replaced mine/mine.py, which was not edited. Next:" in second.stdout
  assert [*pathlib.Path("mine").glob("*.py")] == [pathlib.Path("mine/mine.py")]
  config = cli.load("mine/mine.py:pascal")
  assert config.prepare.parse.sides == ("source",)
  assert config.prepare.parse.source.udpipe.model == str(model)
  assert "--config mine/mine.py:pascal" in second.stdout


def test_does_not_replace_an_edited_config_or_one_of_another_corpus(folder):
  train = corpus(400)
  words = ["mine", "--source", train.source, "--target", train.target]
  assert command(*words).returncode == 0
  path = pathlib.Path("mine/mine.py")
  written = path.read_text()
  other = corpus(400, "text/other")
  with_other = ["mine", "--source", other.source, "--target", other.target]
  rejected = command(*with_other)
  assert rejected.returncode == 2
  assert (
    "mine/mine.py is there already. Choose another --name" in rejected.stderr
  )
  assert path.read_text() == written
  for edited in (written.replace("patience=10", "patience=11"), written + "\n"):
    path.write_text(edited)
    rejected = command(*words, "--source_parser=none")
    assert rejected.returncode == 2
    assert "is there already" in rejected.stderr
    assert "config.prepare.parse.source.udpipe.model" in rejected.stderr
    assert path.read_text() == edited


def test_a_language_without_a_model_has_no_trees(folder):
  made = new.run("mine", CorpusSpec(corpus(20), source_language="th"))
  assert not made.plan.parsers["source"].is_available
  assert "UDPipe has no model of th" in made.plan.parsers["source"].why


def test_a_model_is_fetched_where_preparing_looks_for_it(
  folder, monkeypatch, shared_data
):
  model = (shared_data / "udpipe" / "german.udpipe").read_bytes()
  with web_server.serve() as server:
    monkeypatch.setattr(spacy_udpipe.utils, "BASE_URL", server.url("udpipe"))
    server.answers[f"udpipe/{GERMAN}"] = model
    made = new.run("mine", CorpusSpec(corpus(20), source_language="de"))
  config = cli.load(f"{made.path}:pascal")
  assert config.prepare.parse.sides == ("source",)
  assert (folder / "mine" / "data" / "raw" / GERMAN).is_file()
  assert made.commands[1].endswith(
    "--config mine/mine.py:pascal --workdir mine/runs/pascal"
  )
  assert config.prepare.parse.source.udpipe.model == ""


def test_a_model_of_ones_own(folder, shared_data):
  model = shared_data / "udpipe" / "english.udpipe"
  inputs = CorpusSpec(
    corpus(20), source_parser=str(model), target_parser=str(model)
  )
  config = cli.load(str(new.run("mine", inputs).path))
  assert config.prepare.parse.sides == ("source", "target")
  assert config.prepare.parse.source.udpipe.model == str(model)
  assert config.prepare.parse.target.udpipe.model == str(model)
  write("no.udpipe", ["no model"])
  with pytest.raises(InputError, match=r"no\.udpipe"):
    new.run("other", CorpusSpec(corpus(20), source_parser="no.udpipe"))


def test_a_large_corpus_has_the_published_settings(folder, monkeypatch):
  monkeypatch.setattr(new.choices, "LARGE", 16)
  config = cli.load(str(new.run("mine", no_parser(corpus(20))).path))
  assert (config.model.width, config.model.transformer.dropout) == (512, 0.3)
  assert (config.train.steps, config.batch.tokens) == (20_000, 32_768)
  monkeypatch.setattr(new.choices, "HUGE", 16)
  config = cli.load(str(new.run("huge", no_parser(corpus(20))).path))
  assert (config.train.steps, config.model.transformer.dropout) == (
    100_000,
    0.1,
  )


def test_the_command_loads_no_jax(folder):
  train = corpus(20)
  code = (
    "import runpy, sys\n"
    "try: runpy.run_module('jaxsyn', run_name='__main__', alter_sys=True)\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "assert 'jax' not in sys.modules and 'flax' not in sys.modules"
  )
  done = subprocess.run(
    [
      *(sys.executable, "-c", code, "new", "mine", "--source", train.source),
      *("--target", train.target, "--source_parser=none"),
    ],
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert "wrote mine/mine.py. Next:\n" in done.stdout
  assert "vocabulary: 1,000 subwords" in done.stdout
