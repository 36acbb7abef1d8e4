"""What a run begins from: its parts, its state, its compiled steps.

Before this file: `step`, `mesh`, `checkpoint`. After it: `loop`.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsyn.config import Config
from jaxsyn.data.loader.columns import Batch
from jaxsyn.data.loader.split import Split
from jaxsyn.training.checkpoint import Checkpoints, Progress
from jaxsyn.training.log import Log
from jaxsyn.training.mesh import Layout, Program
from jaxsyn.training.step import (
  Params,
  Recipe,
  TrainState,
  first_state,
  train_step,
)

# Of each declared shape: the compiled step, and its FLOPs.
Programs = dict[tuple[int, ...], tuple[Program, float]]


class ValidationScores(NamedTuple):
  """What parameters do on the validation split.

  Attributes:
    values: for the log, by name: among them the score of config.train.selection
      and "log_likelihood".
    rank: what is compared to find the best: the larger, the first number first.
  """

  values: dict[str, Any]
  rank: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Training:
  """What a run is made of.

  Attributes:
    config: of the run.
    recipe: of the step.
    layout: where it runs.
    split: to train on.
    checkpoints: of the run.
    validate: parameters -> what they score, and how they rank.
    open_log: the log, from the step that is gone on from.
  """

  config: Config
  recipe: Recipe
  layout: Layout
  split: Split
  checkpoints: Checkpoints
  validate: Callable[[Params], ValidationScores]
  open_log: Callable[[int], Log]


def restored(training: Training) -> tuple[TrainState, Progress]:
  """The state to go on from, in place; a fresh one if there is none."""
  layout, batch = training.layout, training.split.empty()[0]
  abstract = abstract_state(training.recipe, layout, batch)
  kept = training.checkpoints.restore(abstract)
  if kept is None:
    make = functools.partial(
      first_state, training.recipe, seed=training.config.seed
    )
    return layout.place_state(jax.jit(make)(batch)), Progress()
  _, state, progress = kept
  return layout.place_state(state), progress


def abstract_state(recipe: Recipe, layout: Layout, batch: Batch) -> TrainState:
  """Shapes, types and shardings of a state, as checkpoints hold it."""
  state = jax.eval_shape(lambda: first_state(recipe, batch, 0))
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    state,
    layout.storage(state),
  )


def compiled(training: Training, state: TrainState, log: Log) -> Programs:
  """Compiles the step for every shape before the first one."""
  layout = training.layout
  batches = [layout.place_batch(batch) for batch in training.split.empty()]
  step = functools.partial(train_step, recipe=training.recipe)
  began = time.monotonic()
  log.say(f"compiling the step for {len(batches)} shapes")
  with ThreadPoolExecutor(2) as pool:
    programs = list(
      pool.map(lambda batch: layout.compile_train(step, state, batch), batches)
    )
  # Saving copies the state on a CPU; its small programs belong to the warm-up.
  jax.block_until_ready(unshared(layout.take_state(state)))
  log.say(f"compiled in {time.monotonic() - began:.0f} s")
  return {
    sizes(batch): (program, _flops(program))
    for batch, program in zip(batches, programs)
  }


def _flops(program: Program) -> float:
  """Of one call on all devices, as XLA counts them; 0 where it does not."""
  costs = program.cost_analysis() or {}
  return float(costs.get("flops", 0.0)) * jax.device_count()


def sizes(batch: dict[str, Any]) -> tuple[int, ...]:
  """What tells the declared shapes of batches apart."""
  return batch["source_id_BS"].shape + batch["target_id_BT"].shape


def unshared(tree: Any) -> Any:
  """Arrays that no later step reuses, for Orbax to write in the background.

  On a CPU its view of an array may be the buffer itself, which the next step,
  to which the state is donated, is free to overwrite.
  """
  if jax.default_backend() != "cpu":
    return tree
  return jax.tree.map(jnp.copy, tree)
