"""An exported model translates like its run, from a folder and from a hub."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys

import model_hub
import numpy as np
import pytest

from jaxsyn import export, train
from jaxsyn.errors import InputError
from jaxsyn.session import Session, exported, parameters, workdir
from jaxsyn.storage import checksums, files
from jaxsyn.training.checkpoint_reader import Parameters

pytest.importorskip("safetensors", reason="extra hub")
LINES = ["the small dog sees a cat .", "", "the cat sleeps ."]


@pytest.fixture(scope="module")
def run(runs):
  """The folder of a run that reads trees."""
  return runs["pascal"]


@pytest.fixture(scope="module")
def folder(run, made_once):
  """The exported model."""
  return made_once(
    "exported", lambda folder: export.run(run, folder, license="cc-by-4.0")
  )


def translated(session):
  return [[(t.text, t.score, t.ids) for t in nbest] for nbest in session(LINES)]


def test_translates_like_the_run(run, folder):
  one, other = Session(run), Session(folder)
  assert translated(one) == translated(other)
  assert other.chosen == one.chosen
  with pytest.raises(InputError, match="is an exported model and holds"):
    Session(folder, checkpoint="1")
  names = "model.safetensors model.json config.json manifest.json README.md"
  names += " vocabulary.model parser.source.udpipe"
  assert {path.name for path in folder.iterdir()} == {*names.split()}


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(folder, tmp_path, name):
  copy = tmp_path / "copy"
  shutil.copytree(folder, copy)
  (copy / name).unlink()
  message = rf"{name} is (missing|corrupt) \(.*No such file"
  with pytest.raises(InputError, match=message):
    Session(copy)


def test_a_crafted_file_of_parameters_is_named(folder, tmp_path):
  """Its SHA-256 is that in model.json, but it is not in the format."""
  copy = tmp_path / "copy"
  shutil.copytree(folder, copy)
  content = b"no safetensors"
  (copy / exported.ARRAYS).write_bytes(content)
  record = json.loads((copy / exported.RECORD_FILE).read_text())
  record["sha256"] = hashlib.sha256(content).hexdigest()
  files.write_json(copy / exported.RECORD_FILE, checksums.add_checksum(record))
  with pytest.raises(InputError, match=r"model\.safetensors is corrupt \("):
    Session(copy)


def test_the_model_card(run, folder, tmp_path):
  card = (folder / "README.md").read_text()
  _, block, rest = card.split("---\n", 2)
  assert 'license: "cc-by-4.0"' in block and "language: [en, qaa]" in block
  score = parameters.read(workdir.open_run(run)).score
  assert f"{score['score']:.2f}" in rest
  assert "| train | 600 |" in rest and "FILL-IN" not in card
  message = export.run(run, tmp_path / "bare", parser=False)
  card = (tmp_path / "bare" / "README.md").read_text()
  assert card.count("FILL-IN") == 2
  assert any("no license yet" in line for line in message)
  assert not (tmp_path / "bare" / "parser.source.udpipe").exists()
  with pytest.raises(InputError, match="parser"):
    Session(tmp_path / "bare")(LINES)


def test_a_run_can_start_from_an_export(tiny, folder, tmp_path):
  config = tiny("pascal")
  config.model.transformer.encoder_layers = 1
  config.batch.shapes = 1
  config.train.update(steps=1, selection="log_likelihood")
  config.train.start.run = str(folder)
  train.run(config, tmp_path / "run")
  document = json.loads((tmp_path / "run" / "start.json").read_text())
  assert not document["fresh"] and document["run"] == str(folder)
  export.run(tmp_path / "run", tmp_path / "model")
  assert document["sha256"] in (tmp_path / "model" / "README.md").read_text()
  export.run(tmp_path / "model", tmp_path / "again")
  (tmp_path / "run" / "start.json").unlink()
  with pytest.raises(InputError, match=r"start\.json is missing \(.*No such f"):
    export.run(tmp_path / "run", tmp_path / "third")


def test_the_file_of_parameters_is_the_same_each_time(tmp_path):
  """Its header is a hash table whose order another process would not repeat."""
  params = {name: np.arange(3.0) * i for i, name in enumerate("abcdefgh")}
  contents = set()
  for _ in range(16):
    exported.write(tmp_path, Parameters(params, (1,)))
    contents.add((tmp_path / exported.ARRAYS).read_bytes())
  assert len(contents) == 1


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"format": "onnx"}, "no format 'onnx'"),
    ({"checkpoint": "77"}, "no checkpoint '77'"),
    ({"output": "hub:me/mine"}, "does not write to a hub"),
    ({"folder": "none"}, "none is not the folder of a run"),
  ],
)
def test_a_rejected_export_leaves_no_files(run, tmp_path, options, message):
  existing = tmp_path / "thesis"
  existing.touch()
  options = {"folder": run, "output": tmp_path / "out"} | options
  with pytest.raises(InputError, match=message):
    export.run(**options)
  with pytest.raises(InputError, match="not empty"):
    export.run(run, tmp_path)
  assert list(tmp_path.iterdir()) == [existing]


SESSION = """
from jaxsyn.errors import InputError, StoreError
from jaxsyn.session import Session
for name in {names!r}:
  try:
    session = Session(name)
    print([[t.text for t in nbest] for nbest in session({lines!r})])
  except (InputError, StoreError) as error:
    print(type(error).__name__, error)
"""


def test_opens_a_model_of_a_hub(folder, tmp_path, environment):
  pytest.importorskip("huggingface_hub", reason="extra hub")

  def output_of(*names, **more):
    code = SESSION.format(names=names, lines=LINES)
    done = subprocess.run(
      [sys.executable, "-c", code],
      env=environment | {"HF_HOME": str(tmp_path / "cache")} | more,
      capture_output=True,
      text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()

  wanted = [[text for text, *_ in n] for n in translated(Session(folder))]
  with model_hub.serve("me/mine", folder) as server:
    present = {"HF_ENDPOINT": server.url}
    names = ("hub:me/mine", "hub:me/mine@v9", "hub:me/none")
    translations, revision, model = output_of(*names, **present)
    assert translations == str(wanted)
    assert "no revision 'v9'" in revision and "no such model" in model
    requests = len(server.asked)
    offline = output_of("hub:me/mine", HF_HUB_OFFLINE="1", **present)
    assert offline == [str(wanted)] and len(server.asked) == requests
  (error,) = output_of("hub:me/other", **present)
  assert error.startswith("StoreError hub:me/other")
