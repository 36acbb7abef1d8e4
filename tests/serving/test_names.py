"""Runs of a command line, and their names."""

import sys

import pytest
from absl import flags

from jaxsyn import cli, serve
from jaxsyn.errors import InputError
from jaxsyn.serving.runs import RunLocation, run_locations


@pytest.mark.parametrize(
  "words, names",
  [
    (["/a/b/pascal"], ["pascal"]),
    (["/a/b/pascal/", "/a/b/other"], ["pascal", "other"]),
    (["/a/p@best", "/a/p@100"], ["p@best", "p@100"]),
    (["hub:me/pascal", "/a/q"], ["pascal", "q"]),
    (["first=/a/p", "/b/p"], ["first", "p"]),
    (["both=/a/p,/a/q@last", "/a/p,/b/p"], ["both", "p,p"]),
    (["s3://store/runs/p", "x=gs://store/runs/p"], ["p", "x"]),
  ],
)  # fmt: skip
def test_default_names(words, names):
  assert [place.name for place in run_locations(words)] == names


def test_folders():
  assert run_locations(["x=/a/p@7,hub:me/q"]) == [
    RunLocation("x", ("/a/p@7", "hub:me/q"))
  ]


def test_a_folder_may_look_like_a_name(tmp_path):
  folder = tmp_path / "lr=0.1,seed=2"
  folder.mkdir()
  (folder / "config.json").touch()
  assert run_locations([str(folder)]) == [
    RunLocation("lr=0.1,seed=2", (str(folder),))
  ]


@pytest.mark.parametrize(
  "words, message",
  [
    ([], "name the folder of a trained run: jaxsyn serve RUN"),
    (["/a/p", "/a/p"], "two runs are called 'p': /a/p and /a/p; name one"),
    (["/a/p", "/b/p"], "and /b/p; name one of them, as in NAME=/b/p"),
    (["x=/a/p", "x=/a/q"], "two runs are called 'x'"),
    (["/a/p,"], "'/a/p,' has a folder without a name in it."),
  ],
)
def test_names_that_cannot_be(words, message):
  with pytest.raises(InputError, match=message):
    run_locations(words)


@pytest.fixture
def parse():
  """A function: the flags of a command line."""
  before = {*flags.FLAGS}
  serve.define_flags()
  yield lambda *words: cli.parse(["serve", *words], word="run")
  for name in {*flags.FLAGS} - before:
    delattr(flags.FLAGS, name)
  flags.FLAGS.unparse_flags()


def test_all_words_are_runs(parse):
  values = parse("a", "--port", "0", "b=c", "--beam=2", "d")
  assert values.run == ["a", "b=c", "d"] and values.port == 0
  assert values.max_characters == 2000 and values.timeout == 60.0


def test_bounds(parse):
  with pytest.raises(InputError, match="--port=70000"):
    parse("a", "--port=70000")


def test_reports_a_missing_package(parse, monkeypatch):
  monkeypatch.setitem(sys.modules, "uvicorn", None)
  message = r"^serving needs the package uvicorn: pip install -e '\.\[serve\]'$"
  with pytest.raises(InputError, match=message):
    serve._main(parse("a"))
