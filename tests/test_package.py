"""What is installed: one top-level name. `.ci/run` builds and tries a wheel."""

import pathlib
import re
import tomllib

import setuptools

import jaxsyn

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_packages_are_all_within_one():
  include = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
  found = setuptools.find_packages(ROOT, include=include)
  assert {name.split(".")[0] for name in found} == {"jaxsyn"}
  assert {
    *("jaxsyn.configs", "jaxsyn.configs.papers"),
    *("jaxsyn.preprocess", "jaxsyn.preprocess.toy", "jaxsyn.survey"),
  } <= {*found}


def test_links_are_relative():
  for name in ("configs", "preprocess"):
    assert (ROOT / "jaxsyn" / name).readlink() == pathlib.Path("..", name)


def test_the_version_is_said_once():
  assert "version" in PROJECT["project"]["dynamic"]
  assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {
    "attr": "jaxsyn.__version__"
  }
  assert jaxsyn.__version__ == "0.1.0"


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
  named = re.findall(
    r"pip install -e '\.\[([\w,]+)\]'", "".join(texts.values())
  )
  assert len(named) > 20
  assert {extra for one in named for extra in one.split(",")} <= {*extras}


def test_the_command_is_there():
  assert PROJECT["project"]["scripts"] == {"jaxsyn": "jaxsyn.__main__:main"}
