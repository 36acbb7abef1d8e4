"""How fast systems train, side by side in one process.

  python -m benchmarks.train_speed --data data/multi30k_en_de \\
    [--systems transformer,pascal|all] [--seconds 60] [--size small]

The systems take turns on the same batches, so that the ratio holds on a busy
machine. One line a figure: name=value unit; tokens are real target subwords,
EOS included, and "/cpu-s" is per second of processor time.

With --steps_of SYSTEM it trains that one for ever and prints "STEP n tokens=T"
after each step, for a timer that pairs it with other programs.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from benchmarks.figures import peak_mib, processor_seconds, show
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
from jaxsyn.training.mesh import Layout, Program, set_up_jax
from jaxsyn.training.step import first_state, train_step

# Width, feed-forward, heads, layers of encoder and decoder; units of a GRU.
SIZES = {
  "tiny": (128, 256, 4, 4, 256),
  "small": (256, 1024, 4, 3, 512),
  "base": (512, 2048, 8, 6, 1000),
  "big": (1024, 4096, 16, 6, 1000),
}


def size_options(size: str) -> dict[str, Any]:
  """What one of SIZES sets, by dotted name; the dropout is everywhere."""
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
  """A system in one of SIZES.

  Args:
    system: or several, joined by "+".
    size: of SIZES.
    **options: further ones by dotted name.
  """
  config = base.get_config()
  config.update_from_flattened_dict({**size_options(size), **options})
  systems.apply(config, system)  # it may look at the number of layers
  return read_config(config)


class Trainer:
  """A plan with its state, ready to take steps on batches of its shapes.

  Attributes:
    layout: where it runs.
    step: (state, batch) -> (state, metrics), as it is traced.
    state: after the steps so far.
    parameters: how many there are.
  """

  def __init__(self, plan: Plan, shapes: Sequence[Batch]):
    """Compiles the step for each shape.

    Args:
      plan: what to train.
      shapes: a batch of each, whatever is in it.
    """
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
    """The compiled step of a batch that is in place."""
    return self.layout.compile_train(self.step, self.state, batch)

  def take(self, batch: Mapping[str, Any]) -> Any:
    """Begins a step on a batch that is in place; its metrics, to be waited for."""
    self.state, metrics = self.program(batch)(self.state, batch)
    return metrics


class OnData:
  """A system that is trained on prepared data."""

  def __init__(self, config: Config, data: str):
    records = Dataset(data).split("train")
    plan = resolve(config, records.dataset.manifest)
    self.loader = open_loader(
      records,
      plan.features,
      data=config.data,
      batch=config.batch,
      seed=config.seed,
      shard=Layout(config.train.parallelism, config.train.mesh).share,
    )
    self.trainer = Trainer(plan, self.loader.empty())
    self.batches = (one.batch for one in self.loader.batches(Position()))

  def step(self) -> int:
    """Takes one step and waits for it; returns its real target subwords."""
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
) -> dict[str, tuple[float, str]]:
  """Trains the systems in turns; the first is what the others are held to.

  Args:
    data: prepared folder.
    names: systems.
    size: of SIZES.
    tokens: padded subwords a batch, of the longer side.
    shapes: of batches, each compiled for each system before the clock starts.
    seconds: of training, all systems together.

  Returns: name -> (value, unit).
  """
  if size not in SIZES:
    raise InputError(f"no size {size!r}. {did_you_mean(size, SIZES)}")
  batches = {"batch.tokens": tokens, "batch.shapes": shapes}
  trained = {name: OnData(sized(name, size, **batches), data) for name in names}
  figures = {}
  for name, one in trained.items():
    one.step()
    parameters = one.trainer.parameters
    figures[f"parameters.{name}"] = parameters, "parameters"
  wall = dict.fromkeys(names, 0.0)
  processor, done = dict(wall), dict.fromkeys(names, 0)
  ratios: dict[str, list[float]] = {name: [] for name in names}
  end = time.perf_counter() + seconds
  while time.perf_counter() < end:
    spent = {}
    for name, one in trained.items():
      began, busy = time.perf_counter(), processor_seconds()
      done[name] += one.step()
      wall[name] += time.perf_counter() - began
      spent[name] = processor_seconds() - busy
      processor[name] += spent[name]
    for name in names:
      ratios[name].append(spent[name] / spent[names[0]])
  sampler = trained[names[0]].loader.batch_sampler
  figures["shapes"] = len(sampler.shapes), "shapes"
  figures["padding"] = 100 * sampler.padding(), "%"
  for name in names:
    figures[f"speed.{name}"] = done[name] / wall[name], "tokens/s"
    figures[f"speed_cpu.{name}"] = done[name] / processor[name], "tokens/cpu-s"
    cost = float(np.median(ratios[name]))
    figures[f"cost.{name}"] = 100 * (cost - 1), f"% over {names[0]}"
  figures["steps"] = len(ratios[names[0]]), "steps a system"
  figures["peak_memory"] = peak_mib(), "MiB"
  return figures


def _names(given: list[str]) -> list[str]:
  return list(systems.SYSTEMS) if given == ["all"] else given


def _main(values: flags.FlagValues) -> None:
  if not values.data:
    raise InputError("--data is missing: name a prepared folder.")
  set_up_jax()
  if values.steps_of:
    batches = {"batch.tokens": values.tokens, "batch.shapes": values.shapes}
    one = OnData(sized(values.steps_of, values.size, **batches), values.data)
    for number in itertools.count(1):
      print(f"STEP {number} tokens={one.step()}", flush=True)
  show(
    run(
      values.data,
      _names(values.systems),
      size=values.size,
      tokens=values.tokens,
      shapes=values.shapes,
      seconds=values.seconds,
    )
  )


if __name__ == "__main__":
  flags.DEFINE_string("data", None, "Prepared folder.")
  flags.DEFINE_list(
    "systems", ["transformer", "pascal"], "Which, in turns; or all."
  )
  flags.DEFINE_string("size", "small", "tiny, small, base or big.")
  flags.DEFINE_integer("tokens", 4096, "Padded subwords a batch.")
  flags.DEFINE_integer("shapes", 12, "Batch shapes, compiled a system each.")
  flags.DEFINE_float("seconds", 60.0, "Of training, all systems together.")
  flags.DEFINE_string("steps_of", "", "Train this system for ever.")
  cli.main(_main)
