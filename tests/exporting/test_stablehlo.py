"""An exported program translates where jaxsyn cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys

import documents
import pytest

from benchmarks import stablehlo_beside
from jaxsyn import export, train
from jaxsyn.data.schema import EIGENVECTORS
from jaxsyn.errors import InputError
from jaxsyn.session import Session

pytest.importorskip("flatbuffers", reason="extra stablehlo")
pytest.importorskip("safetensors", reason="extra stablehlo")
LINES = ["the small dog sees a cat .", "the cat sleeps .", "a house"]


def trained(config, folder):
  config.batch.shapes = 1
  config.train.update(
    steps=2, evaluate_every=9, save_every=2, selection="log_likelihood"
  )
  train.run(config, folder)
  return folder


def script():
  """The one of the guide; it must do without jaxsyn."""
  page = documents.ROOT / "docs" / "exporting.md"
  (block,) = (b for b in documents.blocks(page) if b.file == "alone.py")
  return f"import sys\nsys.modules['jaxsyn'] = None\n{block.code}"


def said(out, tmp_path, environment):
  (tmp_path / "alone.py").write_text(script())
  done = subprocess.run(
    [sys.executable, "alone.py", str(out)],
    input="".join(f"{line}\n" for line in LINES),
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout.splitlines()


def test_it_translates_as_the_run(tiny, tmp_path, environment):
  run = trained(tiny("transformer"), tmp_path / "run")
  export.run(run, tmp_path / "out", "stablehlo")
  wanted = [nbest[0].text for nbest in Session(run)(LINES)]
  assert said(tmp_path / "out", tmp_path, environment) == wanted


def test_facts_of_trees_are_inputs(tiny, tmp_path, environment):
  run = trained(tiny("pascal"), tmp_path / "run")
  export.run(run, tmp_path / "out", "stablehlo")
  page = json.loads((tmp_path / "out" / "jaxsyn.json").read_text())
  assert page["inputs"] == {
    "source_id_BS": {"dtype": "int32", "axes": "BS"},
    "source_word_BS": {"dtype": "int32", "axes": "BS"},
    "source_parsed_B": {"dtype": "uint8", "axes": "B"},
    "source_parent_mid_BS": {"dtype": "float32", "axes": "BS"},
    "longest_B": {"dtype": "int32", "axes": "B"},
  }
  assert len(said(tmp_path / "out", tmp_path, environment)) == len(LINES)


def test_an_axis_that_always_has_one_size_is_said(tiny, tmp_path, environment):
  run = trained(tiny("tree_position_laplacian"), tmp_path / "run")
  export.run(run, tmp_path / "out", "stablehlo")
  page = json.loads((tmp_path / "out" / "jaxsyn.json").read_text())
  name = "source_eigenvectors_BWE"
  assert page["inputs"][name] == {"dtype": "float32", "axes": "BWE"}
  assert page["sizes"] == {"E": EIGENVECTORS}
  assert len(said(tmp_path / "out", tmp_path, environment)) == len(LINES)


def test_with_trees_it_translates_as_the_run(tiny, tmp_path):
  run = trained(tiny("pascal"), tmp_path / "run")
  found = stablehlo_beside.run(str(run), LINES)
  assert found["parsed"][0] == found["same"][0] == len(LINES)
  assert found["apart"][0] < 1e-5


def test_what_depends_on_sizes_is_refused_in_a_line(tiny, tmp_path):
  run = trained(tiny("gru_syntax"), tmp_path / "run")
  with pytest.raises(
    InputError, match=r"'gru_syntax' cannot be exported as one"
  ):
    export.run(run, tmp_path / "out", "stablehlo")
  assert not (tmp_path / "out").exists()
