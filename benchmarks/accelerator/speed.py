"""Measures the accelerator's speed and the training speed of systems.

The FLOPs of a step are those of its matrix products. MFU is their rate relative to
the chip's peak in bfloat16, also for steps in float32. XLA multiplies float32 in
TF32 on NVIDIA chips and in bfloat16 on TPUs by default.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerator.limits import BenchmarkLimits, Row
from benchmarks.figures import Timer, process_seconds
from benchmarks.train_speed import Trainer
from jaxsyn.data.schema import PAD
from jaxsyn.training.flops import chip
from jaxsyn.training.mesh import Program

BATCHES = 4  # different batches on the device, used in turns
STEPS = 8  # steps between two waits, since a wait costs a launch
GIB = 2**30


def device(limits: BenchmarkLimits) -> Iterator[Row]:
  """Describes the device, and times matrix products and memory copies."""
  first = jax.devices()[0]
  peak = chip(first.device_kind)
  facts = {
    "device": f"{first.device_kind} ({jax.device_count()} of {first.platform})",
    "python": platform.python_version(),
  }
  for name in ("jax", "jaxlib", "flax", "optax", "numpy"):
    facts[name] = importlib.metadata.version(name)
  for name, value in facts.items():
    yield {"what": name, "figure": value}
  if memory := (first.memory_stats() or {}).get("bytes_limit"):
    yield {"what": "memory, GiB", "figure": memory / GIB}
  for dtype in ("bfloat16", "float32"):
    square = jax.random.normal(jax.random.key(0), (limits.side,) * 2, dtype)
    seconds = _seconds(lambda x, y: x @ y / limits.side, square, square)
    rate = 2 * limits.side**3 / seconds
    yield {
      "what": f"products in {dtype}, TFLOP/s",
      "figure": rate / 1e12,
      "of the data sheet %": 100 * rate / peak.flops if peak else "",
    }
  rate = 2 * 8 * square.nbytes / _seconds(jnp.negative, jnp.tile(square, 8))
  yield {
    "what": "copying, GB/s read and written",
    "figure": rate / 1e9,
    "of the data sheet %": 100 * rate / peak.bandwidth if peak else "",
  }


def _seconds(function: Any, *arguments: Any, calls: int = 20) -> float:
  """Returns the seconds per function call, the median of three measurements."""
  function = jax.jit(function)
  jax.block_until_ready(function(*arguments))
  turns = []
  for _ in range(3):
    with Timer() as timer:
      results = [function(*arguments) for _ in range(calls)]
      jax.block_until_ready(results[-1])
    turns.append(timer.wall / calls)
  return float(np.median(turns))


class DeviceTrainer:
  """Compiled training step, with batches on the device.

  Attributes:
    compile_seconds: Time to compile the first state and the step.
    flops: FLOPs of the matrix products of a step, on all devices.
    tokens: Target subwords of a step without padding.
    program: The compiled step.
  """

  def __init__(
    self,
    limits: BenchmarkLimits,
    system: str,
    *,
    size: str,
    dtype: str,
    tokens: int,
  ):
    devices = jax.device_count()
    rows = -(-tokens // limits.longest // devices) * devices
    plan = limits.plan(system, size, dtype)
    batches = limits.text().batches(plan.features, rows, BATCHES)
    with Timer() as timer:
      self._trainer = Trainer(plan, batches[:1])
    self.compile_seconds = timer.wall
    layout = self._trainer.layout
    self._batches = [layout.place_batch(batch) for batch in batches]
    self.program = self._trainer.program(self._batches[0])
    self.flops = layout.flops(self.program)
    counts = [np.count_nonzero(b["target_id_BT"] != PAD) for b in batches]
    self.tokens = float(np.mean(counts))

  def steps(self) -> float:
    """Returns the seconds per training step, averaged over `STEPS` steps."""
    trainer = self._trainer
    with Timer() as timer:
      for i in range(STEPS):
        batch = self._batches[i % BATCHES]
        trainer.state, metrics = self.program(trainer.state, batch)
      jax.block_until_ready(metrics)
    return timer.wall / STEPS


def _planned_gib(program: Program) -> float | str:
  """Returns the device memory that the compiler plans for a call, in GiB."""
  planned: Any = program.memory_analysis()
  if planned is None:
    return ""
  inputs = planned.argument_size_in_bytes - planned.alias_size_in_bytes
  outputs = planned.output_size_in_bytes + planned.temp_size_in_bytes
  return float(inputs + outputs) / GIB


def _train(
  limits: BenchmarkLimits, system: str, *, size: str, dtype: str, tokens: int
) -> Row:
  trainer = DeviceTrainer(limits, system, size=size, dtype=dtype, tokens=tokens)
  trainer.steps()
  first = process_seconds()
  turns: list[float] = []
  end = time.perf_counter() + limits.seconds
  while not turns or time.perf_counter() < end:
    turns.append(trainer.steps())
  seconds = float(np.median(turns))
  peak, count = chip(jax.devices()[0].device_kind), jax.device_count()
  costs = trainer.program.cost_analysis() or {}
  used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
  rate = trainer.flops / seconds
  return {
    "system": system,
    "size": size,
    "dtype": dtype,
    "tokens a batch": tokens,
    "tokens/s": trainer.tokens / seconds,
    "MFU %": 100 * rate / (count * peak.flops) if peak else "",
    "TFLOP/s": rate / 1e12,
    "ms a step": 1e3 * seconds,
    "TFLOP a step": trainer.flops / 1e12,
    "by XLA's count": costs.get("flops", 0.0) * count / 1e12,
    "compiling s": trainer.compile_seconds,
    f"{STEPS + 1} steps after s": first,
    "peak GiB": used / GIB if used else "",
    "planned GiB": _planned_gib(trainer.program),
  }


def training(limits: BenchmarkLimits, size: str, dtype: str) -> Iterator[Row]:
  """Measures the training speed of the Transformer."""
  tokens = limits.tokens
  yield _train(limits, "transformer", size=size, dtype=dtype, tokens=tokens)


def batch_sizes(
  limits: BenchmarkLimits, size: str, dtype: str
) -> Iterator[Row]:
  """Measures training speed with growing batches, until memory is exhausted."""
  for tokens in limits.ladder:
    try:
      yield _train(limits, "transformer", size=size, dtype=dtype, tokens=tokens)
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" not in str(error):
        raise
      yield {
        "system": "transformer",
        "size": size,
        "dtype": dtype,
        "tokens a batch": tokens,
        "tokens/s": "no memory",
      }
      return


def pair(
  limits: BenchmarkLimits, system: str, size: str, dtype: str
) -> Iterator[Row]:
  """Compares a system with the Transformer by timing them in turns."""
  both = [
    DeviceTrainer(limits, name, size=size, dtype=dtype, tokens=limits.tokens)
    for name in ("transformer", system)
  ]
  for trainer in both:
    trainer.steps()
  turns: list[list[float]] = []
  end = time.perf_counter() + 2 * limits.seconds
  while not turns or time.perf_counter() < end:
    turns.append([trainer.steps() for trainer in both])
  baseline, seconds = np.median(turns, axis=0)
  ratio = float(np.median([after / before for before, after in turns]))
  yield {
    "system": system,
    "size": size,
    "dtype": dtype,
    "over transformer %": 100 * (ratio - 1),
    "ms a step": 1e3 * seconds,
    "transformer, ms a step": 1e3 * baseline,
    "products over transformer %": 100 * (both[1].flops / both[0].flops - 1),
    "turns": len(turns),
    "compiling s": both[1].compile_seconds,
  }
