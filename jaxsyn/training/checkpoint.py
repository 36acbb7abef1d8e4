"""Saving and finding runs again, with Orbax.

A checkpoint holds the whole state and a JSON page: position in the data, best
score, minutes trained, config and hashes. Orbax writes to a temporary folder
and renames it, so a kill at any moment leaves whole checkpoints only; one that
was damaged afterwards is passed over with a warning.

  WORKDIR/checkpoints/STEP   the last few, to go on from
  WORKDIR/best/STEP          parameters of the best validation, and its score
"""

from __future__ import annotations

import dataclasses
import errno
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from jaxsyn.errors import InputError

Tree = Any


@dataclasses.dataclass
class Progress:
  """The JSON page of a checkpoint.

  Attributes:
    epoch, batch: position in the data, the next batch to be read.
    minutes: of training, all resumes together.
    best_step: of the best validation; -1 before the first.
    best_score: of that, by config.train.selection.
    best_rank: what others are compared with; empty before the first.
    bad: evaluations since the best one, for early stopping.
    tokens: real target subwords trained on.
  """

  epoch: int = 0
  batch: int = 0
  minutes: float = 0.0
  best_step: int = -1
  best_score: float = 0.0
  best_rank: list[float] = dataclasses.field(default_factory=list)
  bad: int = 0
  tokens: int = 0


class Checkpoints:
  """The checkpoints of one run."""

  def __init__(self, workdir: pathlib.Path, keep: int = 3):
    self.workdir = pathlib.Path(workdir).absolute()
    self._last = self._manager("checkpoints", keep, "state", "progress")
    self._best = self._manager("best", 1, "params", "score")

  def _manager(
    self, name: str, keep: int, tree: str, page: str
  ) -> ocp.CheckpointManager:
    return ocp.CheckpointManager(
      self.workdir / name,
      item_handlers={
        tree: ocp.StandardCheckpointHandler(),
        page: ocp.JsonCheckpointHandler(),
      },
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, cleanup_tmp_directories=True, create=True
      ),
    )

  def save(self, step: int, state: Tree, progress: Progress) -> None:
    """Starts saving; returns when the state may be changed again."""
    if step in self._last.all_steps():
      return
    self._check_space(state)
    with _disk_errors(self.workdir):
      self._last.save(
        step,
        args=ocp.args.Composite(
          state=ocp.args.StandardSave(state),
          progress=ocp.args.JsonSave(dataclasses.asdict(progress)),
        ),
      )

  def save_best(self, step: int, params: Tree, score: dict[str, Any]) -> None:
    """Keeps these parameters as the best so far, and what they scored."""
    if step in self._best.all_steps():  # evaluated again after a resume
      return
    self._check_space(params)
    with _disk_errors(self.workdir):
      self._best.save(
        step,
        args=ocp.args.Composite(
          params=ocp.args.StandardSave(params),
          score=ocp.args.JsonSave(score),
        ),
      )

  def _check_space(self, tree: Tree) -> None:
    """Says that the disk is full before Orbax's threads find out."""
    needed = sum(x.nbytes for x in jax.tree.leaves(tree))
    self.wait()  # what is being written still takes its space
    free = shutil.disk_usage(self.workdir).free
    if free < needed:
      raise InputError(
        f"disk full: a checkpoint in {self.workdir} needs {needed / 2**20:.0f} "
        f"MiB, and {free / 2**20:.0f} are free. The checkpoints there are "
        "whole; free some space and run the same command again."
      )

  def wait(self) -> None:
    """Returns when everything is on disk.

    Raises:
      InputError: it could not be written; older checkpoints are untouched.
    """
    with _disk_errors(self.workdir):
      self._last.wait_until_finished()
      self._best.wait_until_finished()

  def close(self) -> None:
    self._last.close()
    self._best.close()

  def steps(self) -> list[int]:
    """Steps of the kept checkpoints, oldest first."""
    return sorted(self._last.all_steps())

  def best_step(self) -> int | None:
    return self._best.latest_step()

  def best_score(self) -> dict[str, Any] | None:
    """What `save_best` was told of the best; None before the first."""
    step = self.best_step()
    if step is None:
      return None
    page = ocp.args.Composite(score=ocp.args.JsonRestore())
    return {"step": step, **self._best.restore(step, args=page)["score"]}

  def restore(self, abstract: Tree) -> tuple[int, Tree, Progress] | None:
    """The newest checkpoint that can be read, or None where there is none.

    Args:
      abstract: the state's shapes, types and shardings.

    Raises:
      InputError: the checkpoint is of another model; both sides are named.
    """
    for step in reversed(self.steps()):
      try:
        _compare(self._last, step, "state", abstract)
        restored = self._last.restore(
          step,
          args=ocp.args.Composite(
            state=ocp.args.StandardRestore(abstract),
            progress=ocp.args.JsonRestore(),
          ),
        )
      except InputError:
        raise
      except Exception as error:  # Orbax raises many kinds for damaged files
        logging.warning(
          "checkpoint %s/checkpoints/%d cannot be read and is passed over: %s",
          self.workdir,
          step,
          str(error).splitlines()[0][:200] if str(error) else type(error),
        )
        shutil.move(
          self.workdir / "checkpoints" / str(step),
          self.workdir / f"damaged-{step}",
        )
        self._last.reload()
        continue
      return step, restored["state"], Progress(**restored["progress"])
    return None

  def restore_params(self, which: str, abstract: Tree, ema: bool) -> Tree:
    """Parameters to translate with.

    Args:
      which: "best", "last", or a step.
      abstract: shapes of the parameters.
      ema: the run keeps a moving average, which stands in for the parameters.

    Raises:
      InputError: no such checkpoint, or of another model.
    """
    if which == "best" and self.best_step() is not None:
      step = self.best_step()
      _compare(self._best, step, "params", abstract)
      restored = self._best.restore(
        step,
        args=ocp.args.Composite(
          params=ocp.args.StandardRestore(_on_one_device(abstract))
        ),
      )
      return restored["params"]
    steps = self.steps()
    if which in ("best", "last"):
      step = steps[-1] if steps else None
    else:
      step = int(which) if which.isdigit() else None
    if step not in steps:
      raise InputError(
        f"{self.workdir} has no checkpoint {which!r}. There are: "
        f"{', '.join(map(str, steps)) or 'none; train first'}."
      )
    return self._params_of(step, abstract, ema)

  def average_params(self, number: int, abstract: Tree, ema: bool) -> Tree:
    """Mean of the parameters of the last checkpoints.

    Raises:
      InputError: fewer than `number` are kept.
    """
    steps = self.steps()[-number:]
    if len(steps) < number:
      raise InputError(
        f"config.train.average={number}, but {self.workdir} has only "
        f"{len(steps)} checkpoints."
      )
    trees = [self._params_of(step, abstract, ema) for step in steps]
    return jax.tree.map(lambda *x: sum(x[1:], x[0]) / number, *trees)

  def _params_of(self, step: int, abstract: Tree, ema: bool) -> Tree:
    name = "ema" if ema else "params"
    found = _metadata(self._last, step, "state")
    if name not in found:
      raise InputError(f"{self.workdir}/checkpoints/{step} has no {name}.")
    # Orbax reads the whole item; only this part of it is kept.
    whole = _on_one_device(found)
    _agree(found[name], abstract, f"{self.workdir}/checkpoints/{step}")
    restored = self._last.restore(
      step, args=ocp.args.Composite(state=ocp.args.StandardRestore(whole))
    )
    return restored["state"][name]


