"""What the devices and this process did in some steps, for TensorBoard.

Before this file: nothing. After it: `loop`.
"""

from __future__ import annotations

import os
import pathlib

import jax

from jaxsyn.errors import InputError


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
    self._folder, self._records = pathlib.Path(folder), False
    if self._last < self._first or (steps and not self._first):
      raise InputError(
        f"config.train.profile={steps!r}: FIRST-LAST of two steps from 1 is "
        "needed, as in 100-105."
      )

  def before(self, step: int) -> None:
    """This step is about to begin."""
    if step == self._first and step and jax.process_index() == 0:
      jax.profiler.start_trace(self._folder)
      self._records = True

  def after(self, step: int, result: object) -> str:
    """This step was begun, and will give this.

    Returns: where what was recorded lies, at the last; else "".
    """
    if not self._records or step < self._last:
      return ""
    jax.block_until_ready(result)
    return self.close()

  def close(self) -> str:
    """Ends a record; where it lies, or "" where there was none."""
    if not self._records:
      return ""
    self._records = False
    jax.profiler.stop_trace()
    return str(self._folder / "plugins" / "profile")
