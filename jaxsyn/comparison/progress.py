"""Progress of runs, read from their logs and output, and log of a comparison."""

from __future__ import annotations

import os
import pathlib
import sys
import time
from typing import Any, TextIO

from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.scoring.metrics import decimals
from jaxsyn.scoring.selection import name_of
from jaxsyn.training import log

OUTPUT = "output.txt"  # output of a run's processes, in the run directory


class ProgressLog:
  """Lines with times, printed and appended to log.txt."""

  def __init__(self, folder: pathlib.Path, stream: TextIO | None = None):
    self._file = (folder / "log.txt").open("a", encoding="utf-8")
    self._streams = (self._file, stream or sys.stdout)

  def write(self, text: str) -> None:
    """Writes one line."""
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}"
    for stream in self._streams:
      print(line, file=stream, flush=True)

  def close(self) -> None:
    self._file.close()


def records(job: TrainingJob) -> list[dict[str, Any]]:
  """Returns the complete records of a run's log."""
  return log.records(job.run)[0]


def validations(job: TrainingJob) -> list[dict[str, Any]]:
  """Returns the records of validations with the selecting metric."""
  metric = job.config.train.selection
  return [r for r in records(job) if r["kind"] == "validation" and metric in r]


def last_step(job: TrainingJob) -> int:
  """Returns the last step in a run's log, or 0."""
  return max((record["step"] for record in records(job)), default=0)


def score_text(job: TrainingJob, score: float) -> str:
  """Returns a validation score of the selecting metric, such as "BLEU 12.34"."""
  title = name_of(job.config.train.selection)
  return f"{title} {score:.{decimals(title)}f}"


def last_lines(job: TrainingJob, count: int) -> str:
  """Returns the last lines of output of a run, joined by bars."""
  path = job.run / OUTPUT
  if not path.is_file():
    return ""
  with path.open("rb") as file:
    file.seek(max(0, os.path.getsize(path) - 4000))
    text = file.read().decode("utf-8", "replace")
  nonempty = [line.strip() for line in text.splitlines() if line.strip()]
  return " | ".join(nonempty[-count:])
