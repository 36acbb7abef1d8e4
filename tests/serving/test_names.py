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
    (["/a/x/pascal", "/a/y/pascal"], ["x/pascal", "y/pascal"]),
    (["/a/x/z/p", "/a/y/z/p", "/a/q"], ["x/z/p", "y/z/p", "q"]),
    (["/a/p@best", "/a/p@100"], ["p@best", "p@100"]),
    (["hub:me/pascal", "/a/pascal"], ["me/pascal", "a/pascal"]),
    (["first=/a/p", "/b/p"], ["first", "p"]),
    (["both=/a/p,/a/q@last", "/a/p,/b/p"], ["both", "p,p"]),
    (["s3://store/runs/p", "gs://store/runs/p"], ["s3:/store/runs/p", "gs:/store/runs/p"]),
  ],
)  # fmt: skip
def test_shortest_unique_names(words, names):
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
  assert values.max_characters == 2000 and values.rate == 0.0


def test_bounds(parse):
  with pytest.raises(InputError, match="--port=70000"):
    parse("a", "--port=70000")


def test_reports_a_missing_package(parse, monkeypatch):
  monkeypatch.setitem(sys.modules, "uvicorn", None)
  message = r"^serving needs the package uvicorn: pip install -e '\.\[serve\]'$"
  with pytest.raises(InputError, match=message):
    serve._main(parse("a"))
