"""Stages of dataset preparation, in order, and the loop that runs them.

A stage has numbered tasks. A task is a pure function of its number: it reads
input files and outputs of earlier stages, and writes one output file
(`preprocess.outputs`). When all tasks are done, the launcher combines their
results into the summary of the stage, an output file that later stages read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jaxsyn.errors import InputError
from jaxsyn.preprocess import reading, records, selection, trees, vocabulary
from jaxsyn.preprocess.job import PrepareJob
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.utils import progress

# Runs tasks of a stage, given their numbers, and yields each number when its
# task is done. Raises the InputError of the first task that has one.
Run = Callable[[str, Sequence[int]], Iterator[int]]


def _no_summary(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  return {}


class Stage(NamedTuple):
  """Stage of preparation: numbered tasks, and how their results combine.

  Attributes:
    count: Function that returns the number of tasks.
    run: Function that runs one task and returns its result.
    combine: Function that combines all results into the summary of the stage.
  """

  count: Callable[[PrepareJob], int]
  run: Callable[[PrepareJob, int, TaskOutput], Result]
  combine: Callable[[PrepareJob, Sequence[Result], TaskOutput], Result] = (
    _no_summary
  )


def _chunks(job: PrepareJob) -> int:
  return len(job.all_chunks)


STAGES = {
  "read": Stage(reading.count, reading.read, reading.combine),
  "clean": Stage(_chunks, selection.apply_filters, selection.check_texts),
  "duplicates": Stage(
    selection.partition_count, selection.find_duplicates, selection.select
  ),
  "vocabulary": Stage(
    vocabulary.count, vocabulary.make_vocabulary, vocabulary.combine
  ),
  "trees": Stage(_chunks, trees.make_trees, trees.combine),
  "encode": Stage(_chunks, records.encode, records.combine),
  "shards": Stage(records.shard_count, records.write_shard),
}


def run_task(job: PrepareJob, stage: str, number: int) -> None:
  """Runs a task of a stage unless it is finished.

  Raises:
    InputError: The input is invalid.
  """
  task = f"{stage}/{number}"
  if job.outputs.finished(task) is None:
    with job.outputs.new(task) as out:
      out.header.result = STAGES[stage].run(job, number, out)


def combine(job: PrepareJob, stage: str, results: Sequence[Result]) -> None:
  """Writes a stage's summary, which combines the results of its tasks.

  Raises:
    InputError: The input is invalid.
  """
  with job.outputs.new(f"summaries/{stage}") as out:
    out.header.result = STAGES[stage].combine(job, results, out)


def results(job: PrepareJob, stage: str) -> list[Result]:
  """Returns the results of all tasks in a finished stage."""
  headers = job.outputs.all_finished(_tasks(job, stage))
  return [header.result for header in headers if header]


def _tasks(job: PrepareJob, stage: str) -> list[str]:
  return [f"{stage}/{n}" for n in range(STAGES[stage].count(job))]


def run(job: PrepareJob, run_tasks: Run) -> None:
  """Runs all stages of dataset preparation, skipping finished tasks.

  Args:
    job: Preparation job in the launcher.
    run_tasks: Function from `preprocess.runners` that runs tasks.

  Raises:
    InputError: The input is invalid.
  """
  outputs = job.outputs
  for name in STAGES:
    headers = outputs.all_finished(_tasks(job, name), deep=True)
    todo = [i for i, header in enumerate(headers) if header is None]
    started, lines = time.monotonic(), 0
    with progress.bar(name, len(todo), unit="chunk", per="line") as bar:
      for i in run_tasks(name, todo):
        header = headers[i] = outputs.finished(f"{name}/{i}")
        if header is None:
          raise InputError(
            f"the stage {name!r} has ended without chunk {i}. All machines must"
            f" see {outputs.folder}. Run the same command again: it"
            " keeps finished work."
          )
        lines += header.result.get("lines", 0)
        bar.advance(amount=header.result.get("lines", 0))
    seconds = time.monotonic() - started
    if seconds > 1 and lines:
      speed = f"{lines / seconds:,.0f} lines/s"
      print(f"{name}: done in {seconds:.1f} s ({speed})", flush=True)
    finished = [header for header in headers if header]
    for i in todo:
      for message in finished[i].messages:
        print(message, flush=True)
    combine(job, name, [header.result for header in finished])
