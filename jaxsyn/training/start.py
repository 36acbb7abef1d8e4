"""What a run begins from: its parts, and its state.

Before this file: `step`, `mesh`, `checkpoint`. After it: `programs`, `loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from jaxsyn.data.loader.collate import Batch
from jaxsyn.data.loader.loader import DataLoader
from jaxsyn.training.checkpoint_writer import CheckpointWriter
from jaxsyn.training.log import Log, Pictures, Sample
from jaxsyn.training.mesh import Layout
from jaxsyn.training.options import TrainingConfig
from jaxsyn.training.profile import Profile
from jaxsyn.training.step import Params, Recipe, TrainState, first_state


class ValidationScores(NamedTuple):
  """What parameters do on the validation split.

  Attributes:
    values: for the log, by name: among them the score of config.train.selection
      and "log_likelihood".
    rank: what is compared to find the best: the larger, the first number first.
    samples: some translations, if there are any.
    pictures: of what the parameters look at, by name.
  """

  values: dict[str, Any]
  rank: Sequence[float]
  samples: Sequence[Sample] = ()
  pictures: Pictures = ()


class Validation(Protocol):
  """What the loop asks about parameters."""

  def compile(self, params: Params) -> None:
    """Makes the programs of a call, from shapes (and shardings) alone.

    Called by a thread; no call comes before it has returned.
    """

  def __call__(self, params: Params) -> ValidationScores: ...


@dataclasses.dataclass(frozen=True)
class Training:
  """What a run is made of.

  Attributes:
    config: of the run.
    recipe: of the step.
    layout: where it runs.
    loader: Batches to train on.
    checkpoints: of the run.
    validate: says what parameters score, and how they rank.
    open_log: the log, from the step that is gone on from.
    profile: of some steps.
    begin: what becomes of a fresh state before its first step; None: nothing.
  """

  config: TrainingConfig
  recipe: Recipe
  layout: Layout
  loader: DataLoader
  checkpoints: CheckpointWriter
  validate: Validation
  open_log: Callable[[int], Log]
  profile: Profile
  begin: Callable[[TrainState], TrainState] | None = None


def abstract_state(recipe: Recipe, layout: Layout, batch: Batch) -> TrainState:
  """Shapes, types and shardings of a state, as checkpoints hold it."""
  state = jax.eval_shape(lambda: first_state(recipe, batch, 0))
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    state,
    layout.storage(state),
  )
