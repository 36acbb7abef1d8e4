"""The loop around the step: batches in, checkpoints and log lines out.

It knows neither decoding nor scores: the entry point hands it a function that
validates. A run can end at any step (its own end, a signal, a kill) and go on
as if it had not.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.config import Config
from jaxsyn.data.batch_plan import Plan as BatchPlan
from jaxsyn.data.batch_plan import Planned, Position
from jaxsyn.data.batches import Batch, ahead, assemble, stream
from jaxsyn.data.columns import Columns
from jaxsyn.data.schema import PAD
from jaxsyn.errors import InputError
from jaxsyn.training.checkpoint import Checkpoints, Progress
from jaxsyn.training.log import Log, peak_flops
from jaxsyn.training.mesh import Layout
from jaxsyn.training.optimiser import learning_rate
from jaxsyn.training.step import Recipe, State, first_state, train_step

# On CPU, collectives of too many programs in flight dead-lock a thread pool
# of few cores; a wait now and then costs nothing.
IN_FLIGHT = 8


@dataclasses.dataclass(frozen=True)
class Data:
  """The training split: facts, and which batch comes when.

  Attributes:
    columns: facts of all pairs.
    names: features in a batch.
    plan: batches of every epoch.
    change: a caller's own function on every host batch (its weighting
      matrix, say); None: batches stay as they are.
  """

  columns: Columns
  names: tuple[str, ...]
  plan: BatchPlan
  change: Callable[[Batch], Batch] | None = None

  def batches(self, start: Position) -> Iterator[tuple[Position, Batch]]:
    """This host's batches from a position on, without end."""
    hosts = jax.process_index(), jax.process_count()
    for position, batch in stream(
      self.columns, self.names, self.plan, start, *hosts
    ):
      yield position, self.change(batch) if self.change else batch

  def empty(self) -> list[Batch]:
    """A batch of padding in every shape, to compile with."""
    nobody = np.empty(0, np.int64)
    batches = [
      assemble(
        self.columns,
        self.names,
        Planned(shape, nobody),
        jax.process_index(),
        jax.process_count(),
      )
      for shape in self.plan.shapes
    ]
    return [self.change(b) if self.change else b for b in batches]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How a call of `train` ended.

  Attributes:
    step: batches seen.
    reason: "steps", "minutes", "patience" or the name of a signal.
    progress: as in the last checkpoint.
    shapes: static shapes of the plan.
    compilations: of the training step; as many as shapes, all before the
      first step.
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
  data: Data,
  checkpoints: Checkpoints,
  validate: Callable[[Any], dict[str, float]],
  open_log: Callable[[int], Log],
) -> Outcome:
  """Trains from the newest checkpoint, or from the start, to the end.

  Args:
    config: of the run.
    recipe: of the step.
    layout: where it runs.
    data: the training split.
    checkpoints: of the run.
    validate: parameters -> scores; "bleu" decides what is best.
    open_log: the log, from the step that is gone on from.

  Raises:
    InputError: the loss is not a number; the message names the step and the
      last good checkpoint.
  """
  state, progress = _restore(
    config, recipe, layout, checkpoints, data.empty()[0]
  )
  start = int(jax.device_get(layout.take_state(state).step))
  log = open_log(start)
  step_function = functools.partial(train_step, recipe=recipe)
  try:
    flops = _compile(layout, step_function, state, data, log)
    with Signals() as signals:
      return _Loop(
        config, layout, step_function, data, checkpoints, validate, log, flops
      ).run(state, progress, start, signals)
  finally:
    log.close()
    checkpoints.wait()


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


def _compile(layout, step_function, state, data, log) -> dict[Any, float]:
  """Compiles every shape before the first step; returns FLOPs by shape."""
  batches = [layout.place_batch(batch) for batch in data.empty()]
  began = time.monotonic()
  log.say(f"compiling the step for {len(batches)} shapes")
  with ThreadPoolExecutor(2) as pool:
    programs = list(
      pool.map(
        lambda batch: layout.compile_train(step_function, state, batch), batches
      )
    )
  log.say(f"compiled in {time.monotonic() - began:.0f} s")
  return {
    batch["target_id_BT"].shape + batch["source_id_BS"].shape: _flops(program)
    for batch, program in zip(batches, programs)
  }


def _flops(program: Any) -> float:
  """Of one call on all devices, as XLA counts them; 0 where it does not."""
  costs = program.cost_analysis() or {}
  return float(costs.get("flops", 0.0)) * jax.device_count()


