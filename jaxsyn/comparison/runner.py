"""Runs training jobs as processes: starts, watches, restarts and stops them.

The memory of a process is freed at its end. A process stops on SIGTERM, and when
this process ends for any reason: its standard input is a pipe from here, which
then closes (`watch_parent`).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jaxsyn
from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.scoring.metrics import decimals
from jaxsyn.scoring.selection import name_of
from jaxsyn.training.stopping import StopSignals
from jaxsyn.utils.progress import span

MAX_STARTS = 3  # of a process that is killed each time before it progresses
POLL_SECONDS = 0.1  # between checks of the processes
LOG_SECONDS = 1.0  # between checks of the runs' logs
STATUS_SECONDS = 60.0  # until a line about a run without news

Command = Callable[[TrainingJob], Sequence[str]]
Slot = Mapping[str, str]  # environment variables of one process at a time


class ProgressLog:
  """Log of a comparison: lines with times, printed and added to log.txt."""

  def __init__(self, folder: pathlib.Path):
    self._file = (folder / "log.txt").open("a", encoding="utf-8")

  def write(self, text: str) -> None:
    """Prints a line with the time, and adds it to log.txt."""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}"
    for stream in (self._file, sys.stdout):
      print(line, file=stream, flush=True)

  def close(self) -> None:
    self._file.close()


@dataclasses.dataclass
class JobState:
  """State of a job: its process, progress and restarts.

  Attributes:
    starts: Number of starts since the run last progressed.
    step: Last step at the last start.
    reported: Step of the last validation in the log of the comparison.
    line_time: Time of the last line about the run.
    process: Running process, or None.
    slot: Slot of the running process.
  """

  starts: int = 0
  step: int = -1
  reported: int = 0
  line_time: float = 0.0
  process: subprocess.Popen[bytes] | None = None
  slot: Slot = dataclasses.field(default_factory=dict)


class RunnerResult(NamedTuple):
  """The signal that stopped the runner, or "", and messages of failed runs."""

  signal: str
  failed: dict[TrainingJob, str]


class JobRunner:
  """Runner of training jobs: starts one process at a time in each slot."""

  def __init__(
    self,
    jobs: Sequence[TrainingJob],
    command: Command,
    log: ProgressLog,
    slots: Sequence[Slot] = ({},),
  ):
    """Prepares the jobs without starting any.

    Args:
      jobs: Jobs in the order of their start.
      command: Function that returns the command line of a job.
      log: Log of the comparison.
      slots: Environment variables of each process that runs at the same time.
    """
    self._command, self._log = command, log
    self._free_slots = list(slots)
    self._states = {job: JobState() for job in jobs}
    self._failed: dict[TrainingJob, str] = {}
    self._began, self._finished, self._left = time.monotonic(), 0, 0

  def run(self) -> RunnerResult:
    """Runs all unfinished jobs; returns at the end or after a signal."""
    total = len(self._states)
    waiting = [job for job in self._states if not job.finished]
    self._began, self._left = time.monotonic(), len(waiting)
    if finished := total - len(waiting):
      self._log.write(f"{finished} of {total} runs are finished already")
    next_report, is_stopping = 0.0, False
    with StopSignals() as signals:
      try:
        while (waiting and not signals.name) or self._running():
          while self._free_slots and waiting and not signals.name:
            self._start(waiting.pop(0), self._free_slots.pop(0))
          waiting = self._handle_ended(signals) + waiting
          if signals.name and not is_stopping:
            is_stopping = True
            self._stop(signals.name)
          if time.monotonic() >= next_report:
            for job in self._running():
              self._report(job)
            next_report = time.monotonic() + LOG_SECONDS
          time.sleep(POLL_SECONDS)
      finally:  # after a second signal or an error, no process is left
        for process in self._running().values():
          process.kill()
          process.wait()
    return RunnerResult(signals.name, self._failed)

  def _running(self) -> dict[TrainingJob, subprocess.Popen[bytes]]:
    return {
      job: state.process for job, state in self._states.items() if state.process
    }

  def _write(self, job: TrainingJob, text: str) -> None:
    self._states[job].line_time = time.monotonic()
    self._log.write(f"{job.name}: {text}")

  def _start(self, job: TrainingJob, slot: Slot) -> None:
    job.run.mkdir(parents=True, exist_ok=True)
    state, step = self._states[job], job.last_step()
    state.starts = 1 if step > state.step else state.starts + 1
    state.step, state.slot = step, slot
    validated = (record["step"] for record in job.validations())
    state.reported = max(validated, default=0)
    number, total = [*self._states].index(job) + 1, len(self._states)
    how = f"resumes from about step {step}" if step else "starts"
    self._write(job, f"{how} (run {number} of {total})")
    root = pathlib.Path(jaxsyn.__file__).resolve().parent.parent
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    with job.output_file.open("ab") as output:
      state.process = subprocess.Popen(
        self._command(job),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **slot},
        # Ctrl-C reaches this process only, which forwards it once.
        start_new_session=True,
      )

  def _handle_ended(self, signals: StopSignals) -> list[TrainingJob]:
    """Reports processes that have ended; returns the jobs to restart."""
    restarted = []
    for job, process in self._running().items():
      code, state = process.poll(), self._states[job]
      if code is None:
        continue
      if process.stdin:
        process.stdin.close()
      state.process = None
      self._free_slots.append(state.slot)
      if job.finished:
        self._finished += 1
        self._left -= 1
        self._report(job)
        facts = job.read_result().facts
        self._write(
          job,
          f"finished at step {facts.step} ({facts.reason}), best validation "
          f"{_score_text(job, facts.best_score)} at step {facts.best_step}, "
          f"{facts.minutes:.1f} minutes{self._remaining()}",
        )
      elif signals.name:
        self._write(job, "stopped")
      elif code <= 0 and state.starts < MAX_STARTS:  # killed or stopped
        self._write(job, f"{_end_text(code)}; it is restarted")
        restarted.append(job)
      else:
        self._left -= 1
        self._failed[job] = f"{_end_text(code)}: {job.last_output(3)}"
        self._write(job, f"failed; {self._failed[job]}")
    return restarted

  def _remaining(self) -> str:
    """Describes the number of unfinished runs and the time left."""
    if not self._left:
      return ""
    seconds = (time.monotonic() - self._began) / self._finished * self._left
    runs = "run" if self._left == 1 else "runs"
    return f"; {self._left} {runs} left, about {span(seconds)}"

  def _stop(self, name: str) -> None:
    """Sends SIGTERM to the running jobs."""
    for job, process in self._running().items():
      self._log.write(f"{name}: {job.name} saves and stops")
      process.send_signal(signal.SIGTERM)

  def _report(self, job: TrainingJob) -> None:
    """Logs new validations of a run; without news, its last line of output."""
    state, train = self._states[job], job.config.train
    for record in job.validations():
      if record["step"] > state.reported:
        state.reported = record["step"]
        score = _score_text(job, record[train.selection])
        self._write(
          job,
          f"step {record['step']}/{train.steps}, validation {score}, "
          f"{record['minutes']:.1f} minutes",
        )
    if time.monotonic() - state.line_time >= STATUS_SECONDS:
      state.line_time = time.monotonic()
      if text := job.last_output(1):
        self._write(job, text)


def watch_parent() -> None:
  """Sends SIGTERM to this process when its standard input closes.

  The standard input must be a pipe that the parent process never writes to.
  """

  def wait() -> None:
    while os.read(0, 1):
      pass
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=wait, daemon=True, name="parent").start()


def _score_text(job: TrainingJob, score: float) -> str:
  """Formats a score of the checkpoint metric, such as "BLEU 12.34"."""
  title = name_of(job.config.train.selection)
  return f"{title} {score:.{decimals(title)}f}"


def _end_text(code: int) -> str:
  """Describes how a process ended, given its exit status."""
  if code < 0:
    return f"its process was killed ({signal.Signals(-code).name})"
  if code == 0:
    return "its process was stopped by another process"
  return f"its process ended with status {code}"
