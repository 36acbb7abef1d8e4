"""What a run says: a line on the terminal, JSONL, TensorBoard, a progress bar.

One record is a flat dict of numbers. On a resume, records after the step that
is gone on from are dropped, so that the file reads as one run.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
from absl import logging

from jaxsyn import files, remote
from jaxsyn.training.mirror import Mirror

FILE = "log.jsonl"
KINDS = ("train", "validation")


def records(run: pathlib.Path) -> tuple[list[dict[str, Any]], list[int]]:
  """The records of a run's log, and the lines that are damaged, from 1.

  A last line without its end is one that is being written or that a kill cut
  off: it is neither.
  """
  path = files.path_of(run) / FILE
  if not files.is_file(path):
    return [], []
  *whole, _ = files.read_bytes(path).split(b"\n")
  kept, damaged = [], []
  for number, line in enumerate(whole, start=1):
    try:
      record = json.loads(line)
    except (ValueError, RecursionError):
      record = None
    if _is_record(record):
      kept.append(record)
    else:
      damaged.append(number)
  return kept, damaged


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
  """Writes records of one run; only the first host does.

  For a folder on an object store, where nothing can be appended to a file, they
  are written here and copied there by `publish`.
  """

  def __init__(self, workdir: pathlib.Path, steps: int, start: int):
    """Opens the log.

    Args:
      workdir: folder of the run.
      steps: where the run is to end, for the progress bar.
      start: step that is gone on from; later records are dropped.
    """
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    self._quiet = jax.process_index() != 0
    if self._quiet:
      return
    self._mirror = Mirror(workdir) if remote.is_remote(workdir) else None
    folder = self._mirror.folder if self._mirror else pathlib.Path(workdir)
    self._path = folder / FILE
    self._drop_after(workdir, start)
    self._file = self._path.open("a", encoding="utf-8")
    self._board = SummaryWriter(
      str(folder),
      # Also of a run that begins anew where one failed early.
      purge_step=start + 1,
    )
    self._bar = tqdm(
      total=steps, initial=start, unit="step", disable=not sys.stderr.isatty()
    )

  def _drop_after(self, workdir: pathlib.Path, step: int) -> None:
    path = files.path_of(workdir) / FILE
    if not files.is_file(path):
      return
    kept, damaged = records(workdir)
    if damaged:
      logging.warning(
        "%s: lines that are damaged and dropped: %s",
        path,
        ", ".join(map(str, damaged[:10])) + " ..." * (len(damaged) > 10),
      )
    lines = (json.dumps(r) + "\n" for r in kept if r["step"] <= step)
    files.write_text(self._path, "".join(lines))

  def advance(self) -> None:
    """One step is done."""
    if not self._quiet:
      self._bar.update()

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
    for name, value in values.items():
      if isinstance(value, (int, float)):
        self._board.add_scalar(f"{kind}/{name}", value, step)
    shown = "  ".join(f"{k} {_short(k, v)}" for k, v in values.items())
    self.say(f"{kind:<10} step {step}  {shown}")

  def say(self, text: str) -> None:
    """A line for the reader, beside the progress bar."""
    if self._quiet:
      return
    if self._bar.disable:
      print(text, flush=True)
    else:
      self._bar.write(text)

  def publish(self) -> None:
    """Who reads the run's folder finds all that was logged up to here."""
    if not self._quiet and self._mirror:
      self._board.flush()
      self._mirror.publish()

  def close(self) -> None:
    if not self._quiet:
      self._bar.close()
      self._board.close()
      self._file.close()
      if self._mirror:
        self._mirror.close()


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
