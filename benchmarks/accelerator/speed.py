"""Measures the accelerator, and the speed of training and beam search on it.

The FLOPs of a step are those of its matrix products. MFU is their rate relative to
the chip's peak in bfloat16, also for steps in float32. XLA multiplies float32 in
TF32 on NVIDIA chips and in bfloat16 on TPUs by default.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerator.limits import BenchmarkLimits, Row
from benchmarks.figures import Timer, process_seconds, take_turns
from benchmarks.train_speed import Trainer
from jaxsyn.data.schema import PAD
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher, Example
from jaxsyn.decode.translator import Translator
from jaxsyn.plan import Plan
from jaxsyn.training.flops import chip
from jaxsyn.training.mesh import Program
from jaxsyn.training.step import first_params

BATCHES = 4  # different batches on the device, used in turns
STEPS = 8  # steps between two waits, since a wait costs a launch
CALLS = 20  # calls of a function between two waits
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


def _seconds(function: Any, *arguments: Any) -> float:
  """Returns the seconds per function call, the median of three measurements."""
  function = jax.jit(function)
  jax.block_until_ready(function(*arguments))

  def run() -> None:
    results = [function(*arguments) for _ in range(CALLS)]
    jax.block_until_ready(results[-1])

  wall, _ = take_turns([run] * 3, 0)
  return float(np.median(wall)) / CALLS


class DeviceTrainer(Trainer):
  """Trainer with random batches on the device.

  Attributes:
    compile_seconds: Time to compile the first state and the step.
    compiled: The compiled step.
    flops: FLOPs of the matrix products of a step, on all devices.
    tokens: Target subwords of a step without padding.
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
      super().__init__(plan, batches[:1])
    self.compile_seconds = timer.wall
    self._batches = [self.layout.place_batch(batch) for batch in batches]
    self.compiled = self.program(self._batches[0])
    self.flops = self.layout.flops(self.compiled)
    counts = [np.count_nonzero(b["target_id_BT"] != PAD) for b in batches]
    self.tokens = float(np.mean(counts))

  def train(self) -> None:
    """Trains for `STEPS` steps, and waits until the device has finished."""
    for i in range(STEPS):
      batch = self._batches[i % BATCHES]
      self.state, metrics = self.compiled(self.state, batch)
    jax.block_until_ready(metrics)


def _planned_gib(program: Program) -> float | str:
  """Returns the device memory that the compiler plans for a call, in GiB."""
  planned: Any = program.memory_analysis()
  if planned is None:
    return ""
  inputs = planned.argument_size_in_bytes - planned.alias_size_in_bytes
  outputs = planned.output_size_in_bytes + planned.temp_size_in_bytes
  return float(inputs + outputs) / GIB


def training(
  limits: BenchmarkLimits, size: str, dtype: str, tokens: int = 0
) -> Iterator[Row]:
  """Measures the training speed of the Transformer."""
  tokens = tokens or limits.tokens
  trainer = DeviceTrainer(
    limits, "transformer", size=size, dtype=dtype, tokens=tokens
  )
  trainer.train()
  first = process_seconds()
  wall, _ = take_turns([trainer.train], limits.seconds)
  seconds = float(np.median(wall)) / STEPS
  peak, count = chip(jax.devices()[0].device_kind), jax.device_count()
  costs = trainer.compiled.cost_analysis() or {}
  used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
  rate = trainer.flops / seconds
  yield {
    "system": "transformer",
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
    "planned GiB": _planned_gib(trainer.compiled),
  }


def batch_sizes(
  limits: BenchmarkLimits, size: str, dtype: str
) -> Iterator[Row]:
  """Measures training speed with growing batches, until memory is exhausted."""
  for tokens in limits.ladder:
    try:
      yield from training(limits, size, dtype, tokens)
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
  """Compares a system's training speed with that of the Transformer."""
  both = [
    DeviceTrainer(limits, name, size=size, dtype=dtype, tokens=limits.tokens)
    for name in ("transformer", system)
  ]
  for trainer in both:
    trainer.train()
  wall, _ = take_turns([one.train for one in both], 2 * limits.seconds)
  baseline, seconds = np.median(wall, axis=0) / STEPS
  yield {
    "system": system,
    "size": size,
    "dtype": dtype,
    "over transformer %": 100 * float(np.median(wall[:, 1] / wall[:, 0])) - 100,
    "ms a step": 1e3 * seconds,
    "transformer, ms a step": 1e3 * baseline,
    "products over transformer %": 100 * (both[1].flops / both[0].flops - 1),
    "turns": len(wall),
    "compiling s": both[1].compile_seconds,
  }


class _NoText(Vocabulary):
  """Vocabulary without subwords, for translations that consist of ids only."""

  def __init__(self) -> None:
    self.size = 0

  def decode(self, ids: Iterable[int]) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class RandomModel:
  """Model with random parameters, and random examples for it to translate.

  Such a model rarely predicts EOS, so that a translation is as long as its
  source, which is the limit.
  """

  plan: Plan
  params: Any
  examples: list[Example]

  @classmethod
  def create(
    cls, limits: BenchmarkLimits, plan: Plan, count: int
  ) -> RandomModel:
    text = limits.text()
    (batch,) = text.batches(plan.features, rows=1, count=1)
    params = jax.jit(lambda key: first_params(plan.recipe, batch, key))(
      jax.random.key(0)
    )
    pairs = text.examples()
    return cls(plan, [params], [(pairs[i % len(pairs)],) for i in range(count)])

  def translator(self, together: int) -> Translator:
    """Returns a translator that decodes batches of `together` sentences."""
    decode = dataclasses.replace(
      self.plan.config.decode,
      sentences=together,
      max_length_factor=1.0,
      max_length_offset=0,
    )
    ensemble = Ensemble((self.plan.recipe.model,))
    batcher = Batcher([sorted(self.plan.translation_features)])
    return Translator(ensemble, _NoText(), decode, batcher)


def search(
  limits: BenchmarkLimits, system: str, size: str, dtype: str
) -> Iterator[Row]:
  """Measures the speed of beam search for several batch sizes."""
  count = 2 * max(limits.together)
  model = RandomModel.create(limits, limits.plan(system, size, dtype), count)
  for together in limits.together:
    translate = model.translator(together)
    with Timer() as first:
      translate(model.params, model.examples)
    with Timer() as second:
      nbests = translate(model.params, model.examples)
    tokens = sum(len(nbest[0].ids) + 1 for nbest in nbests)
    yield {
      "system": system,
      "size": size,
      "dtype": dtype,
      "beam": model.plan.config.decode.beam,
      "sentences together": together,
      "sentences/s": count / second.wall,
      "tokens/s": tokens / second.wall,
      "tokens a sentence": tokens / count,
      "compiling s": first.wall - second.wall,
      "programs": translate.compilations,
    }
