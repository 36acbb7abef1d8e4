"""Weights & Biases: a run of a project there.

Its environment variables say the rest: WANDB_MODE=offline writes to a folder
(`wandb sync` sends it later), WANDB_ENTITY, WANDB_DIR, WANDB_API_KEY.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.storage import remote
from jaxsyn.training.writers.resumed_run import identity
from jaxsyn.training.writers.writer import ResumedRun, Writer, package


class WeightsAndBiases(Writer):
  """One run there, also where the training goes on after a kill."""

  def __init__(self, value: str, run: ResumedRun):
    self._library = package("wandb", "config.train.writers.wandb", "wandb")
    try:
      self._run = self._library.init(
        project=value,
        id=identity(run, "wandb"),
        name=run.workdir.name,
        config=dict(run.config),
        dir=None if remote.is_remote(run.workdir) else str(run.workdir),
        resume="allow",
        settings=self._library.Settings(console="off", silent=True),
      )
    except self._library.Error as error:
      raise InputError(
        f"config.train.writers.wandb={value!r}: {str(error).rstrip('.')}. Log in "
        "(wandb login), or set WANDB_MODE=offline."
      ) from None
    # By the run's own steps: what is told again after a kill is told as it was.
    self._run.define_metric("step")
    self._run.define_metric("*", step_metric="step")

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    self._run.log({**values, "step": step})

  def text(self, name: str, step: int, text: str) -> None:
    html = self._library.Html(f"<pre>{_escaped(text)}</pre>")
    self._run.log({name: html, "step": step})

  def picture(self, name: str, step: int, pixels: np.ndarray) -> None:
    self._run.log({name: self._library.Image(pixels), "step": step})

  def close(self) -> None:
    self._run.finish()


def _escaped(text: str) -> str:
  return text.replace("&", "&amp;").replace("<", "&lt;")
