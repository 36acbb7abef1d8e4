"""Saving a run, and going on with it, with Orbax.

  WORKDIR/checkpoints/STEP   the last few, to go on from: the whole state
  WORKDIR/best/STEP          the best parameters by config.train.selection

Beside the arrays of each stands a JSON page: position in the data, best score,
minutes trained, the sums of every array and file; the page has a sum itself.
All of it is written in the background to a temporary folder, flushed to the disk
and renamed; then older ones go. So a kill at any moment leaves whole ones only.
On an object store the folder is copied, its page last, by the first process alone.
One that was damaged afterwards is set aside as WORKDIR/damaged-STEP, or
WORKDIR/damaged-best-STEP, in words.

Only the one process that has the run's lock makes a `Checkpoints`; all others
read with `jaxsyn.training.reader.Reader`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from absl import logging
from flax import traverse_util

from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.storage import checksums, files, lease, remote
from jaxsyn.training import hosts
from jaxsyn.training.array_writer import ArrayWriter
from jaxsyn.training.folder import (
  RECORD_FILE,
  CheckpointFolder,
  CorruptFileError,
  no_intact_checkpoint_error,
)
from jaxsyn.training.reader import CheckpointReader, Progress

Tree = Any


class Checkpoints(CheckpointReader):
  """The checkpoints of one run, for the process that trains it."""

  def __init__(self, workdir: pathlib.Path | str, keep: int = 3):
    """Makes the folders, and removes what a killed process left unfinished.

    Args:
      workdir: of the run.
      keep: checkpoints to go on from.
    """
    super().__init__(workdir)
    self._stack = contextlib.ExitStack()
    self._keep = keep
    self._primary = jax.process_index() == 0
    if self._primary:
      for folder in (self.last, self.best):
        folder.begin()
    # Where they are written first: object stores know no renaming.
    self._here = self._stack.enter_context(_staging(self.workdir))
    self._writer = ArrayWriter(shared=self._here is None)
    self._pool = ThreadPoolExecutor(1, "checkpoints")
    self._saving: Future[None] | None = None

  def save(self, step: int, state: Tree, progress: Progress) -> None:
    """Starts saving; returns when the state may be changed again."""
    content = dataclasses.asdict(progress)
    self._save(self.last, step, tree=state, content=content)

  def save_best(self, step: int, params: Tree, score: dict[str, Any]) -> None:
    """Keeps these parameters as the best so far, and what they scored."""
    self._save(self.best, step, tree=params, content=score)

  def _save(
    self,
    folder: CheckpointFolder,
    step: int,
    *,
    tree: Tree,
    content: Mapping[str, Any],
  ) -> None:
    self.wait_for_all()  # what is being written still takes its space
    # It is there where a step was evaluated again after a resume. One asks, for
    # all are to go the same way.
    is_there = self._primary and step in folder.steps()
    if hosts.all_gather_json(is_there)[0]:
      return
    tree = self._writer.copied(tree)
    if tree is None:
      return
    self._check_space(tree)
    # In all processes that write the same.
    new = (self._here or folder.folder) / f".{step}{files.PARTIAL}"
    with _disk_errors(self.workdir):
      written = self._writer.begin(new, folder.item, tree)

    def finish() -> None:
      try:
        record = {"content": content, "arrays": written()}
        if self._primary:
          paths = (path for path in new.rglob("*") if path.is_file())
          names = sorted(str(path.relative_to(new)) for path in paths)
          record["files"] = checksums.file_checksums(new, names)
          files.write_json(new / RECORD_FILE, checksums.add_checksum(record))
          if self._here:
            lease.check(folder.folder)
            files.replace_folder(new, folder.path(step), RECORD_FILE)
          else:
            files.flush_tree(new)
            os.rename(new, folder.path(step))
            files.flush_folder(folder.folder)
          self._remove_older(folder, step)
      finally:
        # There only if that failed, and the first process's alone: others were
        # done sooner, and took away what it was still writing to.
        if self._primary:
          shutil.rmtree(new, ignore_errors=True)

    self._saving = self._pool.submit(finish)

  def _remove_older(self, folder: CheckpointFolder, step: int) -> None:
    count = self._keep if folder is self.last else 1
    other_steps = [other for other in folder.steps() if other != step]
    for other in other_steps[: max(len(other_steps) + 1 - count, 0)]:
      folder.remove(other)

  def _check_space(self, tree: Tree) -> None:
    """Says that the disk is full before Orbax's threads find out."""
    needed = sum(x.nbytes for x in jax.tree.leaves(tree))
    folder = self._here or self.workdir
    free = shutil.disk_usage(folder).free
    if free < needed:
      raise InputError(
        f"disk full: a checkpoint in {folder} needs {files.readable(needed)}, "
        f"and {files.readable(free)} are free. The checkpoints there are whole; "
        "free some space and run the same command again."
      )

  def wait(self) -> None:
    """Returns when everything is on disk.

    Raises:
      InputError: it could not be written; older checkpoints are untouched.
    """
    saving, self._saving = self._saving, None
    if saving is not None:
      with _disk_errors(self.workdir):
        saving.result()

  def wait_for_all(self) -> None:
    """As `wait`, until no process writes any more; called by all of them."""
    saving = [self._saving] if self._saving else []
    hosts.barrier(
      lambda: not futures.wait(saving, timeout=hosts.POLL_SECONDS).not_done
    )
    self.wait()

  def close(self) -> None:
    """Waits, and gives the threads back."""
    try:
      self.wait()
    finally:
      self._writer.close()
      self._pool.shutdown()
      self._stack.close()

  def restore(self, abstract: Tree) -> tuple[int, Tree, Progress] | None:
    """The newest checkpoint that is whole, or None where there is none.

    Those that are damaged, the best parameters too, are set aside.

    Args:
      abstract: the state's shapes, types and shardings.

    Raises:
      InputError: the checkpoint is of another model (both sides are named), or
        there are some and none is whole.
    """
    intact, corrupt = self.last.newest(
      lambda step: self.last.read(step, abstract)
    )
    if corrupt and not intact:  # before any is moved
      raise no_intact_checkpoint_error(self.workdir, corrupt)
    for step, why in corrupt.items():
      self._set_aside(self.last, step, why=why, name=f"damaged-{step}")
    if not intact:
      return None
    for step in self.best.steps():
      if why := self._fault_of_best(step):
        self._set_aside(self.best, step, why=why, name=f"damaged-best-{step}")
    ((step, (state, content)),) = intact
    at = ConfigPath("page.content")
    progress = from_config(Progress, content["content"], at, CHECKPOINT_MODE)
    return step, state, progress

  def _fault_of_best(self, step: int) -> str:
    """Why the best parameters are damaged; "" where they are whole."""
    try:
      # Arrays of NumPy stay on the host, where there is room for all.
      arrays = {
        name: np.broadcast_to(np.zeros((), entry["dtype"]), entry["shape"])
        for name, entry in self.best.record(step)["arrays"].items()
      }
      self.best.read(step, traverse_util.unflatten_dict(arrays, sep="/"))
    except CorruptFileError as error:
      return str(error)
    except InputError:  # a fault of the machine, such as no permission
      raise
    except (TypeError, ValueError) as error:  # no such type, shape or tree
      return f"{self.best.path(step) / RECORD_FILE}: {error}"
    return ""

  def _set_aside(
    self, folder: CheckpointFolder, step: int, *, why: str, name: str
  ) -> None:
    names = itertools.chain([name], (f"{name}.{n}" for n in itertools.count(1)))
    on_store = self._here is not None
    place = next(
      path
      for path in (self.workdir / name for name in names)
      if not (remote.tags(path) if on_store else os.path.lexists(path))
    )
    logging.warning(
      "a checkpoint is damaged, is passed over and kept as %s: %s", place, why
    )
    if self._primary and on_store:
      remote.move(folder.path(step), place, last=RECORD_FILE)
    elif self._primary:
      os.rename(folder.path(step), place)


@contextlib.contextmanager
def _staging(workdir: pathlib.Path) -> Iterator[pathlib.Path | None]:
  """A local folder for what goes to an object store; None where it does not."""
  if not remote.is_remote(workdir):
    yield None
    return
  with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
    yield pathlib.Path(temporary)


@contextlib.contextmanager
def _disk_errors(workdir: pathlib.Path) -> Iterator[None]:
  """Turns a full disk inside Orbax into one message."""
  try:
    yield
  except Exception as error:  # Orbax raises many kinds
    full = ("No space left", "Disk quota", "File too large")
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if getattr(error, "errno", None) not in codes and not any(
      word in str(error) for word in full
    ):
      raise
    raise InputError(
      f"disk full while saving to {workdir}. Nothing half-written counts as a "
      "checkpoint; free some space, or raise the limit of file sizes (ulimit "
      "-f), and run the same command again."
    ) from None
