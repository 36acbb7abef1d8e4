"""Tests the installed package and run.sh; `.ci/run` builds and tests a wheel."""

import os
import pathlib
import re
import subprocess
import tomllib

import pytest
import setuptools

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_all_packages_are_in_jaxsyn():
  include = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
  result = setuptools.find_packages(ROOT, include=include)
  assert {name.split(".")[0] for name in result} == {"jaxsyn"}
  linked = ("configs", "configs.papers", "preprocess", "preprocess.toy")
  assert {f"jaxsyn.{name}" for name in linked} <= {*result}
  for name in ("configs", "preprocess"):
    assert (ROOT / "jaxsyn" / name).readlink() == pathlib.Path("..", name)


def test_extras_are_installed_from_a_checkout():
  """The package is not on an index: no document or message says so."""
  texts = {
    path: path.read_text(encoding="utf-8")
    for folder in ("jaxsyn", "preprocess", "docs", "notebooks", "benchmarks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md", ".ipynb") and path.is_file()
  }
  texts |= {path: path.read_text() for path in ROOT.glob("*.md")}
  wrong = [p for p, text in texts.items() if re.search(r"jaxsyn\[\w", text)]
  assert len(texts) > 300 and wrong == []
  extras = PROJECT["project"]["optional-dependencies"]
  install = r"pip install -e '\.\[([\w,]+)\]'"
  named = re.findall(install, "".join(texts.values()))
  assert len(named) > 20
  assert {extra for one in named for extra in one.split(",")} <= {*extras}


@pytest.mark.parametrize(
  ("commands", "installed"),
  [
    (["quickstart", "quickstart"], ["."]),
    (["enja", "quickstart", "enja"], [".[ja]"]),
    (["quickstart", "enja", "test"], [".", ".[ja]", ".[dev]"]),
    (["test", "quickstart", "enja", "test"], [".[dev]"]),
  ],
)
def test_run_sh_installs_requirements_of_a_command_once(
  commands, installed, tmp_path
):
  """The programs in the environment only log their arguments."""
  (tmp_path / "bin").mkdir()
  for name in ("pip", "python"):
    program = tmp_path / "bin" / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/called\n')
    program.chmod(0o755)
  environment = os.environ | {"VENV": str(tmp_path), "RAW_DIR": "x"}
  for command in commands:
    done = subprocess.run(
      [ROOT / "run.sh", command],
      env=environment,
      capture_output=True,
      text=True,
      check=True,
    )
  called = (tmp_path / "called").read_text().splitlines()
  pip = [line.split()[-1] for line in called if line.startswith("pip ")]
  assert pip == installed
  assert not [line for line in called if "--quiet" in line]
  if commands == ["quickstart", "quickstart"]:
    assert "== installing" not in done.stdout
    assert len([line for line in called if "jaxsyn.compare" in line]) == 2
