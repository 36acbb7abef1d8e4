"""What a run says: a line on the terminal, JSONL, TensorBoard, a progress bar.

One record is a flat dict of numbers. On a resume, records after the step that
is gone on from are dropped, so that the file reads as one run.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax

FILE = "log.jsonl"

# Peak dense bfloat16 FLOP/s of one device, from the makers' data sheets.
PEAK_FLOPS = {
  "TPU v4": 275e12,
  "TPU v5 lite": 197e12,
  "TPU v5e": 197e12,
  "TPU v5p": 459e12,
  "TPU v5": 459e12,
  "TPU v6 lite": 918e12,
  "TPU v6e": 918e12,
  "NVIDIA A100": 312e12,
  "NVIDIA H100": 989e12,
  "NVIDIA H200": 989e12,
}


def peak_flops() -> float | None:
  """Of all devices together; None where the kind is not known (a CPU)."""
  kind = jax.devices()[0].device_kind
  best = max((k for k in PEAK_FLOPS if kind.startswith(k)), key=len, default="")
  return PEAK_FLOPS[best] * jax.device_count() if best else None


class Log:
  """Writes records of one run; only the first host does."""

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
    self._path = pathlib.Path(workdir) / FILE
    self._drop_after(start)
    self._file = self._path.open("a", encoding="utf-8")
    self._board = SummaryWriter(
      str(workdir), purge_step=start + 1 if start else None
    )
    self._bar = tqdm(
      total=steps, initial=start, unit="step", disable=not sys.stderr.isatty()
    )

  def _drop_after(self, step: int) -> None:
    if not self._path.is_file():
      return
    kept = []
    for line in self._path.read_text(encoding="utf-8").splitlines():
      try:
        if json.loads(line)["step"] <= step:
          kept.append(line + "\n")
      except (json.JSONDecodeError, KeyError):
        continue  # the end of a line that a kill cut off
    temporary = self._path.with_name(FILE + ".partial")
    temporary.write_text("".join(kept), encoding="utf-8")
    os.replace(temporary, self._path)

  def advance(self) -> None:
    """One step is done."""
    if not self._quiet:
      self._bar.update()

  def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
    """Writes one record.

    Args:
      kind: "train" or "validation".
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

  def close(self) -> None:
    if not self._quiet:
      self._bar.close()
      self._board.close()
      self._file.close()


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
