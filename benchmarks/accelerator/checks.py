"""Checks that the accelerator computes what a CPU computes.

The models are tiny. Dropout is active, since its random bits are the same on all
devices. Products of float32 have the highest precision of the chip; differences
come from the order of sums.
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
from benchmarks.accelerator.speed import RandomModel
from jaxsyn.plan import Plan
from jaxsyn.training.mesh import Layout
from jaxsyn.training.step import first_state, train_step

ROWS = 16  # a multiple of the devices of most machines
STEPS = 5
COMPILERS = 8  # threads

# Tolerances. A gradient is compared by the norm of the difference, relative to its
# norm. bfloat16 has 8 bits, and is compared with float32.
GRADIENT = {"float32": 1e-4, "bfloat16": 0.1}
LOSS = 1e-4  # relative, after STEPS updates by Adam
AGAIN = 1e-6  # relative, same program: scattered sums come in another order
PMAP = 1e-5  # relative
SCORE = 1e-4  # nats a subword
OTHER = 0.02  # share of other translations, where hypotheses have near scores

MARK = "BEST "  # before the result in the output of a process


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
  """Context manager that sets the highest precision of matrix products.

  `jax.default_matmul_precision` sets that of one thread.
  """
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
  return TRIAL.text().batches(plan.features, ROWS, 1)[0]


def _state(plan: Plan, device: jax.Device) -> Any:
  """Computes the initial train state on the CPU and copies it to a device."""
  first = functools.partial(first_state, plan.recipe, _batch(plan), 0)
  with jax.default_device(_cpu()):
    return jax.device_put(jax.jit(first)(), device)


def _negative_gradient(system: str, dtype: str, device: jax.Device) -> Any:
  """Returns the negative gradient: the update of SGD at learning rate 1."""
  plan = TRIAL.plan(system, "tiny", dtype)
  descent = dataclasses.replace(plan.recipe, optimiser=optax.sgd(1.0))
  plan = dataclasses.replace(plan, recipe=descent)
  before, batch = _state(plan, device), jax.device_put(_batch(plan), device)
  step = jax.jit(functools.partial(train_step, recipe=plan.recipe))
  after, _ = step(before, batch)
  return jax.device_get(
    jax.tree.map(lambda x, y: x - y, after.params, before.params)
  )


def _check_gradient(system: str, dtypes: list[str]) -> list[Row]:
  expected = _negative_gradient(system, "float32", _cpu())
  rows = []
  for dtype in dtypes:
    gradient = _negative_gradient(system, dtype, jax.devices()[0])
    difference = optax.tree.norm(jax.tree.map(np.subtract, gradient, expected))
    ratio = float(difference / optax.tree.norm(expected))
    name = f"gradient of {system}, {dtype}"
    rows.append(_row(name, ratio, GRADIENT[dtype]))
  return rows


def gradients(limits: BenchmarkLimits) -> Iterator[Row]:
  """Compares gradients of systems on the accelerator with those on a CPU."""
  with exact_products(), ThreadPoolExecutor(COMPILERS) as pool:
    futures = {}
    for system in limits.checked:
      dtypes = [*GRADIENT] if system in limits.paired else ["float32"]
      futures[system] = pool.submit(_check_gradient, system, dtypes)
    for system, future in futures.items():
      try:
        yield from future.result()
      except Exception as error:  # other systems are still checked
        reason = f"{type(error).__name__}: {error}"
        yield {"check": f"gradient of {system}", "holds": reason[:200]}


def steps(limits: BenchmarkLimits) -> Iterator[Row]:
  """Compares losses on the accelerator with CPU, repeated and pmap runs."""
  no_dropout = {  # replicas draw their own
    f"model.transformer.{name}": 0.0
    for name in ("dropout", "attention_dropout", "activation_dropout")
  }
  plan = TRIAL.plan("transformer", "tiny", "float32", **no_dropout)
  with exact_products():
    losses, again = _losses_on_all_devices(plan, "jit")
    replicas, _ = _losses_on_all_devices(plan, "pmap")
    step = jax.jit(functools.partial(train_step, recipe=plan.recipe))
    batch = jax.device_put(_batch(plan), _cpu())
    expected = _losses(step, _state(plan, _cpu()), batch)
  devices = f"{jax.device_count()} device{'s' * (jax.device_count() > 1)}"
  yield _row(f"{STEPS} losses, {devices}", _relative(losses, expected), LOSS)
  yield _row("the same once more", _relative(again, losses), AGAIN)
  name = f"the same by pmap, {devices}"
  yield _row(name, _relative(replicas, losses), PMAP)


def _losses_on_all_devices(plan: Plan, parallelism: str) -> list[np.ndarray]:
  """Trains twice with the same program; returns the losses."""
  layout = Layout(parallelism, plan.config.train.mesh)
  first = jax.device_get(_state(plan, _cpu()))
  batch = layout.place_batch(_batch(plan))
  step = functools.partial(train_step, recipe=plan.recipe)
  program = layout.compile_train(step, layout.place_state(first), batch)
  return [_losses(program, layout.place_state(first), batch) for _ in range(2)]


def _losses(step: Callable[..., Any], state: Any, batch: Any) -> np.ndarray:
  losses = []
  for _ in range(STEPS):
    state, metrics = step(state, batch)
    total, count = metrics["terms"]["nll"]
    losses.append(float(np.ravel(total)[0]) / float(np.ravel(count)[0]))
  return np.array(losses)


def _relative(one: np.ndarray, other: np.ndarray) -> float:
  return float(np.max(np.abs(one - other) / np.abs(other)))


def translations(limits: BenchmarkLimits) -> Iterator[Row]:
  """Compares beam-search translations on the accelerator and on a CPU."""
  actual = best_translations()
  if jax.default_backend() == "cpu":
    expected = best_translations()
  else:  # a search uses all devices of its process
    code = (
      "import json; from benchmarks.accelerator import checks; "
      f"print({MARK!r} + json.dumps(checks.best_translations()))"
    )
    output = subprocess.run(
      [sys.executable, "-c", code],
      env={**os.environ, "JAX_PLATFORMS": "cpu"},
      check=True,
      stdout=subprocess.PIPE,
      text=True,
    ).stdout
    expected = json.loads(output.rpartition(MARK)[2])
  pairs = list(zip(actual, expected))
  other = np.mean([one != two for (one, _), (two, _) in pairs])
  yield _row("share of translations that differ", float(other), OTHER)
  same = [abs(p - q) for (one, p), (two, q) in pairs if one == two]
  yield _row("scores of translations", max(same, default=0.0), SCORE)


def best_translations() -> list[tuple[list[int], float]]:
  """Returns ids and scores of the best translations on the first device."""
  plan = TRIAL.plan("pascal", "tiny", "float32")
  with jax.default_device(_cpu()):  # the same parameters everywhere
    model = RandomModel.create(TRIAL, plan, ROWS)
  params = jax.device_put(model.params, jax.devices()[0])
  with exact_products():
    nbests = model.translator(ROWS)(params, model.examples)
  return [(list(best.ids), best.score) for best, *_ in nbests]
