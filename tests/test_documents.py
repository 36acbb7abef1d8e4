"""Tests the code, names and links in README, CONTRIBUTING and the guides.

Fenced blocks of a shell or of Python are run in a scratch folder, with the
substitutions below, unless the line above has a reason not to:
`<!-- not run: downloads a corpus -->`. A block of Python whose first line is
`# folder/file.py` is written to that file, and a `diff` is applied. A `text` block
must have lines like those of the previous command's output. Blocks of a document
run in order, in one folder.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

import documents
import pytest
from documents import CONTRIBUTING, DOCUMENTS, EXTENDING, README, ROOT
from models_under_test import JOINT

from jaxsyn import new
from jaxsyn.commands import COMMANDS
from jaxsyn.comparison import named_systems
from jaxsyn.config import Config, read_config
from jaxsyn.configs import base, systems
from jaxsyn.decode.strategies import STRATEGIES
from jaxsyn.models.architectures import ARCHITECTURES
from jaxsyn.options import describe, fields_of
from jaxsyn.plan import resolve
from jaxsyn.scoring.settings import Settings
from jaxsyn.serving.requests import ServiceLimits

# A tiny model, one update; what is downloaded lies here already.
OPTIONS = {
  "prepare.vocabulary.size": 300,
  "prepare.workers": 1,
  "batch.tokens": 1024,
  "batch.shapes": 1,
  "batch.length_multiple": 128,  # of any corpus the same: compiled once
  "model.width": 16,
  "train.steps": 1,
  "train.evaluate_every": 100,
  "train.save_every": 1,
  "train.log_every": 1,
  "train.selection": "log_likelihood",
  "decode.beam": 3,
  "decode.max_length_factor": 0.0,
}
SIZES = {
  "encoder_layers": 1,
  "decoder_layers": 1,
  "feed_forward": 16,
  "hidden": 16,
}
# Of settings: a file, or a name.
ADDRESS = r"--config (?:[\w/]+\.py|\w+(?=:|\s))"
PARSER = "data/quickstart/raw/quickstart.udpipe"


def _sizes(family: str) -> dict[str, int]:
  expected = {field.name for field in dataclasses.fields(ARCHITECTURES[family])}
  return {f"model.{family}.{n}": v for n, v in SIZES.items() if n in expected}


def _after_config(family: str) -> str:
  parser = {"prepare.parse.source.udpipe.model": PARSER}
  options = OPTIONS | _sizes(family) | parser
  words = (f"--config.{name}={value}" for name, value in options.items())
  return " ".join([r"\1", *words])


# What differs from a document when its blocks are run: pattern -> replacement.
SUBSTITUTIONS = {
  # The generated corpus stands in for one that is downloaded.
  r"multi30k_en_de": "quickstart",
  r"\btest_2016\b": "test",
  # Small settings, behind those of the document's config.
  rf"({ADDRESS}:gru\w+)": _after_config("gru"),
  rf"({ADDRESS}(?!:gru)(:\w+)?)": _after_config("transformer"),
  # No network, and no script of pip's.
  r"(jaxsyn new .*)": rf"\1 --source_parser {PARSER}",
  rf"(?m)(^|\| |  )jaxsyn (?={'|'.join(COMMANDS)})": r"\1python -m jaxsyn ",
  r"(\w+\.get_config\(\"\w+\"\))": r"small(\1)",
  r"(files=\(.*\))\)": r"\1, held_out=24)",
  r'(\(\("corpus.en", "corpus.fr"\))\)': r"\1, held_out=24)",
  r"held_out=1000": "held_out=24",
  r"\b1001-": "25-",
  r"\b1-1000\b": "1-24",
  # Less of the same.
  r"beam=5": "beam=3",
  r"head -n 100": "head -n 2",
  r"--seeds 3": "--seeds 2",
  r"--trials \d+": "--trials 2 --samples 20 --sentences 20",
}
BEFORE_PYTHON = f"""
import sys
sys.path.insert(0, ".")

def small(config):
  config.update_from_flattened_dict({OPTIONS})
  config.update_from_flattened_dict({dict(zip(ARCHITECTURES, map(_sizes, ARCHITECTURES)))}[config.model.family])
  return config

