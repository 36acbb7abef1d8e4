"""The parameters of a run, for those who translate with it.

The run may be training meanwhile. Nothing here writes, moves or removes: a
folder that is another's, or read-only, will do. Another checkpoint
stands in for a corrupt one; `jaxsyn.session.parameters` decides whether it may.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any

import jax

from jaxsyn.data.store.manifest_format import Number
from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.storage import files
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training.folder import (
  CheckpointFolder,
  no_intact_checkpoint_error,
)

Tree = Any


@dataclasses.dataclass(frozen=True)
class Parameters:
  """Parameters to translate with, and whose they are.

  Attributes:
    params: of one checkpoint, or the mean of several.
    steps: of these checkpoints, oldest first.
    score: of the best ones, what `save_best` was told of them; else None.
    corrupt: description of each corrupt checkpoint for which these stand in;
      empty if these are the requested ones.
    title: which they are, in words, where an exported model says it.
  """

  params: Tree
  steps: tuple[int, ...]
  score: dict[str, Any] | None = None
  corrupt: tuple[str, ...] = ()
  title: str = ""


@dataclasses.dataclass
class LogWindow:
  """Sums over the steps since the last record of the log.

  A checkpoint keeps them, so that the next record of a resumed run has the means
  of the uninterrupted one.

  Attributes:
    terms: sum and count of each loss term.
    sums: tokens, positions and other counts, by name.
    corpora: examples of each corpus of a mixture.
    seconds: time spent on these steps.
    grad_norm: norm of the gradient of the last update, which may be before the
      window; None before the first.
  """

  terms: dict[str, list[float]] = dataclasses.field(default_factory=dict)
  sums: dict[str, float] = dataclasses.field(default_factory=dict)
  corpora: dict[str, int] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0
  grad_norm: float | None = None


@dataclasses.dataclass
class Progress:
  """What the JSON page of a checkpoint says of the run.

  Attributes:
    epoch, batch: position in the data, the next batch to be read.
    minutes: of training, all resumes together.
    best_step: of the best validation; -1 before the first.
    best_score: of that, by config.train.selection.
    best_rank: what others are compared with; empty before the first.
    bad: evaluations since the best one, for early stopping.
    tokens: real target subwords trained on.
    window: sums since the last record of the log; older checkpoints have none.
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
  """The content of the JSON page of best parameters.

  Attributes:
    score: validation score by the metric that selects.
    selection: name of this metric.
    tokenizer: tokenizer of this metric, if it has one.
    log_likelihood: mean log-likelihood of a target subword.
  """

  score: float
  selection: str
  tokenizer: str
  log_likelihood: float


