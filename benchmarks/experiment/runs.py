"""Prepares the data of a block, trains its runs, and collects their results."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.experiment.blocks import BLOCKS, CORPORA, METRICS
from benchmarks.experiment.systems import Experiment, systems_of
from jaxsyn import cli, compare
from jaxsyn.comparison import planned_jobs, run_result
from jaxsyn.comparison.runner import JobRunner, ProgressLog
from jaxsyn.config import Config, read_config
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, neutral_options
from jaxsyn.preprocess import build, quickstart
from jaxsyn.scoring.settings import Settings
from jaxsyn.session import workdir
from jaxsyn.storage import files, lock

_CORE = "JAXSYN_EXPERIMENT_CORE"
_NICE = "JAXSYN_EXPERIMENT_NICE"
_CHILD = "from benchmarks.experiment import runs; runs.child()"


def prepare(corpus: str, experiment: Experiment) -> None:
  """Prepares a dataset of the experiment unless it exists.

  Raises:
    InputError: It does not exist and the folder of raw files is not given.
  """
  directory = experiment.work / "data" / corpus
  if files.is_file(directory / manifests.FILE):
    return
  if experiment.raw is None:
    raise InputError(
      f"{directory} is not prepared. Give --raw_dir, a folder with multi30k/, "
      "mafand/ and udpipe/."
    )
  spec = CORPORA[corpus]
  raw = experiment.raw / spec.raw
  if not spec.raw:
    raw = experiment.work / "data" / f"{corpus}_raw"
    quickstart.run(raw)
  config = cli.load(spec.config)
  config.update_from_flattened_dict(spec.options)
  config.data.directory = str(directory)
  if spec.raw:
    parse = config.prepare.parse
    parsers = experiment.raw / "udpipe"
    parse.source.udpipe.model = str(parsers / "english.udpipe")
    if "target" in parse.sides:
      parse.target.udpipe.model = str(parsers / "german.udpipe")
  config.prepare.raw_dir = str(raw)
  build.run(config, str(raw))


def run(name: str, experiment: Experiment) -> str:
  """Trains the missing runs of a block and collects their results.

  Returns:
    Name of the signal that stopped it; "" when the block is complete.

  Raises:
    InputError: The block depends on results that do not exist yet, its data
      cannot be prepared, or runs failed.
  """
  systems = systems_of(name, experiment)
  prepare(BLOCKS[name].corpus, experiment)
  systems = [planned_jobs.without_missing_splits(system) for system in systems]
  folder = experiment.runs(name)
  planned_jobs.check_all(systems, folder)
  language = systems[0].config.data.target_language
  settings = Settings(metrics=METRICS).with_defaults(language)
  scoring = json.dumps(dataclasses.asdict(settings))
  nice = str(experiment.nice)
  places = [
    {_CORE: str(core), _NICE: nice} for core in sorted(os.sched_getaffinity(0))
  ]
  results = experiment.results / name
  with lock.exclusive_lock(folder):
    planned_jobs.record_systems(folder, systems)
    # A collected result counts, also where the folder of its run is gone.
    jobs = [
      job
      for job in planned_jobs.jobs(folder, systems, range(BLOCKS[name].seeds))
      if not _is_collected(job, results)
    ]

    def command(job: planned_jobs.TrainingJob) -> list[str]:
      _collect(jobs, results)  # those that finished before this one starts
      return compare.child_command(job, scoring, _CHILD)

    log = ProgressLog(folder)
    try:
      worked = JobRunner(jobs, command, log, places).run()
    finally:
      log.close()
      _collect(jobs, results)
  if worked.failed and not worked.signal:
    failed = ", ".join(job.name for job in worked.failed)
    raise InputError(f"these runs failed: {failed}. See {folder}/log.txt.")
  return worked.signal


def _result_file(
  job: planned_jobs.TrainingJob, folder: pathlib.Path
) -> pathlib.Path:
  return folder / f"{job.system.name}.seed_{job.seed}.json"


def _collect(
  jobs: Sequence[planned_jobs.TrainingJob], folder: pathlib.Path
) -> None:
  """Copies the result files of finished runs, without absolute paths in them."""
  folder.mkdir(parents=True, exist_ok=True)
  for job in jobs:
    path = _result_file(job, folder)
    if job.finished and not path.exists():
      result = job.read_result()
      config, data = map(_without_folders, (result.config, vars(result.data)))
      data = dataclasses.replace(result.data, **data)
      run_result.write(
        path, dataclasses.replace(result, config=config, data=data)
      )


def _without_folders(value: Any) -> Any:
  """Replaces absolute paths in nested values with their last component."""
  if isinstance(value, dict):
    return {name: _without_folders(one) for name, one in value.items()}
  if isinstance(value, (list, tuple)):
    return type(value)(map(_without_folders, value))
  if isinstance(value, str) and os.path.isabs(value):
    return os.path.basename(value)
  return value


def _is_collected(job: planned_jobs.TrainingJob, folder: pathlib.Path) -> bool:
  """Returns whether the result of a run has been collected.

  Raises:
    InputError: There is a result of another config or other data.
  """
  path = _result_file(job, folder)
  if not path.exists():
    return False
  result = run_result.read(path)
  was = read_config(result.config, CHECKPOINT_MODE)
  if changed := workdir.differences(
    was, job.config, but=neutral_options(Config)
  ):
    raise InputError(
      f"{path} has another config: {workdir.shortened(changed)}. Move it away, or "
      "restore these settings."
    )
  hashes = json.loads(json.dumps(workdir.hashes(job.system.manifest)))
  if result.data.hashes != hashes:
    raise InputError(
      f"{path} is the result of other data than that in "
      f"{job.config.data.directory}. Move it away, or prepare the data as before."
    )
  return True


def child() -> None:
  """Trains one run on one core, in a child process of `run`."""
  os.sched_setaffinity(0, {int(os.environ[_CORE])})
  nice = int(os.environ[_NICE])
  os.nice(nice)
  # If Linux schedules by session, nice values only apply within a session.
  with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/autogroup").write_text(str(nice))
  compare.child()
