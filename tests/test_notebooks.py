"""Every notebook runs from top to bottom, on a tiny model."""

import ast
import importlib
import json
import pathlib
import re
import shutil
import subprocess

import nbclient
import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

from docs import notebook_pages
from jaxsyn.training import log

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = {
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.width": 32,
  "model.transformer.feed_forward": 32,
  "batch.shapes": 1,
  "train.validation_sentences": 1,
  "decode.beam": 1,
  "decode.max_length_offset": 2,
}


def imported_modules(tree: ast.AST) -> dict[str, object]:
  """Returns the modules of jaxsyn that the code imports, by their names in it."""
  modules = {}
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.module.startswith("jaxsyn"):
      package = importlib.import_module(node.module)
      for alias in node.names:
        try:
          module = importlib.import_module(f"{node.module}.{alias.name}")
        except ModuleNotFoundError:
          assert hasattr(package, alias.name), f"{node.module}.{alias.name}"
        else:
          modules[alias.asname or alias.name] = module
  return modules


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs_and_names_of_jaxsyn_exist(path):
  """Also in branches that the tests do not run, such as generating a corpus."""
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  for cell in notebook.cells:
    if cell.cell_type == "code":
      assert not cell.outputs and cell.execution_count is None
  # Jupyter's commands are not Python.
  code = re.sub(r"(?m)^( *)[!%].*", r"\1pass", "\n".join(code_cells(path)))
  tree = ast.parse(code)
  modules = imported_modules(tree)
  used = [
    (node.value.id, node.attr)
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute)
    and isinstance(node.value, ast.Name)
    and node.value.id in modules
  ]
  assert used
  for module, name in used:
    assert hasattr(modules[module], name), f"{module}.{name}"


def run(name, settings, monkeypatch) -> list:
  """The outputs of a notebook, run as Jupyter does, where notebooks lie."""
  monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
  for key, value in settings.items():
    monkeypatch.setenv(f"NOTEBOOK_{key}", str(value))
  notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
  folder = {"metadata": {"path": str(ROOT / "notebooks")}}
  nbclient.NotebookClient(notebook, timeout=300, resources=folder).execute()
  return [output for c in notebook.cells for output in c.get("outputs", ())]


def printed(outputs) -> str:
  return "".join(o.text for o in outputs if o.get("name") == "stdout")


def pictures(outputs) -> list[str]:
  kinds = ("image/png", "image/svg+xml")
  data = [output.get("data", {}) for output in outputs]
  return [one[kind] for one in data for kind in kinds if kind in one]


def test_attention_and_trees(prepared, tmp_path, monkeypatch):
  settings = {
    "DATA": prepared,
    "RUNS": tmp_path / "runs",
    "STEPS": 2,
    "OPTIONS": json.dumps(TINY),
    "PROBED": 8,
  }
  outputs = run("attention_and_trees", settings, monkeypatch)
  assert len(pictures(outputs)) == 6
  assert min(map(len, pictures(outputs))) > 5000
  assert printed(outputs).count("random choice") == 3
  assert "tree_scaled" in printed(outputs)
  for system in ("pascal", "deps_san", "dependency_relative"):
    folder = tmp_path / "runs" / system / "seed_0"
    assert (folder / "inspect" / "probe.json").is_file()


@pytest.mark.parametrize("name", ["colab", "tpu"])
def test_from_data_to_heads(name, prepared, tmp_path, monkeypatch):
  options = {**TINY, "train.steps": 2, "train.log_every": 1}
  settings = {
    "DATA": prepared,
    "RUN": tmp_path / "run",
    "OPTIONS": json.dumps(options),
    "SENTENCE": "The proud duck carries a bell .",
  }
  outputs = run(name, settings, monkeypatch)
  # The curve, the tree, and attention of the encoder and to the source.
  assert len(pictures(outputs)) == 4
  assert min(map(len, pictures(outputs))) > 5000
  assert printed(outputs).count("  reference  ") == 5
  records, _ = log.records(tmp_path / "run")
  assert [r["step"] for r in records if r["kind"] == "train"] == [1, 2]


def run_in(client, code):
  """Returns what the code prints in a kernel; fails where it raises."""
  printed = []

  def keep(message):
    content = message["content"]
    printed.append(content.get("text", ""))
    printed.extend(content.get("traceback", ()))

  reply = client.execute_interactive(code, timeout=300, output_hook=keep)
  assert reply["content"]["status"] == "ok", "".join(printed)
  return "".join(printed)