class CheckpointReader:
  """The checkpoints of one run, for those who only read them.

  Attributes:
    workdir: of the run.
    last, best: the newest to go on from, and the best parameters.
  """

  def __init__(self, workdir: pathlib.Path | str):
    self.workdir = files.absolute(workdir)
    self.last = CheckpointFolder(
      self.workdir / "checkpoints", "state", Progress
    )
    self.best = CheckpointFolder(self.workdir / "best", "params", Score)

  def steps(self) -> list[int]:
    """Steps of the kept checkpoints, oldest first."""
    return self.last.steps()

  def restore_params(self, which: str, abstract: Tree, ema: bool) -> Parameters:
    """Parameters to translate with.

    Other parameters stand in for corrupt ones, which `Parameters.corrupt` lists:
    for the newest the one before, for the best the nearest that is kept.

    Args:
      which: "best", "last", or a step. There is no best one before the first
        validation: then it is the last.
      abstract: shapes of the parameters.
      ema: the run keeps a moving average, which stands in for the parameters.

    Raises:
      InputError: no such checkpoint, none that is whole, or of another model.
    """
    if which == "best":
      intact, corrupt_steps = self.best.newest(
        lambda step: self.best.read(step, abstract)
      )
      if intact:
        ((step, (params, content)),) = intact
        return Parameters(
          params,
          (step,),
          score=content["content"],
          corrupt=_corrupt_messages(corrupt_steps),
        )
      corrupt_steps = corrupt_steps or self._best_recorded()
      if corrupt_steps:
        return self._nearest(corrupt_steps, abstract, ema)
    if which in ("best", "last"):
      intact, corrupt = self._newest(1, abstract, ema)
      ((step, params),) = intact
      return Parameters(params, (step,), corrupt=corrupt)
    steps = {str(step): step for step in self.steps()}
    if which not in steps:
      raise InputError(
        f"{self.workdir} has no checkpoint {which!r}. There are: "
        f"{', '.join(steps) or 'none; train first'}."
      )
    try:
      params = self._params_of(steps[which], abstract, ema)
    except CorruptFileError as error:
      other_steps = [str(step) for step in self.steps() if str(step) != which]
      raise InputError(
        f"checkpoint {which} is corrupt or was removed ({error}). Choose "
        f"another: {', '.join(other_steps) or 'there is none'}."
      ) from None
    return Parameters(params, (steps[which],))

  def average_params(self, count: int, abstract: Tree, ema: bool) -> Parameters:
    """Mean of the parameters of the last checkpoints that are whole.

    Args:
      count: of checkpoints, from 1.
      abstract, ema: as of `restore_params`.

    Raises:
      InputError: fewer than `count` are kept, or whole.
    """
    steps = self.steps()
    if len(steps) < count:
      raise InputError(
        f"config.train.average={count}, but {self.workdir} has only "
        f"{len(steps)} checkpoints. Train on, or name one (--checkpoint last)."
      )
    intact, corrupt = self._newest(count, abstract, ema)
    if len(intact) < count:
      raise InputError(
        f"config.train.average={count}, but only {len(intact)} checkpoints of "
        f"{self.workdir} are whole: {'; '.join(corrupt)}. Name one instead "
        "(--checkpoint last)."
      )
    averaged, trees = zip(*reversed(intact))
    mean = jax.tree.map(lambda *x: sum(x[1:], x[0]) / count, *trees)
    return Parameters(mean, averaged, corrupt=corrupt)

  def _newest(
    self, count: int, abstract: Tree, ema: bool
  ) -> tuple[list[tuple[int, Tree]], tuple[str, ...]]:
    """The newest whole ones, newest first, and what is wrong with the others."""
    intact, corrupt_steps = self.last.newest(
      lambda step: self._params_of(step, abstract, ema), count
    )
    if not intact:
      raise no_intact_checkpoint_error(self.workdir, corrupt_steps)
    return intact, _corrupt_messages(corrupt_steps)

  def _nearest(
    self, lost: dict[int, str], abstract: Tree, ema: bool
  ) -> Parameters:
    """Parameters of the kept step nearest to the best, which is corrupt.

    Args:
      lost: steps of the best ones, newest first -> why.
      abstract, ema: as of `restore_params`.
    """
    (best, why), *_ = lost.items()
    intact, corrupt_steps = self.last.newest(
      lambda step: self._params_of(step, abstract, ema),
      order=lambda step: (-abs(step - best), step),
    )
    if not intact:
      raise no_intact_checkpoint_error(
        self.workdir, {best: why} | corrupt_steps
      )
    ((step, params),) = intact
    corrupt = (
      f"the best checkpoint, of step {best}, is corrupt or missing ({why})"
    )
    return Parameters(params, (step,), corrupt=(corrupt,))

  def _best_recorded(self) -> dict[int, str]:
    """The best step so far as the newest checkpoint knows it, and no more."""
    intact, _ = self.last.newest(self.last.record)
    step = intact[0][1]["content"].get("best_step", -1) if intact else -1
    return {step: f"{self.best.folder} is empty"} if step >= 0 else {}

  def _params_of(self, step: int, abstract: Tree, ema: bool) -> Tree:
    name = "ema" if ema else "params"
    return self.last.read(step, abstract, name)[0]


def _corrupt_messages(corrupt_steps: dict[int, str]) -> tuple[str, ...]:
  return tuple(
    f"the checkpoint of step {step} is corrupt ({why})"
    for step, why in corrupt_steps.items()
  )
