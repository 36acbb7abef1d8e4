"""Stages of a preparation on lines of a test, one by one."""

from __future__ import annotations

import dataclasses

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.inputs import read_inputs
from jaxsyn.preprocess.stages import STAGES, perform
from jaxsyn.preprocess.work import Work

SELECTION = ("convert", "index", "clean", "duplicates", "language")


def tools_of(tmp_path, splits, clean=None, **prepare):
  """A job of plain lines, without trees.

  Args:
    tmp_path: where to.
    splits: name -> (source lines, target lines); one of them is "train".
    clean: options of cleaning; None: the defaults.
    prepare: other options of preparing.
  """
  config = base.get_config()
  config.data.validation, config.data.test = "train", ()
  config.prepare.parse.sides = ()
  tmp_path.mkdir(parents=True, exist_ok=True)
  for name, sides in splits.items():
    files = [f"{name}.{code}" for code in ("en", "de")]
    config.prepare.splits[name] = tuple(files)
    for file, lines in zip(files, sides):
      text = "".join(f"{line}\n" for line in lines)
      (tmp_path / file).write_bytes(text.encode())
  config = read_config(config)
  edited = dataclasses.replace(config.prepare, **prepare)
  edited = dataclasses.replace(edited, clean=clean or edited.clean)
  config = dataclasses.replace(config, prepare=edited)
  inputs = read_inputs(config, str(tmp_path), tmp_path / "own")
  work = Work(tmp_path / "stages")
  return Tools(inputs.job(work, tmp_path / "new", tmp_path / "kept"))


def run(tools, names=SELECTION):
  """Runs stages; returns the facts of the last."""
  facts = []
  for name in names:
    stage = STAGES[name]
    for index in range(stage.count(tools)):
      perform(tools, name, index)
    facts = [
      tools.work.facts(f"{name}/{index}")["facts"]
      for index in range(stage.count(tools))
    ]
    stage.after(tools, facts)
  return facts