class _disk_errors:
  """Turns a full disk inside Orbax into one message."""

  def __init__(self, workdir: pathlib.Path):
    self._workdir = workdir

  def __enter__(self):
    return self

  def __exit__(self, kind, error, trace):
    full = ("No space left", "RESOURCE_EXHAUSTED", "Disk quota")
    if isinstance(error, OSError) and error.errno in (
      errno.ENOSPC,
      errno.EDQUOT,
    ):
      pass
    elif error is None or not any(word in str(error) for word in full):
      return False
    raise InputError(
      f"disk full while saving to {self._workdir}. Nothing half-written "
      "counts as a checkpoint; free some space and run the same command again."
    ) from None


def _on_one_device(tree: Tree) -> Tree:
  """What to restore onto this host's first device, however it was saved."""
  device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), tree
  )


def _metadata(manager: ocp.CheckpointManager, step: int, item: str) -> Tree:
  found = manager.item_metadata(step)[item]
  return getattr(found, "tree", found)


def _compare(manager, step: int, item: str, abstract: Tree) -> None:
  where = f"{manager.directory}/{step}"
  _agree(_metadata(manager, step, item), abstract, where)


def _agree(found: Tree, wanted: Tree, where: str) -> None:
  """Raises InputError unless both trees have the same arrays."""

  def named(tree):
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
      "/".join(_name(key) for key in path): tuple(np.shape(leaf))
      if not hasattr(leaf, "shape")
      else tuple(leaf.shape)
      for path, leaf in leaves
    }

  found, wanted = named(found), named(wanted)
  if found == wanted:
    return
  complaints = []
  for text, a, b in (
    ("Only in the checkpoint", found, wanted),
    ("Only in the model", wanted, found),
  ):
    only = sorted(set(a) - set(b))
    if only:
      more = f" and {len(only) - 4} more" if len(only) > 4 else ""
      complaints.append(f"{text}: {', '.join(only[:4])}{more}.")
  for name in sorted(set(found) & set(wanted)):
    if found[name] != wanted[name]:
      complaints.append(
        f"{name} is {found[name]} there and {wanted[name]} here."
      )
      break
  raise InputError(
    f"checkpoint {where} is of another model. {' '.join(complaints)} Use the "
    "config it was trained with, or another --workdir."
  )


def _name(key: Any) -> str:
  for attribute in ("key", "name", "idx"):
    if hasattr(key, attribute):
      return str(getattr(key, attribute))
  return str(key)
