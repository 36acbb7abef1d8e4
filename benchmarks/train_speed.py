"""Measures the training speed of systems that take turns in one process.

  python -m benchmarks.train_speed --data data/multi30k_en_de \\
    [--systems transformer,pascal|all] [--seconds 60] [--size small]

The systems take turns on the same batches, so that ratios between them hold on a
busy machine. Tokens are target subwords with EOS, without padding. "/cpu-s" is
per second of processor time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from benchmarks.figures import Figures, Timer, peak_mib, show
from jaxsyn import cli
from jaxsyn.config import Config, read_config
from jaxsyn.configs import base, systems
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.collate import Batch
from jaxsyn.data.loader.loader import open_loader
from jaxsyn.data.schema import PAD
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.plan import Plan, resolve
from jaxsyn.training.mesh import Layout, Program
from jaxsyn.training.runtime import set_up_jax
from jaxsyn.training.step import first_state, train_step

# Width, feed-forward width, attention heads, encoder and decoder layers, GRU units.
SIZES = {
  "tiny": (128, 256, 4, 4, 256),
  "small": (256, 1024, 4, 3, 512),
  "base": (512, 2048, 8, 6, 1000),
  "big": (1024, 4096, 16, 6, 1000),
}


def size_options(size: str) -> dict[str, Any]:
  """Returns the config options of a model size, by dotted name."""
  width, feed_forward, heads, layers, hidden = SIZES[size]
  return {
    "model.width": width,
    "model.transformer.feed_forward": feed_forward,
    "model.transformer.heads": heads,
    "model.transformer.encoder_layers": layers,
    "model.transformer.decoder_layers": layers,
    "model.transformer.dropout": 0.1,
    "model.transformer.attention_dropout": 0.1,
    "model.transformer.activation_dropout": 0.1,
    "model.gru.hidden": hidden,
  }


def sized(system: str, size: str, **options: Any) -> Config:
  """Returns the config of a system (or several, "a+b") in a model size."""
  config = base.get_config()
  config.update_from_flattened_dict({**size_options(size), **options})
  systems.apply(config, system)  # may read the number of layers
  return read_config(config)


class Trainer:
  """Model with train state and compiled training steps.

  Attributes:
    layout: Devices of the training.
    step: Function (state, batch) -> (state, metrics), before compilation.
    state: Training state after the steps so far.
    parameters: Number of parameters.
  """

  def __init__(self, plan: Plan, shapes: Sequence[Batch]):
    """Compiles the training step for the shape of each given batch."""
    config = plan.config
    self.layout = Layout(config.train.parallelism, config.train.mesh)
    self.step = functools.partial(train_step, recipe=plan.recipe)
    first = functools.partial(first_state, plan.recipe)
    state = jax.jit(first)(shapes[0], np.uint32(config.seed))
    self.parameters = sum(x.size for x in jax.tree.leaves(state.params))
    self.state = self.layout.place_state(state)
    for batch in shapes:
      self.program(self.layout.place_batch(batch))

  def program(self, batch: Mapping[str, Any]) -> Program:
    """Returns the compiled training step for the shape of a batch."""
    return self.layout.compile_train(self.step, self.state, batch)

  def take(self, batch: Mapping[str, Any]) -> Any:
    """Starts a training step on a device batch; returns the step's metrics."""
    self.state, metrics = self.program(batch)(self.state, batch)
    return metrics


class DatasetTrainer:
  """Trainer that reads the batches of a dataset."""

  def __init__(self, config: Config, data: str):
    records = Dataset(data).split("train")
    plan = resolve(config, records.dataset.manifest)
    self.loader = open_loader(
      records,
      plan.features,
      data=config.data,
      batch=config.batch,
      seed=config.seed,
      shard=Layout(config.train.parallelism, config.train.mesh).host_shard,
    )
    self.trainer = Trainer(plan, self.loader.empty())
    self.batches = (one.batch for one in self.loader.batches(Position()))

  def step(self) -> int:
    """Trains on the next batch; returns the number of target subwords."""
    batch = next(self.batches)
    placed = self.trainer.layout.place_batch(batch)
    jax.block_until_ready(self.trainer.take(placed))
    return int(np.count_nonzero(batch["target_id_BT"] != PAD))


def run(
  data: str,
  names: list[str],
  *,
  size: str,
  tokens: int,
  shapes: int,
  seconds: float,
) -> Figures:
  """Measures the training speed of systems that take turns.

  Args:
    data: Dataset directory.
    names: Systems; the others are compared with the first.
    size: Name in SIZES.
    tokens: Padded subwords in a batch, of the longer side.
    shapes: Number of batch shapes, compiled for each system before the timing.
    seconds: Training time of all systems together.
  """
  if size not in SIZES:
    raise InputError(f"no size {size!r}. {did_you_mean(size, SIZES)}")
  options = {"batch.tokens": tokens, "batch.shapes": shapes}
  trainers = {
    name: DatasetTrainer(sized(name, size, **options), data) for name in names
  }
  figures: dict[str, tuple[float, str]] = {}
  for name, one in trainers.items():
    one.step()
    figures[f"parameters.{name}"] = one.trainer.parameters, "parameters"
  turns: dict[str, list[Timer]] = {name: [] for name in names}
  done = dict.fromkeys(names, 0)
  end = time.perf_counter() + seconds
  while time.perf_counter() < end:
    for name, one in trainers.items():
      with Timer() as timer:
        done[name] += one.step()
      turns[name].append(timer)
  sampler = trainers[names[0]].loader.batch_sampler
  figures["shapes"] = len(sampler.shapes), "shapes"
  figures["padding"] = 100 * sampler.padding(), "%"
  for name in names:
    wall = sum(turn.wall for turn in turns[name])
    cpu = sum(turn.cpu for turn in turns[name])
    pairs = zip(turns[name], turns[names[0]])
    ratio = float(np.median([turn.cpu / first.cpu for turn, first in pairs]))
    figures[f"speed.{name}"] = done[name] / wall, "tokens/s"
    figures[f"speed_cpu.{name}"] = done[name] / cpu, "tokens/cpu-s"
    figures[f"cost.{name}"] = 100 * (ratio - 1), f"% over {names[0]}"
  figures["steps"] = len(turns[names[0]]), "steps a system"
  figures["peak_memory"] = peak_mib(), "MiB"
  return figures


def _main(values: flags.FlagValues) -> None:
  if not values.data:
    raise InputError("--data is missing: name a prepared folder.")
  set_up_jax()
  names = values.systems
  figures = run(
    values.data,
    list(systems.SYSTEMS) if names == ["all"] else names,
    size=values.size,
    tokens=values.tokens,
    shapes=values.shapes,
    seconds=values.seconds,
  )
  show(figures)


if __name__ == "__main__":
  flags.DEFINE_string("data", None, "Dataset directory.")
  flags.DEFINE_list("systems", ["transformer", "pascal"], "Systems, or all.")
  flags.DEFINE_string("size", "small", "Model size: tiny, small, base or big.")
  flags.DEFINE_integer("tokens", 4096, "Padded subwords in a batch.")
  flags.DEFINE_integer("shapes", 12, "Number of batch shapes.")
  flags.DEFINE_float("seconds", 60.0, "Training time of all systems together.")
  cli.main(_main)
