"""Saving and resuming a run, with Orbax.

  WORKDIR/checkpoints/STEP   the newest train states, to resume from
  WORKDIR/best/STEP          the best parameters by config.train.selection

page.json in each has the position in the data, the best score, the minutes trained,
and checksums of all arrays and files. A checkpoint is written in the background to
a temporary directory, flushed to the disk and renamed; older ones are removed after
that. On gs:// it is written in place, page.json last. A kill at any moment therefore
leaves complete checkpoints only. A corrupt checkpoint is renamed to
WORKDIR/damaged-STEP or WORKDIR/damaged-best-STEP, with a warning.

Only the process that locked the run directory creates `Checkpoints`; others use
`jaxsyn.training.reader.CheckpointReader`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from absl import logging
from flax import traverse_util

from jaxsyn.errors import InputError, StoreError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.storage import checksums, files, remote
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training import hosts
from jaxsyn.training.array_writer import ArrayWriter
from jaxsyn.training.folder import (
  RECORD_FILE,
  CheckpointFolder,
  no_intact_checkpoint_error,
)
from jaxsyn.training.reader import CheckpointReader, Progress

Tree = Any


class Checkpoints(CheckpointReader):
  """The checkpoints of one run, for the process that trains it."""

  def __init__(self, workdir: pathlib.Path | str, keep: int = 3):
    """Creates the directories, and removes unfinished checkpoints.

    Args:
      workdir: Run directory.
      keep: Number of train states to keep.
    """
    super().__init__(workdir)
    self._keep = keep
    self._is_main = jax.process_index() == 0
    if self._is_main:
      for folder in (self.last, self.best):
        folder.create()
    self._writer = ArrayWriter()
    self._pool = ThreadPoolExecutor(1, "checkpoints")
    self._saving: Future[None] | None = None

  def save(self, step: int, state: Tree, progress: Progress) -> None:
    """Starts saving; returns when the state may be changed again."""
    content = dataclasses.asdict(progress)
    self._save(self.last, step, tree=state, content=content)

  def save_best(self, step: int, params: Tree, score: dict[str, Any]) -> None:
    """Starts saving the best parameters so far and their score."""
    self._save(self.best, step, tree=params, content=score)

  def _save(
    self,
    folder: CheckpointFolder,
    step: int,
    *,
    tree: Tree,
    content: Mapping[str, Any],
  ) -> None:
    self.wait_for_all()  # an unfinished checkpoint still needs its space
    # A resumed run may evaluate a step again. The main process decides, since all
    # must do the same.
    exists = self._is_main and step in folder.steps()
    if hosts.all_gather_json(exists)[0]:
      return
    on_store = remote.is_remote(self.workdir)
    # The same path on all hosts.
    new = folder.path(step)
    if not on_store:
      self._check_space(tree)
      new = folder.folder / f".{step}{files.PARTIAL}"
    with _write_errors(self.workdir):
      finish_arrays = self._writer.start(new, folder.item, tree)

    def finish() -> None:
      try:
        record = {"content": content, "arrays": finish_arrays(), "files": {}}
        if not self._is_main:
          return
        if (
          not on_store
        ):  # there the arrays' checksums do: nothing is read again
          record["files"] = checksums.file_checksums(
            new, sorted(files.names(new))
          )
        files.write_json(new / RECORD_FILE, checksums.add_checksum(record))
        if not on_store:
          files.flush_tree(new)
          os.rename(new, folder.path(step))
          files.flush_folder(folder.folder)
        self._remove_older(folder, step)
      finally:
        # Exists only after an error. Only on the main process: others are done
        # sooner, and would remove what it still writes to.
        if self._is_main and not on_store:
          shutil.rmtree(new, ignore_errors=True)

    self._saving = self._pool.submit(finish)

  def _remove_older(self, folder: CheckpointFolder, step: int) -> None:
    count = self._keep if folder is self.last else 1
    other_steps = [other for other in folder.steps() if other != step]
    for other in other_steps[: max(len(other_steps) + 1 - count, 0)]:
      folder.remove(other)

  def _check_space(self, tree: Tree) -> None:
    """Raises InputError for a full disk before Orbax's threads fail."""
    needed = sum(x.nbytes for x in jax.tree.leaves(tree))
    free = shutil.disk_usage(self.workdir).free
    if free < needed:
      raise InputError(
        f"disk full: a checkpoint in {self.workdir} needs "
        f"{files.readable(needed)}, and {files.readable(free)} are free. The "
        "checkpoints there are whole; free some space and run the same command "
        "again."
      )

  def wait(self) -> None:
    """Waits until everything is written.

    Raises:
      InputError: The disk is full; older checkpoints are intact.
      StoreError: The store failed; older checkpoints are intact.
    """
    saving, self._saving = self._saving, None
    if saving is not None:
      with _write_errors(self.workdir):
        saving.result()

  def wait_for_all(self) -> None:
    """Waits until no host writes any more; all hosts must call it."""
    saving = [self._saving] if self._saving else []
    hosts.barrier(
      lambda: not futures.wait(saving, timeout=hosts.POLL_SECONDS).not_done
    )
    self.wait()

  def close(self) -> None:
    """Waits until everything is written, and ends the threads."""
    try:
      self.wait()
    finally:
      self._writer.close()
      self._pool.shutdown()

  def restore(self, abstract: Tree) -> tuple[int, Tree, Progress] | None:
    """Returns the newest intact checkpoint, or None if there is none.

    Corrupt checkpoints, also of the best parameters, are renamed.

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
      self._set_aside(self.last, step, reason=reason, name=f"damaged-{step}")
    if not intact:
      return None
    for step in self.best.steps():
      if reason := self._corruption_of_best(step):
        name = f"damaged-best-{step}"
        self._set_aside(self.best, step, reason=reason, name=name)
    ((step, (state, content)),) = intact
    at = ConfigPath("page.content")
    progress = from_config(Progress, content["content"], at, CHECKPOINT_MODE)
    return step, state, progress

  def _corruption_of_best(self, step: int) -> str:
    """Describes the corruption of best parameters; "" if they are intact."""
    try:
      # NumPy arrays stay on the host, whose memory is large enough.
      arrays = {
        name: np.broadcast_to(np.zeros((), entry["dtype"]), entry["shape"])
        for name, entry in self.best.record(step)["arrays"].items()
      }
      self.best.read(step, traverse_util.unflatten_dict(arrays, sep="/"))
    except CorruptFileError as error:
      return str(error)
    except InputError:  # an error of the machine, such as no permission
      raise
    except (TypeError, ValueError) as error:  # no such type, shape or tree
      return f"{self.best.path(step) / RECORD_FILE}: {error}"
    return ""

  def _set_aside(
    self, folder: CheckpointFolder, step: int, *, reason: str, name: str
  ) -> None:
    """Renames a corrupt checkpoint."""
    names = itertools.chain([name], (f"{name}.{n}" for n in itertools.count(1)))
    on_store = remote.is_remote(self.workdir)
    new_path = next(
      path
      for path in (self.workdir / name for name in names)
      if not (remote.sizes(path) if on_store else os.path.lexists(path))
    )
    logging.warning(
      "skipped a corrupt checkpoint, now %s: %s",
      new_path,
      reason,
    )
    if self._is_main and on_store:
      remote.move(folder.path(step), new_path, last=RECORD_FILE)
    elif self._is_main:
      os.rename(folder.path(step), new_path)


@contextlib.contextmanager
def _write_errors(workdir: pathlib.Path) -> Iterator[None]:
  """Turns the exceptions of Orbax for a full disk or a store into one message."""
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
        f"disk full while saving to {workdir}. Nothing half-written counts as a "
        "checkpoint; free some space, or raise the limit of file sizes (ulimit "
        "-f), and run the same command again."
      ) from None
    if remote.is_remote(workdir):
      message = (str(error).splitlines() or [repr(error)])[0][:300].rstrip(".")
      raise StoreError(
        f"{workdir}: a checkpoint could not be written ({message}). Older "
        "checkpoints are complete; run the same command again."
      ) from error
    raise
