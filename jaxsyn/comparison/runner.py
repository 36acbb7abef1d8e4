"""Runs in processes of their own: started, watched, started again, stopped.

A process that ends gives all its memory back. It is told to stop by SIGTERM,
and stops by itself when this process is gone, however that ended: its standard
input is a pipe from here, which then closes (`watch_parent`).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import jaxsyn
from jaxsyn.comparison import progress
from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.comparison.progress import Board
from jaxsyn.training.loop import StopSignals

STARTS = 3  # of a process that is killed each time before it gets any further
POLL_SECONDS = 0.1  # seconds between looks at the processes
REPORT_SECONDS = (
  30.0  # seconds until a line about a run that has not been validated yet
)
LATER_REPORT_SECONDS = 300.0  # the same after its first validation

Command = Callable[[TrainingJob], Sequence[str]]
Slot = Mapping[str, str]  # environment variables of one process at a time


@dataclasses.dataclass
class RunningJob:
  """A process at work on a run, and the place that it takes."""

  job: TrainingJob
  process: subprocess.Popen[bytes]
  place: Slot


@dataclasses.dataclass(frozen=True)
class RunnerResult:
  """How a call of `work` ended.

  Attributes:
    signal: name of the signal that stopped it; "" for its own end.
    failed: message of each run that was given up.
  """

  signal: str
  failed: dict[TrainingJob, str]


class JobRunner:
  """Works through runs, some at a time."""

  def __init__(
    self,
    jobs: Sequence[TrainingJob],
    command: Command,
    board: Board,
    places: Sequence[Slot] = ({},),
  ):
    """Sets it up.

    Args:
      jobs: in the order to be done.
      command: the command line that trains and translates one.
      board: where progress is shown.
      places: a process at a time for each.
    """
    self._jobs, self._command, self._board = list(jobs), command, board
    self._free = list(places)
    self._working: list[RunningJob] = []
    self._starts: dict[TrainingJob, int] = {}  # since it last got further
    self._reached: dict[TrainingJob, int] = {}  # step at the last start
    self._failed: dict[TrainingJob, str] = {}
    self._reported: dict[
      TrainingJob, int
    ] = {}  # step of the last validation told
    self._asked: set[TrainingJob] = set()  # to end
    self._line_at: dict[
      TrainingJob, float
    ] = {}  # time of the last line about a run

  def work(self) -> RunnerResult:
    """Does all that is not finished; returns when it is, or on a signal."""
    waiting = [job for job in self._jobs if not job.finished]
    if done := len(self._jobs) - len(waiting):
      self._board.say(f"{done} of {len(self._jobs)} runs are finished already")
    with StopSignals() as signals:
      try:
        while (waiting and not signals.name) or self._working:
          while self._free and waiting and not signals.name:
            self._start(waiting.pop(0), self._free.pop(0))
          waiting = self._ended(signals) + waiting
          if signals.name:
            self._stop(signals.name)
          self._show()
          time.sleep(POLL_SECONDS)
      finally:  # a second signal, or an error: nobody is left behind
        for working in self._working:
          working.process.kill()
          working.process.wait()
    self._show(now=True)
    return RunnerResult(signals.name, self._failed)

  def _start(self, job: TrainingJob, place: Slot) -> None:
    job.run.mkdir(parents=True, exist_ok=True)
    step = progress.state(job).step
    further = step > self._reached.get(job, -1)
    self._starts[job] = 1 if further else self._starts[job] + 1
    self._reached[job] = step
    seen = (record["step"] for record in progress.validations(job))
    self._reported[job] = max(seen, default=0)
    self._board.say(
      f"{job.name}: {f'goes on from about step {step}' if step else 'begins'}"
    )
    self._line_at[job] = time.monotonic()
    with (job.run / progress.OUTPUT).open("ab") as output:
      process = subprocess.Popen(
        self._command(job),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**_environment(), **place},
        # Ctrl-C goes to this process alone, which hands it on once.
        start_new_session=True,
      )
    self._working.append(RunningJob(job, process, place))

  def _ended(self, signals: StopSignals) -> list[TrainingJob]:
    """Takes processes that ended off the list; runs to be started again."""
    again = []
    for working in list(self._working):
      code, job = working.process.poll(), working.job
      if code is None:
        continue
      if working.process.stdin:
        working.process.stdin.close()
      self._working.remove(working)
      self._free.append(working.place)
      if job.finished:
        self._report(job)
        facts = job.facts
        self._board.say(
          f"{job.name}: finished at step {facts.step} ({facts.reason}), best "
          f"validation {progress.score_text(job.config.train.selection, facts.best_score)} at step "
          f"{facts.best_step}, "
          f"{facts.minutes:.1f} minutes"
        )
      elif signals.name:
        self._board.say(f"{job.name}: stopped")
      elif code <= 0 and self._starts[job] < STARTS:  # not of its own will
        self._board.say(f"{job.name}: {_how(code)}; it goes on")
        again.append(job)
      else:
        output = progress.tail(job)
        self._failed[job] = f"{_how(code)}: {output}"
        self._board.say(f"{job.name}: given up; {self._failed[job]}")
    return again

  def _stop(self, name: str) -> None:
    """Asks every process once to save and end."""
    for working in self._working:
      if working.job not in self._asked:
        self._asked.add(working.job)
        self._board.say(f"{name}: {working.job.name} is asked to save and end")
        working.process.send_signal(signal.SIGTERM)

  def _show(self, now: bool = False) -> None:
    if not (now or self._board.due):
      return
    busy = {working.job for working in self._working}
    for job in busy:
      self._report(job)
      self._report_progress(job)
    states = {
      job: progress.state(job, working=job in busy, failed=job in self._failed)
      for job in self._jobs
    }
    self._board.show(states)

  def _report(self, job: TrainingJob) -> None:
    """A line for each validation that is new."""
    for record in progress.validations(job):
      if record["step"] <= self._reported[job]:
        continue
      self._reported[job] = record["step"]
      self._line_at[job] = time.monotonic()
      metric = job.config.train.selection
      self._board.say(
        f"{job.name}: step {record['step']}/{job.config.train.steps}, "
        f"validation {progress.score_text(metric, record[metric])}, "
        f"{record['minutes']:.1f} minutes"
      )

  def _report_progress(self, job: TrainingJob) -> None:
    """Prints a line about a run that has had none for a while."""
    now = time.monotonic()
    interval = LATER_REPORT_SECONDS if self._reported[job] else REPORT_SECONDS
    if now - self._line_at[job] < interval:
      return
    self._line_at[job] = now
    if line := progress.line(job):
      self._board.say(f"{job.name}: {line}")


def watch_parent() -> None:
  """Asks this process to save and end when the one that started it is gone.

  For a process whose standard input is a pipe that nobody writes to.
  """

  def wait() -> None:
    while os.read(0, 1):
      pass
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=wait, daemon=True, name="parent").start()


def _environment() -> dict[str, str]:
  """This process's, with this very jaxsyn first."""
  root = str(pathlib.Path(jaxsyn.__file__).resolve().parent.parent)
  paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
  return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _how(code: int) -> str:
  """How a process came to its end, from its status."""
  if code < 0:
    return f"its process was killed ({signal.Signals(-code).name})"
  if code == 0:
    return "its process was asked to stop by another"
  return f"its process ended with status {code}"
