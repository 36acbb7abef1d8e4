"""Does it compute there what it computes on a CPU?

What the tests hold on a CPU then holds there as well. The models are tiny, the
dropout is on: its bits are the same everywhere. In float32 products are as exact
as the chip has them ("highest"), and differ by the order in which sums are made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import optax

from benchmarks.accelerator.limits import TRIAL, BenchmarkLimits, Row
from benchmarks.accelerator.search import Searched
from jaxsyn.plan import Plan
from jaxsyn.training.mesh import Layout
from jaxsyn.training.step import first_state, train_step

ROWS = 16  # a multiple of the devices of most machines
STEPS = 5
COMPILERS = 8

# A gradient differs by so much of its norm. In bfloat16 a number has 8 bits, and
# what is compared with is float32.
GRADIENT = {"float32": 1e-4, "bfloat16": 0.1}
LOSS = 1e-4  # of itself, after STEPS updates by Adam
AGAIN = 1e-6  # the same twice: scattered sums may come in another order
PMAP = 1e-5
SCORE = 1e-4  # of a hypothesis, in nats a subword
OTHER = 0.02  # of translations, where two hypotheses are nearly as good

MARK = "BEST "  # before what a process found, among all that it may print


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
  """As exact as the chip has them, in all threads: JAX's own is for one."""
  name = "jax_default_matmul_precision"
  before = jax.config.values[name]
  jax.config.update(name, "highest")
  try:
    yield
  finally:
    jax.config.update(name, before)


def _row(check: str, difference: float, tolerance: float) -> Row:
  return {
    "check": check,
    "difference": difference,
    "at most": tolerance,
    "holds": "yes" if difference <= tolerance else "NO",
  }


def _cpu() -> jax.Device:
  return jax.devices("cpu")[0]


def _batch(plan: Plan) -> dict[str, np.ndarray]:
  return TRIAL.text().batches(plan, ROWS, 1)[0]


def _state(plan: Plan, device: jax.Device) -> Any:
  """As it is drawn on the CPU, on a device."""
  first = functools.partial(first_state, plan.recipe, _batch(plan), 0)
  with jax.default_device(_cpu()):
    return jax.device_put(jax.jit(first)(), device)


def _update(plan: Plan, device: jax.Device) -> Any:
  """Minus the gradient of a batch: a step of plain descent of rate 1."""
  descent = dataclasses.replace(plan.recipe, optimiser=optax.sgd(1.0))
  plan = dataclasses.replace(plan, recipe=descent)
  before, batch = _state(plan, device), jax.device_put(_batch(plan), device)
  step = jax.jit(functools.partial(train_step, recipe=plan.recipe))
  after, _ = step(before, batch)
  return jax.device_get(
    jax.tree.map(lambda x, y: x - y, after.params, before.params)
  )


def gradients(limits: BenchmarkLimits) -> Iterator[Row]:
  """The gradient of every system, and of those in pairs in bfloat16 too."""

  def rows(system: str) -> list[Row]:
    here = _update(TRIAL.plan(system, "tiny", "float32"), _cpu())
    made = []
    for dtype in GRADIENT:
      if dtype == "float32" or system in limits.paired:
        there = _update(TRIAL.plan(system, "tiny", dtype), jax.devices()[0])
        apart = optax.tree.norm(jax.tree.map(np.subtract, there, here))
        name = f"gradient of {system}, {dtype}"
        ratio = float(apart / optax.tree.norm(here))
        made.append(_row(name, ratio, GRADIENT[dtype]))
    return made

  with exact_products(), ThreadPoolExecutor(COMPILERS) as pool:
    made = [(name, pool.submit(rows, name)) for name in limits.checked]
    for system, result in made:
      try:
        yield from result.result()
      except Exception as error:  # others are still to be seen
        why = f"{type(error).__name__}: {error}"
        yield {"check": f"gradient of {system}", "holds": why[:200]}


def steps(limits: BenchmarkLimits) -> Iterator[Row]:
  """Some updates by Adam: against the CPU, once more, and under pmap."""
  quiet = {
    f"model.transformer.{name}": 0.0  # replicas draw their own
    for name in ("dropout", "attention_dropout", "activation_dropout")
  }
  plan = TRIAL.plan("transformer", "tiny", "float32", **quiet)
  with exact_products():
    there, again = _laid_out(plan, "jit", times=2)
    (replicas,) = _laid_out(plan, "pmap", times=1)
    step = jax.jit(functools.partial(train_step, recipe=plan.recipe))
    batch = jax.device_put(_batch(plan), _cpu())
    here = _losses(step, _state(plan, _cpu()), batch)
  devices = f"{jax.device_count()} device{'s' * (jax.device_count() > 1)}"
  yield _row(f"{STEPS} losses, {devices}", _apart(there, here), LOSS)
  yield _row("the same once more", _apart(again, there), AGAIN)
  yield _row(f"the same by pmap, {devices}", _apart(replicas, there), PMAP)


def _laid_out(plan: Plan, parallelism: str, times: int) -> list[np.ndarray]:
  """The losses of runs on all devices, by the same program."""
  layout = Layout(parallelism, plan.config.train.mesh)

  def state() -> Any:
    return layout.place_state(jax.device_get(_state(plan, _cpu())))

  batch = layout.place_batch(_batch(plan))
  step = functools.partial(train_step, recipe=plan.recipe)
  program = layout.compile_train(step, state(), batch)
  return [_losses(program, state(), batch) for _ in range(times)]


def _losses(step: Callable[..., Any], state: Any, batch: Any) -> np.ndarray:
  losses = []
  for _ in range(STEPS):
    state, metrics = step(state, batch)
    total, count = metrics["terms"]["nll"]
    losses.append(float(np.ravel(total)[0]) / float(np.ravel(count)[0]))
  return np.array(losses)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
  return float(np.max(np.abs(one - other) / np.abs(other)))


def translations(limits: BenchmarkLimits) -> Iterator[Row]:
  """What a beam search finds, and what it scores."""
  there = best_of_all()
  if jax.default_backend() == "cpu":
    here = best_of_all()
  else:  # a search takes the devices that there are: a process without others
    code = (
      "import json; from benchmarks.accelerator import checks; "
      f"print({MARK!r} + json.dumps(checks.best_of_all()))"
    )
    said = subprocess.run(
      [sys.executable, "-c", code],
      env={**os.environ, "JAX_PLATFORMS": "cpu"},
      check=True,
      stdout=subprocess.PIPE,
      text=True,
    ).stdout
    here = json.loads(said.rpartition(MARK)[2])
  pairs = list(zip(there, here))
  other = np.mean([one != two for (one, _), (two, _) in pairs])
  yield _row("share of translations that differ", float(other), OTHER)
  same = [abs(p - q) for (one, p), (two, q) in pairs if one == two]
  yield _row("scores of translations", max(same, default=0.0), SCORE)


def best_of_all() -> list[tuple[list[int], float]]:
  """Ids and score of the best translations, by this process's device."""
  with jax.default_device(_cpu()):  # the same parameters everywhere
    searched = Searched.of(
      TRIAL, "pascal", size="tiny", dtype="float32", count=ROWS
    )
  params = jax.device_put(searched.params, jax.devices()[0])
  with exact_products():
    nbests = searched.translator(ROWS)(params, searched.examples)
  return [(list(best.ids), best.score) for best, *_ in nbests]
