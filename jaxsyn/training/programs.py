"""The programs of a run, compiled in the background in the order of first use.

Training begins with the first step's; the others are made while it goes on. What
comes in which order never depends on when a program is ready: who needs one
that is not waits for it.

Before this file: `start`, which says what a run is. After it: `loop`.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import numpy as np

from jaxsyn import exits, progress
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.collate import Batch
from jaxsyn.models import contract
from jaxsyn.training import hosts
from jaxsyn.training.flops import product_flops
from jaxsyn.training.log import Log
from jaxsyn.training.mesh import Program
from jaxsyn.training.start import Training
from jaxsyn.training.step import Recipe, TrainState, first_state, train_step

# XLA uses several cores for half of a compilation; two at a time fill two.
WORKERS = 2
LOOK = 0.1  # seconds between two looks at signals, while a program is made

FIRST = "the first state"
VALIDATION = "validation"


def model_flops(recipe: Recipe, state: Any, batch: Any) -> float:
  """Returns the FLOPs of a step without what config.train.remat repeats."""
  spec = dataclasses.replace(recipe.model.spec, remat="none")
  recipe = dataclasses.replace(recipe, model=contract.make(spec))
  return product_flops(
    functools.partial(train_step, recipe=recipe), state, batch
  )


class TrainingPrograms:
  """What a run calls, by what it is needed for.

  Attributes:
    waited: seconds that were spent on waiting in all.
  """

  def __init__(
    self,
    training: Training,
    abstract: TrainState,
    log: Log,
    *,
    start: int,
    position: Position,
  ):
    """Begins to compile.

    Args:
      training: the run.
      abstract: of `abstract_state`.
      log: told what is waited for.
      start: step that is gone on from; 0: the first state is needed, too.
      position: of the next batch.
    """
    self._training, self._log, self.waited = training, log, 0.0
    self._closed = threading.Event()
    self._began: float | None = time.monotonic()
    self._stepped = self._told = False
    train, loader = training.config.train, training.loader
    left = train.steps - start
    used = loader.batch_sampler.first_used(position, left)
    make: Callable[[], Any]
    jobs: list[tuple[int, Any, Callable[[], Any]]] = []
    for shape, at in used.items():
      # Here: a caller's own function on batches may not be called by threads.
      batch = loader.empty_batch(shape)
      make = functools.partial(self._step, abstract, batch)
      jobs.append((at, _sizes(batch), make))
    due = min(train.evaluate_every - start % train.evaluate_every, left)
    validation = functools.partial(
      training.validate.compile, abstract.evaluated
    )
    jobs.append((due, VALIDATION, validation))
    jobs.sort(key=lambda job: job[0])  # where equal, the step comes first
    if start == 0:
      make = functools.partial(self._first_state, abstract)
      jobs.insert(0, (0, FIRST, make))
    self._pool = ThreadPoolExecutor(WORKERS, "compiler")
    self._futures: dict[Any, Future[Any]] = {}
    self._there: set[Any] = set()  # what was waited for
    now = 2 if start == 0 else 1  # jobs without which there is no step
    for index, (_, name, make) in enumerate(jobs):
      before = [] if index < now else list(self._futures.values())[:now]
      self._futures[name] = self._pool.submit(self._run, make, before)
    log.say(
      f"compiling the step for {len(used)} shape{'s' * (len(used) != 1)}, in the "
      "order of their use; training begins with the first"
    )
    log.note = self.note

  def _run(self, make: Callable[[], Any], before: list[Future[Any]]) -> Any:
    # The first step's alone have the processor until they are there.
    wait(before)
    return None if self._closed.is_set() else make()

  def _step(self, abstract: TrainState, batch: Batch) -> tuple[Program, float]:
    layout = self._training.layout
    step = functools.partial(train_step, recipe=self._training.recipe)
    state, placed = layout.placed(abstract), layout.place_batch(batch)
    program = layout.compile_train(step, state, placed)
    recipe = self._training.recipe
    if recipe.model.spec.remat == "none" or layout.is_pmap:
      return program, layout.flops(program)
    return program, model_flops(recipe, state, placed)

  def _first_state(self, abstract: TrainState) -> Callable[[], TrainState]:
    training = self._training
    make = functools.partial(first_state, training.recipe)
    # The seed is an argument, so that all seeds share a program.
    arguments = training.loader.empty()[0], np.uint32(training.config.seed)
    # Made where it stays: whole on one device it might not fit.
    places = jax.tree.map(lambda x: x.sharding, abstract)
    program = training.layout.compile(
      "first state", make, *arguments, out_shardings=places
    )
    return lambda: program(*arguments)

  def note(self) -> str:
    """Returns how many programs are compiled; "" once all are.

    Those of the validation count as one.
    """
    done = sum(future.done() for future in self._futures.values())
    return progress.compiling((done, len(self._futures)))

  def first_state(self, stop_reason: Callable[[], str]) -> TrainState | str:
    """The state of a fresh run, in place; or why it ends before that.

    Args:
      stop_reason: why to end now; "" to wait.
    """
    if reason := self._wait(FIRST, stop_reason):
      return reason
    make = self._futures[FIRST].result()
    state = make()
    if self._training.begin:
      state = self._training.begin(state)
    return self._training.layout.place_state(state)

  def step(
    self, batch: Batch, stop_reason: Callable[[], str]
  ) -> tuple[Program, float] | str:
    """The compiled step for a host batch, and its FLOPs on all devices.

    Args:
      batch: of one of the plan's shapes.
      stop_reason: as of `first_state`.

    Returns: or why the run ends before that.

    Raises:
      whatever any compilation raised so far, also of another shape.
    """
    name = _sizes(batch)
    late = self._stepped and not self._futures[name].done()
    if late and not self._told:
      self._told = True
      self._log.say("the next batch waits until its shape is compiled")
    self._stepped = True
    return self._wait(name, stop_reason) or self._futures[name].result()

  def validation(self) -> None:
    """Returns when those of the validation are there."""
    self._wait(VALIDATION, lambda: "")

  def _wait(self, name: Any, stop_reason: Callable[[], str]) -> str:
    """Until a program is there; why the run ends before, or ""."""
    self._raise_failures()
    if name in self._there:  # in all processes
      return ""
    future, began = self._futures[name], time.monotonic()
    waits = not future.done()

    def ready() -> bool:
      wait([future], timeout=LOOK)
      self._raise_failures()
      return future.done()

    if reason := hosts.wait_for_all(ready, stop_reason):
      return reason
    self._there.add(name)
    if waits:
      self.waited += time.monotonic() - began
    if self._began and all(each.done() for each in self._futures.values()):
      self._log.say(f"compiled in {time.monotonic() - self._began:.0f} s")
      self._began = None
    return ""

  def _raise_failures(self) -> None:
    # Those of other shapes as well: better now than when their turn comes.
    for future in self._futures.values():
      if future.done() and (error := future.exception()):
        raise error

  def close(self) -> None:
    """Ends what is not begun; what is under way nobody waits for."""
    self._closed.set()
    self._pool.shutdown(wait=False, cancel_futures=True)
    for future in self._futures.values():
      exits.abandon(future)


def _sizes(batch: Mapping[str, np.ndarray]) -> tuple[int, ...]:
  """What tells the declared shapes of host batches apart."""
  return batch["source_id_BS"].shape + batch["target_id_BT"].shape
