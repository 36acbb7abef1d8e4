"""Logs a run to log.jsonl, the terminal, TensorBoard and Weights & Biases.

A record is a flat dictionary of numbers. A resumed run drops the records after its
first step, so that the file reads like that of one uninterrupted run.
"""

from __future__ import annotations

import io
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

import jax
import numpy as np
from absl import logging

from jaxsyn.options import as_dict, flat
from jaxsyn.storage import files, remote
from jaxsyn.training.options import TrainingConfig
from jaxsyn.training.writers import LoggedRun, open_writers
from jaxsyn.utils.progress import Bar

FILE = "log.jsonl"
KINDS = ("train", "validation")

Figures = Sequence[tuple[str, Any]]  # names and matplotlib figures

# Formats of numbers on the terminal.
_FORMATS = {
  **dict.fromkeys(("padding", "waiting", "mfu"), "{:.1%}"),
  **dict.fromkeys(("eta_minutes", "minutes"), "{:.1f}"),
  **dict.fromkeys(("bleu", "chrf", "ribes"), "{:.2f}"),
  "learning_rate": "{:.2e}",
}


class Sample(NamedTuple):
  """A sentence of the validation split, with reference and translation."""

  source: str
  reference: str
  translation: str


def records(run: pathlib.Path) -> tuple[list[dict[str, Any]], list[int]]:
  """Reads a run's log: its valid records, and line numbers of corrupt lines.

  A last line without a line end, which is being written or was interrupted by a
  kill, is neither.
  """
  path = files.path_of(run) / FILE
  if not files.is_file(path):
    return [], []
  *complete, _ = files.read_bytes(path).split(b"\n")
  valid, corrupt = [], []
  for line_number, line in enumerate(complete, start=1):
    try:
      record = json.loads(line)
    except (ValueError, RecursionError):
      record = None
    if _is_record(record):
      valid.append(record)
    else:
      corrupt.append(line_number)
  return valid, corrupt


def _is_record(record: Any) -> bool:
  return (
    isinstance(record, dict)
    and record.get("kind") in KINDS
    and type(record.get("step")) is int
    and type(record.get("minutes")) in (int, float)
    and not any(isinstance(value, (dict, list)) for value in record.values())
  )


