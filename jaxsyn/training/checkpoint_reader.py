"""Reads parameters from checkpoints of a run that may be training.

Reading does not write files. If a checkpoint is corrupt, another one is read,
and the result lists the corrupt one; `jaxsyn.session.parameters` reports or
rejects it.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any

import jax

from jaxsyn.data.store.manifests import Number
from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.storage import files
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training.checkpoint_folder import CheckpointFolder

Tree = Any


@dataclasses.dataclass
class LogWindow:
  """Sums of losses and counts over the steps since the last log record.

  They are part of a checkpoint, so that the next record of a resumed run equals
  that of an uninterrupted one.

  Attributes:
    terms: Sum and count of each loss term.
    sums: Tokens, positions and other counts, by name.
    corpora: Numbers of examples from each corpus of a mixture.
    seconds: Time spent on these steps.
    grad_norm: Gradient norm of the last update, which may be before the window;
      None before the first update.
  """

  terms: dict[str, list[float]] = dataclasses.field(default_factory=dict)
  sums: dict[str, float] = dataclasses.field(default_factory=dict)
  corpora: dict[str, int] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0
  grad_norm: float | None = None


@dataclasses.dataclass
class Progress:
  """Progress of a run, saved with its train state: epoch, best score etc.

  Attributes:
    epoch, batch: Position of the next batch in the data.
    minutes: Training time over all resumed parts.
    best_step: Step of the best validation; -1 before the first validation.
    best_score: Score of the best validation by config.train.selection.
    best_rank: Rank of the best validation, see `ValidationScores.rank`.
    bad: Number of validations since the best one, for early stopping.
    tokens: Number of target subwords trained on.
    window: Sums since the last log record.
  """

  epoch: Number = 0
  batch: Number = 0
  minutes: Annotated[float, Range(0, 1e9)] = 0.0
  best_step: Annotated[int, Range(-1, 1 << 53)] = -1
  best_score: float = 0.0
  best_rank: list[float] = dataclasses.field(default_factory=list)
  bad: Number = 0
  tokens: Number = 0
  window: LogWindow = dataclasses.field(default_factory=LogWindow)


@dataclasses.dataclass(frozen=True)
class Score:
  """Validation scores of the best parameters.

  Attributes:
    score: Score by the metric that selects.
    selection: Name of this metric.
    tokenizer: Tokenizer of this metric, if it has one.
    log_likelihood: Mean log-likelihood of a target subword.
  """

  score: float
  selection: str
  tokenizer: str
  log_likelihood: float


@dataclasses.dataclass(frozen=True)
class Parameters:
  """Model parameters for translation, and the checkpoints they come from.

  Attributes:
    params: Parameters of one checkpoint, or the mean of several.
    steps: Steps of the checkpoints, oldest first.
    score: Fields of `Score` for the best parameters; None for others.
    corrupt: Description of each corrupt checkpoint that was replaced by these;
      empty if these are the requested ones.
    title: Description of the parameters of an exported model; else "".
  """

  params: Tree
  steps: tuple[int, ...]
  score: dict[str, Any] | None = None
  corrupt: tuple[str, ...] = ()
  title: str = ""


class CheckpointReader:
  """Reader of the checkpoints of a run.

  Attributes:
    workdir: Run directory.
    last: Newest train states.
    best: Best parameters.
  """

  def __init__(self, workdir: pathlib.Path | str):
    self.workdir = files.absolute(workdir)
    self.last = CheckpointFolder(
      self.workdir / "checkpoints", "state", Progress
    )
    self.best = CheckpointFolder(self.workdir / "best", "params", Score)

  def steps(self) -> list[int]:
    """Returns the steps of all saved train states, oldest first."""
    return self.last.steps()

  def restore_params(self, which: str, abstract: Tree, ema: bool) -> Parameters:
    """Reads parameters; replaces a corrupt best or last checkpoint by another.

    Args:
      which: "best", "last", or a step, which must be intact. Before the first
        validation, "best" is the same as "last".
      abstract: Shapes of the parameters.
      ema: Whether the run has a moving average, which is returned instead.

    Raises:
      InputError: There is no such checkpoint, all are corrupt, or it belongs to
        another model.
    """
    if which not in ("best", "last"):
      return self._restore_step(which, abstract, ema)
    lost: dict[int, str] = {}
    if which == "best":
      best, lost = self.best.newest(lambda step: self.best.read(step, abstract))
      if best:
        ((step, (params, metadata)),) = best
        messages = _corrupt_messages(lost)
        return Parameters(params, (step,), metadata["content"], messages)
      lost = lost or self._missing_best()
    intact, corrupt = self._newest(1, abstract, ema)
    ((step, params),) = intact
    messages = _corrupt_messages(corrupt)
    if lost:
      best_step, reason = next(iter(lost.items()))
      messages = (
        f"the best checkpoint, of step {best_step}, is corrupt or missing "
        f"({reason})",
      )
    return Parameters(params, (step,), corrupt=messages)

  def average_params(self, count: int, abstract: Tree, ema: bool) -> Parameters:
    """Averages the parameters of the newest intact checkpoints.

    Args:
      count: Number of checkpoints, at least 1.
      abstract: Shapes of the parameters.
      ema: Whether the run has a moving average, which is averaged instead.

    Raises:
      InputError: There are fewer intact checkpoints.
    """
    intact, corrupt = self._newest(count, abstract, ema)
    messages = _corrupt_messages(corrupt)
    if len(intact) < count:
      detail = f" ({'; '.join(messages)})" if messages else ""
      raise InputError(
        f"config.train.average={count}, but {self.workdir} has only "
        f"{len(intact)} intact checkpoints{detail}. Continue training, or choose "
        "one of them (--checkpoint last)."
      )
    steps, trees = zip(*reversed(intact))
    mean = jax.tree.map(lambda *x: sum(x[1:], x[0]) / count, *trees)
    return Parameters(mean, steps, corrupt=messages)

  def _restore_step(self, name: str, abstract: Tree, ema: bool) -> Parameters:
    steps = {str(step): step for step in self.steps()}
    if name not in steps:
      raise InputError(
        f"{self.workdir} has no checkpoint {name!r}. There are: "
        f"{', '.join(steps) or 'none; train first'}."
      )
    try:
      params = self._read_params(steps[name], abstract, ema)
    except CorruptFileError as error:
      others = [str(step) for step in self.steps() if str(step) != name]
      raise InputError(
        f"checkpoint {name} is corrupt or was removed ({error}). Choose "
        f"another: {', '.join(others) or 'there is none'}."
      ) from None
    return Parameters(params, (steps[name],))

  def _newest(
    self, count: int, abstract: Tree, ema: bool
  ) -> tuple[list[tuple[int, Tree]], dict[int, str]]:
    """Reads the model parameters from the newest intact train states."""
    intact, corrupt = self.last.newest(
      lambda step: self._read_params(step, abstract, ema), count
    )
    if not intact:
      raise no_intact_checkpoint_error(self.workdir, corrupt)
    return intact, corrupt

  def _missing_best(self) -> dict[int, str]:
    """Returns the step of a missing best checkpoint, with the reason."""
    intact, _ = self.last.newest(self.last.metadata)
    step = intact[0][1]["content"].get("best_step", -1) if intact else -1
    return {step: f"{self.best.folder} is empty"} if step >= 0 else {}

  def _read_params(self, step: int, abstract: Tree, ema: bool) -> Tree:
    return self.last.read(step, abstract, "ema" if ema else "params")[0]


def no_intact_checkpoint_error(
  workdir: pathlib.Path, corrupt: dict[int, str]
) -> InputError:
  """Returns the error for a run whose checkpoints are missing or all corrupt.

  Args:
    workdir: Run directory.
    corrupt: Step -> reason.
  """
  if not corrupt:
    return InputError(
      f"{workdir} has no checkpoint. Train first: jaxsyn train --config "
      f"FILE --workdir {workdir}"
    )
  return InputError(
    f"no checkpoint in {workdir} is intact ({'; '.join(corrupt.values())}). "
    "Restore the folder from a copy, or train again in another --workdir."
  )


def _corrupt_messages(corrupt: dict[int, str]) -> tuple[str, ...]:
  return tuple(
    f"the checkpoint of step {step} is corrupt ({reason})"
    for step, reason in corrupt.items()
  )
