"""Trains systems with several seeds on the same batches, and compares them.

jaxsyn compare --config multi30k_en_de \\
  --systems transformer,pascal,deps_san --seeds 3 --workdir runs/cmp

From the result.json files of finished runs, without data or checkpoints:

jaxsyn compare --results runs/cmp results/other --workdir report

The first system is the baseline. Run k of every system has config.seed = k and so
the same batches in the same order. The same command resumes after an
interruption, adds --systems and --seeds, and otherwise writes the report again:
report.html, .json, .md and .tex in --workdir (`jaxsyn.comparison.planned_jobs`
lists all files). Runs are tested over sentences against the baseline run with
their seed (--significance), and systems over seeds and sentences
(`jaxsyn.comparison.hierarchical`).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from absl import flags, logging

import jaxsyn
from jaxsyn import cli, commands, train
from jaxsyn.comparison import (
  analysis,
  examples,
  facts,
  measure,
  named_systems,
  planned_jobs,
  report,
  results,
  run_result,
)
from jaxsyn.comparison.inference import (
  Inference,
  check_family,
  inference_flags,
  read_inference,
)
from jaxsyn.comparison.runner import JobRunner, ProgressLog, watch_parent
from jaxsyn.config import Config, as_dict, read_config
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, Range, from_config
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.plan import check_parsed, check_trees
from jaxsyn.scoring.settings import Settings, of_flags, settings_flags
from jaxsyn.session import Session
from jaxsyn.storage import files, lock
from jaxsyn.training.runtime import set_up_jax
from jaxsyn.utils import addresses, exits

BASELINE = "transformer"
_CHILD = "from jaxsyn import compare; compare.child()"


class CompareOutcome(NamedTuple):
  """Results of a comparison, or the signal that stopped it.

  Attributes:
    signal: Name of the signal; "" if the comparison was not stopped.
    results: Results of all finished runs; None if it was stopped.
  """

  signal: str
  results: results.Comparison | None


def run(
  systems: Sequence[planned_jobs.System] | Mapping[str, Any],
  folder: str | pathlib.Path,
  seeds: int = 3,
  *,
  settings: Settings | None = None,
  inference: Inference | None = None,
  origin: results.Origin | None = None,
  processes: int = 1,
  devices: Sequence[str] = (),
) -> CompareOutcome:
  """Trains and measures all unfinished runs, and writes the report.

  Args:
    systems: Systems, the baseline first; or name -> config.
    folder: Directory of the comparison, which is created.
    seeds: Number of runs of each system.
    settings: Metrics and tests; by default BLEU and chrF.
    inference: Family of tests, error variance, margins.
    origin: Command-line arguments, for the report.
    processes: Number of runs at the same time on the same devices.
    devices: GPUs as in CUDA_VISIBLE_DEVICES; `processes` runs on each.

  Raises:
    InputError: The arguments do not fit each other or the data.
  """
  if isinstance(systems, Mapping):
    systems = [
      planned_jobs.System(n, c if isinstance(c, Config) else read_config(c))
      for n, c in systems.items()
    ]
  if not systems or seeds < 1 or processes < 1:
    raise InputError("give at least one system, one seed and one process.")
  # All errors that training would raise later are raised first.
  names = [system.name for system in systems]
  inference = inference or Inference()
  check_family(inference.family, names)
  language = systems[0].config.data.target_language
  settings = (settings or Settings()).with_defaults(language)
  folder = pathlib.Path(folder)
  systems = [planned_jobs.without_missing_splits(system) for system in systems]
  plans = planned_jobs.check_all(systems, folder)
  check_trees(plans)
  warnings, directories = list[str](), set[str]()
  for plan in plans:
    data = plan.config.data
    warnings += check_parsed(plan, Dataset(data.directory))
    directories.update((data.directory, *data.mixture.folders))
  slots = [{"CUDA_VISIBLE_DEVICES": device} for device in devices] or [{}]
  scoring = json.dumps(dataclasses.asdict(settings))
  with lock.exclusive_lock(folder), manifests.in_use(sorted(directories)):
    planned_jobs.record_systems(folder, systems, origin)
    jobs = planned_jobs.jobs(folder, systems, range(seeds))
    with closing(ProgressLog(folder)) as log:
      for warning in warnings:
        log.write(f"warning: {warning}")
      ended = JobRunner(
        jobs, lambda job: child_command(job, scoring), log, slots * processes
      ).run()
      if ended.signal:
        return CompareOutcome(ended.signal, None)
      if left_out := systems[0].manifest.get("left_out"):
        log.write(f"test splits without files: {', '.join(left_out)}")
      log.write("scoring")
      measurer = measure.Measurer(settings)
      runs = {job: measurer.completed(job) for job in jobs if job.finished}
      compared = analysis.of_runs(
        list(runs.values()),
        settings,
        names,
        [
          results.FailedRun(job.system.name, job.seed, message)
          for job, message in ended.failed.items()
        ],
        inference=inference,
      )
      compared = examples.add(compared, runs, settings.metrics)
      _write(folder, compared)
      if other_jobs := planned_jobs.other_jobs(folder, jobs):
        log.write(f"not in this report: {', '.join(other_jobs)}")
      log.write(f"wrote {folder / 'report.html'}, and .json, .md, .tex")
  return CompareOutcome("", compared)


def child_command(
  job: planned_jobs.TrainingJob, settings: str, code: str = _CHILD
) -> list[str]:
  """Returns the command line of a child process that runs a training job.

  Args:
    job: The job.
    settings: `Settings` in JSON, with a named tokenizer.
    code: Python code that calls `child`.
  """
  names = [str(job.folder), job.system.name, str(job.seed), settings]
  return [sys.executable, "-c", code, *names]


def child() -> None:
  """Runs the training job that the command line names, in a child process."""
  exits.guarded(_child)


def _child() -> None:
  watch_parent()
  logging.set_verbosity(logging.WARNING)
  set_up_jax()
  folder, system, seed, scoring = sys.argv[1:]
  path = ConfigPath("settings")
  settings = from_config(Settings, json.loads(scoring), path, CHECKPOINT_MODE)
  run_job(planned_jobs.job(pathlib.Path(folder), system, int(seed)), settings)


def run_job(job: planned_jobs.TrainingJob, settings: Settings) -> None:
  """Trains one run of a comparison, then translates and scores the test sets.

  Args:
    job: The run.
    settings: Metrics, with a named tokenizer.
  """
  # The process of a killed comparison may still be saving.
  with lock.exclusive_lock(job.run, wait=True):
    if job.finished:
      return
    # Before training, which may take days: the code is loaded now.
    commit = facts.record_commit(job.run)
    outcome = train.run(job.config, job.run)
    if outcome.reason.startswith("SIG"):
      print(f"stopped at step {outcome.step} ({outcome.reason})", flush=True)
      return
    session, data = Session(job.run), job.config.data
    likelihoods = {}
    for split in data.test:
      # Also if the file exists: only a finished run has its checksum.
      measure.translate(session, split, job.hypotheses(split))
      likelihoods[split] = measure.likelihoods(session, split)
    if job.attention_folder:
      measure.record_attention(session, job.attention_folder)
    measurer = measure.Measurer(measure.without_sources(settings))
    now = datetime.datetime.now(datetime.UTC)
    result = run_result.RunResult(
      format=run_result.FORMAT,
      version=jaxsyn.__version__,
      commit=commit,
      finished=now.isoformat(timespec="seconds"),
      system=job.system.name,
      seed=job.seed,
      config=as_dict(job.config),
      published=dict(job.system.published),
      origin=planned_jobs.read_origin(job.folder),
      data=facts.dataset(job),
      facts=facts.of_run(job, outcome, session.params),
      curve=facts.curve(job),
      tests=measurer(job, likelihoods),
      files=job.output_sums(),
    )
    run_result.write(job.result_file, result)


def report_on(
  paths: Sequence[str | pathlib.Path],
  folder: str | pathlib.Path,
  systems: Sequence[str] = (),
  *,
  settings: Settings | None = None,
  inference: Inference | None = None,
) -> results.Comparison:
  """Writes a report from result files, without data or checkpoints.

  Args:
    paths: Files result.json, or directories that are searched for them.
    folder: Directory of the report.
    systems: Systems to compare, the baseline first; by default all, with
      `transformer` as the baseline.
    settings: Metrics and tests. Tokenizer and case are those of the results.
    inference: Family of tests, error variance, margins.

  Raises:
    InputError: A result is missing, corrupt, or differs from the others in test
      sets, signatures or config.
  """
  runs = run_result.read_all([pathlib.Path(path) for path in paths])
  names = list(dict.fromkeys(run.system for run in runs))
  if not systems and BASELINE not in names:
    raise InputError(
      f"no result of {BASELINE}. Name the baseline first in --systems; the "
      f"results have {', '.join(names)}."
    )
  for name in systems:
    if name not in names:
      raise InputError(f"no result of {name!r}. {did_you_mean(name, names)}")
  compared = analysis.of_runs(
    runs,
    settings or Settings(),
    systems or list(dict.fromkeys([BASELINE, *names])),
    inference=inference or Inference(),
  )
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  _write(folder, compared)
  return compared


def _write(folder: pathlib.Path, compared: results.Comparison) -> None:
  """Writes all files of a report into a directory."""
  # Imported here, since it loads matplotlib, which training a run does not need.
  from jaxsyn.comparison import page

  for name, content in (
    (results.FILE, results.to_json(compared)),
    ("report.html", page.html(compared, folder)),
    ("report.md", report.markdown(compared)),
    ("report.tex", report.latex(compared)),
  ):
    files.write_text(folder / name, content.rstrip("\n") + "\n")


def _main(values: flags.FlagValues) -> None:
  folder = values.workdir
  if not folder:
    raise InputError("--workdir is missing: name a folder for all runs.")
  exits.check_target(folder, "--workdir", folder=True)
  settings, inference = of_flags(values), read_inference(values)
  if values.results:
    for name in ("config", "tokenizer", "lowercase"):
      if values[name].present:
        raise InputError(
          f"--{name} has no effect with --results. Leave one out."
        )
    systems = named_systems.split(values.systems)
    compared = report_on(
      values.results, folder, systems, settings=settings, inference=inference
    )
    print(report.as_text(compared))
    print(f"wrote {folder}/report.html, and .json, .md, .tex")
    return
  logging.set_verbosity(logging.WARNING)
  named, ablation = named_systems.read(values)
  overrides = [f"{n}={value}" for n, value in cli.overrides(values).items()]
  ended = run(
    named,
    folder,
    values.seeds,
    settings=settings,
    inference=inference,
    origin=results.Origin(
      addresses.displayed(cli.address_of(values)), tuple(overrides), ablation
    ),
    processes=values.processes,
    devices=values.devices,
  )
  if ended.results is None:
    print(f"stopped ({ended.signal}); finished work is kept.")
    arguments = shlex.join(sys.argv[1:])
    print(f"To resume: {commands.again('compare')} {arguments}")
    return
  print(report.as_text(ended.results))
  if failed := ended.results.failed:
    listed = "; ".join(
      f"{f.system} seed {f.seed} ({f.message})" for f in failed
    )
    raise InputError(
      f"{len(failed)} runs failed: {listed}. The report has the others; the "
      "same command tries them again."
    )


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn compare`."""
  cli.config_flag()
  list_flag(
    "results",
    [],
    "Results of finished runs instead of --config: result.json files, or "
    "folders that are searched for them, as in --results runs/a runs/b. "
    "Nothing is trained. The baseline is the first of --systems, or "
    "transformer.",
  )
  named_systems.define_flags()
  number_flag(
    "seeds",
    3,
    Range(1, 1000),
    "Number of runs of each system, with config.seed = 0, 1, ... More may be "
    "added later.",
  )
  flags.DEFINE_string("workdir", None, "Folder of the comparison.")
  settings_flags(Settings(), without=["seed"])
  inference_flags()
  number_flag(
    "processes",
    1,
    Range(1, 1000),
    "Number of concurrent runs on the same devices; more than 1 if one run "
    "leaves them idle.",
  )
  list_flag(
    "devices",
    [],
    "GPU indices, as in 0,1,2,3; each GPU executes --processes runs at a time.",
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, multiple=True, word="results")
