"""The stages of a preparation, and how they are run on one machine.

  convert  index  clean  (duplicates  language)  sample  vocabulary  trees
  encode  shards  tables

A stage is a pure function of one number: of a chunk, mostly. It reads files and
what earlier stages have left in `preprocess.work`, and leaves pieces and facts
there, so it may be done again at any time, by anybody. Between two stages the
launcher puts facts together, and those that are needed later go onto a page.
Here they run in this process, or in several (`jaxsyn.workers`);
`preprocess.beam` has another runner for the same stages.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from jaxsyn import progress
from jaxsyn.preprocess import clean, parse, records, shards, sources, subwords
from jaxsyn.preprocess.corpus import PrepareJob, Tools
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import files
from jaxsyn.workers import Workers, cores

_WORTH = 1 << 14  # bytes of files that are worth a process
_DIED = (
  "a worker process died, perhaps for want of memory. Run the same command again,"
  " what is done stays; --config.prepare.workers=1 needs least."
)


@dataclasses.dataclass(frozen=True)
class Stage:
  """A step of all chunks.

  Attributes:
    count: how many numbers it has, from 0.
    make: does one of them.
    after: what the launcher does with the facts of all of them.
  """

  count: Callable[[Tools], int]
  make: Callable[[Tools, int, Output], Facts]
  after: Callable[[Tools, Sequence[Facts]], None]


def _chunks(tools: Tools) -> int:
  return sum(cut.chunks for cut in tools.cuts)


def _nothing(tools: Tools, facts: Sequence[Facts]) -> None:
  """Nothing is to be put together."""


def _plan(tools: Tools, facts: Sequence[Facts]) -> None:
  records.check(tools, facts)
  tools.work.write_json("shards.page", shards.plan(tools, facts))


STAGES = {
  "convert": Stage(sources.conversions, sources.convert, _nothing),
  "index": Stage(sources.ranges, sources.index, sources.cut),
  "clean": Stage(_chunks, clean.clean, clean.after_clean),
  "duplicates": Stage(clean.partitions, clean.duplicates, _nothing),
  "language": Stage(clean.again, clean.language, clean.after_language),
  "sample": Stage(subwords.samples, subwords.sample, _nothing),
  "vocabulary": Stage(
    lambda tools: len(subwords.groups(tools)),
    subwords.vocabulary,
    subwords.after,
  ),
  "trees": Stage(_chunks, parse.trees, parse.after),
  "encode": Stage(_chunks, records.encode, _plan),
  "shards": Stage(
    lambda tools: len(shards.tasks(tools)), shards.write, _nothing
  ),
  "tables": Stage(
    lambda tools: len(tools.job.splits), shards.write_index, _nothing
  ),
}


def perform(tools: Tools, stage: str, index: int) -> int:
  """Does one number of a stage, if it is not done; what every runner calls.

  Returns: how many lines it was about.

  Raises:
    InputError: something is wrong with the input.
  """
  task = f"{stage}/{index}"
  result = tools.work.facts(task)
  if result is None:
    out = Output(tools.work, task)
    facts = STAGES[stage].make(tools, index, out)
    out.finish(facts)
    return facts.get("lines", 0)
  return result["facts"].get("lines", 0)


class Runner(Protocol):
  """Does all numbers of a stage."""

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    """Does them; yields the lines of each that is done.

    Raises:
      InputError: of the first number that has one.
    """
    ...

  def close(self) -> None:
    """Ends it, in the midst of its work if it has any."""
    ...


def run(tools: Tools, runner: Runner) -> None:
  """All stages, one after the other; what is done already is not done again.

  Args:
    tools: of the job, in the hands of the launcher.
    runner: does the work.

  Raises:
    InputError: something is wrong with the input.
  """
  for name, stage in STAGES.items():
    count = stage.count(tools)
    todo = [
      index
      for index, result in enumerate(tools.work.all_facts(name, range(count)))
      if result is None
    ]
    fresh = set(todo)
    _follow(runner.run(name, todo), name, len(todo))
    pages = []
    for index, result in enumerate(tools.work.all_facts(name, range(count))):
      assert result is not None, f"{name} {index} is done"
      if index in fresh:
        print(*result["said"], sep="\n", end="\n" if result["said"] else "")
      pages.append(result["facts"])
    stage.after(tools, pages)


def _follow(done: Iterator[int], name: str, total: int) -> None:
  """Waits until a stage is done, with its progress on the screen.

  Args:
    done: the lines of each number that is done, as it is.
    name: of the stage.
    total: numbers that are to be done.
  """
  started, lines = time.monotonic(), 0
  with progress.bar(name, total, unit="chunk", per="line") as bar:
    for some in done:
      lines += some
      bar.advance(amount=some)
  seconds = time.monotonic() - started
  if seconds > 1 and lines:
    speed = f"{lines / seconds:,.0f} lines/s"
    print(f"{name}: done in {seconds:.1f} s ({speed})", flush=True)


class InProcessRunner:
  """Runs in this process alone."""

  def __init__(self, tools: Tools):
    self._tools = tools

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    for index in numbers:
      yield perform(self._tools, stage, index)

  def close(self) -> None:
    pass


class ProcessRunner:
  """Runs in several processes of this machine."""

  def __init__(self, job: PrepareJob, count: int):
    """Starts them.

    Args:
      job: what is to be done.
      count: of processes.
    """
    make = functools.partial(_loaded, job)
    self._workers = Workers(make, count, died=_DIED)

  def run(self, stage: str, numbers: Sequence[int]) -> Iterator[int]:
    submit = self._workers.submit
    waiting = [submit(perform, stage, index) for index in numbers]
    # In their order, so that of several faults the first is told.
    for future in waiting:
      yield future.result()

  def close(self) -> None:
    self._workers.close()


def _loaded(job: PrepareJob) -> Tools:
  """A job with its parsers, whose memory the processes share."""
  tools = Tools(job)
  _ = tools.parsers
  return tools


def local(tools: Tools) -> InProcessRunner | ProcessRunner:
  """The runner of one machine: as many processes as there is work for."""
  paths = {units.file for units in tools.job.files}
  size = sum(map(files.size_of, paths))
  wanted = tools.config.prepare.workers or cores()
  count = min(wanted, size // _WORTH)
  return (
    ProcessRunner(tools.job, count) if count > 1 else InProcessRunner(tools)
  )
