"""Reads parameters from checkpoints of a run that may still be training.

Reading does not write files. A corrupt checkpoint is an error, which
`jaxsyn.session.parameters` explains: no other one is read instead.
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
    title: Description of the parameters of an exported model; else "".
  """

  params: Tree
  steps: tuple[int, ...]
  score: dict[str, Any] | None = None
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
    """Reads the parameters of a checkpoint.

    Args:
      which: "best", "last", or a step. Before the first validation, "best" is the
        same as "last".
      abstract: Shapes of the parameters.
      ema: Whether the run has a moving average, which is returned instead.

    Raises:
      CorruptFileError: The checkpoint is corrupt, or was removed.
      InputError: There is no such checkpoint, or it belongs to another model.
    """
    if which not in ("best", "last"):
      steps = {str(step): step for step in self.steps()}
      if which not in steps:
        raise InputError(
          f"{self.workdir} has no checkpoint {which!r}. There are: "
          f"{', '.join(steps) or 'none; train first'}."
        )
      step = steps[which]
      return Parameters(self._read_params(step, abstract, ema), (step,))
    if which == "best":
      best = _intact(
        self.best.newest(lambda step: self.best.read(step, abstract))
      )
      if best:
        ((step, (params, metadata)),) = best
        return Parameters(params, (step,), metadata["content"])
      self._check_no_best()
    ((step, params),) = self._newest(1, abstract, ema)
    return Parameters(params, (step,))

  def average_params(self, count: int, abstract: Tree, ema: bool) -> Parameters:
    """Averages the parameters of the newest checkpoints.

    Args:
      count: Number of checkpoints, at least 1.
      abstract: Shapes of the parameters.
      ema: Whether the run has a moving average, which is averaged instead.

    Raises:
      CorruptFileError: One of them is corrupt.
      InputError: There are fewer checkpoints.
    """
    newest = self._newest(count, abstract, ema)
    if len(newest) < count:
      raise InputError(
        f"config.train.average={count}, but {self.workdir} has only "
        f"{len(newest)} checkpoints. Continue training, or choose one of them "
        "(--checkpoint last)."
      )
    steps, trees = zip(*reversed(newest))
    mean = jax.tree.map(lambda *x: sum(x[1:], x[0]) / count, *trees)
    return Parameters(mean, steps)

  def _newest(
    self, count: int, abstract: Tree, ema: bool
  ) -> list[tuple[int, Tree]]:
    """Reads the model parameters from the newest train states."""
    newest = _intact(
      self.last.newest(
        lambda step: self._read_params(step, abstract, ema), count
      )
    )
    if not newest:
      raise InputError(
        f"{self.workdir} has no checkpoint. Train first: jaxsyn train --config "
        f"FILE --workdir {self.workdir}"
      )
    return newest

  def _check_no_best(self) -> None:
    """Raises CorruptFileError if the newest train state records a best step."""
    intact, _ = self.last.newest(self.last.metadata)
    step = intact[0][1]["content"].get("best_step", -1) if intact else -1
    if step >= 0:
      raise CorruptFileError(
        f"{self.best.folder} lacks the best checkpoint, of step {step}"
      )

  def _read_params(self, step: int, abstract: Tree, ema: bool) -> Tree:
    return self.last.read(step, abstract, "ema" if ema else "params")[0]


def _intact(
  newest: tuple[list[tuple[int, Any]], dict[int, str]],
) -> list[tuple[int, Any]]:
  """Returns the checkpoints of `CheckpointFolder.newest` if none is corrupt.

  Raises:
    CorruptFileError: It skipped a corrupt checkpoint.
  """
  intact, corrupt = newest
  for reason in corrupt.values():
    raise CorruptFileError(reason)
  return intact
