"""What happened since the last log line: counts in, one record out."""

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
  """Adds up one run's numbers between log lines."""

  def __init__(
    self,
    config: TrainingConfig,
    losses: Mapping[str, Loss],
    start: int,
    minutes: float = 0.0,
  ):
    """Starts the clock.

    Args:
      config: of the run.
      losses: terms of the objective, by name.
      start: step that is gone on from.
      minutes: of training until then.
    """
    self._config, self._losses = config, losses
    # Where the remaining time is measured from.
    self._origin = start, minutes
    optimiser = config.optimiser
    self._rate = optimiser.schedule.make(
      optimiser.learning_rate, config.model.width
    )
    self._peak = peak_flops()
    self.resume(LogWindow())

  def resume(self, window: LogWindow) -> None:
    """Continues a window that a checkpoint has kept."""
    self._window = window
    self._since = time.monotonic() - window.seconds

  @property
  def window(self) -> LogWindow:
    """Sums since the last record, of all steps whose metrics were fetched."""
    self._window.seconds = time.monotonic() - self._since
    return self._window

  def batch(self, train_batch: TrainBatch, flops: float, waited: float) -> None:
    """One batch went in.

    Args:
      train_batch: the batch.
      flops: of its step, on all devices.
      waited: seconds until it was there.
    """
    for name, value in (
      ("tokens", train_batch.target),
      ("real", train_batch.source + train_batch.target),
      ("positions", train_batch.positions),
      ("flops", flops),
      ("waited", waited),
    ):
      sums = self._window.sums
      sums[name] = sums.get(name, 0.0) + value
    corpora = self._window.corpora
    for name, count in (train_batch.corpora or {}).items():
      corpora[name] = corpora.get(name, 0) + count

  def steps(self, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Metrics of steps, fetched from the device."""
    for of_step in metrics:
      for name, pair in of_step["terms"].items():
        old = self._window.terms.get(name, [0.0, 0.0])
        self._window.terms[name] = [a + float(b) for a, b in zip(old, pair)]
      if of_step["updated"]:
        self._window.grad_norm = float(of_step["grad_norm"])

  def pause(self, seconds: float) -> None:
    """Time that was not spent on training."""
    self._since += seconds

  def record(
    self, step: int, progress: Progress, *, compiling: bool = False
  ) -> dict[str, Any] | None:
    """Returns the numbers since the last record; None without a step.

    Args:
      step: batches seen.
      progress: of the run.
      compiling: whether programs are still compiled, which slows steps down:
        there is no remaining time then, and it is measured from here on.
    """
    window = self._window
    if not window.terms:
      return None
    config = self._config
    sums: dict[str, float] = collections.defaultdict(float, window.sums)
    seconds = max(time.monotonic() - self._since, 1e-9)
    terms = {
      name: total / max(count, 1.0)
      for name, (total, count) in window.terms.items()
    }
    updates = max(step // config.optimiser.accumulate - 1, 0)
    values = {
      "epoch": progress.epoch,
      **report(terms, self._losses),
      "tokens_per_s": sums["tokens"] / seconds,
      "padding": 1.0 - sums["real"] / max(sums["positions"], 1),
      "waiting": sums["waited"] / seconds,
      "flops": sums["flops"] / seconds,
      "learning_rate": float(self._rate(updates)),
      **({} if window.grad_norm is None else {"grad_norm": window.grad_norm}),
      **{f"examples/{name}": n for name, n in window.corpora.items()},
      "minutes": progress.minutes,
    }
    if compiling:
      self._origin = step, progress.minutes
    else:
      values["eta_minutes"] = self._left(step, progress)
    if self._peak:
      values["mfu"] = values["flops"] / self._peak
    self.resume(LogWindow(grad_norm=window.grad_norm))
    return values

  def _left(self, step: int, progress: Progress) -> float:
    """Minutes of training to the end of the run, at the speed of this call."""
    train = self._config.train
    start, minutes = self._origin
    spent = progress.minutes - minutes
    left = spent / max(step - start, 1) * (train.steps - step)
    if train.minutes:
      left = min(left, max(train.minutes - progress.minutes, 0.0))
    return left
