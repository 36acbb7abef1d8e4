"""Runs preparation tasks in local processes or with Apache Beam.

A runner is a context manager that yields a function `stages.Run`. With Beam,
each stage is a pipeline of task numbers and a ParDo that calls
`stages.run_task`. Texts and outputs are files that all machines must see under
the same names, on an object store or a shared disk. Tasks may be repeated and
interrupted without harm, so workers may die and tasks may be retried.

  jaxsyn prepare --config FILE --beam="--runner=DirectRunner \\
    --direct_running_mode=multi_processing --direct_num_workers=2"
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import pickle
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxsyn.errors import InputError
from jaxsyn.preprocess import stages
from jaxsyn.preprocess.job import PrepareJob
from jaxsyn.preprocess.outputs import Outputs
from jaxsyn.storage import files, remote
from jaxsyn.utils.workers import Workers, cores

_BYTES_PER_PROCESS = 1 << 14  # minimum size of input for a worker process
_DIED = (
  "a worker process died, perhaps because memory ran out. Run the same command"
  " again to continue. --config.prepare.workers=1 needs the least memory."
)
_AGAIN = "See the log of the runner. Run the same command again to continue."

Runner = Callable[[PrepareJob], contextlib.AbstractContextManager[stages.Run]]


@contextlib.contextmanager
def local(job: PrepareJob) -> Iterator[stages.Run]:
  """Yields a function that runs preparation tasks on this machine.

  It uses worker processes in proportion to the size of the input, or only this
  process.
  """
  size = sum(map(files.size_of, job.sums))
  wanted = job.config.prepare.workers or cores()
  count = min(wanted, size // _BYTES_PER_PROCESS)
  if count > 1:
    with start_workers(job, count) as workers:
      yield functools.partial(run_on_workers, workers)
  else:
    yield functools.partial(_run_in_process, job)


def _run_in_process(
  job: PrepareJob, stage: str, numbers: Sequence[int]
) -> Iterator[int]:
  for number in numbers:
    stages.run_task(job, stage, number)
    yield number


def start_workers(job: PrepareJob, count: int) -> Workers[PrepareJob]:
  """Starts worker processes, forked after the parsers of a job are loaded."""
  return Workers(functools.partial(_with_parsers, job), count, died=_DIED)


def _with_parsers(job: PrepareJob) -> PrepareJob:
  _ = job.parsers  # loads them, before the process forks
  return job


def run_on_workers(
  workers: Workers[PrepareJob], stage: str, numbers: Sequence[int]
) -> Iterator[int]:
  """Runs tasks in worker processes; implements `stages.Run`."""
  futures = [workers.submit(stages.run_task, stage, n) for n in numbers]
  # In order, so that the first of several errors is reported.
  for number, future in zip(numbers, futures):
    future.result()
    yield number


def beam(options: str) -> Runner:
  """Returns a runner that runs each stage as an Apache Beam pipeline.

  Args:
    options: Command-line options of Beam, as in a shell.

  Raises:
    InputError: Beam is not installed, or an option or runner is unknown.
  """
  return functools.partial(_beam, _parse_beam_options(options))


@contextlib.contextmanager
def _beam(options: Any, job: PrepareJob) -> Iterator[stages.Run]:
  """Yields a function that runs the tasks of a stage as a Beam pipeline.

  Args:
    options: Parsed options of Beam.
    job: Preparation job in the launcher.
  """
  pickled = pickle.dumps(_with_shared_parsers(job))
  yield functools.partial(_run_on_beam, options, pickled, job.outputs)


def _with_shared_parsers(job: PrepareJob) -> PrepareJob:
  """Copies the local parser files of a job to its object store, if it has one.

  A parser may be a local file of the launcher while all other files are on an
  object store. A parser that is a package must be installed on the workers.
  """
  if not remote.is_remote(job.work):
    return job
  specs = dict(job.parser_specs)
  for side, parser in job.parser_specs.items():
    if not parser or job.has_trees(side):
      continue
    spec, identity = parser
    if (file := spec.file) and not remote.is_remote(file):
      copy = job.work / f"parser-{identity.sha256[:32]}.{spec.kind}"
      files.copy(file, copy)
      specs[side] = spec.at(os.fspath(copy)), identity
  return dataclasses.replace(job, parser_specs=specs)


def _run_on_beam(
  options: Any,
  pickled: bytes,
  outputs: Outputs,
  stage: str,
  numbers: Sequence[int],
) -> Iterator[int]:
  import apache_beam

  if not numbers:
    return
  for name in _error_files(outputs, stage):
    files.remove(outputs.path(name))
  pipeline = apache_beam.Pipeline(options=options)
  _ = (
    pipeline
    | f"{stage}: numbers" >> apache_beam.Create(numbers)
    | f"{stage}: spread" >> apache_beam.Reshuffle()
    | stage >> apache_beam.Map(_run_in_pipeline, pickled, stage)
  )
  try:
    pipeline.run().wait_until_finish()
  except Exception as error:  # each runner has its own
    lines = (str(error).split("\n\n")[0].strip() or repr(error)).splitlines()
    raise InputError(
      f"the pipeline of {stage!r} has failed: {lines[-1]}. All machines must"
      " see the raw files and the prepared folder, and have the keys of their"
      f" store. {_AGAIN}"
    ) from error
  for name in _error_files(outputs, stage):
    message = files.read_json(outputs.path(name))
    if "is missing" in message:
      message += " All machines must see the raw files and the prepared folder."
    raise InputError(message)
  yield from numbers


def _run_in_pipeline(number: int, pickled: bytes, stage: str) -> None:
  """Runs a task on an Apache Beam worker; an InputError is written to a file."""
  job = job_of(pickled)
  try:
    stages.run_task(job, stage, number)
  except InputError as error:  # not raised: Beam would retry the task
    path = job.outputs.path(f"{stage}/{number}.error")
    files.write_json(path, str(error))


def _error_files(outputs: Outputs, stage: str) -> list[str]:
  """Returns the names of the workers' error files, sorted by task number."""
  names = files.names(outputs.folder / stage, "*.error")
  names.sort(key=lambda name: int(name.partition(".")[0]))
  return [f"{stage}/{name}" for name in names]


