"""The loop around the step: batches in, checkpoints and log lines out.

It knows neither decoding nor scores: the entry point hands it a function that
validates. A run can end at any step (its own end, a signal, a kill) and go on
as if it had not.
"""

from __future__ import annotations

import dataclasses
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.config import Config
from jaxsyn.data.loader.batch_plan import Position
from jaxsyn.data.loader.split import Split, ahead
from jaxsyn.errors import InputError
from jaxsyn.training.checkpoint import Checkpoints, Progress
from jaxsyn.training.log import Log
from jaxsyn.training.mesh import Layout
from jaxsyn.training.meter import Meter, real_subwords
from jaxsyn.training.step import Recipe, State, first_state, train_step

# On CPU, collectives of too many programs in flight dead-lock a thread pool
# of few cores; a wait now and then costs nothing.
IN_FLIGHT = 8


class Validated(NamedTuple):
  """What parameters do on the validation split.

  Attributes:
    values: for the log, by name: among them the score of config.train.selection
      and "likelihood".
    rank: what is compared to find the best: the larger, the first number first.
  """

  values: dict[str, Any]
  rank: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How a call of `train` ended.

  Attributes:
    step: batches seen.
    reason: "steps", "minutes", "patience" or the name of a signal.
    progress: as in the last checkpoint.
    shapes: static shapes of the plan.
    compilations: of the training step; as many as shapes, all before the
      first step, or none where the run was finished already.
  """

  step: int
  reason: str
  progress: Progress
  shapes: int
  compilations: int


class Signals:
  """SIGTERM and SIGINT ask the loop to save and end; a second one kills."""

  def __init__(self):
    self.name = ""
    self._old: dict[int, Any] = {}

  def __enter__(self) -> Signals:
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGTERM, signal.SIGINT):
        self._old[number] = signal.signal(number, self._note)
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _note(self, number: int, _) -> None:
    self.name = signal.Signals(number).name
    signal.signal(number, self._old[number])


def train(
  config: Config,
  recipe: Recipe,
  layout: Layout,
  split: Split,
  checkpoints: Checkpoints,
  validate: Callable[[Any], Validated],
  open_log: Callable[[int], Log],
) -> Outcome:
  """Trains from the newest checkpoint, or from the start, to the end.

  Args:
    config: of the run.
    recipe: of the step.
    layout: where it runs.
    split: to train on.
    checkpoints: of the run.
    validate: parameters -> what they score, and how they rank.
    open_log: the log, from the step that is gone on from.

  Raises:
    InputError: the loss is not a number; the message names the step and the
      last good checkpoint.
  """
  state, progress = _restore(
    config, recipe, layout, checkpoints, split.empty()[0]
  )
  start = int(jax.device_get(layout.take_state(state).step))
  if reason := over(config, start, progress):  # nothing to compile for
    return Outcome(start, reason, progress, len(split.plan.shapes), 0)
  log = open_log(start)
  if start:
    log.say(f"going on from step {start}")
  step_function = functools.partial(train_step, recipe=recipe)
  try:
    flops = _compile(layout, step_function, state, split, log)
    runner = _Loop(
      config,
      recipe.losses,
      layout,
      step_function,
      split,
      checkpoints,
      validate,
      log,
      flops,
    )
    with Signals() as signals:
      return runner.run(state, progress, start, signals)
  finally:
    log.close()
    checkpoints.wait()


def over(config: Config, step: int, progress: Progress) -> str:
  """Why a run at this point is finished; "" where it is not."""
  train = config.train
  if step >= train.steps:
    return "steps"
  if train.minutes and progress.minutes >= train.minutes:
    return "minutes"
  if train.patience and progress.bad >= train.patience:
    return "patience"
  return ""


def _restore(config, recipe, layout, checkpoints, batch):
  """The state to go on from, in place; a fresh one if there is none."""
  make = functools.partial(first_state, recipe, seed=config.seed)
  abstract = jax.eval_shape(make, batch)
  abstract = jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    abstract,
    layout.storage(abstract),
  )
  found = checkpoints.restore(abstract)
  if found is None:
    return layout.place_state(jax.jit(make)(batch)), Progress()
  _, state, progress = found
  return layout.place_state(state), progress


def _compile(layout, step_function, state, split, log) -> dict[Any, float]:
  """Compiles every shape before the first step; returns FLOPs by shape."""
  batches = [layout.place_batch(batch) for batch in split.empty()]
  began = time.monotonic()
  log.say(f"compiling the step for {len(batches)} shapes")
  with ThreadPoolExecutor(2) as pool:
    programs = list(
      pool.map(
        lambda batch: layout.compile_train(step_function, state, batch), batches
      )
    )
  # Saving copies the state on a CPU; its small programs belong to the warm-up.
  jax.block_until_ready(_unshared(layout.take_state(state)))
  log.say(f"compiled in {time.monotonic() - began:.0f} s")
  return {
    _sizes(batch): _flops(program) for batch, program in zip(batches, programs)
  }


def _flops(program: Any) -> float:
  """Of one call on all devices, as XLA counts them; 0 where it does not."""
  costs = program.cost_analysis() or {}
  return float(costs.get("flops", 0.0)) * jax.device_count()


class _Loop:
  """One call of `train`, from its first step to its last."""

  def __init__(
    self, config, losses, layout, step, split, checkpoints, validate, log, flops
  ):
    self._config, self._losses = config, losses
    self._layout, self._train_step = layout, step
    self._split, self._checkpoints, self._log = split, checkpoints, log
    self._validate, self._flops = validate, flops
    self._pending: list[tuple[int, Any]] = []  # metrics still on the device

  def run(
    self, state: State, progress: Progress, start: int, signals: Signals
  ) -> Outcome:
    """Steps until there is a reason to end."""
    train = self._config.train
    self._progress, self._before = progress, progress.minutes
    self._began = time.monotonic()
    self._meter = Meter(self._config, self._losses, start)
    batches = ahead(
      self._split.batches(Position(progress.epoch, progress.batch)),
      train.prefetch,
    )
    step, reason = start, self._reason(start, signals)
    try:
      while not reason:
        state = self._step(state, step, batches)
        step += 1
        reason = self._reason(step, signals)
        if step % train.log_every == 0 or reason:
          self._report(step)
        ends = reason in ("steps", "minutes")
        if step % train.evaluate_every == 0 or ends:
          self._evaluate(step, state)
          reason = reason or self._reason(step, signals)
        if step % train.save_every == 0 or reason:
          self._save(step, state)
    finally:
      batches.close()
    return Outcome(
      step,
      reason,
      progress,
      len(self._split.plan.shapes),
      self._layout.compilations["train"],
    )

  def _step(self, state: State, step: int, batches: Iterator) -> State:
    asked = time.monotonic()
    position, batch = next(batches)
    waited = time.monotonic() - asked
    placed = self._layout.place_batch(batch)
    state, metrics = self._layout.train(self._train_step, state, placed)
    self._pending.append((step + 1, metrics))
    if len(self._pending) % IN_FLIGHT == 0:
      jax.block_until_ready(metrics)
    self._meter.batch(batch, self._flops[_sizes(placed)], waited)
    progress = self._progress
    progress.epoch, progress.batch = position.epoch, position.batch
    progress.tokens += real_subwords(batch)[1] * jax.process_count()
    self._log.advance()
    return state

  def _reason(self, step: int, signals: Signals) -> str:
    """Why this call is to end now; "" to go on."""
    self._clock()
    return signals.name or over(self._config, step, self._progress)

  def _clock(self) -> None:
    """Brings the minutes of the run, all calls together, up to date."""
    spent = (time.monotonic() - self._began) / 60
    self._progress.minutes = self._before + spent

  def _fetch(self) -> None:
    """Fetches what is still on the device; raises if a loss is no number."""
    steps = [step for step, _ in self._pending]
    fetched = jax.device_get([metrics for _, metrics in self._pending])
    self._pending.clear()
    if self._layout.is_pmap:
      fetched = [jax.tree.map(lambda x: x[0], m) for m in fetched]
    for step, metrics in zip(steps, fetched):
      bad = [k for k, (s, _) in metrics["terms"].items() if not np.isfinite(s)]
      if bad or not np.isfinite(metrics["grad_norm"]):
        raise self._no_number(bad[0] if bad else "gradient", step)
    self._meter.steps(fetched)

  def _no_number(self, what: str, step: int) -> InputError:
    self._checkpoints.wait()
    kept = self._checkpoints.steps()
    return InputError(
      f"the {what} became NaN or infinite at step {step}. Last good checkpoint: "
      f"{kept[-1] if kept else 'none yet'} in {self._checkpoints.workdir}. Lower "
      "config.optimiser.learning_rate or set config.optimiser.clip, and train "
      "in another --workdir."
    )

  def _report(self, step: int) -> None:
    self._fetch()
    if values := self._meter.record(step, self._progress):
      self._log.record("train", step, values)

  def _evaluate(self, step: int, state: State) -> None:
    self._fetch()
    began = time.monotonic()
    params = self._layout.take_state(state).evaluated
    values, rank = self._validate(params)
    train, progress = self._config.train, self._progress
    if not np.isfinite(rank).all():
      raise self._no_number("validation loss", step)
    if list(rank) > progress.best_rank:
      progress.best_rank, progress.best_step = list(rank), step
      progress.best_score = values[train.selection]
      progress.bad = 0
      page = {
        "selection": train.selection,
        "tokenizer": train.tokenizer,
        "score": values[train.selection],
        "likelihood": values["likelihood"],
      }
      self._checkpoints.save_best(step, _unshared(params), page)
    else:
      progress.bad += 1
    self._clock()
    values |= {
      f"best_{train.selection}": progress.best_score,
      "best_step": progress.best_step,
      "minutes": progress.minutes,
    }
    self._log.record("validation", step, values)
    self._meter.pause(time.monotonic() - began)

  def _save(self, step: int, state: State) -> None:
    self._fetch()
    state = _unshared(self._layout.take_state(state))
    self._checkpoints.save(step, state, self._progress)


def _sizes(batch: dict[str, Any]) -> tuple[int, ...]:
  """What tells the declared shapes of batches apart."""
  return batch["source_id_BS"].shape + batch["target_id_BT"].shape


def _unshared(tree: Any) -> Any:
  """Arrays that no later step reuses, for Orbax to write in the background.

  On a CPU its view of an array may be the buffer itself, which the next step,
  to which the state is donated, is free to overwrite.
  """
  if jax.default_backend() != "cpu":
    return tree
  return jax.tree.map(jnp.copy, tree)
