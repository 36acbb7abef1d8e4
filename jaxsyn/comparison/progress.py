"""How far runs are, read from what they write; as a table, and as lines."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Collection, Mapping
from typing import Any, TextIO

from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.progress import span
from jaxsyn.scoring.metrics import decimals
from jaxsyn.scoring.selection import name_of
from jaxsyn.scoring.tables import aligned
from jaxsyn.training import log

REDRAW = 1.0  # seconds
OUTPUT = "output.txt"  # what a run's process prints, in the run's folder


@dataclasses.dataclass(frozen=True)
class RunState:
  """How far a run is.

  Attributes:
    what: "waiting", "stopped", "compiling", "training", "translating",
      "finished" or "failed".
    step, steps: batches seen, and to be seen at most.
    best: of validation, as in "BLEU 12.34"; "" before the first.
    minutes: of training, resumes added.
    left: minutes of training to come; None where that is not known.
  """

  what: str
  step: int
  steps: int
  best: str
  minutes: float
  left: float | None


def records(job: TrainingJob) -> list[dict[str, Any]]:
  """The whole records of a run's log."""
  return log.records(job.run)[0]


def validations(job: TrainingJob) -> list[dict[str, Any]]:
  """Those records that are of validations by what selects."""
  metric = job.config.train.selection
  return [r for r in records(job) if r["kind"] == "validation" and metric in r]


def state(
  job: TrainingJob, *, working: bool = False, failed: bool = False
) -> RunState:
  """How far a run is.

  Args:
    job: the run.
    working: whether a process of it is at work.
    failed: whether it was given up.
  """
  steps = job.config.train.steps
  metric = job.config.train.selection
  if job.finished:
    facts = job.facts
    best = score_text(
      metric, facts.best_score if facts.best_step >= 0 else None
    )
    return RunState(
      "finished",
      facts.step,
      steps,
      best=best,
      minutes=facts.minutes,
      left=0.0,
    )
  log_lines = records(job)
  step = max((r["step"] for r in log_lines), default=0)
  minutes = max((r["minutes"] for r in log_lines), default=0.0)
  seen = [r for r in log_lines if f"best_{metric}" in r]
  best = score_text(metric, seen[-1][f"best_{metric}"] if seen else None)
  # Not an earlier one: while programs compile, records have none.
  trained = [r for r in log_lines if r["kind"] == "train"]
  left = trained[-1].get("eta_minutes") if trained else None
  ended = any(job.run.glob("test/*")) or step >= steps
  what = "stopped" if step else "waiting"
  if failed:
    what = "failed"
  elif working:
    what = "translating" if ended else "training"
    if "compiling" in _last_lines(job, 1):
      what, left = "compiling", None
  return RunState(what, step, steps, best=best, minutes=minutes, left=left)


def line(job: TrainingJob) -> str:
  """Returns one line about a running run: its step, loss and remaining time.

  While programs compile, or after training, the last line that its process
  printed.
  """
  last = _last_lines(job, 1)
  trained = [r for r in records(job) if r["kind"] == "train"]
  if not trained or not last.startswith(("train ", "validation ")):
    return last
  record = trained[-1]
  words = [f"step {record['step']}/{job.config.train.steps}"]
  if "loss" in record:
    words.append(f"loss {record['loss']:.3f}")
  if "tokens_per_s" in record:
    words.append(f"{record['tokens_per_s']:,.0f} subwords/s")
  if "eta_minutes" in record:
    words.append(f"{span(60 * record['eta_minutes'])} left")
  return ", ".join(words)


def score_text(metric: str, score: float | None) -> str:
  """Returns a validation score as in "BLEU 12.34"; "" for None."""
  if score is None:
    return ""
  title = name_of(metric)
  return f"{title} {score:.{decimals(title)}f}"


def table(states: Mapping[TrainingJob, RunState], height: int = 0) -> str:
  """One line a run, and how much is to come.

  Args:
    states: by run.
    height: lines there is room for; 0: all. Waiting and finished runs are left
      out first.
  """
  rows = [["run", "state", "step", "best validation", "minutes", "to go"]]
  shown = list(states)
  room = height - 3
  if height and len(shown) > room:
    busy = [j for j in shown if states[j].what not in ("waiting", "finished")]
    rest = [j for j in shown if j not in busy]
    shown_ids = set(map(id, [*busy, *rest][: max(room - 1, 1)]))
    shown = [j for j in shown if id(j) in shown_ids]
  for job in shown:
    s = states[job]
    rows.append(
      [
        job.name,
        s.what,
        f"{s.step}/{s.steps}",
        s.best,
        f"{s.minutes:.1f}",
        "" if s.left is None or s.what == "finished" else f"{s.left:.1f}",
      ]
    )
  lines = [aligned(rows)]
  if len(shown) < len(states):
    lines.append(f"... and {len(states) - len(shown)} more")
  return "\n".join([*lines, summary(states.values())])


def summary(states: Collection[RunState]) -> str:
  """How many runs are finished, and about how long the others take."""
  done = [s for s in states if s.what == "finished"]
  text = f"{len(done)} of {len(states)} runs finished"
  # A run that has not begun takes as long as those that have: a guess.
  total_minutes = [s.minutes + s.left for s in states if s.left is not None]
  if total_minutes and len(done) < len(states):
    mean = sum(total_minutes) / len(total_minutes)
    left = sum(
      mean if s.left is None else s.left for s in states if s.what != "failed"
    )
    text += f"; about {left:.0f} minutes of training to go"
  return text + "."


class Board:
  """A live table on a terminal, lines elsewhere, and lines in log.txt."""

  def __init__(self, folder: pathlib.Path, stream: TextIO | None = None):
    self._stream = stream or sys.stdout
    self._live = self._stream.isatty()
    self._file = (folder / "log.txt").open("a", encoding="utf-8")
    self._height, self._drawn = 0, 0.0

  def say(self, text: str) -> None:
    """One line for who reads later."""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}"
    print(line, file=self._file, flush=True)
    self._wipe()
    print(f"{line}\n", end="", file=self._stream, flush=True)

  def show(self, states: Mapping[TrainingJob, RunState]) -> None:
    """Draws the table where the last one was; only on a terminal."""
    self._drawn = time.monotonic()
    if not self._live:
      return
    size = shutil.get_terminal_size()
    lines = table(states, size.lines - 1).split("\n")
    self._wipe()
    # A line that wraps would be two to go up.
    text = "\n".join(line[: size.columns - 1] for line in lines)
    print(text, file=self._stream, flush=True)
    self._height = len(lines)

  @property
  def due(self) -> bool:
    """Whether it is time to look at the runs again."""
    return time.monotonic() - self._drawn > REDRAW

  def _wipe(self) -> None:
    if self._height:
      print(f"\x1b[{self._height}F\x1b[J", end="", file=self._stream)
      self._height = 0

  def close(self) -> None:
    self._file.close()


def tail(job: TrainingJob) -> str:
  """Returns the last three lines that a run's process printed, on one line."""
  return _last_lines(job, 3)


def _last_lines(job: TrainingJob, count: int) -> str:
  path = job.run / OUTPUT
  if not path.is_file():
    return ""
  size = os.path.getsize(path)
  with path.open("rb") as file:
    file.seek(max(0, size - 4000))
    text = file.read().decode("utf-8", "replace")
  nonempty = [line.strip() for line in text.splitlines() if line.strip()]
  return " | ".join(nonempty[-count:])
