"""What the devices and this process did in some steps, for TensorBoard.

Before this file: nothing. After it: `loop`.
"""

from __future__ import annotations

import os

import jax

from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote
from jaxsyn.training.mirror import Mirror


class Profile:
  """Records a few steps of a run: `tensorboard --logdir WORKDIR` shows them.

  Recording costs memory for each step, so it is for few, and after the first,
  which compile. Of several processes the first one records.
  """

  def __init__(self, steps: str, folder: os.PathLike[str] | str):
    """
    Args:
      steps: "FIRST-LAST", counted from 1 as in the log; "": none.
      folder: of the run.

    Raises:
      InputError: the last one comes before the first.
    """
    first, _, last = steps.partition("-")
    self._first, self._last = int(first or 0), int(last or 0)
    self._folder = files.path_of(folder)
    self._mirror: Mirror | None = None
    self._records = self._recorded = False
    if self._last < self._first or (steps and not self._first):
      raise InputError(
        f"config.train.profile={steps!r}: FIRST-LAST of two steps from 1 is "
        "needed, as in 100-105."
      )

  def before(self, step: int) -> None:
    """This step is about to begin."""
    if step == self._first and step and jax.process_index() == 0:
      if remote.is_remote(self._folder):
        self._mirror = Mirror(self._folder)
      jax.profiler.start_trace(
        self._mirror.folder if self._mirror else self._folder
      )
      self._records = True

  def after(self, step: int, result: object) -> str:
    """This step was begun, and will give this.

    Returns: what to say of what was recorded, at the last; else "".
    """
    if not self._records or step < self._last:
      return ""
    jax.block_until_ready(result)
    return self._end()

  def close(self) -> str:
    """The run ends; what to say of steps that it has not recorded, or ""."""
    if self._records:
      return f"{self._end()}; the run ended before step {self._last} did"
    if self._first and not self._recorded and jax.process_index() == 0:
      return (
        f"no profile: step {self._first} of config.train.profile was not among "
        "those of this run"
      )
    return ""

  def _end(self) -> str:
    self._records, self._recorded = False, True
    jax.profiler.stop_trace()
    if self._mirror:
      self._mirror.close()
    return f"a profile lies in {self._folder / 'plugins' / 'profile'}"
