"""Compiles a run's programs in background threads.

Programs are compiled in the order of their first use. Training starts with the first
step's program, and the order of batches never depends on when a program is ready.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import numpy as np

from jaxsyn.data.loader.collate import Batch
from jaxsyn.models import contract
from jaxsyn.training import hosts
from jaxsyn.training.flops import product_flops
from jaxsyn.training.mesh import Layout, Program
from jaxsyn.training.step import Recipe, TrainState, first_state, train_step
from jaxsyn.utils import exits, progress

_THREADS = 2  # XLA uses several cores for half of a compilation
_POLL_SECONDS = 0.1  # between two checks of signals during a wait


def abstract_state(recipe: Recipe, layout: Layout, batch: Batch) -> TrainState:
  """Returns shapes, types and shardings of a train state."""
  state = jax.eval_shape(lambda: first_state(recipe, batch, 0))
  abstract: TrainState = layout.with_shardings(state)
  return abstract


def compile_first_state(
  recipe: Recipe, layout: Layout, abstract: TrainState, batch: Batch, seed: int
) -> Callable[[], TrainState]:
  """Returns a compiled function that creates the initial train state."""
  make = functools.partial(first_state, recipe)
  # The seed is an argument, so that all seeds share a program.
  arguments = batch, np.uint32(seed)
  # The arrays are made with their sharding: one device may have too little memory.
  shardings = jax.tree.map(lambda x: x.sharding, abstract)
  program = layout.compile(
    "first state", make, *arguments, out_shardings=shardings
  )
  return lambda: program(*arguments)


def compile_step(
  recipe: Recipe, layout: Layout, abstract: TrainState, batch: Batch
) -> tuple[Program, float]:
  """Compiles the training step for a batch shape; returns it and its FLOPs."""
  step = functools.partial(train_step, recipe=recipe)
  program = layout.compile_train(step, abstract, layout.place_batch(batch))
  if recipe.model.spec.remat == "none" and not layout.is_pmap:
    return program, layout.flops(program)
  return program, model_flops(recipe, abstract, layout.place_rows(batch))


def model_flops(recipe: Recipe, state: Any, batch: Any) -> float:
  """Returns the FLOPs of a training step without rematerialization."""
  spec = dataclasses.replace(recipe.model.spec, remat="none")
  recipe = dataclasses.replace(recipe, model=contract.make(spec))
  return product_flops(
    functools.partial(train_step, recipe=recipe), state, batch
  )


class StopRequestedError(Exception):
  """Exception for a request to stop while waiting; its text is the reason."""


class BackgroundCompiler:
  """Compiler of a run's programs in background threads.

  Attributes:
    waited: Seconds spent on waiting so far.
  """

  def __init__(
    self,
    jobs: Sequence[tuple[Hashable, Callable[[], Any]]],
    first: int,
    stop_reason: Callable[[], str],
  ):
    """Starts to compile all programs in background threads.

    Args:
      jobs: Names of programs and functions that compile them, in order of use.
      first: Number of jobs that are completed before the others start.
      stop_reason: Function that returns why to stop waiting; "" to continue.
    """
    self.waited = 0.0
    self._stop_reason = stop_reason
    self._closed = threading.Event()
    self._pool = ThreadPoolExecutor(_THREADS, "compiler")
    self._futures: dict[Hashable, Future[Any]] = {}
    self._ready_everywhere: set[Hashable] = set()
    for index, (name, make) in enumerate(jobs):
      before = [] if index < first else list(self._futures.values())[:first]
      self._futures[name] = self._pool.submit(self._run, make, before)

  def _run(self, make: Callable[[], Any], before: list[Future[Any]]) -> Any:
    wait(before)
    return None if self._closed.is_set() else make()

  def note(self) -> str:
    """Returns a note on compilation progress; "" once all is compiled."""
    done = sum(future.done() for future in self._futures.values())
    return progress.compiling((done, len(self._futures)))

  def get(self, name: Hashable, *, stoppable: bool = True) -> Any:
    """Waits until all hosts have compiled a program, and returns it.

    Args:
      name: Name of the program.
      stoppable: Whether to stop waiting if there is a reason to stop.

    Raises:
      StopRequestedError: There is a reason to stop on some host.
      Exception: A job has failed, possibly another one.
    """
    self._raise_failures()
    future = self._futures[name]
    if name in self._ready_everywhere:
      return future.result()
    start, was_ready = time.monotonic(), future.done()

    def ready() -> bool:
      wait([future], timeout=_POLL_SECONDS)
      self._raise_failures()
      return future.done()

    stop_reason = self._stop_reason if stoppable else lambda: ""
    if reason := hosts.wait_for_all(ready, stop_reason):
      raise StopRequestedError(reason)
    self._ready_everywhere.add(name)
    if not was_ready:
      self.waited += time.monotonic() - start
    return future.result()

  def _raise_failures(self) -> None:
    for future in self._futures.values():
      if future.done() and (error := future.exception()):
        raise error

  def close(self) -> None:
    """Cancels queued compilations, and does not wait for running ones."""
    self._closed.set()
    self._pool.shutdown(wait=False, cancel_futures=True)
    for future in self._futures.values():
      exits.abandon(future)
