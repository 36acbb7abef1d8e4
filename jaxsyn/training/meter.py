"""Computes means and speeds of the training steps between log records."""

from __future__ import annotations

import collections
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsyn.data.loader.loader import TrainBatch
from jaxsyn.training.checkpoint_reader import LogWindow, Progress
from jaxsyn.training.flops import peak_flops
from jaxsyn.training.objective import Loss, report
from jaxsyn.training.options import TrainingConfig


class Meter:
  """Accumulator of the means, counts and speeds for the next log record."""

  def __init__(
    self,
    config: TrainingConfig,
    losses: Mapping[str, Loss],
    start: int,
    progress: Progress,
  ):
    """Starts the clock, and restores the sums of a resumed run.

    Args:
      config: Config of the run.
      losses: Terms of the objective, by name.
      start: Step from which the run starts.
      progress: Progress of the run at this step, with the sums of its window.
    """
    self._config, self._losses = config, losses
    # From here, the speed is measured.
    self._eta_origin = start, progress.minutes
    optimiser = config.optimiser
    self._schedule = optimiser.schedule.make(
      optimiser.learning_rate, config.model.width
    )
    self._peak_flops = peak_flops()
    self._resume(progress.window)

  def _resume(self, window: LogWindow) -> None:
    self._window = window
    self._since = time.monotonic() - window.seconds

  @property
  def window(self) -> LogWindow:
    """Sums of metrics since the last log record, stored in checkpoints."""
    self._window.seconds = time.monotonic() - self._since
    return self._window

  def add_batch(
    self, train_batch: TrainBatch, flops: float, waited: float
  ) -> None:
    """Adds a batch's subword counts, FLOPs and seconds spent waiting for it.

    Args:
      train_batch: Batch.
      flops: FLOPs of its step on all devices.
      waited: Seconds of waiting for the batch.
    """
    counts = {
      "tokens": train_batch.target,
      "real": train_batch.source + train_batch.target,
      "positions": train_batch.positions,
      "flops": flops,
      "waited": waited,
    }
    for name, value in counts.items():
      self._window.sums[name] = self._window.sums.get(name, 0.0) + value
    for name, count in (train_batch.corpora or {}).items():
      corpora = self._window.corpora
      corpora[name] = corpora.get(name, 0) + count

  def add_metrics(self, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Adds the metrics of several steps, already fetched from the device."""
    for step_metrics in metrics:
      for name, pair in step_metrics["terms"].items():
        old = self._window.terms.get(name, [0.0, 0.0])
        self._window.terms[name] = [a + float(b) for a, b in zip(old, pair)]
      if step_metrics["updated"]:
        self._window.grad_norm = float(step_metrics["grad_norm"])

  def pause(self, seconds: float) -> None:
    """Excludes seconds without training from the measured speed."""
    self._since += seconds

  def record(
    self, step: int, progress: Progress, compiling: bool = False
  ) -> dict[str, Any] | None:
    """Returns a log record of the steps since the last record, if any.

    Args:
      step: Step of the run.
      progress: Progress of the run.
      compiling: Whether programs are being compiled, which slows steps down. The
        record then has no remaining time, which is measured from here on.
    """
    window = self._window
    if not window.terms:
      return None
    sums: dict[str, float] = collections.defaultdict(float, window.sums)
    seconds = max(time.monotonic() - self._since, 1e-9)
    means = {
      name: total / max(count, 1.0)
      for name, (total, count) in window.terms.items()
    }
    updates = max(step // self._config.optimiser.accumulate - 1, 0)
    values = {
      "epoch": progress.epoch,
      **report(means, self._losses),
      "tokens_per_s": sums["tokens"] / seconds,
      "padding": 1.0 - sums["real"] / max(sums["positions"], 1),
      "waiting": sums["waited"] / seconds,
      "flops": sums["flops"] / seconds,
      "learning_rate": float(self._schedule(updates)),
      **({} if window.grad_norm is None else {"grad_norm": window.grad_norm}),
      **{f"examples/{name}": n for name, n in window.corpora.items()},
      "minutes": progress.minutes,
    }
    if compiling:
      self._eta_origin = step, progress.minutes
    else:
      values["eta_minutes"] = self._remaining_minutes(step, progress.minutes)
    if self._peak_flops:
      values["mfu"] = values["flops"] / self._peak_flops
    self._resume(LogWindow(grad_norm=window.grad_norm))
    return values

  def _remaining_minutes(self, step: int, minutes: float) -> float:
    train = self._config.train
    start, start_minutes = self._eta_origin
    spent = minutes - start_minutes
    remaining = spent / max(step - start, 1) * (train.steps - step)
    if train.minutes:
      remaining = min(remaining, max(train.minutes - minutes, 0.0))
    return remaining
