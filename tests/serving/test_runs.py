"""Runs of a command line, their names and their parsers."""

import os
import shutil
import sys

import pytest
from command_flags import parsed
from serving_client import LINE

from jaxsyn import serve
from jaxsyn.data.sentence.stream import parses_of_text
from jaxsyn.errors import InputError
from jaxsyn.serving.runs import ServedRun, run_locations
from jaxsyn.serving.server import host_names
from jaxsyn.utils.workers import WorkerDiedError


@pytest.mark.parametrize(
  "words, runs",
  [
    ("/a/b/pascal/ /a/other", {"pascal": ["/a/b/pascal/"], "other": ["/a/other"]}),
    ("/a/p@best /a/p@7", {"p@best": ["/a/p@best"], "p@7": ["/a/p@7"]}),
    ("hub:me/p x=/b/p", {"p": ["hub:me/p"], "x": ["/b/p"]}),
    ("x=/a/p,hub:me/q /b/p,/c/p", {"x": ["/a/p", "hub:me/q"], "p,p": ["/b/p", "/c/p"]}),
    ("s3://store/p x=gs://store/p", {"p": ["s3://store/p"], "x": ["gs://store/p"]}),
  ],
)  # fmt: skip
def test_names_and_folders(words, runs):
  assert run_locations(words.split()) == runs


def test_a_folder_of_a_sweep(tmp_path):
  folder = tmp_path / "lr=0.1,seed=2"
  folder.mkdir()
  (folder / "config.json").touch()
  assert run_locations([str(folder)]) == {"lr=0.1,seed=2": [str(folder)]}


@pytest.mark.parametrize(
  "words, message",
  [
    ([], "name the folder of a trained run: jaxsyn serve RUN"),
    (["/a/p", "/b/p"], "/b/p: another run is called 'p'; .* in NAME=/b/p"),
    (["/a/p,"], "'/a/p,' has a folder without a name."),
  ],
)
def test_rejects_ambiguous_names(words, message):
  with pytest.raises(InputError, match=message):
    run_locations(words)


def test_names_of_the_server():
  assert "example.org" in host_names("127.0.0.1", ["example.org"])
  assert {"localhost", "[::2]"} <= {*host_names("::2", [])}
  assert host_names("0.0.0.0", []) == ["*"]
  assert "*" not in host_names("0.0.0.0", ["*.example.org"])
  with pytest.raises(InputError, match=r"--allowed_hosts=a\.\*: names such as"):
    host_names("localhost", ["a.*"])


def test_flags(monkeypatch):
  words = ["a", "--port", "0", "b=c", "--beam=2", "d"]
  monkeypatch.setitem(sys.modules, "uvicorn", None)
  message = r"^serving needs the package uvicorn: pip install -e '\.\[serve\]'$"
  with parsed(serve, *words, word="run") as values:
    assert values.run == ["a", "b=c", "d"] and values.port == 0
    with pytest.raises(InputError, match=message):
      serve._main(values)


def test_a_run_without_a_parser_reads_trees(runs, tmp_path, new_client):
  folder = tmp_path / "no_parser"
  shutil.copytree(runs["pascal"], folder)
  (folder / "parser.source.udpipe").unlink()
  run = ServedRun("bare", [str(folder)])
  try:
    assert run.description["parser"] is False
    response = new_client(runs=[run])("/parse", {"text": LINE})
    assert response.status_code == 422
    assert "such parser model" in response.json()["error"]
    rows = ["1\ta\t_\t_\t_\t_\t2\tdet\t_\t_", "2\tcow\t_\t_\t_\t_\t0\troot\t_\t_"]  # fmt: skip
    trees = parses_of_text("\n".join([*rows, "", ""]), "text")
    without, ((example,), _) = run.readers.read([LINE, *trees])
    assert "such parser model" in str(without)
    assert example["source_head"].tolist() == [1, 1]
  finally:
    run.readers.close()


def test_restarts_a_parser_that_died(served):
  readers = served[0].readers
  before = readers.parse(LINE)
  readers._workers._process.kill()
  readers._workers._process.wait()
  for _ in range(3):  # one of two processes was killed
    assert readers.parse(LINE) == before
    (((example,), cut),) = readers.read([LINE])
    assert not cut and len(example["source_head"]) == 4


class Deadly:
  """A source that ends the process that reads it."""

  def __reduce__(self):
    return os._exit, (1,)


def test_a_sentence_that_ends_the_parser_fails_alone(served):
  readers = served[0].readers
  for _ in range(3):
    results = readers.read([LINE, Deadly(), LINE, LINE])
    died = [isinstance(result, WorkerDiedError) for result in results]
    assert died == [False, True, False, False]