"""
# Pages with the outputs of commands, from docs/capture_outputs.py.
WITH_OUTPUTS = ("quickstart.md", "tutorial.md")
RUN = {
  "bash": ["bash", "-euo", "pipefail", "-c"],
  "python": [sys.executable, "-c"],
}


def substituted(code: str) -> str:
  for pattern, replacement in SUBSTITUTIONS.items():
    code = re.sub(pattern, replacement, code)
  return code


@pytest.fixture(scope="module")
def environment(environment):
  """Where a shell finds the commands."""
  return environment | {
    "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    "TQDM_DISABLE": "1",
  }


EVERYTHING = "\n".join(path.read_text() for path in DOCUMENTS)


def _run(code: list[str], folder: pathlib.Path, environment) -> str:
  done = subprocess.run(
    code, cwd=folder, env=environment, capture_output=True, text=True
  )
  assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
  return done.stdout


def _checkout(folder: pathlib.Path, prepared: pathlib.Path) -> None:
  """Makes a checkout with the data that the documents use."""
  shutil.copytree(
    ROOT / "configs", folder / "configs", ignore=lambda *_: ["__pycache__"]
  )
  for name in ("jaxsyn", "preprocess", "benchmarks"):
    (folder / name).symlink_to(ROOT / name)
  raw, data = prepared.parent / "raw", folder / "data" / "quickstart"
  data.mkdir(parents=True)
  for path in prepared.iterdir():
    if path.name != "work":
      (data / path.name).symlink_to(path)
  (data / "raw").symlink_to(raw)
  text = folder / "text"
  text.mkdir()
  for side, language in (("en", "en"), ("qaa", "fr"), ("qaa", "de")):
    lines = (raw / f"train.{side}").read_text().splitlines(keepends=True)
    (text / f"corpus.{language}").write_text("".join(lines[:200]))
    shutil.copy(raw / f"test.{side}", text / f"test.{language}")
    shutil.copy(raw / f"test.{side}", folder / f"test.{language}")
  shutil.copy(raw / "test.en.conllu", folder / "test.conllu")
  for name in ("a", "b"):
    shutil.copy(raw / "test.qaa", folder / f"{name}.de")
  for name in ("test", "a"):
    shutil.copy(raw / "test.align", folder / f"{name}.align")


@pytest.fixture(scope="module")
def checkout(prepared, made_once, environment):
  """Returns a function that makes a checkout with a trained run in a folder."""
  train = substituted(
    "python -m jaxsyn.train --config configs/quickstart.py:pascal"
    " --workdir runs/quickstart/pascal/seed_0"
  )

  def make(folder):
    _checkout(folder, prepared)
    _run([*RUN["bash"], train], folder, environment)

  trained = made_once("documents", make)

  def at(folder):
    _checkout(folder, prepared)
    shutil.copytree(trained / "runs", folder / "runs")

  return at


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_every_block_runs(path, checkout, environment, tmp_path):
  done = {b.code for b in documents.blocks(README)} if path != README else ()
  blocks = [b for b in documents.blocks(path) if b.file or b.code not in done]
  if not any(b.language in RUN and not b.not_run for b in blocks):
    pytest.skip("nothing to run that the README has not")
  folder, output = tmp_path / "jaxsyn", ""
  checkout(folder)
  changes_code = any(block.language == "diff" for block in blocks)
  if changes_code:
    _copy_code(folder)
  for block in blocks:
    code = substituted(block.code)
    if block.file:
      # Files of the package on other pages are tested by test_playbooks.
      if changes_code or not block.file.startswith("jaxsyn/"):
        (folder / block.file).write_text(code)
    elif block.language == "diff":
      subprocess.run(
        ["patch", "-sp1"], cwd=folder, input=code, text=True, check=True
      )
    elif block.not_run:
      continue
    elif block.language == "text" and path.name in WITH_OUTPUTS:
      assert not block.unlike(output), f"{block.place}: {output}"
    elif block.language in RUN:
      before = BEFORE_PYTHON if block.language == "python" else ""
      command = [*RUN[block.language], before + code]
      output = _run(command, folder, environment)


def _copy_code(folder: pathlib.Path) -> None:
  """Replaces the links to the code in a checkout by a copy."""
  for name in ("jaxsyn", "preprocess", "tests/syntax"):
    if (folder / name).is_symlink():
      (folder / name).unlink()
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignore)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_links_have_targets(path):
  for link in documents.links(path):
    if link.startswith(("https://", "http://")):
      continue
    file, _, anchor = link.partition("#")
    target = (path.parent / file).resolve() if file else path
    if "reference" in pathlib.PurePath(file).parts:
      continue  # written from the code when the site is built
    assert target.exists(), f"{path}: {link}"
    assert not anchor or anchor in documents.anchors(target), f"{path}: {link}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_no_line_is_a_comment_of_the_site(path):
  """MyST leaves out a line that starts with a percent sign."""
  lines = path.read_text().splitlines()
  assert not [line for line in lines if line.startswith("%")]


def test_the_readme_is_short_and_links_to_all_pages():
  assert len(README.read_text().splitlines()) <= 200
  linked = {link.partition("#")[0] for link in documents.links(README)}
  pages = {path.name for path in (ROOT / "docs").glob("*.md")}
  wanted = pages - {"index.md", "contributing.md"}
  assert {f"docs/{page}" for page in wanted} <= linked
  linked = {link.partition("#")[0] for link in documents.links(CONTRIBUTING)}
  assert {f"docs/extending/{path.name}" for path in EXTENDING} <= linked


def test_flags_exist():
  folders = [ROOT / name for name in ("jaxsyn", "preprocess", "benchmarks")]
  paths = [path for folder in folders for path in folder.rglob("*.py")]
  ours = "\n".join(path.read_text() for path in paths)
  defined = r'(?:DEFINE_\w+|\w+_flag|\binteger)\(\s*(?:\w+,\s*)?"(\w+)"'
  known = {*re.findall(defined, ours), "config", "help", "helpconfig"}
  known |= {field.name for field in dataclasses.fields(Settings)}
  known |= {*fields_of(ServiceLimits), *new._FLAGS}
  known |= {n for search in STRATEGIES.values() for n in fields_of(search)}
  for line in EVERYTHING.splitlines():
    rest = r"git|pip|pytest|ruff|sphinx-build|sacreBLEU|srun|Slurm|docker"
    # Of Beam and its runners.
    rest += r"|\w+Runner|(direct|dask|sdk|environment|spark)_\w+|dask"
    if re.search(rf"\b({rest})\b", line):
      continue
    for flag in re.findall(r"(?<![\w-])--([a-z]\w*)(?![\w.-])", line):
      assert flag in known, line


def test_options_exist():
  known = {row.name for row in describe(Config)}
  by_name = tuple(  # sections whose fields the data set names
    f"{row.name}."
    for row in describe(Config)
    if row.type.startswith("mapping from names")
  )
  guides = "\n".join(path.read_text() for path in EXTENDING)
  examples = set(re.findall(r'`"(\w+)": \w+`', guides))
  for option in set(re.findall(r"(?<![/\w])config(?:\.\w+)+", EVERYTHING)):
    option = option.removesuffix(".update")
    names = {*option.split(".")}
    named = option.startswith(by_name) or names & {*examples, "sibling_heads"}
    assert option in known or named, option


def test_systems_exist():
  address = r"--config (?!\S*papers/)[\w/]+(?:\.py)?:([\w+]+)"
  named = re.findall(address, EVERYTHING)
  for group in re.findall(r"SYSTEMS=([\w,+]+)", EVERYTHING):
    named += [] if group == "all" else group.split(",")
  for value in re.findall(r"--systems ([^\s`.]\S*[^\s`.,;:])", EVERYTHING):
    if value != "all" and not named_systems.table_of([value]):
      named += [system.system for system in named_systems.parse([value])]
  known = {*systems.SYSTEMS, "tree_damped", "sibling_heads", "layer_3"}
  assert {*"+".join(named).split("+")} <= known


def test_the_table_of_systems_has_the_features_that_they_read():
  difference = set(documents.features()) ^ set(systems.SYSTEMS)
  assert not difference, "docs/systems.md needs a row for each system"
  for name, values in documents.features().items():
    config = systems.apply(base.get_config(), name)
    plan = resolve(read_config(config), JOINT)
    assert values == (plan.features, plan.translation_features), name


def test_figures_of_the_readme_are_in_the_results():
  rows = re.findall(r"^\| .*` \| .* ± .*$", README.read_text(), re.MULTILINE)
  results = (ROOT / "docs" / "results.md").read_text().splitlines()
  assert len(rows) > 2 and not {*rows} - {*results}
