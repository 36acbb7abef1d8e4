"""Loads the parameters of a run from its best, last or another checkpoint."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn.data.loader.collate import pad
from jaxsyn.errors import InputError
from jaxsyn.scoring import selection
from jaxsyn.session import exported
from jaxsyn.session.workdir import Run
from jaxsyn.training.checkpoint_reader import CheckpointReader, Parameters
from jaxsyn.training.runtime import enough_memory
from jaxsyn.training.step import Recipe, first_params


def read(
  run: Run,
  checkpoint: str = "",
  *,
  reject_corrupt: bool = False,
  option: str = "--checkpoint",
) -> tuple[Parameters, tuple[str, ...]]:
  """Reads the parameters of a checkpoint.

  Every command opens checkpoints here. Another checkpoint replaces a corrupt one
  with a warning, which is printed to standard error.

  Args:
    run: Opened run.
    checkpoint: "best", "last" or a step; "": config.decode.checkpoint, or the
      mean of config.train.average checkpoints.
    reject_corrupt: Whether a corrupt checkpoint is an error.
    option: Name of the option that selects a checkpoint, for messages.

  Returns:
    The parameters, whose title describes them, and the warnings.

  Raises:
    InputError: There is no such checkpoint, no intact one, or too little memory.
  """
  parameters = _read_checkpoint(run, checkpoint)
  step = parameters.steps[-1]
  if parameters.score is not None:
    metric = parameters.score["selection"]
    if metric not in selection.SELECTIONS:
      raise InputError(
        f"{run.workdir}: the best checkpoint, of step {step}, was selected by "
        f"{metric[:80]!r}, which is no metric of this version. Restore it from "
        "a copy, or choose another checkpoint."
      )
  requested = checkpoint or run.config.decode.checkpoint
  title = parameters.title or _title(parameters, requested)
  if parameters.corrupt and reject_corrupt:
    raise InputError(
      f"{run.workdir}: {parameters.corrupt[0]}. Restore it from a copy, or "
      f"choose an intact checkpoint: {option}={step}."
    )
  warnings = [f"{one}; {title} is used instead" for one in parameters.corrupt]
  is_single = len(parameters.steps) == 1 and not parameters.title
  is_fallback = parameters.score is None and not warnings
  if requested == "best" and is_single and is_fallback:
    warnings.append(
      f"no checkpoint was chosen by a validation yet: it is {title}"
    )
  if jax.process_index() == 0:
    for warning in warnings:  # not logged, since commands hide logs
      print(f"warning: {run.workdir}: {warning}.", file=sys.stderr)
  return dataclasses.replace(parameters, title=title), tuple(warnings)


def shapes(recipe: Recipe, features: Sequence[str]) -> Any:
  """Returns the shapes and types of a model's parameters.

  Args:
    recipe: Recipe of the model.
    features: Source features that the model reads.
  """
  batch = pad([], features, subwords=4, words=4, rows=1)
  batch["target_id_BT"] = np.zeros((1, 4), np.int32)
  return jax.eval_shape(lambda: first_params(recipe, batch, jax.random.key(0)))


def _read_checkpoint(run: Run, checkpoint: str) -> Parameters:
  """Reads the chosen checkpoint, or averages several; may skip corrupt ones."""
  abstract = shapes(run.plan.recipe, run.source_features)
  if exported.is_exported(run.workdir):
    return exported.read(run.workdir, abstract, checkpoint)
  train, reader = run.config.train, CheckpointReader(run.workdir)
  with enough_memory(
    f"reading the parameters of {run.workdir}",
    "the number of other programs that run here",
  ):
    if not checkpoint and train.average > 1:
      return reader.average_params(train.average, abstract, train.ema > 0)
    which = checkpoint or run.config.decode.checkpoint
    return reader.restore_params(which, abstract, train.ema > 0)


def _title(parameters: Parameters, requested: str) -> str:
  """Describes the checkpoints from which the parameters come."""
  *earlier, step = parameters.steps
  if earlier:
    steps = f"{', '.join(map(str, earlier))} and {step}"
    return f"the mean of the checkpoints of steps {steps}"
  if parameters.score is not None:
    return (
      "the best checkpoint by validation "
      f"{selection.title(parameters.score)}: {parameters.score['score']:.2f} "
      f"at step {step}"
    )
  # Before the first validation there is no best checkpoint.
  if requested in ("best", "last") and not parameters.corrupt:
    return f"the last checkpoint, of step {step}"
  return f"the checkpoint of step {step}"
