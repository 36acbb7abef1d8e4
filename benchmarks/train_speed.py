"""Measures the training speed of systems, alternating after every step.

  python -m benchmarks.train_speed --data data/multi30k_en_de \\
    [--systems transformer,pascal|all] [--seconds 60] [--size small] \\
    [--memory_gib 1,0.002]

The systems are trained on the same batches, and the others are compared with the
first. Tokens are target subwords with EOS, without padding. "/cpu-s" is per second
of processor time. With several values of --memory_gib, each system is trained with
each: with little memory, a thread reads shuffling windows beside the steps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from benchmarks.figures import Figures, peak_mib, show, take_turns
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


def sized(system: str, size: str, **options: Any) -> Config:
  """Returns the config of one or several systems ("a+b") at a model size."""
  width, feed_forward, heads, layers, hidden = SIZES[size]
  config = base.get_config()
  config.model.width, config.model.gru.hidden = width, hidden
  config.model.transformer.update(
    feed_forward=feed_forward,
    heads=heads,
    encoder_layers=layers,
    decoder_layers=layers,
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
  )
  config.update_from_flattened_dict(options)
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
    """Returns the compiled training step for the shape of a device batch."""
    return self.layout.compile_train(self.step, self.state, batch)


class DatasetTrainer(Trainer):
  """Trainer that reads the batches of a dataset.

  Attributes:
    loader: Loader of the training split.
    tokens: Number of target subwords so far.
  """

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
    super().__init__(plan, self.loader.empty())
    self._batches = (one.batch for one in self.loader.batches(Position()))
    self.tokens = 0

  def train(self) -> None:
    """Trains on the next batch, and waits until the step is finished."""
    batch = next(self._batches)
    placed = self.layout.place_batch(batch)
    self.state, metrics = self.program(placed)(self.state, placed)
    jax.block_until_ready(metrics)
    self.tokens += int(np.count_nonzero(batch["target_id_BT"] != PAD))


def run(values: flags.FlagValues) -> Figures:
  """Trains the systems in turns for --seconds; returns their speeds."""
  if values.size not in SIZES:
    raise InputError(
      f"no size {values.size!r}. {did_you_mean(values.size, SIZES)}"
    )
  names = values.systems
  names = list(systems.SYSTEMS) if names == ["all"] else names
  options = {"batch.tokens": values.tokens, "batch.shapes": values.shapes}
  memory = [float(gib) for gib in values.memory_gib]
  pairs = [*itertools.product(names, memory)]
  trainers = [
    DatasetTrainer(
      sized(name, values.size, **options, **{"batch.memory_gib": gib}),
      values.data,
    )
    for name, gib in pairs
  ]
  if len(memory) > 1:
    names = [f"{name}_in_{gib:g}_gib" for name, gib in pairs]
  for trainer in trainers:  # the first step is slower
    trainer.train()
    trainer.tokens = 0
  wall, cpu = take_turns([one.train for one in trainers], values.seconds)
  cost = 100 * np.median(cpu / cpu[:, :1], axis=0) - 100
  sampler = trainers[0].loader.batch_sampler
  figures: dict[str, tuple[float, str]] = {
    f"parameters.{name}": (one.parameters, "parameters")
    for name, one in zip(names, trainers)
  }
  figures["shapes"] = len(sampler.shapes), "shapes"
  figures["padding"] = 100 * sampler.padding(), "%"
  for i, (name, one) in enumerate(zip(names, trainers)):
    figures[f"speed.{name}"] = one.tokens / wall[:, i].sum(), "tokens/s"
    figures[f"speed_cpu.{name}"] = one.tokens / cpu[:, i].sum(), "tokens/cpu-s"
    figures[f"cost.{name}"] = float(cost[i]), f"% over {names[0]}"
  figures["steps"] = len(wall), "steps a system"
  figures["peak_memory"] = peak_mib(), "MiB"
  return figures


def _main(values: flags.FlagValues) -> None:
  if not values.data:
    raise InputError("--data is missing: name a prepared folder.")
  set_up_jax()
  show(run(values))


if __name__ == "__main__":
  flags.DEFINE_string("data", None, "Dataset directory.")
  flags.DEFINE_list(
    "systems", ["transformer", "pascal"], "Systems to train, or all."
  )
  flags.DEFINE_string("size", "small", "Model size: tiny, small, base or big.")
  flags.DEFINE_integer("tokens", 4096, "Padded subwords in a batch.")
  flags.DEFINE_integer("shapes", 12, "Number of batch shapes.")
  flags.DEFINE_list("memory_gib", ["1"], "Values of config.batch.memory_gib.")
  flags.DEFINE_float(
    "seconds", 60.0, "Seconds of training, all systems together."
  )
  cli.main(_main)
