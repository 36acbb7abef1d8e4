"""The parameters of a run to translate with: which, and what they are in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn.data.loader.collate import pad
from jaxsyn.errors import InputError
from jaxsyn.plan import Plan
from jaxsyn.scoring import selection
from jaxsyn.session import exported
from jaxsyn.session.workdir import Run
from jaxsyn.training.checkpoint_reader import CheckpointReader, Parameters
from jaxsyn.training.runtime import enough_memory
from jaxsyn.training.step import Recipe, first_params


def read(
  run: Run,
  plan: Plan,
  features: Sequence[str],
  *,
  checkpoint: str = "",
  on_fallback: Callable[[str], None] | None = None,
  option: str = "--checkpoint",
) -> Parameters:
  """The parameters of a checkpoint.

  Args:
    run: whose.
    plan: of the run.
    features: of the source side that the model reads.
    checkpoint: "best", "last" or a step; "": as config.decode.checkpoint says,
      or the mean that config.train.average asks for.
    on_fallback: called with a warning for each corrupt checkpoint for which
      another one stands in; None: a corrupt checkpoint is an error.
    option: name of the option that chooses a checkpoint, for the error message.

  Raises:
    InputError: no such checkpoint, none that is whole, a corrupt one without
      `on_fallback`, or too little memory.
  """
  parameters = _read_checkpoint(run, plan, features, checkpoint)
  if parameters.score is not None:
    _check_metric(parameters.score["selection"], run, parameters.steps[-1])
  for corrupt in parameters.corrupt:
    if on_fallback is None:
      raise InputError(
        f"{run.workdir}: {corrupt}. Restore it from a copy, or choose an intact "
        f"checkpoint: {option}={parameters.steps[-1]}."
      )
    on_fallback(f"{corrupt}; {title(parameters, checkpoint)} is used instead")
  return parameters


def _check_metric(metric: str, run: Run, step: int) -> None:
  """Raises InputError unless best parameters were selected by a known metric."""
  if metric not in selection.SELECTIONS:
    raise InputError(
      f"{run.workdir}: the best checkpoint, of step {step}, was selected by "
      f"{metric[:80]!r}, which is no metric of this version. Restore it from "
      "a copy, or choose another checkpoint."
    )


def _read_checkpoint(
  run: Run, plan: Plan, features: Sequence[str], checkpoint: str
) -> Parameters:
  """The parameters of a checkpoint, or those that stand in for corrupt ones."""
  abstract = shapes(plan.recipe, features)
  if exported.is_exported(run.workdir):
    return exported.read(run.workdir, abstract, checkpoint)
  train, reader = plan.config.train, CheckpointReader(run.workdir)
  with enough_memory(
    f"reading the parameters of {run.workdir}",
    "the number of other programs that run here",
  ):
    if not checkpoint and train.average > 1:
      return reader.average_params(train.average, abstract, train.ema > 0)
    which = checkpoint or plan.config.decode.checkpoint
    return reader.restore_params(which, abstract, train.ema > 0)


def shapes(recipe: Recipe, features: Sequence[str]) -> Any:
  """Shapes and types of a model's parameters.

  Args:
    recipe: of the model.
    features: of the source side that it reads.
  """
  batch = pad([], features, subwords=4, words=4, rows=1)
  batch["target_id_BT"] = np.zeros((1, 4), np.int32)
  return jax.eval_shape(lambda: first_params(recipe, batch, jax.random.key(0)))


def title(parameters: Parameters, requested: str) -> str:
  """What was read, in words.

  Args:
    parameters: of `read`.
    requested: "best", "last" or a step.
  """
  if parameters.title:
    return parameters.title
  *earlier, step = parameters.steps
  if earlier:
    return (
      "the mean of the checkpoints of steps "
      f"{', '.join(map(str, earlier))} and {step}"
    )
  if parameters.score is not None:
    return (
      "the best checkpoint by validation "
      f"{selection.title(parameters.score)}: {parameters.score['score']:.2f} "
      f"at step {step}"
    )
  # Where the best was asked for: before the first validation there is none.
  if requested in ("best", "last") and not parameters.corrupt:
    return f"the last checkpoint, of step {step}"
  return f"the checkpoint of step {step}"
