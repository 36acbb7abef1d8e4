"""What is installed: one top-level name. `.ci/run` builds and tries a wheel."""

import pathlib
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


def test_the_command_is_there():
  assert PROJECT["project"]["scripts"] == {"jaxsyn": "jaxsyn.__main__:main"}
