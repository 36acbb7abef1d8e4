"""Single stages of a preparation, on the lines of a test."""

from __future__ import annotations

import dataclasses

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.options import DataConfig
from jaxsyn.preprocess.inputs import read_inputs
from jaxsyn.preprocess.stages import STAGES, combine, results, run_task

SELECTION = ("read", "clean", "duplicates")


def job_of(tmp_path, splits, clean=None, **prepare):
  """Returns a job of plain lines, without trees.

  Args:
    tmp_path: Folder for all files.
    splits: Name -> (source lines, target lines), including "train".
    clean: Options of cleaning, None for the defaults.
    prepare: Other options of preparation.
  """
  config = base.get_config()
  config.data.validation, config.data.test = "train", ()
  config.data.directory = str(tmp_path / "out")
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
  config = DataConfig(config.data, edited)
  return read_inputs(config, str(tmp_path))


def run(job, names=SELECTION):
  """Runs stages; returns the results of the last."""
  found = []
  for name in names:
    stage = STAGES[name]
    for number in range(stage.count(job)):
      run_task(job, name, number)
    found = results(job, name)
    combine(job, name, found)
  return found
