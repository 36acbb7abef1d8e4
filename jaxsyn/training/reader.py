"""Reading the checkpoints of a run, which may be training meanwhile.

Nothing here writes, moves or removes: a folder that is another's, or read-only,
will do. A checkpoint that its writer takes away while it is read is no fault;
one that is damaged is passed over, which is said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from jaxsyn import files
from jaxsyn.errors import InputError
from jaxsyn.training import sums
from jaxsyn.training.sums import Damaged

Tree = Any

PAGE = "page.json"  # beside the arrays of a checkpoint
TRIES = 20  # where the writer is quicker than the reader

# Faults of the machine, in the words of Orbax's parts: no reason to pass over
# a checkpoint that may be whole.
_MACHINE = ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "Permission denied")
_MACHINE_CODES = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE)


@dataclasses.dataclass(frozen=True)
class Kept:
  """A folder of checkpoints, each in a folder named by its step.

  Attributes:
    folder: holds them.
    item: what its arrays are called.
  """

  folder: pathlib.Path
  item: str

  def steps(self) -> list[int]:
    """Steps of the finished checkpoints, oldest first."""
    try:
      names = [p.name for p in self.folder.iterdir() if p.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
      return []
    # What is unfinished has another name.
    return sorted(int(n) for n in names if n.isascii() and n.isdigit())

  def path(self, step: int) -> pathlib.Path:
    return self.folder / str(step)

  def page(self, step: int) -> dict[str, Any]:
    """What its JSON page says; raises Damaged."""
    return sums.unseal(self.path(step) / PAGE)

  @contextlib.contextmanager
  def in_use(self, step: int) -> Iterator[None]:
    """Its writer does not take the checkpoint away meanwhile.

    By a shared lock on the folder, for which nothing is written. Where the file
    system has none, the checkpoint may go, and reading it fails.
    """
    try:
      folder = os.open(self.path(step), os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError) as error:
      raise Damaged(f"{self.path(step)}: {error.strerror}") from None
    try:
      with contextlib.suppress(OSError):
        fcntl.flock(folder, fcntl.LOCK_SH)
      yield
    finally:
      os.close(folder)

  def remove(self, step: int) -> None:
    """Removes a checkpoint that nobody reads; one that is read stays."""
    folder = os.open(self.path(step), os.O_RDONLY)
    try:
      try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        return  # it goes with the next
      except OSError:
        pass
      files.remove_folder(self.path(step))
    finally:
      os.close(folder)

  def read(
    self, step: int, abstract: Tree, part: str = ""
  ) -> tuple[Tree, dict[str, Any]]:
    """The arrays, each compared with its sum, and the page.

    Args:
      step: of the checkpoint.
      abstract: shapes, types and, if not on one device, shardings.
      part: only what is below this name of the tree.

    Raises:
      Damaged: it is not as it was saved.
      InputError: it is of another model; the message names both sides.
    """
    with self.in_use(step):
      return self._read(step, abstract, part)

  def _read(
    self, step: int, abstract: Tree, part: str
  ) -> tuple[Tree, dict[str, Any]]:
    page, reason = None, ""
    try:
      page = self.page(step)
      # Before Orbax sees them: of some damage its threads print tracebacks.
      reason = files.damaged(self.path(step), page["files"])
      if any(word in reason for word in _MACHINE):
        raise InputError(f"{reason}. Change the permissions.")
    except Damaged as error:
      reason = str(error)
    _together(reason)
    prefix = f"{part}/" if part else ""
    expected = {
      name.removeprefix(prefix): entry
      for name, entry in page["arrays"].items()
      if name.startswith(prefix)
    }
    _agree(expected, abstract, str(self.path(step)))
    item = jax.tree.map(_placed, abstract)
    item = {part: item} if part else item
    try:
      with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        found = reader.restore(
          self.path(step) / self.item,
          args=ocp.args.PyTreeRestore(
            item=item,
            restore_args=ocp.checkpoint_utils.construct_restore_args(item),
            partial_restore=bool(part),
          ),
        )
      found = found[part] if part else found
      if name := sums.differing(found, expected):
        reason = f"{self.path(step)}: {name}"
    except Exception as error:  # Orbax raises many kinds for damaged files
      if _of_the_machine(error):
        raise
      reason = (str(error).splitlines() or [repr(error)])[0][:200]
      reason = f"{self.path(step)}: {reason}"
    _together(reason)
    return found, page

  def newest(
    self, read: Callable[[int], Any], number: int = 1
  ) -> tuple[list[tuple[int, Any]], dict[int, str]]:
    """The newest whole checkpoints.

    Args:
      read: of a step; raises Damaged.
      number: of checkpoints wanted.

    Returns:
      [(step, what was read)], newest first, fewer if there are no more; and
      step -> why of those newer ones that are damaged.
    """
    for left in reversed(range(TRIES)):
      steps = self.steps()
      found, bad = [], {}
      for step in reversed(steps):
        try:
          found.append((step, read(step)))
        except Damaged as error:
          if left and self.steps() != steps:
            break  # its writer goes on: begin again from what is newest now
          bad[step] = str(error)
        if len(found) == number:
          return found, bad
      else:
        return found, bad
    return found, bad


class Reader:
  """The checkpoints of one run, for those who only read them.

  Attributes:
    workdir: of the run.
    last, best: the newest to go on from, and the best parameters.
    taken: what `restore_params` gave last: "last" or "best", and the step.
  """

  def __init__(self, workdir: pathlib.Path | str):
    self.workdir = pathlib.Path(workdir).absolute()
    self.last = Kept(self.workdir / "checkpoints", "state")
    self.best = Kept(self.workdir / "best", "params")
    self.taken = ("", -1)

  def steps(self) -> list[int]:
    """Steps of the kept checkpoints, oldest first."""
    return self.last.steps()

  def best_step(self) -> int | None:
    """Step of the best parameters; None before the first validation."""
    return max(self.best.steps(), default=None)

  def best_score(self) -> dict[str, Any] | None:
    """What its writer was told of the best; None before the first."""
    found, _ = self.best.newest(self.best.page)
    return {"step": found[0][0], **found[0][1]["content"]} if found else None

  def restore_params(self, which: str, abstract: Tree, ema: bool) -> Tree:
    """Parameters to translate with.

    Damaged ones are passed over, with a warning: for the newest the one before,
    for the best the nearest that is kept.

    Args:
      which: "best", "last", or a step.
      abstract: shapes of the parameters.
      ema: the run keeps a moving average, which stands in for the parameters.

    Raises:
      InputError: no such checkpoint, none that is whole, or of another model.
    """
    if which == "best":
      found, bad = self.best.newest(
        lambda step: self.best.read(step, abstract)[0]
      )
      if found:
        ((step, params),) = found
        self.taken = ("best", step)
        return params
      if bad:
        (step, why), *_ = bad.items()
        return self._nearest(step, why, abstract, ema)
      if (step := self._best_said()) >= 0:
        why = f"{self.best.folder} is empty"
        return self._nearest(step, why, abstract, ema)
    if which in ("best", "last"):
      ((step, params),) = self._newest(1, abstract, ema)
      self.taken = ("last", step)
      return params
    steps = self.steps()
    if not which.isdigit() or int(which) not in steps:
      raise InputError(
        f"{self.workdir} has no checkpoint {which!r}. There are: "
        f"{', '.join(map(str, steps)) or 'none; train first'}."
      )
    try:
      params = self._params_of(int(which), abstract, ema)
      self.taken = ("last", int(which))
      return params
    except Damaged as error:
      others = [str(step) for step in self.steps() if step != int(which)]
      raise InputError(
        f"checkpoint {which} is damaged or was removed ({error}). Choose "
        f"another: {', '.join(others) or 'there is none'}."
      ) from None

  def average_params(self, number: int, abstract: Tree, ema: bool) -> Tree:
    """Mean of the parameters of the last checkpoints that are whole.

    Raises:
      InputError: fewer than `number` are kept.
    """
    steps = self.steps()
    if len(steps) < number:
      raise InputError(
        f"config.train.average={number}, but {self.workdir} has only "
        f"{len(steps)} checkpoints."
      )
    trees = [tree for _, tree in self._newest(number, abstract, ema)]
    if len(trees) < number:
      raise InputError(
        f"config.train.average={number}, but only {len(trees)} checkpoints of "
        f"{self.workdir} are whole. Name one instead (--checkpoint last)."
      )
    trees.reverse()  # oldest first
    return jax.tree.map(lambda *x: sum(x[1:], x[0]) / number, *trees)

  def _newest(
    self, number: int, abstract: Tree, ema: bool
  ) -> list[tuple[int, Tree]]:
    found, bad = self.last.newest(
      lambda step: self._params_of(step, abstract, ema), number
    )
    for why in bad.values():
      logging.warning("a checkpoint is damaged and is passed over: %s", why)
    if not found:
      raise _none_left(self.workdir, bad)
    return found

  def _nearest(self, best: int, why: str, abstract: Tree, ema: bool) -> Tree:
    """Parameters of the kept step nearest to the best, which is damaged."""
    bad = {best: why}
    for step in sorted(self.steps(), key=lambda s: (abs(s - best), -s)):
      try:
        params = self._params_of(step, abstract, ema)
      except Damaged as error:
        bad[step] = str(error)
        continue
      logging.warning(
        "the best parameters, of step %d, are damaged (%s); those of step %d, "
        "the nearest that is kept, stand in for them",
        *(best, why, step),
      )
      self.taken = ("last", step)
      return params
    raise _none_left(self.workdir, bad)

  def _best_said(self) -> int:
    """The best step so far as the newest checkpoint knows it; or -1."""
    found, _ = self.last.newest(self.last.page)
    return found[0][1]["content"].get("best_step", -1) if found else -1

  def _params_of(self, step: int, abstract: Tree, ema: bool) -> Tree:
    name = "ema" if ema else "params"
    return self.last.read(step, abstract, name)[0]


def _none_left(workdir: pathlib.Path, bad: dict[int, str]) -> InputError:
  if not bad:
    return InputError(
      f"{workdir} has no checkpoint. There are: none; train first."
    )
  return InputError(
    f"no checkpoint in {workdir} is whole ({'; '.join(bad.values())}). Bring "
    "the folder back from a copy, or train again in another --workdir."
  )


def _together(reason: str) -> None:
  """Raises Damaged where any process has a reason: all pass over the same."""
  if found := next(filter(None, sums.everyone(reason)), ""):
    raise Damaged(found)


def _of_the_machine(error: Exception) -> bool:
  if isinstance(error, MemoryError):
    return True
  if isinstance(error, OSError) and error.errno in _MACHINE_CODES:
    return True
  return any(word in str(error) for word in _MACHINE)


def _placed(leaf: Any) -> Any:
  """Where nothing is said, on this host's first device."""
  if isinstance(leaf, np.ndarray):  # is read as one
    return leaf
  sharding = getattr(leaf, "sharding", None)
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _agree(found: sums.Sums, wanted: Tree, where: str) -> None:
  """Raises InputError unless a checkpoint has the arrays of a tree."""
  there = {n: (tuple(e["shape"]), e["dtype"]) for n, e in found.items()}
  here = {
    n: (tuple(leaf.shape), str(leaf.dtype))
    for n, leaf in sums.named(wanted).items()
  }
  if there == here:
    return
  complaints = []
  for text, a, b in (
    ("Only in the checkpoint", there, here),
    ("Only in the model", here, there),
  ):
    only = sorted(set(a) - set(b))
    if only:
      more = f" and {len(only) - 4} more" if len(only) > 4 else ""
      complaints.append(f"{text}: {', '.join(only[:4])}{more}.")
  for name in sorted(set(there) & set(here)):
    (shape_there, type_there), (shape_here, type_here) = there[name], here[name]
    if shape_there != shape_here:
      complaints.append(f"{name} is {shape_there} there and {shape_here} here.")
      break
    if type_there != type_here:
      complaints.append(f"{name} is {type_there} there and {type_here} here.")
      break
  raise InputError(
    f"checkpoint {where} is of another model. {' '.join(complaints)} Use the "
    "config it was trained with, or another --workdir."
  )
