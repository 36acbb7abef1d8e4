"""Every notebook runs from top to bottom, on a tiny model."""

import json
import pathlib

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = {
  "model.transformer.decoder_layers": 1,
  "model.width": 32,
  "model.transformer.feed_forward": 32,
  "batch.shapes": 1,
  "train.validation_sentences": 1,
  "decode.beam": 1,
  "decode.max_length_offset": 2,
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs(path):
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  for cell in notebook.cells:
    if cell.cell_type == "code":
      assert not cell.outputs and cell.execution_count is None


def test_attention_and_trees(prepared, tmp_path, monkeypatch):
  for name, value in (
    ("NOTEBOOK_DATA", prepared),
    ("NOTEBOOK_RUNS", tmp_path / "runs"),
    ("NOTEBOOK_STEPS", 2),
    ("NOTEBOOK_OPTIONS", json.dumps(TINY)),
    ("NOTEBOOK_PROBED", 8),
  ):
    monkeypatch.setenv(name, str(value))
  notebook = nbformat.read(
    ROOT / "notebooks" / "attention_and_trees.ipynb", as_version=4
  )
  # Started where notebooks lie, as Jupyter does it.
  folder = {"metadata": {"path": str(ROOT / "notebooks")}}
  nbclient.NotebookClient(notebook, timeout=300, resources=folder).execute()
  outputs = [output for c in notebook.cells for output in c.get("outputs", ())]
  pictures = [o for o in outputs if "image/png" in o.get("data", {})]
  assert len(pictures) == 6
  for picture in pictures:
    assert len(picture.data["image/png"]) > 5000
  printed = "".join(o.text for o in outputs if o.get("name") == "stdout")
  assert printed.count("random choice") == 3
  assert "tree_scaled" in printed
  for system in ("pascal", "deps_san", "dependency_relative"):
    run = tmp_path / "runs" / system / "seed_0"
    assert (run / "inspect" / "probe.json").is_file()
