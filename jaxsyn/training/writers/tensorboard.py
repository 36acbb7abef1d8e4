"""TensorBoard: `tensorboard --logdir RUNS` draws all runs below a folder."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxsyn.training.writers.writer import ResumedRun, Writer


class TensorBoard(Writer):
  """Files in the folder of the run: scalars, texts, images, hyper-parameters."""

  def __init__(self, value: bool, run: ResumedRun):
    from tensorboardX import SummaryWriter, record_writer

    # A file on gs:// uploads itself again when it is freed. tensorboardX keeps
    # closed files until the interpreter exits, which would then wait two
    # minutes for a store that cannot be reached.
    record_writer.GCSRecordWriter.__del__ = lambda file: None
    # It also writes to gs://, a whole file at each flush.
    self._board = SummaryWriter(
      str(run.workdir),
      # Also of a run that begins anew where one failed early.
      purge_step=run.start + 1,
    )
    self._hyper_parameters(run)

  def _hyper_parameters(self, run: ResumedRun) -> None:
    """The tab HPARAMS: the run's options beside its best score."""
    from tensorboardX.summary import hparams

    known = (bool, int, float, str)
    options = {
      name: value if isinstance(value, known) else str(value)
      for name, value in run.config.items()
    }
    best = f"validation/best_{run.config['train.selection']}"
    # Not its add_hparams, which makes a run of its own beside this one.
    for summary in hparams(options, {best: 0.0}):
      self._board.file_writer.add_summary(summary)

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
      self._board.add_scalar(name, value, step)

  def text(self, name: str, step: int, text: str) -> None:
    self._board.add_text(name, text, step)

  def picture(self, name: str, step: int, pixels: np.ndarray) -> None:
    self._board.add_image(name, pixels, step, dataformats="HWC")

  def flush(self) -> None:
    self._board.flush()

  def close(self) -> None:
    self._board.close()
