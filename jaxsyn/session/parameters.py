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
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training.checkpoint_reader import CheckpointReader, Parameters
from jaxsyn.training.runtime import enough_memory
from jaxsyn.training.step import Recipe, first_params


def read(
  run: Run, checkpoint: str = "", *, option: str = "--checkpoint"
) -> Parameters:
  """Reads the parameters of a checkpoint.

  Every command opens checkpoints here.

  Args:
    run: Opened run.
    checkpoint: "best", "last" or a step; "": config.decode.checkpoint, or the
      mean of config.train.average checkpoints.
    option: Name of the option that selects a checkpoint, for messages.

  Returns:
    The parameters, whose title describes them.

  Raises:
    InputError: There is no such checkpoint, it is corrupt, or there is too little
      memory.
  """
  try:
    parameters = _read_checkpoint(run, checkpoint)
  except CorruptFileError as error:
    steps = map(str, CheckpointReader(run.workdir).steps())
    raise InputError(
      f"{run.workdir}: a checkpoint is corrupt or was removed "
      f"({str(error).rstrip('.')}). Restore it from a copy, or choose another "
      f"one with {option}: {', '.join(steps) or 'there is none'}."
    ) from None
  if parameters.title:  # of an exported model
    return parameters
  requested = checkpoint or run.config.decode.checkpoint
  title = _title(parameters, requested)
  is_fallback = len(parameters.steps) == 1 and parameters.score is None
  if requested == "best" and is_fallback and jax.process_index() == 0:
    # Not logged, since commands hide logs.
    print(
      f"warning: {run.workdir}: no checkpoint was chosen by a validation yet: it "
      f"is {title}.",
      file=sys.stderr,
    )
  return dataclasses.replace(parameters, title=title)


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
  """Reads the chosen checkpoint, or averages several."""
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
    parameters = reader.restore_params(which, abstract, train.ema > 0)
  if parameters.score is not None:
    try:
      selection.check(parameters.score["selection"])
    except ValueError as error:
      path = reader.best.folder / str(parameters.steps[-1])
      raise CorruptFileError(f"{path} is corrupt: {error}") from None
  return parameters


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
  if requested in ("best", "last"):
    return f"the last checkpoint, of step {step}"
  return f"the checkpoint of step {step}"
