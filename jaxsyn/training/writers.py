"""Logs of a run in addition to log.jsonl: TensorBoard and Weights & Biases.

A writer is a class here, an entry of `WRITERS`, and an option of the same name in
`jaxsyn.training.options.Writers`, whose empty value disables it.
"""

from __future__ import annotations

import dataclasses
import html
import pathlib
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.storage import files, remote
from jaxsyn.training.options import Writers

RUN_IDS_FILE = "tracked.json"  # service -> id of the run there


@dataclasses.dataclass(frozen=True)
class LoggedRun:
  """Directory, first step and config of a run, for log writers.

  Attributes:
    workdir: Run directory, which may be on an object store.
    start: Step from which the run starts or resumes.
    config: Options, dotted name -> value.
  """

  workdir: pathlib.Path
  start: int
  config: Mapping[str, Any]

  def id_at(self, service: str) -> str:
    """Returns the run's id at a tracking service; creates one for a new run."""
    path, ids = self.workdir / RUN_IDS_FILE, {}
    if self.start and files.is_file(path):
      try:
        ids = dict(files.read_json(path))
      except (ValueError, TypeError):  # corrupt: it becomes another run there
        ids = {}
    if not isinstance(ids.get(service), str):
      ids[service] = secrets.token_hex(8)
      files.write_json(path, ids)
    run_id: str = ids[service]
    return run_id


class Writer:
  """Base class of log writers, which write text, numbers and images."""

  def __init__(self, value: Any, run: LoggedRun):
    """Opens the log of a run, such as a TensorBoard file.

    Args:
      value: Value of its option in config.train.writers.
      run: Run that is logged.

    Raises:
      InputError: A package is not installed, or it reports an error.
    """

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Writes the numbers of one step under names such as "train/loss"."""
    raise NotImplementedError

  def text(self, name: str, step: int, text: str) -> None:
    """Writes a Markdown text of one step to the log."""
    raise NotImplementedError

  def image(self, name: str, step: int, pixels: np.ndarray) -> None:
    """Writes an image to the log, given as rows, columns and RGB colors."""
    raise NotImplementedError

  def flush(self) -> None:
    """Makes everything written so far readable."""

  def close(self) -> None:
    """Finishes writing and releases the writer's resources."""


class TensorBoard(Writer):
  """Writer of TensorBoard files in the run directory."""

  def __init__(self, value: bool, run: LoggedRun):
    from tensorboardX import SummaryWriter, record_writer
    from tensorboardX.summary import hparams

    # A file on gs:// uploads itself again when it is freed. tensorboardX keeps
    # closed files until the interpreter exits, which would then wait two
    # minutes for a store that cannot be reached.
    record_writer.GCSRecordWriter.__del__ = lambda file: None
    # It also writes to gs://, the complete file at each flush.
    self._board = SummaryWriter(str(run.workdir), purge_step=run.start + 1)
    # Not `add_hparams`, which would add another run.
    known = (bool, int, float, str)
    options = {
      name: value if isinstance(value, known) else str(value)
      for name, value in run.config.items()
    }
    best = f"validation/best_{run.config['train.selection']}"
    for summary in hparams(options, {best: 0.0}):
      self._board.file_writer.add_summary(summary)

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
      self._board.add_scalar(name, value, step)

  def text(self, name: str, step: int, text: str) -> None:
    self._board.add_text(name, text, step)

  def image(self, name: str, step: int, pixels: np.ndarray) -> None:
    self._board.add_image(name, pixels, step, dataformats="HWC")

  def flush(self) -> None:
    self._board.flush()

  def close(self) -> None:
    self._board.close()


class WeightsAndBiases(Writer):
  """Writer to a Weights & Biases run, which a resumed training continues.

  Its environment variables apply: WANDB_MODE=offline writes to a directory, which
  `wandb sync` uploads later; WANDB_ENTITY, WANDB_DIR, WANDB_API_KEY.
  """

  def __init__(self, value: str, run: LoggedRun):
    try:
      import wandb
    except ImportError:
      raise InputError(
        "config.train.writers.wandb needs the package wandb: "
        "pip install -e '.[wandb]'."
      ) from None
    self._wandb: Any = wandb
    try:
      self._run = self._wandb.init(
        project=value,
        id=run.id_at("wandb"),
        name=run.workdir.name,
        config=dict(run.config),
        dir=None if remote.is_remote(run.workdir) else str(run.workdir),
        resume="allow",
        settings=self._wandb.Settings(console="off", silent=True),
      )
    except self._wandb.Error as error:
      raise InputError(
        f"config.train.writers.wandb={value!r}: {str(error).rstrip('.')}. Log in "
        "(wandb login), or set WANDB_MODE=offline."
      ) from None
    # Steps of the run, not calls: after a kill, some steps are logged again.
    self._run.define_metric("step")
    self._run.define_metric("*", step_metric="step")

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    self._run.log({**values, "step": step})

  def text(self, name: str, step: int, text: str) -> None:
    content = self._wandb.Html(f"<pre>{html.escape(text)}</pre>")
    self._run.log({name: content, "step": step})

  def image(self, name: str, step: int, pixels: np.ndarray) -> None:
    self._run.log({name: self._wandb.Image(pixels), "step": step})

  def close(self) -> None:
    self._run.finish()


WRITERS: dict[str, type[Writer]] = {
  "tensorboard": TensorBoard,
  "wandb": WeightsAndBiases,
}


def open_writers(options: Writers, run: LoggedRun) -> list[Writer]:
  """Opens the log writers that the config enables.

  Raises:
    InputError: A package is not installed, or it reports an error.
  """
  return [
    writer(value, run)
    for name, writer in WRITERS.items()
    if (value := getattr(options, name))
  ]