class Log:
  """Log of one run, which only the main process writes.

  Files on an object store cannot be appended to: there, `publish` writes the
  complete file.

  Attributes:
    restarted: Whether the log of a run without a checkpoint was replaced.
    note: Function that returns what training waits for; see `jaxsyn.utils.progress`.
  """

  restarted = False
  note: Callable[[], str] = staticmethod(lambda: "")

  def __init__(self, workdir: pathlib.Path, config: TrainingConfig, start: int):
    """Opens the log file, the log writers and the progress display.

    Args:
      workdir: Run directory.
      config: Config of the run.
      start: Step from which the run starts; later records are dropped.

    Raises:
      InputError: A writer cannot be opened.
    """
    self._is_silent = jax.process_index() != 0
    self._minutes = config.train.minutes
    if not self._is_silent:
      self._open(workdir, config, start)
    # Last, since it would stay open if a writer cannot be opened.
    self._bar = Bar(
      "training",
      config.train.steps,
      unit="step",
      done=start,
      note=lambda: self.note(),
      silent=self._is_silent,
    )

  def _open(
    self, workdir: pathlib.Path, config: TrainingConfig, start: int
  ) -> None:
    self._path = files.path_of(workdir) / FILE
    valid, corrupt = records(workdir)
    if corrupt:
      more = " ..." * (len(corrupt) > 10)
      numbers = ", ".join(map(str, corrupt[:10])) + more
      logging.warning("%s: dropped corrupt lines: %s", self._path, numbers)
    lines = [json.dumps(r) + "\n" for r in valid if r["step"] <= start]
    self.restarted = not start and len(lines) < len(valid)
    self._file: IO[str]
    if remote.is_remote(workdir):
      self._file = io.StringIO()
      self._file.write("".join(lines))
    else:
      if self._path.is_file():
        files.write_text(self._path, "".join(lines))
      self._file = self._path.open("a", encoding="utf-8")
    run = LoggedRun(workdir, start, flat(as_dict(config)))
    self._writers = open_writers(config.train.writers, run)
    self._last_lines: dict[str, str] = {}  # by kind

  def start_clock(self) -> None:
    """Starts measuring the training speed, before the first step."""
    self._bar.start_clock()

  def advance(self, minutes: float) -> None:
    """Adds one step to the progress display.

    Args:
      minutes: Training time of the run so far.
    """
    if self._minutes:
      self._bar.set_time_limit(60 * (self._minutes - minutes))
    self._bar.advance()

  def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
    """Writes the numbers of one step, such as its losses, as a log record.

    Args:
      kind: One of KINDS.
      step: Step of the run.
      values: Numbers by name, in the order in which they are shown.
    """
    if self._is_silent:
      return
    record = {"kind": kind, "step": step, "time": time.time(), **values}
    self._file.write(json.dumps(record) + "\n")
    self._file.flush()
    numbers = {
      f"{kind}/{name}": value
      for name, value in values.items()
      if isinstance(value, (int, float))
    }
    for writer in self._writers:
      writer.scalars(step, numbers)
    shown = "  ".join(f"{k} {_formatted(k, v)}" for k, v in values.items())
    self._bar.postpone_line()
    self._last_lines[kind] = f"step {step}  {shown}"
    # A line every few seconds would scroll everything else off a terminal.
    if kind == "train" and self._bar.is_on_terminal:
      self._bar.show(_table(self._last_lines))
    else:
      self.say(f"{kind:<10} step {step}  {shown}")

  def samples(self, step: int, samples: Sequence[Sample]) -> None:
    """Logs sentences of the validation split with their translations."""
    if self._is_silent or not samples:
      return
    text = "\n\n".join(
      f"**source** {s.source}  \n**reference** {s.reference}  \n"
      f"**translation** {s.translation}"
      for s in samples
    )
    for writer in self._writers:
      writer.text("samples", step, text)

  def figures(self, step: int, figures: Figures) -> None:
    """Logs matplotlib figures as images."""
    if self._is_silent:
      return
    for name, figure in figures:
      pixels = _pixels(figure)
      for writer in self._writers:
        writer.image(name, step, pixels)

  def say(self, text: str) -> None:
    """Prints a line above the progress display."""
    if not self._is_silent:
      # In one write, since another thread prints the progress.
      print(f"{text}\n", end="", flush=True)

  def publish(self) -> None:
    """Flushes all records, so that other processes can read them."""
    if self._is_silent:
      return
    for writer in self._writers:
      writer.flush()
    self._upload()

  def _upload(self) -> None:
    if isinstance(self._file, io.StringIO):
      files.write_text(self._path, self._file.getvalue())

  def close(self) -> None:
    """Closes the log file, the log writers and the progress display."""
    self._bar.close()
    if self._is_silent:
      return
    for writer in self._writers:
      writer.close()
    self._upload()
    self._file.close()


def _pixels(figure: Any) -> np.ndarray:
  """Returns a figure as an array of bytes by row, column and color."""
  from matplotlib.image import imread

  image = io.BytesIO()
  figure.savefig(image, format="png")
  image.seek(0)
  return np.round(imread(image)[:, :, :3] * 255).astype(np.uint8)


def _table(lines: Mapping[str, str]) -> Any:
  from rich.table import Table

  table = Table.grid(padding=(0, 2))
  for kind, text in lines.items():
    table.add_row(kind, text)
  return table


def _formatted(name: str, value: Any) -> str:
  if name == "flops":
    return f"{value / 1e9:.1f}G/s"
  if number_format := _FORMATS.get(name.removeprefix("best_")):
    return number_format.format(value)
  if isinstance(value, float):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
  return str(value)
