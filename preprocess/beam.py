"""Runs the stages of a preparation with Apache Beam, on any of its runners.

  jaxsyn prepare --config FILE --beam --runner=DirectRunner \\
    --direct_running_mode=multi_processing --direct_num_workers=2

A pipeline a stage: numbers, spread over the workers, and `stages.perform` on
each. What goes through it are these numbers alone; text and all that is made lie
in files, which every machine must see under the same names. A chunk that is done
twice, or half, does no harm, so workers may die and be retried.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Container, Iterator, Sequence
from typing import Any

from absl import flags

from jaxsyn import files
from jaxsyn.errors import InputError
from jaxsyn.preprocess import stages
from jaxsyn.preprocess.corpus import Job, Tools


def library() -> Any:
  """Apache Beam, which only pipelines need."""
  try:
    import apache_beam
  except ImportError:
    raise InputError(
      "--beam needs Apache Beam: pip install 'jaxsyn[beam]'."
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
      own = name in known or name.removeprefix("no") in known or name == "h"
      into = ours if own or name.startswith(("config", "help")) else theirs
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
      InputError: Beam is not installed, or knows no such option or runner.
    """
    self._beam = library()
    self._options, self._tools = _checked(options), tools

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    if not numbers:
      return
    for number in numbers:
      files.remove(self._tools.work.path(_fault(stage, number)))
    beam, work = self._beam, self._tools.work
    pipeline = beam.Pipeline(options=self._options)
    perform = beam.ParDo(_perform(beam)(self._tools.job, stage))
    _ = (
      pipeline
      | f"{stage}: numbers" >> beam.Create(numbers)
      | f"{stage}: spread" >> beam.Reshuffle()
      | stage >> perform
    )
    pipeline.run().wait_until_finish()
    for number in numbers:
      if files.is_file(work.path(_fault(stage, number))):
        raise InputError(work.read_page(_fault(stage, number)))
      page = work.facts(f"{stage}/{number}")
      if page is None:
        raise InputError(
          f"the pipeline of {stage!r} has ended without chunk {number}. Look at"
          " the log of its runner, and run the same command again: what is done"
          f" stays. All machines must see {work.folder}."
        )
      yield page["facts"].get("lines", 0)

  def close(self) -> None:
    pass


def _fault(stage: str, number: int) -> str:
  """Name of the page on which a worker says what is wrong with the input."""
  return f"{stage}/{number}.fault"


def _checked(options: Sequence[str]) -> Any:
  """Options of Beam; raises InputError for those that it does not know."""
  from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
  )
  from apache_beam.runners.runner import create_runner

  found = PipelineOptions([*options])
  try:
    # Before all others are looked at: some runners bring options of their own.
    create_runner(found.view_as(StandardOptions).runner or "DirectRunner")
  except (ImportError, ValueError, AttributeError) as error:
    raise InputError(f"--runner: {error}") from None
  unknown: list[str] = []

  def look(parser: argparse.ArgumentParser) -> None:
    unknown.extend(parser.parse_known_args([*options])[1])

  found.get_all_options(add_extra_args_fn=look)
  if unknown:
    raise InputError(
      f"neither this command nor Beam's runner has an option {unknown[0]}."
    )
  return found


@functools.cache
def _perform(beam: Any) -> Any:
  """What does one number, as Beam wants it."""

  class Perform(beam.DoFn):  # type: ignore[misc]  # untyped
    """`stages.perform`, with models that a worker loads once."""

    def __init__(self, job: Job, stage: str):
      self._job, self._stage = job, stage

    def setup(self) -> None:
      self._tools = Tools(self._job)

    def process(self, number: int) -> None:
      try:
        stages.perform(self._tools, self._stage, number)
      except InputError as error:
        # A fault of the input stays one however often it is tried.
        page = _fault(self._stage, number)
        self._tools.work.write_page(page, str(error))

  return Perform