class _Loop:
  """One call of `train`, from its first step to its last."""

  def __init__(
    self, config, layout, step, data, checkpoints, validate, log, flops
  ):
    self.config, self.layout, self.step_function = config, layout, step
    self.data, self.checkpoints, self.log = data, checkpoints, log
    self.validate, self.flops = validate, flops
    self.rate = learning_rate(config.optimiser, config.model.width)
    self.peak = peak_flops()
    self.waiting: list[tuple[int, Any]] = []  # metrics still on the device
    self.fetched: list[dict[str, Any]] = []  # since the last log line
    self.since = collections.Counter()  # since the last log line
    self.began = time.monotonic()

  def run(self, state, progress, start, signals) -> Outcome:
    train = self.config.train
    self.progress, self.minutes = progress, progress.minutes
    self.begun_at = start
    batches = ahead(
      self.data.batches(Position(progress.epoch, progress.batch)),
      train.prefetch,
    )
    step, reason = start, self._over(start, signals)
    self.since_time = time.monotonic()
    try:
      while not reason:
        state = self._step(state, step, batches)
        step += 1
        reason = self._over(step, signals)
        if step % train.log_every == 0 or reason:
          self._report(step)
        if step % train.evaluate_every == 0 or (
          reason in ("steps", "minutes") and progress.best_step != step
        ):
          self._evaluate(step, state)
          reason = reason or self._over(step, signals)
        if step % train.save_every == 0 or reason:
          self._check()
          self._save(step, state)
    finally:
      batches.close()
    return Outcome(
      step,
      reason,
      self.progress,
      len(self.data.plan.shapes),
      self.layout.compilations["train"],
    )

  def _step(self, state: State, step: int, batches) -> State:
    asked = time.monotonic()
    position, batch = next(batches)
    self.since["wait"] += time.monotonic() - asked
    placed = self.layout.place_batch(batch)
    state, metrics = self.layout.train(self.step_function, state, placed)
    self.waiting.append((step + 1, metrics))
    if len(self.waiting) % IN_FLIGHT == 0:
      jax.block_until_ready(metrics)
    source, target = batch["source_id_BS"], batch["target_id_BT"]
    tokens = int(np.count_nonzero(target != PAD))
    self.since["tokens"] += tokens
    self.since["real"] += tokens + int(np.count_nonzero(source != PAD))
    self.since["positions"] += source.size + target.size
    key = placed["target_id_BT"].shape + placed["source_id_BS"].shape
    self.since["flops"] += self.flops[key]
    self.since["steps"] += 1
    self.progress.epoch, self.progress.batch = position.epoch, position.batch
    self.progress.tokens += tokens * jax.process_count()
    self.log.advance()
    return state

  def _over(self, step: int, signals: Signals) -> str:
    train, progress = self.config.train, self.progress
    spent = (time.monotonic() - self.began) / 60
    progress.minutes = self.minutes + spent
    if signals.name:
      return signals.name
    if step >= train.steps:
      return "steps"
    if train.minutes and progress.minutes >= train.minutes:
      return "minutes"
    if train.patience and progress.bad >= train.patience:
      return "patience"
    return ""

  def _check(self) -> None:
    """Fetches what is still on the device; raises if a loss is no number."""
    fetched = jax.device_get([m for _, m in self.waiting])
    steps = [s for s, _ in self.waiting]
    self.waiting.clear()
    if self.layout.is_pmap:
      fetched = [jax.tree.map(lambda x: x[0], m) for m in fetched]
    for step, metrics in zip(steps, fetched):
      bad = [k for k, (s, _) in metrics["terms"].items() if not np.isfinite(s)]
      if bad or not np.isfinite(metrics["grad_norm"]):
        self.checkpoints.wait()
        kept = self.checkpoints.steps()
        good = f"step {kept[-1]}" if kept else "none yet"
        raise InputError(
          f"the {bad[0] if bad else 'gradient'} became NaN or infinite at step "
          f"{step}. Last good checkpoint: {good} in "
          f"{self.checkpoints.workdir}. Lower config.optimiser.learning_rate "
          "or set config.optimiser.clip, and train in another --workdir."
        )
    self.fetched += fetched

  def _report(self, step: int) -> None:
    self._check()
    fetched, since = self.fetched, self.since
    if not fetched:  # a run that had nothing left to do
      return
    seconds = max(time.monotonic() - self.since_time, 1e-9)
    losses = {}
    for name in fetched[0]["terms"]:
      total = sum(float(m["terms"][name][0]) for m in fetched)
      count = sum(float(m["terms"][name][1]) for m in fetched)
      losses[name] = total / max(count, 1.0)
    weights = self.config.losses
    loss = sum(weights[n].get("weight", 1.0) * v for n, v in losses.items())
    done = step - self.begun_at
    left = (time.monotonic() - self.began) / max(done, 1)
    eta = left * (self.config.train.steps - step) / 60
    if self.config.train.minutes:
      rest = self.config.train.minutes - self.progress.minutes
      eta = min(eta, max(rest, 0.0))
    updates = max(step // self.config.optimiser.accumulate - 1, 0)
    values = {
      "epoch": self.progress.epoch,
      "loss": loss,
      **{f"loss/{name}": value for name, value in losses.items()},
      "tokens_per_s": since["tokens"] * jax.process_count() / seconds,
      "padding": 1.0 - since["real"] / max(since["positions"], 1),
      "waiting": since["wait"] / seconds,
      "flops": since["flops"] / seconds,
      "learning_rate": float(self.rate(updates)),
      "grad_norm": float(fetched[-1]["grad_norm"]),
      "minutes": self.progress.minutes,
      "eta_minutes": eta,
    }
    if self.peak:
      values["mfu"] = values["flops"] / self.peak
    self.log.record("train", step, values)
    self.fetched = []
    self.since = collections.Counter()
    self.since_time = time.monotonic()

  def _evaluate(self, step: int, state: State) -> None:
    self._check()
    began = time.monotonic()
    params = self.layout.take_state(state).evaluated
    values = self.validate(params)
    progress = self.progress
    better = values["bleu"] > progress.best_score
    if better:
      progress.best_score, progress.best_step = values["bleu"], step
      progress.bad = 0
      self.checkpoints.save_best(
        step, jax.tree.map(jnp.copy, params), values["bleu"]
      )
    else:
      progress.bad += 1
    self._over(step, Signals())  # brings the minutes up to date
    self.log.record(
      "validation",
      step,
      {**values, "best": progress.best_score, "minutes": progress.minutes},
    )
    self.since_time += time.monotonic() - began  # not training time

  def _save(self, step: int, state: State) -> None:
    state = self.layout.take_state(state)
    if jax.default_backend() == "cpu":
      # Orbax writes in the background; on a CPU its view of a buffer may be
      # the buffer itself, which the next step is free to reuse.
      state = jax.tree.map(jnp.copy, state)
    self.checkpoints.save(step, state, self.progress)
