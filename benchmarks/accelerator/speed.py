"""How fast the chip multiplies, and how fast systems train on it.

A step's FLOPs are those of its matrix products (`benchmarks.products`), and MFU
is their rate over the chip's peak in bfloat16, whatever the step computes in.
float32 is as XLA multiplies it by default: TF32 on NVIDIA, bfloat16 on a TPU.
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
from benchmarks.figures import process_seconds
from benchmarks.train_speed import Trainer
from jaxsyn.data.schema import PAD
from jaxsyn.training.chips import chip
from jaxsyn.training.mesh import Program

BATCHES = 4  # different ones, which lie on the device and take turns
TOGETHER = 8  # steps between two waits: a wait costs a launch
GIB = 2**30


def device(limits: BenchmarkLimits) -> Iterator[Row]:
  """What the machine is, and what the chip reaches on plain work."""
  one, known = jax.devices()[0], chip(jax.devices()[0].device_kind)
  versions = ("jax", "jaxlib", "flax", "optax", "numpy")
  facts = {
    "device": f"{one.device_kind} ({jax.device_count()} of {one.platform})",
    "python": platform.python_version(),
    **{name: importlib.metadata.version(name) for name in versions},
  }
  for name, value in facts.items():
    yield {"what": name, "figure": value}
  if memory := (one.memory_stats() or {}).get("bytes_limit"):
    yield {"what": "memory, GiB", "figure": memory / GIB}
  for dtype in ("bfloat16", "float32"):
    square = jax.random.normal(jax.random.key(0), (limits.side,) * 2, dtype)
    seconds = _seconds(lambda x, y: x @ y / limits.side, square, square)
    rate = 2 * limits.side**3 / seconds
    yield {
      "what": f"products in {dtype}, TFLOP/s",
      "figure": rate / 1e12,
      "of the data sheet %": 100 * rate / known.flops if known else "",
    }
  rate = 2 * 8 * square.nbytes / _seconds(jnp.negative, jnp.tile(square, 8))
  yield {
    "what": "copying, GB/s read and written",
    "figure": rate / 1e9,
    "of the data sheet %": 100 * rate / known.bandwidth if known else "",
  }


def _seconds(function: Any, *arguments: Any, calls: int = 20) -> float:
  """Of one call, the median of three times so many, compiled before."""
  function = jax.jit(function)
  jax.block_until_ready(function(*arguments))
  spent = []
  for _ in range(3):
    began = time.perf_counter()
    results = [function(*arguments) for _ in range(calls)]
    jax.block_until_ready(results[-1])
    spent.append((time.perf_counter() - began) / calls)
  return float(np.median(spent))


class Trained:
  """A system on batches that lie on the device.

  Attributes:
    compiling: seconds until the step was there, that of the state included.
    flops: of the matrix products of a step, on all devices.
    tokens: real target subwords of a step.
    program: the compiled step.
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
    batches = limits.text().batches(plan, rows, BATCHES)
    began = time.perf_counter()
    self._trainer = Trainer(plan, batches[:1])
    self.compiling = time.perf_counter() - began
    self._batches = [self._trainer.layout.place_batch(b) for b in batches]
    self.program = self._trainer.program(self._batches[0])
    self.flops = self._trainer.layout.flops(self.program)
    self.tokens = float(
      np.mean([np.count_nonzero(b["target_id_BT"] != PAD) for b in batches])
    )

  def steps(self) -> float:
    """Takes TOGETHER steps; seconds of one."""
    trainer, began = self._trainer, time.perf_counter()
    for number in range(TOGETHER):
      batch = self._batches[number % BATCHES]
      trainer.state, metrics = self.program(trainer.state, batch)
    jax.block_until_ready(metrics)
    return (time.perf_counter() - began) / TOGETHER


def _planned_gib(program: Program) -> float | str:
  """Memory of a call on one device, as the compiler has planned it."""
  planned: Any = program.memory_analysis()
  if planned is None:
    return ""
  given = planned.argument_size_in_bytes - planned.alias_size_in_bytes
  made = planned.output_size_in_bytes + planned.temp_size_in_bytes
  return float(given + made) / GIB


def _row(
  limits: BenchmarkLimits, system: str, *, size: str, dtype: str, tokens: int
) -> Row:
  trained = Trained(limits, system, size=size, dtype=dtype, tokens=tokens)
  trained.steps()
  first = process_seconds()
  spent: list[float] = []
  end = time.perf_counter() + limits.seconds
  while not spent or time.perf_counter() < end:
    spent.append(trained.steps())
  seconds = float(np.median(spent))
  known, count = chip(jax.devices()[0].device_kind), jax.device_count()
  costs = trained.program.cost_analysis() or {}
  used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
  rate = trained.flops / seconds
  return {
    "system": system,
    "size": size,
    "dtype": dtype,
    "tokens a batch": tokens,
    "tokens/s": trained.tokens / seconds,
    "MFU %": 100 * rate / (count * known.flops) if known else "",
    "TFLOP/s": rate / 1e12,
    "ms a step": 1e3 * seconds,
    "TFLOP a step": trained.flops / 1e12,
    "by XLA's count": costs.get("flops", 0.0) * count / 1e12,
    "compiling s": trained.compiling,
    "9 steps after s": first,
    "peak GiB": used / GIB if used else "",
    "planned GiB": _planned_gib(trained.program),
  }


def training(limits: BenchmarkLimits, size: str, dtype: str) -> Iterator[Row]:
  """The Transformer of a size."""
  yield _row(
    limits, "transformer", size=size, dtype=dtype, tokens=limits.tokens
  )


def batch_sizes(
  limits: BenchmarkLimits, size: str, dtype: str
) -> Iterator[Row]:
  """Batches twice as large each time, until the memory does not do."""
  for tokens in limits.ladder:
    try:
      yield _row(limits, "transformer", size=size, dtype=dtype, tokens=tokens)
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
  """A system in turns with the Transformer, on sentences of one length."""
  both = [
    Trained(limits, name, size=size, dtype=dtype, tokens=limits.tokens)
    for name in ("transformer", system)
  ]
  for trained in both:
    trained.steps()
  turns: list[list[float]] = []
  end = time.perf_counter() + 2 * limits.seconds
  while not turns or time.perf_counter() < end:
    turns.append([trained.steps() for trained in both])
  plain, own = np.median(turns, axis=0)
  ratio = float(np.median([after / before for before, after in turns]))
  yield {
    "system": system,
    "size": size,
    "dtype": dtype,
    "over transformer %": 100 * (ratio - 1),
    "ms a step": 1e3 * own,
    "transformer, ms a step": 1e3 * plain,
    "products over transformer %": 100 * (both[1].flops / both[0].flops - 1),
    "turns": len(turns),
    "compiling s": both[1].compiling,
  }
