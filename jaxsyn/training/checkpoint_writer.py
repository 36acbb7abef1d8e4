"""Saves and restores the train state of a run with Orbax's CheckpointManager.

  WORKDIR/checkpoints/STEP   newest train states
  WORKDIR/best/STEP          best parameters by config.train.selection

Orbax writes a checkpoint in the background to a temporary directory, and renames it;
on gs://, it writes in place, and commit_success.txt last. A kill at any moment
therefore leaves complete checkpoints only. This module adds what Orbax does not do:
checksums of the files, flushing to the disk, and removal of older checkpoints
without disturbing a process that reads them. Resuming renames a corrupt train state
to WORKDIR/corrupt-STEP-ID.

Only the process that locked the run directory, and the other processes of its run,
use `CheckpointWriter`; others use `CheckpointReader`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging as python_logging
import os
import pathlib
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from jaxsyn.errors import InputError, StoreError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.storage import files, remote
from jaxsyn.training import hosts
from jaxsyn.training.checkpoint_folder import COMMIT_FILE, CheckpointFolder
from jaxsyn.training.checkpoint_metadata import (
  ITEM,
  MetadataHandler,
  MetadataSave,
  array_formats,
)
from jaxsyn.training.checkpoint_reader import (
  CheckpointReader,
  Progress,
)

Tree = Any

_REMOVALS, _PAUSE = 10, 0.1  # of the directory of a failed save; seconds


class CheckpointWriter(CheckpointReader):
  """Writer of the checkpoints of a run, which can also read them.

  With several processes, all call the same methods in the same order. Each writes
  its shards of the arrays; process 0 writes the metadata and renames.
  """

  def __init__(self, workdir: pathlib.Path | str, keep: int = 3):
    """Creates the checkpoint directories; removes unfinished checkpoints.

    Args:
      workdir: Run directory.
      keep: Number of train states to keep.
    """
    super().__init__(workdir)
    self._is_remote = remote.is_remote(self.workdir)
    self._keep = {self.last.item: keep, self.best.item: 1}
    self._is_main = jax.process_index() == 0
    logging.get_absl_logger().addFilter(_is_not_orbax_traceback)
    if self._is_main:
      for folder in (self.last, self.best):
        folder.remove_unfinished()
    self._managers = {f.item: _manager(f) for f in (self.last, self.best)}
    self._saving: CheckpointFolder | None = None

  def save(self, step: int, state: Tree, progress: Progress) -> None:
    """Starts saving a train state; returns once the state may be modified."""
    self._save(self.last, step, state, dataclasses.asdict(progress))

  def save_best(self, step: int, params: Tree, score: dict[str, Any]) -> None:
    """Starts saving the best parameters so far, with their validation scores.

    `score` has the fields of `Score`.
    """
    self._save(self.best, step, params, score)

  def _save(
    self,
    folder: CheckpointFolder,
    step: int,
    tree: Tree,
    content: Mapping[str, Any],
  ) -> None:
    self.wait_for_all()  # an unfinished checkpoint still needs its space
    manager = self._managers[folder.item]
    if step in manager.all_steps():  # a resumed run may evaluate a step again
      return
    arrays = jax.tree.map(_unshared, tree)
    items = {
      folder.item: ocp.args.PyTreeSave(arrays),
      ITEM: MetadataSave(folder.item, content, array_formats(arrays)),
    }
    with self._write_errors(folder):
      manager.save(step, args=ocp.args.Composite(**items), force=True)
    self._saving = folder

  def wait(self) -> None:
    """Waits until the last checkpoint is complete, then removes older ones.

    Raises:
      InputError: The disk is full; older checkpoints are intact.
      StoreError: The store failed; older checkpoints are intact.
    """
    folder, self._saving = self._saving, None
    if folder is None:
      return
    with self._write_errors(folder):
      self._managers[folder.item].wait_until_finished()
    if self._is_main:
      if (
        not self._is_remote
      ):  # the new name, before the older files are removed
        files.flush_folder(folder.folder)
      for step in folder.steps()[: -self._keep[folder.item]]:
        folder.remove(step)

  def wait_for_all(self) -> None:
    """Waits until all hosts have finished writing; every host must call it."""
    hosts.wait_for_all(self._is_finished)
    self.wait()

  def _is_finished(self) -> bool:
    """Waits briefly, and returns whether no checkpoint is being written."""
    if not self._saving:
      return True
    manager = self._managers[self._saving.item]
    if manager.is_saving_in_progress():
      time.sleep(hosts.POLL_SECONDS)
    return not manager.is_saving_in_progress()

  def close(self) -> None:
    """Waits until all checkpoints are written, then ends Orbax's threads."""
    try:
      self.wait()
    finally:
      for manager in self._managers.values():
        manager.close()
      logging.get_absl_logger().removeFilter(_is_not_orbax_traceback)

  def restore(self, abstract: Tree) -> tuple[int, Tree, Progress] | None:
    """Returns the newest intact checkpoint, or None without one.

    Corrupt ones are renamed, with a warning.

    Args:
      abstract: Shapes, types and shardings of the state.

    Raises:
      InputError: The checkpoint is of another model, or all are corrupt.
    """
    intact, corrupt = self.last.newest(
      lambda step: self.last.read(step, abstract)
    )
    if corrupt and not intact:  # before any is renamed
      raise InputError(
        f"no checkpoint in {self.workdir} is intact "
        f"({'; '.join(corrupt.values())}). Restore the folder from a copy, or "
        "train again in another --workdir."
      )
    for step, reason in corrupt.items():
      self._set_aside(step, reason)
    if corrupt:
      self._managers[self.last.item].reload()
    if not intact:
      return None
    ((step, (state, metadata)),) = intact
    path = ConfigPath("metadata.content")
    progress = from_config(Progress, metadata["content"], path, CHECKPOINT_MODE)
    return step, state, progress

  @contextlib.contextmanager
  def _write_errors(self, folder: CheckpointFolder) -> Iterator[None]:
    """Removes an unfinished checkpoint after an error, and explains the error."""
    try:
      yield
    except Exception as error:  # Orbax raises many kinds
      # Other processes would remove what the main process still writes to.
      if self._is_main and not self._is_remote:
        # Orbax raises the first error while its other writes go on, which create
        # the directory again if it was removed.
        for _ in range(_REMOVALS):
          folder.remove_unfinished()
          time.sleep(_PAUSE)
      if explanation := _explanation(self.workdir, error):
        raise explanation from error
      raise

  def _set_aside(self, step: int, reason: str) -> None:
    """Renames a corrupt train state so that it is not read again."""
    new_path = self.workdir / f"corrupt-{step}-{secrets.token_hex(4)}"
    logging.warning(
      "skipped a corrupt checkpoint, now %s: %s", new_path, reason
    )
    if self._is_main and self._is_remote:
      remote.move(self.last.path(step), new_path, last=COMMIT_FILE)
    elif self._is_main:
      os.rename(self.last.path(step), new_path)


