"""Runners of preparation tasks: processes of this machine, or Apache Beam.

With Beam, each stage is a pipeline of task numbers and a ParDo that calls
`stages.run_task`. Texts and outputs are files that all machines must see under
the same names, on an object store or a shared disk. Tasks may be repeated and
interrupted without harm, so workers may die and tasks may be retried.

  jaxsyn prepare --config FILE --beam --runner=DirectRunner \\
    --direct_running_mode=multi_processing --direct_num_workers=2
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pickle
from collections.abc import Container, Iterator, Sequence
from typing import Any

from absl import flags

from jaxsyn.errors import InputError
from jaxsyn.preprocess import stages
from jaxsyn.preprocess.corpus import JobContext, PrepareJob
from jaxsyn.storage import files, remote
from jaxsyn.workers import Workers, cores

_BYTES_PER_PROCESS = 1 << 14  # minimum size of input for a worker process
_DIED = (
  "a worker process died, perhaps because memory ran out. Run the same command"
  " again: what is done stays. --config.prepare.workers=1 needs least memory."
)
_REMOTE_RUNNERS = ("DataflowRunner",)  # their workers see no local disk
_ERROR = ".error"
_VISIBLE = "All machines must see the raw files and the prepared folder."
_AGAIN = "Run the same command again: what is done stays."


class InProcessRunner:
  """Runner that executes preparation tasks one by one in this process."""

  def __init__(self, context: JobContext):
    self._context = context

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    for number in numbers:
      yield stages.run_task(self._context, stage, number)

  def close(self) -> None:
    pass


class ProcessRunner:
  """Runner that executes preparation tasks in several local processes."""

  def __init__(self, job: PrepareJob, count: int):
    """Starts the worker processes, which load the preparation job.

    Args:
      job: preparation job.
      count: number of processes.
    """
    make = functools.partial(_load_context, job)
    self._workers = Workers(make, count, died=_DIED)

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    submit = self._workers.submit
    futures = [submit(stages.run_task, stage, number) for number in numbers]
    # In order, so that the first of several errors is reported.
    for future in futures:
      yield future.result()

  def close(self) -> None:
    self._workers.close()


def _load_context(job: PrepareJob) -> JobContext:
  """Loads a preparation job and its parsers, whose memory processes share."""
  context = JobContext(job)
  _ = context.parsers
  return context


def local(context: JobContext) -> InProcessRunner | ProcessRunner:
  """Returns a local runner, with processes in proportion to the input size."""
  paths = {
    source.path
    for split, stream in context.job.streams
    for source in split.streams[stream]
  }
  size = sum(map(files.size_of, paths))
  wanted = context.config.prepare.workers or cores()
  count = min(wanted, size // _BYTES_PER_PROCESS)
  if count > 1:
    return ProcessRunner(context.job, count)
  return InProcessRunner(context)


class BeamRunner:
  """Runner that executes each preparation stage as an Apache Beam pipeline."""

  def __init__(self, options: Sequence[str], context: JobContext):
    """Imports Beam and checks its options.

    Args:
      options: command-line options of Beam.
      context: preparation job in the launcher.

    Raises:
      InputError: Beam is not installed, an option or the runner is unknown, or
        workers of this runner would not see a folder.
    """
    self._beam = _import_beam()
    self._options, runner = check_beam_options(options)
    self._outputs = context.outputs
    if runner in _REMOTE_RUNNERS:
      _check_visible(context.job, runner)
    self._job = pickle.dumps(_with_shared_parsers(context.job))

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    if not numbers:
      return
    for name in self._errors(stage):
      files.remove(self._outputs.path(name))
    self._run(stage, numbers)
    for name in self._errors(stage):
      message = files.read_json(self._outputs.path(name))
      hint = f" {_VISIBLE}" if "is missing" in message else ""
      raise InputError(f"{message}{hint}")
    tasks = [f"{stage}/{number}" for number in numbers]
    for number, header in zip(numbers, self._outputs.all_finished(tasks)):
      if header is None:
        raise InputError(
          f"the pipeline of {stage!r} has ended without chunk {number}. All"
          f" machines must see {self._outputs.folder}. See the log of the runner."
          f" {_AGAIN}"
        )
      yield header.result.get("lines", 0)

  def _run(self, stage: str, numbers: Sequence[int]) -> None:
    beam = self._beam
    pipeline = beam.Pipeline(options=self._options)
    _ = (
      pipeline
      | f"{stage}: numbers" >> beam.Create(numbers)
      | f"{stage}: spread" >> beam.Reshuffle()
      | stage >> beam.ParDo(_task_function(beam)(self._job, stage))
    )
    try:
      pipeline.run().wait_until_finish()
    except Exception as error:  # each runner has its own
      lines = (str(error).split("\n\n")[0].strip() or repr(error)).splitlines()
      raise InputError(
        f"the pipeline of {stage!r} has failed: {lines[-1]}. All machines must"
        " see the raw files and the prepared folder, and have the keys of their"
        f" store. See the log of the runner. {_AGAIN}"
      ) from error

  def _errors(self, stage: str) -> list[str]:
    """Returns names of files with errors that workers wrote, by task number."""
    names = files.names(self._outputs.folder / stage, f"*{_ERROR}")
    names.sort(key=lambda name: int(name.removesuffix(_ERROR)))
    return [f"{stage}/{name}" for name in names]

  def close(self) -> None:
    pass


@functools.cache
def _task_function(beam: Any) -> Any:
  """Returns the class of the Beam DoFn that runs one preparation task."""

  class RunTask(beam.DoFn):  # type: ignore[misc]  # untyped
    """Beam DoFn for `stages.run_task`, with models that a worker loads once."""

    def __init__(self, job: bytes, stage: str):
      self._job, self._stage = job, stage

    def setup(self) -> None:
      self._context = borrow_context(self._job)

    def teardown(self) -> None:
      return_context(self._job, self._context)

    def process(self, number: int) -> None:
      try:
        stages.run_task(self._context, self._stage, number)
      except InputError as error:
        # An input error is not raised here, since Beam would retry the task.
        name = f"{self._stage}/{number}{_ERROR}"
        files.write_json(self._context.outputs.path(name), str(error))

  return RunTask


_idle: dict[
  bytes, list[JobContext]
] = {}  # unused contexts of this worker, by job


def borrow_context(job: bytes) -> JobContext:
  """Returns an idle or new `JobContext` of a preparation job, for one thread.

  Some runners repeat the setup for each element, and parsers load slowly.

  Args:
    job: pickled `PrepareJob`.
  """
  if job not in _idle:
    _idle.clear()  # models of other jobs
  try:
    return _idle.setdefault(job, []).pop()
  except IndexError:
    return JobContext(pickle.loads(job))


def return_context(job: bytes, context: JobContext) -> None:
  """Makes a borrowed `JobContext` of a preparation job available again."""
  _idle.setdefault(job, []).append(context)


def _import_beam() -> Any:
  try:
    import apache_beam
  except ImportError:
    raise InputError(
      "--beam needs Apache Beam: pip install -e '.[beam]'."
    ) from None
  return apache_beam


def split_command_line(
  argv: Sequence[str], known: flags.FlagValues | Container[str]
) -> tuple[list[str], list[str]]:
  """Splits a command line with --beam into jaxsyn's flags and Beam's options.

  Args:
    argv: words of the command line.
    known: names of jaxsyn's flags, except those of --config.
  """
  ours, theirs = [*argv[:1]], list[str]()
  part = ours
  for word in argv[1:]:
    if word.startswith("-"):
      name = word.lstrip("-").partition("=")[0]
      is_known = (
        name in known or name.removeprefix("no") in known or name == "h"
      )
      part = ours if is_known or name.startswith(("config", "help")) else theirs
    part.append(word)
  return ours, theirs


def check_beam_options(options: Sequence[str]) -> tuple[Any, str]:
  """Returns the parsed options of Beam and the class name of their runner.

  Raises:
    InputError: Beam is not installed, or an option or runner is unknown.
  """
  _import_beam()
  from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
  )
  from apache_beam.runners.runner import create_runner

  pipeline_options = PipelineOptions([*options])
  try:
    # The runner comes first, since some runners define further options.
    runner = create_runner(
      pipeline_options.view_as(StandardOptions).runner or "DirectRunner"
    )
  except (ImportError, ValueError, AttributeError) as error:
    raise InputError(f"--runner: {error}") from None
  unknown: list[str] = []

  def find_unknown(parser: argparse.ArgumentParser) -> None:
    unknown.extend(parser.parse_known_args([*options])[1])

  pipeline_options.get_all_options(add_extra_args_fn=find_unknown)
  if unknown:
    raise InputError(
      f"neither this command nor Beam's runner has an option {unknown[0]}."
    )
  return pipeline_options, type(runner).__name__


def _check_visible(job: PrepareJob, runner: str) -> None:
  """Raises InputError if the job has local paths, which remote workers lack."""
  sources = [s for split, name in job.streams for s in split.streams[name]]
  for path in (job.outputs.folder, *(source.path for source in sources)):
    if not remote.is_remote(path):
      raise InputError(
        f"--runner={runner}: its workers do not see {path}. Put the raw text"
        " and config.data.directory on an object store (s3://, gs://)."
      )


def _with_shared_parsers(job: PrepareJob) -> PrepareJob:
  """Returns the job with local parser files copied to its object store, if any.

  A parser may be a local file of the launcher while all other files are on an
  object store. A parser that is a package must be installed on the workers.
  """
  if not remote.is_remote(job.retained):
    return job
  parsers = {}
  for side, (spec, identity) in job.parsers.items():
    if (file := spec.file) and not remote.is_remote(file):
      copy = job.retained / f"parser-{identity.sha256[:32]}.{spec.kind}"
      files.copy(file, copy)
      spec = spec.at(os.fspath(copy))
    parsers[side] = spec, identity
  return dataclasses.replace(job, parsers=parsers)
