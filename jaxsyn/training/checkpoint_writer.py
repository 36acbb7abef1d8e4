"""Saves and restores the train state of a run with Orbax.

  WORKDIR/checkpoints/STEP   newest train states
  WORKDIR/best/STEP          best parameters by config.train.selection

A checkpoint is written in the background to a temporary directory, flushed to the
disk and renamed; older ones are removed after that. On gs://, it is written in
place, metadata.json last. A kill at any moment therefore leaves complete
checkpoints only. Resuming renames a corrupt train state to WORKDIR/corrupt-STEP-ID.

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
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from jaxsyn.errors import InputError, StoreError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.storage import checksums, files, remote
from jaxsyn.training import array_checksums, hosts
from jaxsyn.training.checkpoint_folder import METADATA_FILE, CheckpointFolder
from jaxsyn.training.checkpoint_reader import (
  CheckpointReader,
  Progress,
  no_intact_checkpoint_error,
)

Tree = Any

_REMOVALS, _PAUSE = 10, 0.1  # of the directory of a failed save; seconds


class CheckpointWriter(CheckpointReader):
  """Writer of the checkpoints of a run, which can also read them.

  With several processes, all call the same methods in the same order. Each writes
  its shards of the arrays; process 0 writes the metadata and renames.
  """

  def __init__(self, workdir: pathlib.Path | str, keep: int = 3):
    """Creates the directories, and removes unfinished checkpoints.

    Args:
      workdir: Run directory.
      keep: Number of train states to keep.
    """
    super().__init__(workdir)
    self._keep = keep
    self._is_main = jax.process_index() == 0
    self._is_remote = remote.is_remote(self.workdir)
    if self._is_main:
      for folder in (self.last, self.best):
        folder.create()
    self._orbax = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
    logging.get_absl_logger().addFilter(_is_not_orbax_traceback)
    self._pool = ThreadPoolExecutor(1, "checkpoints")
    self._saving: Future[None] | None = None

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
    # A resumed run may evaluate a step again. The main process decides, since all
    # must do the same.
    exists = self._is_main and step in folder.steps()
    # All use the random name of the main process. After a failed save, threads of
    # Orbax may still write to its directory when the next save has begun.
    unique = secrets.token_hex(4)
    exists, unique = hosts.all_gather_json((exists, unique))[0]
    if exists:
      return
    new = folder.path(step)
    if not self._is_remote:
      new = folder.folder / f".{step}.{unique}{files.PARTIAL}"
    with _write_errors(self.workdir):
      compute_checksums = self._start_arrays(new, folder.item, tree)
    self._saving = self._pool.submit(
      self._finish, folder, step, new, content, compute_checksums
    )

  def _start_arrays(
    self, path: pathlib.Path, item: str, tree: Tree
  ) -> Callable[[], array_checksums.Checksums]:
    """Starts writing arrays; returns a function that computes their checksums."""
    compute_checksums = array_checksums.start_checksums(tree)
    if jax.process_count() > 1:
      # Not in the background: all hosts must communicate in one order.
      gathered = hosts.all_gather_json(compute_checksums())
      all_checksums = array_checksums.merge(gathered)
      compute_checksums = lambda: all_checksums  # noqa: E731
    if self._is_main and not self._is_remote:
      path.mkdir()
    if jax.process_count() > 1:
      hosts.all_gather_json("the directory exists")
    arrays = jax.tree.map(_unshared, tree)
    self._orbax.save(path / item, args=ocp.args.PyTreeSave(arrays))
    return compute_checksums

  def _finish(
    self,
    folder: CheckpointFolder,
    step: int,
    new: pathlib.Path,
    content: Mapping[str, Any],
    compute_checksums: Callable[[], array_checksums.Checksums],
  ) -> None:
    """Waits until the arrays are written, and completes the checkpoint."""
    try:
      arrays = compute_checksums()
      self._orbax.wait_until_finished()
      if self._is_main:
        self._publish(folder, step, new, content, arrays)
    finally:
      # It exists only after an error. Other processes finish sooner, and would
      # remove what the main process still writes to.
      if self._is_main and not self._is_remote and new.exists():
        _remove_failed(new)

  def _publish(
    self,
    folder: CheckpointFolder,
    step: int,
    new: pathlib.Path,
    content: Mapping[str, Any],
    arrays: array_checksums.Checksums,
  ) -> None:
    """Completes a checkpoint with its metadata, and removes older ones."""
    metadata = {"content": content, "arrays": arrays, "files": {}}
    if not self._is_remote:  # a store would have to be read again
      names = sorted(files.names(new))
      metadata["files"] = checksums.file_checksums(new, names)
    files.write_json(new / METADATA_FILE, checksums.add_checksum(metadata))
    if not self._is_remote:
      files.flush_tree(new)
      os.rename(new, folder.path(step))
      files.flush_folder(folder.folder)
    keep = self._keep if folder is self.last else 1
    older = [other for other in folder.steps() if other != step]
    for other in older[: max(len(older) + 1 - keep, 0)]:
      folder.remove(other)

  def wait(self) -> None:
    """Waits until this process has written all checkpoints.

    Raises:
      InputError: The disk is full; older checkpoints are intact.
      StoreError: The store failed; older checkpoints are intact.
    """
    saving, self._saving = self._saving, None
    if saving is not None:
      with _write_errors(self.workdir):
        saving.result()

  def wait_for_all(self) -> None:
    """Waits until all hosts have finished writing; every host must call it."""
    saving = [self._saving] if self._saving else []
    hosts.barrier(
      lambda: not futures.wait(saving, timeout=hosts.POLL_SECONDS).not_done
    )
    self.wait()

  def close(self) -> None:
    """Waits until all checkpoints are written, then ends the threads."""
    try:
      self.wait()
    finally:
      self._orbax.close()
      logging.get_absl_logger().removeFilter(_is_not_orbax_traceback)
      self._pool.shutdown()

  def restore(self, abstract: Tree) -> tuple[int, Tree, Progress] | None:
    """Returns the newest intact checkpoint, or None if there is none.

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
      raise no_intact_checkpoint_error(self.workdir, corrupt)
    for step, reason in corrupt.items():
      self._set_aside(step, reason)
    if not intact:
      return None
    ((step, (state, metadata)),) = intact
    path = ConfigPath("metadata.content")
    progress = from_config(Progress, metadata["content"], path, CHECKPOINT_MODE)
    return step, state, progress

  def _set_aside(self, step: int, reason: str) -> None:
    """Renames a corrupt train state so that it is not read again."""
    new_path = self.workdir / f"corrupt-{step}-{secrets.token_hex(4)}"
    logging.warning(
      "skipped a corrupt checkpoint, now %s: %s", new_path, reason
    )
    if self._is_main and self._is_remote:
      remote.move(self.last.path(step), new_path, last=METADATA_FILE)
    elif self._is_main:
      os.rename(self.last.path(step), new_path)


def _remove_failed(folder: pathlib.Path) -> None:
  """Removes the directory of a failed save."""
  # Orbax raises the first error while its other writes go on, which create the
  # directory again if it was removed.
  for _ in range(_REMOVALS):
    shutil.rmtree(folder, ignore_errors=True)
    time.sleep(_PAUSE)


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


@contextlib.contextmanager
def _write_errors(workdir: pathlib.Path) -> Iterator[None]:
  """Reports a full disk or a failing object store as one error message."""
  try:
    yield
  except (InputError, StoreError):
    raise
  except Exception as error:  # Orbax raises many kinds
    full = ("No space left", "Disk quota", "File too large")
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if getattr(error, "errno", None) in codes or any(
      words in str(error) for words in full
    ):
      raise InputError(
        f"disk full while saving to {workdir}. The existing checkpoints are "
        "complete; free some space, or raise the limit of file sizes (ulimit "
        "-f), and run the same command again."
      ) from None
    if remote.is_remote(workdir):
      message = (str(error).splitlines() or [repr(error)])[0][:300].rstrip(".")
      raise StoreError(
        f"{workdir}: a checkpoint could not be written ({message}). Older "
        "checkpoints are complete; run the same command again."
      ) from error
    raise