_loaded = threading.local()  # pickled job of this thread, and the job


def job_of(pickled: bytes) -> PrepareJob:
  """Unpickles a job; each thread caches the last one."""
  if getattr(_loaded, "pickled", None) != pickled:
    _loaded.pickled, _loaded.job = pickled, pickle.loads(pickled)
  return _loaded.job


def _parse_beam_options(text: str) -> Any:
  """Parses Apache Beam's options; raises InputError if one is unknown."""
  try:
    options = shlex.split(text)
  except ValueError as error:
    raise InputError(f"--beam={text}: {error}.") from None
  try:
    from apache_beam.options import pipeline_options
    from apache_beam.runners.runner import create_runner
  except ImportError:
    raise InputError(
      "--beam needs Apache Beam: pip install -e '.[beam]'."
    ) from None
  parsed = pipeline_options.PipelineOptions(options)
  standard = parsed.view_as(pipeline_options.StandardOptions)
  try:
    # The runner comes first, since some runners define further options.
    create_runner(standard.runner or "DirectRunner")
  except (ImportError, ValueError, AttributeError) as error:
    raise InputError(f"--runner: {error}") from None
  unknown: list[str] = []

  def find_unknown(parser: argparse.ArgumentParser) -> None:
    unknown.extend(parser.parse_known_args(options)[1])

  parsed.get_all_options(add_extra_args_fn=find_unknown)
  if unknown:
    raise InputError(
      f"--beam: neither Beam nor its runner has an option {unknown[0]}."
    )
  return parsed