def _manager(folder: CheckpointFolder) -> ocp.CheckpointManager:
  handlers = ocp.handlers.DefaultCheckpointHandlerRegistry()
  arrays, metadata = ocp.PyTreeCheckpointHandler(), MetadataHandler()
  handlers.add(folder.item, ocp.args.PyTreeSave, arrays)
  handlers.add(ITEM, MetadataSave, metadata)  # last: it needs the others' files
  options = ocp.CheckpointManagerOptions(
    # It removes no checkpoint: it would take files from a process that reads them.
    max_to_keep=None,
    single_host_load_and_broadcast=True,  # network file systems disagree
    lightweight_initialize=True,
    save_root_metadata=False,
    multiprocessing_options=ocp.options.MultiprocessingOptions(
      barrier_sync_key_prefix=folder.item
    ),
  )
  return ocp.CheckpointManager(
    os.fspath(folder.folder), options=options, handler_registry=handlers
  )


def _unshared(x: Any) -> Any:
  """Returns an array whose buffer later training steps do not overwrite.

  On a CPU, Orbax reads the buffer of an array itself while the next step, to which
  the state is donated, may overwrite it.
  """
  if not isinstance(x, jax.Array):
    return np.asarray(x)  # Orbax stores other numbers in another format
  return jnp.copy(x) if jax.default_backend() == "cpu" else x


def _is_not_orbax_traceback(record: python_logging.LogRecord) -> bool:
  """Returns whether a log record is anything but a traceback of Orbax.

  Their exceptions are raised as well.
  """
  return not (record.exc_info and "orbax" in record.pathname)


def _explanation(workdir: pathlib.Path, error: Exception) -> Exception | None:
  """Returns the error to raise for a full disk or a failing object store."""
  full = ("No space left", "Disk quota", "File too large")
  codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
  if isinstance(error, (InputError, StoreError)):
    return None
  if getattr(error, "errno", None) in codes or any(
    words in str(error) for words in full
  ):
    return InputError(
      f"disk full while saving to {workdir}. The existing checkpoints are "
      "complete; free some space, or raise the limit of file sizes (ulimit "
      "-f), and run the same command again."
    )
  if remote.is_remote(workdir):
    message = (str(error).splitlines() or [repr(error)])[0][:300].rstrip(".")
    return StoreError(
      f"{workdir}: a checkpoint could not be written ({message}). Older "
      "checkpoints are complete; run the same command again."
    )
  return None
