"""The training loop: steps, log records, validation and checkpoints.

A run can end at any step (its last step, a signal, a kill) and be resumed with the
same result as an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import DataLoader, TrainBatch, prefetch
from jaxsyn.errors import InputError
from jaxsyn.training.checkpoint_reader import Progress
from jaxsyn.training.checkpoint_writer import CheckpointWriter
from jaxsyn.training.log import Figures, Log, Sample
from jaxsyn.training.mesh import Layout, Program
from jaxsyn.training.meter import Meter
from jaxsyn.training.options import TrainingConfig
from jaxsyn.training.profile import Profile
from jaxsyn.training.programs import (
  BackgroundCompiler,
  StopRequestedError,
  abstract_state,
  compile_first_state,
  compile_step,
)
from jaxsyn.training.step import Metrics, Params, Recipe, TrainState
from jaxsyn.training.stopping import (
  StopSignals,
  finish_reason,
  reason_on_all_hosts,
)

# On a CPU, collectives of too many programs in flight deadlock a small thread
# pool; waiting now and then has no cost.
_IN_FLIGHT = 8
_PREFETCH = 2  # batches that are prepared in advance
_FIRST_STATE, _VALIDATION = "first state", "validation"


class ValidationScores(NamedTuple):
  """Scores of model parameters on the validation split.

  Attributes:
    values: Numbers for the log by name, among them the metric of
      config.train.selection and "log_likelihood".
    rank: Numbers by which parameters are compared, the first one first; larger
      is better.
    samples: Some translations.
    figures: Attention of the parameters, by name.
  """

  values: dict[str, Any]
  rank: Sequence[float]
  samples: Sequence[Sample] = ()
  figures: Figures = ()


class Validation(Protocol):
  """Interface of functions that score model parameters on the validation split.

  The parameters of `compile` are shapes with shardings.
  """

  def compile(self, params: Params) -> None:
    """Compiles the validation programs; runs in a background thread."""

  def __call__(self, params: Params) -> ValidationScores: ...


@dataclasses.dataclass(frozen=True)
class Training:
  """Arguments of `train`: config, model, data, checkpoints, validation etc.

  Attributes:
    config: Config of the run.
    recipe: Model, losses and optimizer of the step.
    layout: Devices.
    loader: Training data.
    checkpoints: Checkpoints of the run directory.
    validate: Validation.
    profile: Profile of some steps.
    messages: Lines that are printed at the start.
    warm_start: Function that changes the initial state of a new run.
  """

  config: TrainingConfig
  recipe: Recipe
  layout: Layout
  loader: DataLoader
  checkpoints: CheckpointWriter
  validate: Validation
  profile: Profile
  messages: Sequence[str] = ()
  warm_start: Callable[[TrainState], TrainState] | None = None


@dataclasses.dataclass(frozen=True)
class TrainingEnd:
  """Result of `train`: last step, reason to stop, and progress.

  Attributes:
    step: Number of steps of the run.
    reason: "steps", "minutes", "patience" or the name of a signal.
    progress: Progress as in the last checkpoint.
    shapes: Number of batch shapes.
    compilations: Number of compiled training steps, at most one per shape; 0 if
      the run was finished already.
  """

  step: int
  reason: str
  progress: Progress
  shapes: int
  compilations: int


def train(training: Training) -> TrainingEnd:
  """Trains from the newest checkpoint, or from the start, until the run ends.

  Raises:
    InputError: A loss is not finite; the message names the step and the last
      checkpoint.
  """
  batch = training.loader.empty()[0]
  abstract = abstract_state(training.recipe, training.layout, batch)
  restored = training.checkpoints.restore(abstract)
  start, state, progress = restored or (0, None, Progress())
  if reason := finish_reason(training.config, start, progress):
    return _end(training, start, reason, progress)
  log = Log(training.checkpoints.workdir, training.config, start)
  for message in training.messages:
    log.say(message)
  if start:
    log.say(f"resuming from step {start}")
  elif log.restarted:
    log.say("there is no checkpoint of the earlier run: training restarts")
  with contextlib.ExitStack() as stack:
    stack.callback(training.checkpoints.wait)
    stack.callback(log.close)
    signals = stack.enter_context(StopSignals())
    loop = _Loop(training, log, signals, abstract, start, progress)
    stack.callback(loop.close)
    return loop.run(state)


class _Loop:
  """The training loop of one process, with its state."""

  def __init__(
    self,
    training: Training,
    log: Log,
    signals: StopSignals,
    abstract: TrainState,
    start: int,
    progress: Progress,
  ):
    self._training, self._log, self._signals = training, log, signals
    self._config, self._layout = training.config, training.layout
    self._start, self._progress = start, progress
    self._minutes_before = progress.minutes
    self._start_time = time.monotonic()
    self._pending: list[tuple[int, Metrics]] = []  # still on the device
    self._meter = Meter(
      training.config, training.recipe.losses, start, progress
    )
    self._say_compiled = True
    self._compiler = self._start_compiler(abstract)
    log.note = self._compiler.note

  def _start_compiler(self, abstract: TrainState) -> BackgroundCompiler:
    training, train, start = self._training, self._config.train, self._start
    recipe, layout, loader = training.recipe, self._layout, training.loader
    position = Position(self._progress.epoch, self._progress.batch)
    left = train.steps - start
    shapes = loader.batch_sampler.first_used(position, left)
    jobs: list[tuple[int, Hashable, Callable[[], Any]]] = []
    for shape, first_use in shapes.items():
      # Made here, since threads must not call a batch transform of the user.
      batch = loader.empty_batch(shape)
      make = functools.partial(compile_step, recipe, layout, abstract, batch)
      jobs.append((first_use, _shape_of(batch), make))
    validation = min(train.evaluate_every - start % train.evaluate_every, left)
    compile_validation = functools.partial(
      training.validate.compile, abstract.evaluated
    )
    jobs.append((validation, _VALIDATION, compile_validation))
    jobs.sort(key=lambda job: job[0])  # if equal, the step comes first
    if not start:
      batch, seed = loader.empty()[0], self._config.seed
      make_state = functools.partial(
        compile_first_state, recipe, layout, abstract, batch, seed
      )
      jobs.insert(0, (0, _FIRST_STATE, make_state))
    self._log.say(
      f"compiling the training step for {len(shapes)} "
      f"shape{'s' * (len(shapes) != 1)}; training starts when the first is ready"
    )
    return BackgroundCompiler(
      [job[1:] for job in jobs],
      first=1 if start else 2,
      stop_reason=lambda: self._signals.name,
    )

  def run(self, restored: TrainState | None) -> TrainingEnd:
    """Trains until there is a reason to stop.

    Args:
      restored: State of a checkpoint; None for a new run.
    """
    train, start = self._config.train, self._start
    try:
      state = self._layout.place_state(restored or self._first_state())
    except StopRequestedError as stop:
      return _end(self._training, start, str(stop), self._progress)
    step, reason = start, self._stop_reason(start)
    self._log.start_clock()
    position = Position(self._progress.epoch, self._progress.batch)
    batches = prefetch(self._training.loader.batches(position), _PREFETCH)
    with contextlib.closing(batches):
      while not reason:
        try:
          state = self._step(state, step, batches)
        except StopRequestedError as stop:
          reason = str(stop)
          if step > start:
            self._save(step, state)
          break
        step += 1
        reason = self._stop_reason(step)
        is_last = reason in ("steps", "minutes")
        # A run that a signal stops keeps an incomplete window in the checkpoint.
        is_finished = reason and finish_reason(
          self._config, step, self._progress
        )
        if step % train.log_every == 0 or is_last or is_finished:
          self._report(step)
        # Before saving, so that a resumed run does not evaluate it again.
        if step % train.evaluate_every == 0 or is_last:
          self._evaluate(step, state)
          reason = reason or self._stop_reason(step)
        if step % train.save_every == 0 or reason:
          self._save(step, state)
    return _end(self._training, step, reason, self._progress)

  def _first_state(self) -> TrainState:
    state: TrainState = self._compiler.get(_FIRST_STATE)()
    if self._training.warm_start:
      state = self._training.warm_start(state)
    return state

  def _step(
    self, state: TrainState, step: int, batches: Iterator[TrainBatch]
  ) -> TrainState:
    """Trains on the next batch and returns the new train state."""
    start = time.monotonic()
    train_batch = next(batches)
    waited = time.monotonic() - start
    program, flops = self._program(train_batch.batch)
    placed = self._layout.place_batch(train_batch.batch)
    self._training.profile.before(step + 1)
    state, metrics = program(state, placed)
    self._training.profile.after(step + 1, metrics)
    self._pending.append((step + 1, metrics))
    if len(self._pending) % _IN_FLIGHT == 0:
      jax.block_until_ready(metrics)
    self._meter.add_batch(train_batch, flops, waited)
    progress, after = self._progress, train_batch.after
    progress.epoch, progress.batch = after.epoch, after.batch
    progress.tokens += train_batch.target
    self._log.advance(progress.minutes)
    return state

  def _program(self, batch: Mapping[str, np.ndarray]) -> tuple[Program, float]:
    """Returns the compiled training step for a batch's shape, and its FLOPs."""
    compiler, shape = self._compiler, _shape_of(batch)
    waited = compiler.waited
    program: tuple[Program, float] = compiler.get(shape)
    self._meter.pause(compiler.waited - waited)
    if self._say_compiled and not compiler.note():
      self._say_compiled = False
      seconds = time.monotonic() - self._start_time
      self._log.say(f"compiled in {seconds:.0f} s")
    return program

  def _stop_reason(self, step: int) -> str:
    self._update_clock()
    local_reason = self._signals.name or finish_reason(
      self._config, step, self._progress
    )
    return reason_on_all_hosts(
      step, local_reason, is_last=step >= self._config.train.steps
    )

  def _update_clock(self) -> None:
    # Without waiting for compilers, so that config.train.minutes gives the same
    # number of steps with and without cached programs.
    spent = time.monotonic() - self._start_time - self._compiler.waited
    self._progress.minutes = self._minutes_before + spent / 60

  def _fetch_metrics(self) -> None:
    """Fetches step metrics from the device; raises if a loss is not finite."""
    steps = [step for step, _ in self._pending]
    fetched = jax.device_get([metrics for _, metrics in self._pending])
    self._pending.clear()
    for step, metrics in zip(steps, fetched):
      bad = [k for k, (s, _) in metrics["terms"].items() if not np.isfinite(s)]
      if bad or not np.isfinite(metrics["grad_norm"]):
        raise self._not_finite_error(bad[0] if bad else "gradient", step)
    self._meter.add_metrics(fetched)

  def _not_finite_error(self, what: str, step: int) -> InputError:
    checkpoints = self._training.checkpoints
    checkpoints.wait_for_all()  # the loss is not finite on any host
    saved = checkpoints.steps()
    return InputError(
      f"the {what} became NaN or infinite at step {step}. Last good checkpoint: "
      f"{saved[-1] if saved else 'none yet'} in {checkpoints.workdir}. Lower "
      "config.optimiser.learning_rate or set config.optimiser.clip, and train "
      "in another --workdir."
    )

  def _report(self, step: int) -> None:
    self._fetch_metrics()
    compiling = bool(self._compiler.note())
    if values := self._meter.record(step, self._progress, compiling):
      self._log.record("train", step, values)

  def _evaluate(self, step: int, state: TrainState) -> None:
    self._fetch_metrics()
    start = time.monotonic()
    self._compiler.get(_VALIDATION, stoppable=False)
    params = state.evaluated
    scores = self._training.validate(params)
    values, rank = scores.values, list(scores.rank)
    train, progress = self._config.train, self._progress
    if not np.isfinite(rank).all():
      raise self._not_finite_error("validation loss", step)
    progress.bad += 1
    if rank > progress.best_rank:
      progress.best_rank, progress.best_step, progress.bad = rank, step, 0
      progress.best_score = values[train.selection]
      score = {
        "selection": train.selection,
        "tokenizer": train.tokenizer,
        "score": progress.best_score,
        "log_likelihood": values["log_likelihood"],
      }
      self._training.checkpoints.save_best(step, params, score)
    self._update_clock()
    values |= {
      f"best_{train.selection}": progress.best_score,
      "best_step": progress.best_step,
      "minutes": progress.minutes,
    }
    self._log.record("validation", step, values)
    self._log.samples(step, scores.samples)
    self._log.figures(step, scores.figures)
    self._meter.pause(time.monotonic() - start)

  def _save(self, step: int, state: TrainState) -> None:
    self._fetch_metrics()  # first, since it raises if a loss is not finite
    self._progress.window = self._meter.window
    self._log.publish()  # first: a resumed run needs the earlier records
    self._training.checkpoints.save(step, state, self._progress)

  def close(self) -> None:
    """Ends the profile and the compiler threads."""
    self._training.profile.close()
    self._compiler.close()


def _end(
  training: Training, step: int, reason: str, progress: Progress
) -> TrainingEnd:
  shapes = len(training.loader.batch_sampler.shapes)
  compilations = training.layout.compilations["train"]
  return TrainingEnd(step, reason, progress, shapes, compilations)


def _shape_of(batch: Mapping[str, np.ndarray]) -> tuple[int, ...]:
  return batch["source_id_BS"].shape + batch["target_id_BT"].shape
