"""Runs the stages of a preparation with Apache Beam, on any of its runners.

  jaxsyn prepare --config FILE --beam --runner=DirectRunner \\
    --direct_running_mode=multi_processing --direct_num_workers=2

A pipeline a stage: numbers, spread over the workers, and `stages.perform` on
each. What goes through it are these numbers alone; text and all that is made lie
in files, which every machine must see under the same names: on an object store,
or on a disk that they share. A chunk that is done twice, or half, does no harm,
so workers may die and be retried.
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
from jaxsyn.preprocess.corpus import PrepareJob, Tools
from jaxsyn.storage import files, remote

_REMOTE_RUNNERS = ("DataflowRunner",)  # whose workers never see a disk of ours
_FAULT = ".fault"
_AGAIN = "Run the same command again: what is done stays."


def library() -> Any:
  """Apache Beam, which only pipelines need."""
  try:
    import apache_beam
  except ImportError:
    raise InputError(
      "--beam needs Apache Beam: pip install -e '.[beam]'."
    ) from None
  return apache_beam


def split(
  argv: Sequence[str], known: flags.FlagValues | Container[str]
) -> tuple[list[str], list[str]]:
  """Parts a command line with --beam into ours and the options of Beam.

  Args:
    argv: of the command.
    known: names of our flags; those of --config begin so.
  """
  ours, theirs = [*argv[:1]], list[str]()
  into = ours
  for word in argv[1:]:
    if word.startswith("-"):
      name = word.lstrip("-").partition("=")[0]
      is_known = (
        name in known or name.removeprefix("no") in known or name == "h"
      )
      into = ours if is_known or name.startswith(("config", "help")) else theirs
    into.append(word)
  return ours, theirs


class Pipelines:
  """Runs each stage as a pipeline."""

  def __init__(self, options: Sequence[str], tools: Tools):
    """Checks the options.

    Args:
      options: of Beam, as on a command line.
      tools: of the launcher.

    Raises:
      InputError: Beam is not installed, or knows no such option or runner, or
        workers of this runner would not see a folder.
    """
    self._beam = library()
    self._options, runner = checked(options)
    self._tools = tools
    if runner in _REMOTE_RUNNERS:
      _check_seen(tools.job, runner)
    self._job = pickle.dumps(_with_models(tools.job))

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    if not numbers:
      return
    work = self._tools.work
    for fault in self._faults(stage):
      files.remove(work.path(fault))
    self._run(stage, numbers)
    for fault in self._faults(stage):
      raise InputError(work.read_json(fault))
    for index, result in zip(numbers, work.all_facts(stage, numbers)):
      if result is None:
        raise InputError(
          f"the pipeline of {stage!r} has ended without chunk {index}. All"
          f" machines must see {work.folder}. Look at the log of the runner."
          f" {_AGAIN}"
        )
      yield result["facts"].get("lines", 0)

  def _run(self, stage: str, numbers: Sequence[int]) -> None:
    beam = self._beam
    pipeline = beam.Pipeline(options=self._options)
    _ = (
      pipeline
      | f"{stage}: numbers" >> beam.Create(numbers)
      | f"{stage}: spread" >> beam.Reshuffle()
      | stage >> beam.ParDo(_perform(beam)(self._job, stage))
    )
    try:
      pipeline.run().wait_until_finish()
    except Exception as error:  # of any kind: each runner has its own
      lines = (str(error).split("\n\n")[0].strip() or repr(error)).splitlines()
      raise InputError(
        f"the pipeline of {stage!r} has failed: {lines[-1]}. All machines must"
        " see the raw files and the prepared folder, and have the keys of their"
        f" store. Look at the log of the runner. {_AGAIN}"
      ) from error

  def _faults(self, stage: str) -> list[str]:
    """Pages on which workers say what is wrong with the input, in order."""
    names = files.names(self._tools.work.folder / stage, f"*{_FAULT}")
    names.sort(key=lambda name: int(name.removesuffix(_FAULT)))
    return [f"{stage}/{name}" for name in names]

  def close(self) -> None:
    pass


def _check_seen(job: PrepareJob, runner: str) -> None:
  """Raises InputError for a local file where workers see none."""
  for path in (
    job.work.folder,
    *(source.path for source, _ in job.converted),
    *(units.path for units in job.files),
  ):
    if not remote.is_remote(path):
      raise InputError(
        f"--runner={runner}: its workers do not see {path}. Put the raw text"
        " and config.data.directory on an object store (s3://, gs://)."
      )


def _with_models(job: PrepareJob) -> PrepareJob:
  """The same, its parsers where the workers see them.

  A parser may be a file of the launcher, while everything else is on an object
  store. A parser that is a package must be installed on the workers.
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


def checked(options: Sequence[str]) -> tuple[Any, str]:
  """Options of Beam, and the name of the runner that they ask for.

  Raises:
    InputError: Beam is not installed, or knows no such option or runner.
  """
  library()
  from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
  )
  from apache_beam.runners.runner import create_runner

  pipeline_options = PipelineOptions([*options])
  try:
    # Before all others are looked at: some runners bring options of their own.
    runner = create_runner(
      pipeline_options.view_as(StandardOptions).runner or "DirectRunner"
    )
  except (ImportError, ValueError, AttributeError) as error:
    raise InputError(f"--runner: {error}") from None
  unknown: list[str] = []

  def look(parser: argparse.ArgumentParser) -> None:
    unknown.extend(parser.parse_known_args([*options])[1])

  pipeline_options.get_all_options(add_extra_args_fn=look)
  if unknown:
    raise InputError(
      f"neither this command nor Beam's runner has an option {unknown[0]}."
    )
  return pipeline_options, type(runner).__name__


_idle: dict[bytes, list[Tools]] = {}  # of a worker, in nobody's hands


def borrow_context(job: bytes) -> Tools:
  """Tools for one thread: with what a worker has loaded before, or fresh ones.

  Some runners set up anew for every number, and parsers take their time.

  Args:
    job: pickled.
  """
  if job not in _idle:
    _idle.clear()  # models of other jobs
  try:
    return _idle.setdefault(job, []).pop()
  except IndexError:
    return Tools(pickle.loads(job))


def give_back(job: bytes, tools: Tools) -> None:
  """Leaves what was taken to whoever comes next."""
  _idle.setdefault(job, []).append(tools)


@functools.cache
def _perform(beam: Any) -> Any:
  """What does one number, as Beam wants it."""

  class Perform(beam.DoFn):  # type: ignore[misc]  # untyped
    """`stages.perform`, with models that a worker loads once."""

    def __init__(self, job: bytes, stage: str):
      self._job, self._stage = job, stage

    def setup(self) -> None:
      self._tools = borrow_context(self._job)

    def teardown(self) -> None:
      give_back(self._job, self._tools)

    def process(self, index: int) -> None:
      try:
        stages.perform(self._tools, self._stage, index)
      except InputError as error:
        # A fault of the input stays one however often it is tried.
        fault_file = f"{self._stage}/{index}{_FAULT}"
        self._tools.work.write_json(fault_file, str(error))

  return Perform
