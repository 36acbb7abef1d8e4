"""Lists an experiment block's systems; selects the best on validation data."""

from __future__ import annotations

import ast
import collections
import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.experiment.blocks import (
  BLOCKS,
  CORPORA,
  TRIALS,
  WITH_TREES,
  WITHOUT_TREES,
)
from jaxsyn import cli
from jaxsyn.comparison import named_systems, planned_jobs, run_result
from jaxsyn.comparison.run_result import RunResult
from jaxsyn.config import read_config
from jaxsyn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Experiment:
  """Folders and process priority of the experiment.

  Attributes:
    work: Folder of data and runs.
    results: Folder of result files, with a folder for each block.
    raw: Folder of text and parsers; None if all data is prepared.
    nice: Niceness of the runs, 0 to 19; 19 has the lowest priority.
  """

  work: pathlib.Path
  results: pathlib.Path
  raw: pathlib.Path | None = None
  nice: int = 19

  def runs(self, name: str) -> pathlib.Path:
    """Returns the folder with a block's run directories."""
    block = BLOCKS[name]
    tuning = "_tuning" if name == "E0" else ""
    return self.work / "runs" / f"{block.corpus}_{block.updates}{tuning}"

  def read_results(self, name: str) -> list[RunResult]:
    """Returns the collected results of a block."""
    folder = self.results / name
    return run_result.read_all([folder]) if any(folder.glob("*.json")) else []


def systems_of(name: str, experiment: Experiment) -> list[planned_jobs.System]:
  """Returns the systems of a block with their configs.

  Raises:
    InputError: The block depends on results that do not exist yet.
  """
  block = BLOCKS[name]
  spec = CORPORA[block.corpus]
  chosen: dict[str, Any] = {}
  if name != "E0" and spec.raw:  # the generated corpus has its own options
    option, _, value = TRIALS[best_trial(experiment)].partition("=")
    chosen[option] = ast.literal_eval(value)
  systems: dict[
    str, planned_jobs.System
  ] = {}  # T may also be in the list by name
  for text in block.systems:
    if "{" in text:
      text = text.format(
        T=best_system(WITH_TREES, experiment),
        L=best_system(WITHOUT_TREES, experiment),
      )
    (named,) = named_systems.parse([text])
    config = cli.load(f"{spec.config}:{named.system}")
    config.update_from_flattened_dict({**spec.options, **chosen})
    config.data.directory = str(experiment.work / "data" / block.corpus)
    config.train.update(
      steps=block.updates,
      selection="log_likelihood",
      evaluate_every=200,
      save_every=400,
      keep=1,
    )
    config.train.writers.update(tensorboard=False, samples=0)
    named.apply(config)
    systems[named.name] = planned_jobs.System(named.name, read_config(config))
  return list(systems.values())


def best_trial(experiment: Experiment) -> str:
  """Returns the name of the tuning trial with the best validation scores.

  Raises:
    InputError: Block E0 is not complete.
  """
  scores = _validation_scores("E0", experiment)
  return max(
    TRIALS,
    key=lambda trial: sum(
      score for system, score in scores.items() if system.endswith(f"_{trial}")
    ),
  )


def best_system(candidates: Sequence[str], experiment: Experiment) -> str:
  """Returns the candidate with the best mean validation log-likelihood.

  Raises:
    InputError: Block E1a or E1b is not complete.
  """
  scores = {
    **_validation_scores("E1a", experiment),
    **_validation_scores("E1b", experiment),
  }
  return max(candidates, key=scores.__getitem__)


def _validation_scores(name: str, experiment: Experiment) -> dict[str, float]:
  """Returns each system's best validation score, averaged over seeds."""
  block, results = BLOCKS[name], experiment.read_results(name)
  expected = len(block.systems) * block.seeds
  if len(results) < expected:
    raise InputError(
      f"block {name} is not complete: {len(results)} of {expected} results. "
      f"Run it first: --blocks {name}."
    )
  by_system = collections.defaultdict(list)
  for result in results:
    by_system[result.system].append(result.facts.best_score)
  return {system: statistics.fmean(s) for system, s in by_system.items()}
