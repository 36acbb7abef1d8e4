"""The loop around the step: batches in, checkpoints and log lines out.

It knows neither decoding nor scores: the entry point hands it a function that
validates. A run can end at any step (its own end, a signal, a kill) and go on
as if it had not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import TrainBatch, prefetch
from jaxsyn.errors import InputError
from jaxsyn.training import hosts
from jaxsyn.training.checkpoint_reader import Progress
from jaxsyn.training.log import Log
from jaxsyn.training.mesh import Program
from jaxsyn.training.meter import Meter
from jaxsyn.training.options import TrainingConfig
from jaxsyn.training.programs import TrainingPrograms
from jaxsyn.training.start import Training, abstract_state
from jaxsyn.training.step import Metrics, TrainState

# On CPU, collectives of too many programs in flight dead-lock a thread pool
# of few cores; a wait now and then costs nothing.
IN_FLIGHT = 8
PREFETCH = 2  # batches that are prepared ahead of the device


@dataclasses.dataclass(frozen=True)
class TrainingEnd:
  """How a call of `train` ended.

  Attributes:
    step: batches seen.
    reason: "steps", "minutes", "patience" or the name of a signal.
    progress: as in the last checkpoint.
    shapes: static shapes of the plan.
    compilations: of the training step, at most as many as shapes; none where
      the run was finished already.
  """

  step: int
  reason: str
  progress: Progress
  shapes: int
  compilations: int


class StopSignals:
  """SIGTERM and SIGINT ask the loop to save and end; a second one kills."""

  def __init__(self) -> None:
    self.name = ""
    self._old: dict[int, Any] = {}

  def __enter__(self) -> StopSignals:
    if threading.current_thread() is threading.main_thread():
      for signal_number in (signal.SIGTERM, signal.SIGINT):
        self._old[signal_number] = signal.signal(signal_number, self._on_signal)
    return self

  def __exit__(self, *_: object) -> None:
    for signal_number, handler in self._old.items():
      signal.signal(signal_number, handler)

  def _on_signal(self, signal_number: int, _: FrameType | None) -> None:
    self.name = signal.Signals(signal_number).name
    signal.signal(signal_number, self._old[signal_number])
    message = f"{self.name}: it saves and ends; once more, and it ends at once"
    with contextlib.suppress(OSError):  # print() may be what was interrupted
      os.write(2, f"{message}\n".encode())


def train(training: Training) -> TrainingEnd:
  """Trains from the newest checkpoint, or from the start, to the end.

  Raises:
    InputError: the loss is not a number; the message names the step and the
      last good checkpoint.
  """
  layout, loader = training.layout, training.loader
  abstract = abstract_state(training.recipe, layout, loader.empty()[0])
  restored = training.checkpoints.restore(abstract)
  start, state, progress = restored or (0, None, Progress())
  if reason := over(training.config, start, progress):
    shapes = len(loader.batch_sampler.shapes)
    return TrainingEnd(start, reason, progress, shapes=shapes, compilations=0)
  log = training.open_log(start)
  if start:
    log.say(f"going on from step {start}")
  elif log.began_anew:
    log.say("no checkpoint was saved here before: the run begins anew")
  programs = None
  try:
    with StopSignals() as signals:
      programs = TrainingPrograms(
        training,
        abstract,
        log,
        start=start,
        position=Position(progress.epoch, progress.batch),
      )
      loop = _Loop(
        training, log, programs=programs, progress=progress, start=start
      )
      return loop.run(state, signals)
  finally:
    if message := training.profile.close():
      log.say(message)
    if programs:
      programs.close()
    log.close()
    training.checkpoints.wait()


def over(config: TrainingConfig, step: int, progress: Progress) -> str:
  """Why a run at this point is finished; "" where it is not."""
  train = config.train
  if step >= train.steps:
    return "steps"
  if train.minutes and progress.minutes >= train.minutes:
    return "minutes"
  if train.patience and progress.bad >= train.patience:
    return "patience"
  return ""


class _Ready(NamedTuple):
  """What a step takes: a batch, its program, and how they came.

  Attributes:
    train_batch: The batch.
    waited: seconds until it was there.
    program, flops: of its shape.
  """

  train_batch: TrainBatch
  waited: float
  program: Program
  flops: float


class _Loop:
  """One call of `train`, from its first step to its last."""

  def __init__(
    self,
    training: Training,
    log: Log,
    *,
    programs: TrainingPrograms,
    progress: Progress,
    start: int,
  ):
    self._training, self._log, self._programs = training, log, programs
    self._config, self._layout = training.config, training.layout
    self._checkpoints = training.checkpoints
    self._progress, self._before = progress, progress.minutes
    self._start = start
    self._began = time.monotonic()
    self._meter = Meter(
      training.config, training.recipe.losses, start, progress.minutes
    )
    self._meter.resume(progress.window)
    self._pending: list[tuple[int, Metrics]] = []  # still on the device
    self._meetings = hosts.StopCoordinator(IN_FLIGHT, start)

  def run(
    self, restored: TrainState | None, signals: StopSignals
  ) -> TrainingEnd:
    """Steps until there is a reason to end.

    Args:
      restored: the state of a checkpoint; None: a fresh run's.
      signals: that ask it to end.
    """
    train, loader = self._config.train, self._training.loader
    progress = self._progress
    position = Position(progress.epoch, progress.batch)

    def asked() -> str:
      return signals.name

    if restored is None:
      first = self._programs.first_state(asked)
      if isinstance(first, str):
        return self._end(self._start, first)
      state = first
    else:
      state = self._layout.place_state(restored)
    step, reason = self._start, self._reason(self._start, signals)
    self._log.begin()
    batches = prefetch(loader.batches(position), PREFETCH)
    with contextlib.closing(batches):
      while not reason:
        ready = self._next(batches, asked)
        if isinstance(ready, str):  # nothing was done with the batch
          reason = ready
        else:
          state = self._step(state, step, ready)
          step += 1
          reason = self._reason(step, signals)
        ends = reason in ("steps", "minutes")
        # Where the run does not end for good, on a signal, the checkpoint keeps
        # the sums of an incomplete window.
        is_over = bool(reason and over(self._config, step, self._progress))
        if step % train.log_every == 0 or ends or is_over:
          self._report(step)
        # Before it is saved: who goes on from there does not evaluate it again.
        if not isinstance(ready, str) and (
          step % train.evaluate_every == 0 or ends
        ):
          self._evaluate(step, state)
          reason = reason or self._reason(step, signals)
        if (step % train.save_every == 0 or reason) and step > self._start:
          self._save(step, state)
    return self._end(step, reason)

  def _end(self, step: int, reason: str) -> TrainingEnd:
    return TrainingEnd(
      step,
      reason,
      self._progress,
      shapes=len(self._training.loader.batch_sampler.shapes),
      compilations=self._layout.compilations["train"],
    )

  def _next(
    self,
    batches: Iterator[TrainBatch],
    stop_reason: Callable[[], str],
  ) -> _Ready | str:
    """The next batch and its program; or why the run ends before that."""
    began, before = time.monotonic(), self._programs.waited
    train_batch = next(batches)
    waited = time.monotonic() - began
    compiled = self._programs.step(train_batch.batch, stop_reason)
    self._meter.pause(self._programs.waited - before)
    if isinstance(compiled, str):
      return compiled
    return _Ready(train_batch, waited, *compiled)

  def _step(self, state: TrainState, step: int, ready: _Ready) -> TrainState:
    train_batch = ready.train_batch
    placed = self._layout.place_batch(train_batch.batch)
    self._training.profile.before(step + 1)
    state, metrics = ready.program(state, placed)
    if message := self._training.profile.after(step + 1, metrics):
      self._log.say(message)
    self._pending.append((step + 1, metrics))
    if len(self._pending) % IN_FLIGHT == 0:
      jax.block_until_ready(metrics)
    self._meter.batch(train_batch, ready.flops, ready.waited)
    progress = self._progress
    progress.epoch, progress.batch = (
      train_batch.after.epoch,
      train_batch.after.batch,
    )
    progress.tokens += train_batch.target
    self._log.advance(progress.minutes)
    return state

  def _reason(self, step: int, signals: StopSignals) -> str:
    """Why this call is to end now; "" to go on."""
    self._clock()
    local_reason = signals.name or over(self._config, step, self._progress)
    now = step >= self._config.train.steps
    return self._meetings.reason(step, local_reason, check_now=now)

  def _clock(self) -> None:
    """Brings the minutes of the run, all calls together, up to date.

    Without those spent on waiting for compilers: with config.train.minutes a
    run is as long as one whose programs are kept from another.
    """
    spent = time.monotonic() - self._began - self._programs.waited
    self._progress.minutes = self._before + spent / 60

  def _fetch(self) -> None:
    """Fetches what is still on the device; raises if a loss is no number."""
    steps = [step for step, _ in self._pending]
    fetched = self._layout.on_host([metrics for _, metrics in self._pending])
    self._pending.clear()
    for step, metrics in zip(steps, fetched):
      bad = [k for k, (s, _) in metrics["terms"].items() if not np.isfinite(s)]
      if bad or not np.isfinite(metrics["grad_norm"]):
        raise self._not_finite_error(bad[0] if bad else "gradient", step)
    self._meter.steps(fetched)

  def _not_finite_error(self, what: str, step: int) -> InputError:
    self._checkpoints.wait_for_all()  # for whom it is no number either
    steps_saved = self._checkpoints.steps()
    return InputError(
      f"the {what} became NaN or infinite at step {step}. Last good checkpoint: "
      f"{steps_saved[-1] if steps_saved else 'none yet'} in {self._checkpoints.workdir}. Lower "
      "config.optimiser.learning_rate or set config.optimiser.clip, and train "
      "in another --workdir."
    )

  def _report(self, step: int) -> None:
    self._fetch()
    compiling = bool(self._programs.note())
    values = self._meter.record(step, self._progress, compiling=compiling)
    if values:
      self._log.record("train", step, values)

  def _evaluate(self, step: int, state: TrainState) -> None:
    self._fetch()
    began = time.monotonic()
    self._programs.validation()
    params = self._layout.take_state(state).evaluated
    scores = self._training.validate(params)
    values, rank = scores.values, scores.rank
    train, progress = self._config.train, self._progress
    if not np.isfinite(rank).all():
      raise self._not_finite_error("validation loss", step)
    if list(rank) > progress.best_rank:
      progress.best_rank, progress.best_step = list(rank), step
      progress.best_score = values[train.selection]
      progress.bad = 0
      record = {
        "selection": train.selection,
        "tokenizer": train.tokenizer,
        "score": values[train.selection],
        "log_likelihood": values["log_likelihood"],
      }
      self._checkpoints.save_best(step, params, record)
    else:
      progress.bad += 1
    self._clock()
    values |= {
      f"best_{train.selection}": progress.best_score,
      "best_step": progress.best_step,
      "minutes": progress.minutes,
    }
    self._log.record("validation", step, values)
    self._log.samples(step, scores.samples)
    self._log.pictures(step, scores.pictures)
    self._meter.pause(time.monotonic() - began)

  def _save(self, step: int, state: TrainState) -> None:
    self._fetch()  # first: it raises where a loss is no number
    state = self._layout.take_state(state)
    self._progress.window = self._meter.window
    self._log.publish()  # first: who goes on from it needs what came before
    self._checkpoints.save(step, state, self._progress)
