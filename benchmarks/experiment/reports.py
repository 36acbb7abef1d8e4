"""Writes reports and a status table of the experiment from result files."""

from __future__ import annotations

import collections
import pathlib
import statistics
from collections.abc import Sequence

from benchmarks.experiment.blocks import (
  BLOCKS,
  MARGINS,
  METRICS,
  WITHOUT_TREES,
)
from benchmarks.experiment.systems import Experiment, best_system, systems_of
from jaxsyn import compare
from jaxsyn.comparison import run_result
from jaxsyn.comparison.inference import POOLED, SEPARATE, Inference
from jaxsyn.comparison.results import Point
from jaxsyn.comparison.run_result import RunResult
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings
from jaxsyn.scoring.tables import aligned

FLAT = 0.005  # relative change of the validation log-likelihood


def report(name: str, experiment: Experiment) -> pathlib.Path:
  """Writes the report of a block from result files; returns its folder.

  Blocks that share their runs are read, too: they have the baseline and L. Each
  system of the block that is not a control is compared with the baseline (H1),
  with its random tree (H2) and with L (H3).

  Raises:
    InputError: Results are missing.
  """
  block = BLOCKS[name]
  paths = [
    experiment.results / other
    for other in BLOCKS
    if other != "E0"
    and experiment.runs(other) == experiment.runs(name)
    and experiment.read_results(other)
  ]
  finished = {run.system for run in run_result.read_all(paths)}
  own = [
    system.name
    for system in systems_of(name, experiment)
    if system.name in finished
  ]
  others = ["transformer"]
  if not block.survey:
    others.append(best_system(WITHOUT_TREES, experiment))
  family = []
  for system in own:
    is_control = system.endswith("_random_tree")
    if is_control or system in ("transformer", *WITHOUT_TREES):
      continue
    pairs = [*others, f"{system}_random_tree"]
    family += [(system, o) for o in pairs if o in finished and o != system]
  folder = experiment.work / "reports" / name
  compare.report_on(
    paths,
    folder,
    list(dict.fromkeys(["transformer", *own, *(o for _, o in family)])),
    settings=Settings(metrics=METRICS),
    inference=Inference(
      family=tuple(family),
      variance=SEPARATE if block.survey else POOLED,
      margins=MARGINS,
    ),
  )
  return folder


def status(experiment: Experiment) -> str:
  """Returns a status table of the experiment's blocks, without mean scores."""
  rows = [["block", "runs", "minutes a run", "validation flat from update"]]
  rows[0] += [f"sd {metric}" for metric in METRICS]
  for name, block in BLOCKS.items():
    results = experiment.read_results(name)
    try:
      systems = len(systems_of(name, experiment))
    except InputError:  # T and L are not known yet
      systems = len(block.systems)
    row = [name, f"{len(results)}/{systems * block.seeds}"]
    if results:
      row.append(f"{statistics.fmean(r.facts.minutes for r in results):.1f}")
      flat = {flat_from(result.curve) for result in results}
      row.append(", ".join(sorted(flat, key=lambda x: (len(x), x))))
      row += [spread(results, metric) for metric in METRICS]
    rows.append(row + [""] * (len(rows[0]) - len(row)))
  return aligned(rows)


def spread(results: Sequence[RunResult], metric: str) -> str:
  """Returns a metric's standard deviation over seeds, pooled over systems.

  Args:
    results: Results of the block.
    metric: Name of the metric; its mean over the test sets counts.
  """
  by_system = collections.defaultdict(list)
  for result in results:
    values = (test.measured(metric).value for test in result.tests.values())
    by_system[result.system].append(statistics.fmean(values))
  variances = [
    statistics.variance(values)
    for values in by_system.values()
    if len(values) > 2
  ]
  return f"{statistics.fmean(variances) ** 0.5:.3f}" if variances else ""


def flat_from(curve: Sequence[Point]) -> str:
  """Returns the first step whose log-likelihood is within `FLAT` of the best.

  Returns:
    "-" where it still improves by more in the last quarter of the run.
  """
  key = "log_likelihood"
  best = max(point.values[key] for point in curve)
  enough = best - FLAT * abs(best)
  first = next(point for point in curve if point.values[key] >= enough)
  return str(first.step) if first.step <= 0.75 * curve[-1].step else "-"
