"""One folder of checkpoints, which may be written to meanwhile.

  STEP/state or STEP/params   the arrays, as Orbax lays them out
  STEP/page.json              what belongs to them, and the sums of all of it

On an object store the page is written last and removed first: what has none is no
checkpoint.

A checkpoint that its writer takes away while it is read is no fault. One that is
damaged raises `CorruptFileError`; what the machine lacks (memory, permissions,
open files) does not, or whole ones would be passed over for it.

After this file: `checkpoint`, which writes them, and `reader`, for those who
only read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxsyn.data.store.manifest_format import File
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.options.bounds import TextPattern
from jaxsyn.storage import checksums, files, lock, remote
from jaxsyn.training import hosts, sums

Tree = Any

RECORD_FILE = "page.json"  # beside the arrays of a checkpoint
FilePath = Annotated[
  str,
  TextPattern(
    r"[\w.-]*[\w-][\w.-]*(/[\w.-]*[\w-][\w.-]*)*", "a file of the checkpoint"
  ),
]
_STEP = "0|[1-9][0-9]*"
TRIES = 20  # where the writer is quicker than the reader

# Faults of the machine, in the words of the system and of Orbax's parts: no
# reason to pass over a checkpoint that may be whole.
_MACHINE_CODES = (
  *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE),
  errno.ENOMEM,
)
_MACHINE = (
  *("RESOURCE_EXHAUSTED", "PERMISSION_DENIED"),
  *map(os.strerror, _MACHINE_CODES),
)


@dataclasses.dataclass(frozen=True)
class _CheckpointRecord:
  """Types of a JSON page; `content` depends on the folder."""

  content: dict[str, Any]
  arrays: dict[str, sums.ArraySums]
  files: dict[FilePath, File]


class CorruptFileError(Exception):
  """A checkpoint is not as it was saved; the message says where."""


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
  """A folder of checkpoints, each in a folder named by its step.

  Attributes:
    folder: holds them.
    item: what its arrays are called.
    content: dataclass of the content of its pages.
  """

  folder: pathlib.Path
  item: str
  content: type

  def steps(self) -> list[int]:
    """Steps of the finished checkpoints, oldest first."""
    if remote.is_remote(self.folder):
      ends = (
        f"/{RECORD_FILE}"  # what has no page yet, or none any more, is none
      )
      tagged = remote.tags(self.folder)
      names = [n.removesuffix(ends) for n in tagged if n.endswith(ends)]
      return sorted(int(n) for n in names if re.fullmatch(_STEP, n))
    try:
      names = [p.name for p in self.folder.iterdir() if p.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
      return []
    # What is unfinished, or anybody else's, has another name.
    return sorted(int(n) for n in names if re.fullmatch(_STEP, n))

  def begin(self) -> None:
    """Makes the folder, and removes what a killed process left unfinished.

    For its one writer alone.
    """
    if not remote.is_remote(self.folder):
      self.folder.mkdir(parents=True, exist_ok=True)
      files.remove_unfinished(self.folder)
      return
    existing = {str(step) for step in self.steps()}
    for name in remote.tags(self.folder):
      step, _, inside = name.partition("/")
      if inside and re.fullmatch(_STEP, step) and step not in existing:
        remote.remove(self.folder, [name])

  def path(self, step: int) -> pathlib.Path:
    """The folder of one checkpoint, there or not."""
    return self.folder / str(step)

  def record(self, step: int) -> dict[str, Any]:
    """Its JSON page: "content", and the sums of its "arrays" and "files".

    Raises:
      Damaged: it is not there, or not as it was written.
    """
    path = self.path(step) / RECORD_FILE
    try:
      record = checksums.verify_checksum(files.read_json(path))
      from_config(
        _CheckpointRecord, record, ConfigPath("page"), CHECKPOINT_MODE
      )
      from_config(
        self.content,
        record["content"],
        ConfigPath("page.content"),
        CHECKPOINT_MODE,
      )
    except ValueError as error:
      reason = str(error).rstrip(".")
      raise CorruptFileError(
        f"{path} is not as it was written: {reason}"
      ) from None
    except OSError as error:
      if _of_the_machine(error):
        raise
      raise CorruptFileError(f"{path}: {error.strerror}") from None
    return record

  @contextlib.contextmanager
  def in_use(self, step: int) -> Iterator[None]:
    """Its writer does not take the checkpoint away meanwhile.

    By a shared lock on the folder, for which nothing is written. Where the file
    system has none, the checkpoint may go, and reading it fails.

    Raises:
      Damaged: it is not there.
    """
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(lock.flock(self.path(step), fcntl.LOCK_SH))
      except (FileNotFoundError, NotADirectoryError) as error:
        raise CorruptFileError(f"{self.path(step)}: {error.strerror}") from None
      yield

  def remove(self, step: int) -> None:
    """Removes a checkpoint that nobody reads; one that is read goes next time."""
    path, how = self.path(step), fcntl.LOCK_EX | fcntl.LOCK_NB
    with contextlib.suppress(BlockingIOError), lock.flock(path, how):
      files.remove_folder(path, RECORD_FILE)

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
      if not remote.is_remote(self.folder):
        return self._read(step, abstract, part=part, place=self.path(step))
      # Orbax opens no s3://; and what is here is compared with the page.
      with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
        place = pathlib.Path(temporary)
        return self._read(step, abstract, part=part, place=place)

  def _read(
    self, step: int, abstract: Tree, *, part: str, place: pathlib.Path
  ) -> tuple[Tree, dict[str, Any]]:
    """As `read`; `place` is where its files are, or are fetched to."""
    record: dict[str, Any] = {}
    reason = ""
    try:
      record = self.record(step)
      if place != self.path(step):
        self._fetch(step, record, place)
      # Before Orbax sees them: of some damage its threads print tracebacks.
      reason = checksums.corrupt_files(place, record["files"])
      reason = reason.replace(str(place), str(self.path(step)))
      if any(word in reason for word in _MACHINE):
        raise InputError(
          f"{reason}. Nothing says that it is damaged: mend that (permissions, "
          "ulimit -n, memory), and run the same command again."
        )
    except CorruptFileError as error:
      reason = str(error)
    _on_all_hosts(reason)
    prefix = f"{part}/" if part else ""
    expected = {
      name.removeprefix(prefix): entry
      for name, entry in record["arrays"].items()
      if name.startswith(prefix)
    }
    _agree(expected, abstract, self.path(step))
    item = jax.tree.map(_placed, abstract)
    item = {part: item} if part else item
    try:
      with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        tree = reader.restore(
          place / self.item,
          args=ocp.args.PyTreeRestore(
            item=item,
            restore_args=ocp.checkpoint_utils.construct_restore_args(item),
            partial_restore=bool(part),
          ),
        )
      tree = tree[part] if part else tree
      if difference := sums.differing(tree, expected):
        reason = f"{self.path(step)}: {difference}"
    except Exception as error:  # Orbax raises many kinds for damaged files
      if _of_the_machine(error):
        raise
      reason = (str(error).splitlines() or [repr(error)])[0][:200]
      reason = f"{self.path(step)}: {reason}"
    _on_all_hosts(reason)
    return tree, record

  def _fetch(
    self, step: int, record: dict[str, Any], place: pathlib.Path
  ) -> None:
    """Copies a checkpoint from its store; Damaged where a file is missing."""
    needed = sum(facts["bytes"] for facts in record["files"].values())
    free = shutil.disk_usage(place).free
    if free < needed:
      raise InputError(
        f"disk full: to read {self.path(step)} a copy of "
        f"{files.readable(needed)} is made in {place.parent}, where "
        f"{files.readable(free)} are free. Free some space, or set TMPDIR to a "
        "folder with more."
      )
    try:
      remote.download(self.path(step), place, record["files"])
    except FileNotFoundError as error:
      raise CorruptFileError(
        f"{error.filename}: a file of it is missing"
      ) from None

  def newest(
    self,
    read: Callable[[int], Any],
    count: int = 1,
    order: Callable[[int], Any] | None = None,
  ) -> tuple[list[tuple[int, Any]], dict[int, str]]:
    """The newest whole checkpoints.

    Args:
      read: of a step; raises Damaged.
      count: of checkpoints wanted.
      order: of a step, what is largest for the one wanted first; None: the
        newest.

    Returns:
      [(step, what was read)] in that order, fewer if there are no more; and
      step -> why of those before the last that are damaged.
    """
    for left in reversed(range(TRIES)):
      steps = self.steps()
      intact: list[tuple[int, Any]] = []
      corrupt: dict[int, str] = {}
      for step in sorted(steps, key=order, reverse=True):
        try:
          intact.append((step, read(step)))
        except CorruptFileError as error:
          if left and self.steps() != steps:
            break  # its writer goes on: begin again from what is newest now
          corrupt[step] = str(error)
        if len(intact) == count:
          return intact, corrupt
      else:
        return intact, corrupt
    return intact, corrupt


def no_intact_checkpoint_error(
  workdir: pathlib.Path, corrupt: dict[int, str]
) -> InputError:
  """What is said where every checkpoint is damaged, or there is none.

  Args:
    workdir: of the run.
    corrupt: step -> why.
  """
  if not corrupt:
    return InputError(
      f"{workdir} has no checkpoint. There are: none; train first."
    )
  return InputError(
    f"no checkpoint in {workdir} is whole ({'; '.join(corrupt.values())}). Bring "
    "the folder back from a copy, or train again in another --workdir."
  )


def _on_all_hosts(reason: str) -> None:
  """Raises Damaged where any process has a reason: all pass over the same."""
  if first := hosts.first_reason_on_any_host(reason):
    raise CorruptFileError(first)


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


def _agree(saved: sums.Sums, wanted: Tree, path: pathlib.Path) -> None:
  """Raises InputError unless a checkpoint has the arrays of a tree."""
  saved_arrays = {n: (tuple(e["shape"]), e["dtype"]) for n, e in saved.items()}
  wanted_arrays = {
    n: (tuple(leaf.shape), str(leaf.dtype))
    for n, leaf in sums.named(wanted).items()
  }
  if saved_arrays == wanted_arrays:
    return
  complaints = []
  for text, a, b in (
    ("Only in the checkpoint", saved_arrays, wanted_arrays),
    ("Only in the model", wanted_arrays, saved_arrays),
  ):
    only = sorted(set(a) - set(b))
    if only:
      more = f" and {len(only) - 4} more" if len(only) > 4 else ""
      complaints.append(f"{text}: {', '.join(only[:4])}{more}.")
  for name in sorted(set(saved_arrays) & set(wanted_arrays)):
    (shape_there, type_there), (shape_here, type_here) = (
      saved_arrays[name],
      wanted_arrays[name],
    )
    if shape_there != shape_here:
      complaints.append(f"{name} is {shape_there} there and {shape_here} here.")
      break
    if type_there != type_here:
      complaints.append(f"{name} is {type_there} there and {type_here} here.")
      break
  raise InputError(
    f"checkpoint {path} is of another model. {' '.join(complaints)} Use the "
    "config it was trained with, or another --workdir."
  )
