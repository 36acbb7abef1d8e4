"""Records profiles of training steps for TensorBoard."""

from __future__ import annotations

import contextlib
import os

import jax

from jaxsyn.errors import InputError
from jaxsyn.storage import files


class Profile:
  """Profiler of a few steps of a run, which only the main process records.

  Each recorded step needs memory. `tensorboard --logdir WORKDIR` shows the profile.
  """

  def __init__(
    self, steps: str, folder: os.PathLike[str] | str, run_steps: int
  ):
    """Reads the range of steps to record.

    Args:
      steps: "FIRST-LAST", from 1 as in the log; "" disables recording.
      folder: Run directory.
      run_steps: Number of steps of the run.

    Raises:
      InputError: The last step is before the first, or after the run.
    """
    first, _, last = steps.partition("-")
    self._first, self._last = int(first or 0), int(last or 0)
    self._folder = files.path_of(folder)
    self._recording = contextlib.ExitStack()
    if self._last < self._first or (steps and not self._first):
      raise InputError(
        f"config.train.profile={steps!r}: FIRST-LAST of two steps from 1 is "
        "needed, as in 100-105."
      )
    if self._last > run_steps:
      raise InputError(
        f"config.train.profile={steps!r}: the run has only {run_steps} steps "
        "(config.train.steps)."
      )

  def before(self, step: int) -> None:
    """Starts recording at the first step of the configured range."""
    if step == self._first and jax.process_index() == 0:
      # The profiler cannot write to object stores.
      folder = self._recording.enter_context(files.filled_folder(self._folder))
      jax.profiler.start_trace(folder)
      self._recording.callback(jax.profiler.stop_trace)

  def after(self, step: int, result: object) -> None:
    """Stops recording after the last step of the configured range.

    Args:
      step: Step that was started.
      result: Its result, which is waited for.
    """
    if step == self._last:
      jax.block_until_ready(result)
      self.close()

  def close(self) -> None:
    """Stops recording if the run ends within the configured range."""
    self._recording.close()  # uploads the files of a remote run directory
