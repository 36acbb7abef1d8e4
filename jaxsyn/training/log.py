"""What a run says: lines and progress on the terminal, JSONL, other writers.

One record is a flat dict of numbers. On a resume, records after the step that
is gone on from are dropped, so that the file reads as one run. Who else writes
down what goes to the file: `jaxsyn.training.writers`.
"""

from __future__ import annotations

import io
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from absl import logging

from jaxsyn.options import as_dict, flat
from jaxsyn.progress import Bar
from jaxsyn.storage import files, remote
from jaxsyn.training import writers
from jaxsyn.training.options import TrainingConfig
from jaxsyn.training.writers.writer import ResumedRun

if TYPE_CHECKING:
  from matplotlib.figure import Figure

FILE = "log.jsonl"
KINDS = ("train", "validation")


Pictures = Sequence[tuple[str, "Figure"]]  # by name


class Sample(NamedTuple):
  """A sentence of the validation split, and what it was translated to."""

  source: str
  reference: str
  translation: str


def records(run: pathlib.Path) -> tuple[list[dict[str, Any]], list[int]]:
  """The records of a run's log, and the numbers of corrupt lines, from 1.

  A last line without its end is one that is being written or that a kill cut
  off: it is neither.
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
  """Whether `Log.record` may have written it."""
  if not isinstance(record, dict) or record.get("kind") not in KINDS:
    return False
  return (
    type(record.get("step")) is int
    and type(record.get("minutes")) in (int, float)
    and not any(isinstance(value, (dict, list)) for value in record.values())
  )


class Log:
  """The log of one run, written by the main process only.

  On an object store nothing can be appended to a file: there `publish` writes the
  whole file.

  Attributes:
    began_anew: Whether a log of a run that saved nothing was replaced.
    note: Describes what training waits for; see `jaxsyn.progress.Bar`.
  """

  began_anew = False
  note: Callable[[], str] = staticmethod(lambda: "")

  def __init__(self, workdir: pathlib.Path, config: TrainingConfig, start: int):
    """Opens the log.

    Args:
      workdir: folder of the run.
      config: of the run: where it is to end, and who else writes.
      start: step that is gone on from; later records are dropped.

    Raises:
      InputError: a writer cannot be opened.
    """
    self._quiet = jax.process_index() != 0
    self._minutes = config.train.minutes
    if not self._quiet:
      self._open(workdir, config, start)
    # Last: where a writer cannot be opened nobody would close it.
    self._steps = Bar(
      "training",
      config.train.steps,
      unit="step",
      done=start,
      note=lambda: self.note(),
      silent=self._quiet,
    )

  def _open(
    self, workdir: pathlib.Path, config: TrainingConfig, start: int
  ) -> None:
    self._path = files.path_of(workdir) / FILE
    retained, dropped = self._records_up_to(start)
    self.began_anew = dropped and not start
    self._file: IO[str]
    if remote.is_remote(workdir):
      self._file = io.StringIO()
      self._file.write(retained)
    else:
      if self._path.is_file():
        files.write_text(self._path, retained)
      self._file = self._path.open("a", encoding="utf-8")
    resumed_run = ResumedRun(workdir, start, flat(as_dict(config)))
    self._writers = writers.open_writers(config.train.writers, resumed_run)
    self._shown: dict[str, str] = {}

  def _records_up_to(self, step: int) -> tuple[str, bool]:
    """Returns the lines up to a step, and whether there are later ones."""
    valid, corrupt = records(self._path.parent)
    if corrupt:
      logging.warning(
        "%s: dropped corrupt lines: %s",
        self._path,
        ", ".join(map(str, corrupt[:10])) + " ..." * (len(corrupt) > 10),
      )
    lines = [json.dumps(r) + "\n" for r in valid if r["step"] <= step]
    return "".join(lines), len(lines) < len(valid)

  def begin(self) -> None:
    """The first step is about to be done."""
    self._steps.start_clock()

  def advance(self, minutes: float) -> None:
    """One step is done, after so many minutes of the run."""
    if self._minutes:
      self._steps.set_time_limit(60 * (self._minutes - minutes))
    self._steps.advance()

  def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
    """Writes one record.

    Args:
      kind: one of KINDS.
      step: batches seen.
      values: numbers by name, in the order in which they are shown.
    """
    if self._quiet:
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
    shown = "  ".join(f"{k} {_short(k, v)}" for k, v in values.items())
    self._steps.postpone_line()
    self._shown[kind] = f"step {step}  {shown}"
    # What comes every few seconds would push all else off a terminal.
    if kind == "train" and self._steps.is_on_terminal:
      self._steps.show(_table(self._shown))
    else:
      self.say(f"{kind:<10} step {step}  {shown}")

  def samples(self, step: int, samples: Sequence[Sample]) -> None:
    """Writes what some sentences were translated to."""
    if self._quiet or not samples:
      return
    text = "\n\n".join(
      f"**source** {s.source}  \n**reference** {s.reference}  \n"
      f"**translation** {s.translation}"
      for s in samples
    )
    for writer in self._writers:
      writer.text("samples", step, text)

  def pictures(self, step: int, pictures: Pictures) -> None:
    """Writes pictures, by name."""
    if self._quiet:
      return
    for name, figure in pictures:
      pixels = _pixels(figure)
      for writer in self._writers:
        writer.picture(name, step, pixels)

  def say(self, text: str) -> None:
    """A line for the reader, above the progress."""
    if not self._quiet:
      # In one write: the progress is printed in another thread.
      print(f"{text}\n", end="", flush=True)

  def publish(self) -> None:
    """Makes all records visible to readers of the run directory."""
    if self._quiet:
      return
    for writer in self._writers:
      writer.flush()
    self._upload()

  def _upload(self) -> None:
    if isinstance(self._file, io.StringIO):
      files.write_text(self._path, self._file.getvalue())

  def close(self) -> None:
    self._steps.close()
    if self._quiet:
      return
    for writer in self._writers:
      writer.close()
    self._upload()
    self._file.close()


def _pixels(figure: Figure) -> np.ndarray:
  """A figure as bytes by row, column and colour."""
  from matplotlib.image import imread

  image = io.BytesIO()
  figure.savefig(image, format="png")
  image.seek(0)
  return np.round(imread(image)[:, :, :3] * 255).astype(np.uint8)


def _table(shown: Mapping[str, str]) -> Any:
  """The last record of each kind, for a terminal."""
  from rich.table import Table

  table = Table.grid(padding=(0, 2))
  for kind, text in shown.items():
    table.add_row(kind, text)
  return table


def _short(name: str, value: Any) -> str:
  if name in ("padding", "waiting", "mfu"):
    return f"{100 * value:.1f}%"
  if name == "flops":
    return f"{value / 1e9:.1f}G/s"
  if name == "learning_rate":
    return f"{value:.2e}"
  if name in ("eta_minutes", "minutes"):
    return f"{value:.1f}"
  if name.removeprefix("best_") in ("bleu", "chrf", "ribes"):
    return f"{value:.2f}"
  if isinstance(value, float):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
  return str(value)