@pytest.fixture
def address(tmp_path):
  """A repository of git that can be cloned, with the files of this checkout."""
  folder = tmp_path / "repository"
  for name in ("configs", "jaxsyn", "preprocess"):
    shutil.copytree(ROOT / name, folder / name, symlinks=True)
  for name in ("pyproject.toml", "requirements.txt"):
    shutil.copy(ROOT / name, folder / name)
  git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
  for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
    subprocess.run([*git, *words], check=True)
  return str(folder)


def code_cells(path) -> list[str]:
  cells = nbformat.read(path, as_version=4).cells
  return [cell.source for cell in cells if cell.cell_type == "code"]


CHECKS = """
assert config.prepare.raw_dir == str(START / 'mine')
assert config.data.directory == str(START / 'mine/data')
assert config.prepare.parse.sides == ()
assert config.prepare.splits.train[0] == '../corpus.en'
"""


def test_uploaded_files_are_found_and_new_writes_their_config(
  address, tmp_path, monkeypatch
):
  """Files are where the kernel starts, not in the checkout, also after a restart."""
  content = tmp_path / "content"
  content.mkdir()
  for language, line in (("en", "a dog runs"), ("fr", "un chien court")):
    text = "".join(f"{line} {index} .\n" for index in range(100))
    (content / f"corpus.{language}").write_text(text)
  monkeypatch.setenv("NOTEBOOK_SOURCE", "corpus.en")
  monkeypatch.setenv("NOTEBOOK_TARGET", "corpus.fr")
  monkeypatch.setenv("NOTEBOOK_PARSER", "none")
  code = code_cells(ROOT / "notebooks" / "colab.ipynb")
  assert 'REPOSITORY = ""' in code[0]
  alike = {
    code_cells(path)[0].partition("# Uploaded")[2].partition("os.chdir")[0]
    for path in NOTEBOOKS
  }
  assert len(alike) == 1
  first = code[0].replace('REPOSITORY = ""', f"REPOSITORY = {address!r}")
  manager, client = start_new_kernel(cwd=str(content))
  try:
    for _ in range(2):
      for _ in range(2):  # also twice without a restart
        run_in(client, first)
        here = run_in(client, "print(pathlib.Path.cwd(), end='')")
        assert here == str(content / "jaxsyn")
      run_in(client, "\n".join(code[1:4]))  # settings, devices, config
      run_in(client, CHECKS)
      manager.restart_kernel(now=True)
      client.wait_for_ready(timeout=120)
    assert (content / "mine" / "mine.py").is_file()
    run_in(client, code[0])
    missing = code[1].replace('"NOTEBOOK_SOURCE", ""', '"X", "not/here.en"')
    run_in(client, missing)
    with pytest.raises(AssertionError, match=r"not/here\.en.*upload"):
      run_in(client, code[3])
  finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_pages_have_code_text_and_pictures(tmp_path, monkeypatch):
  picture = {"output_type": "display_data", "data": {"image/png": "aGVpZ2hv"}}
  text = {"output_type": "stream", "name": "stdout", "text": "a\nb\n"}
  notebook = {
    "cells": [
      {"cell_type": "markdown", "source": ["# See [it](colab.ipynb)"]},
      {"cell_type": "code", "source": ["1"], "outputs": [text, picture]},
      {"cell_type": "code", "source": ["2"], "outputs": [picture]},
    ]
  }
  page, pictures = notebook_pages.page(notebook, "tpu")
  assert pictures == {"tpu_0.png": b"heigho", "tpu_1.png": b"heigho"}
  code = "```{code-block} python\n:force:\n\n%s\n```"
  assert page.strip().split("\n\n![]") == [
    f"# See [it](colab.md)\n\n{code % 1}",
    f"(tpu_0.png)\n\n```text\na\nb\n```\n\n{code % 2}",
    "(tpu_1.png)",
  ]
  # Outputs of another notebook are not shown.
  monkeypatch.setattr(notebook_pages, "EXECUTED", tmp_path)
  cell = {"cell_type": "code", "source": ["7"]}
  output = {"output_type": "stream", "name": "stdout", "text": ["seven"]}
  colab = json.loads((ROOT / "notebooks" / "colab.ipynb").read_text())
  executed = [*colab["cells"][:-1], {**colab["cells"][-1], "outputs": [output]}]
  other = [{**cell, "outputs": [output]}]
  for active, shown in ((executed, True), (other, False)):
    (tmp_path / "colab.ipynb").write_text(json.dumps({"cells": active}))
    notebook_pages.write(tmp_path / "pages")
    page = (tmp_path / "pages" / "colab.md").read_text()
    assert ("```text\nseven\n```" in page) == shown
