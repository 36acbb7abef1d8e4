"""One directory of checkpoints, which another process may be writing to.

  STEP/state or STEP/params   the arrays, written by Orbax
  STEP/page.json              metadata, and checksums of all arrays and files

On an object store page.json is written last and removed first: a step without it
is not a checkpoint.

It is not an error if the writer removes a checkpoint while it is read. A corrupt
checkpoint raises `CorruptFileError`. Errors of the machine (no memory, no
permission, too many open files) do not, or intact checkpoints would be skipped.
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
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training import hosts, sums

Tree = Any

RECORD_FILE = "page.json"  # metadata of a checkpoint
FilePath = Annotated[
  str,
  TextPattern(
    r"[\w.-]*[\w-][\w.-]*(/[\w.-]*[\w-][\w.-]*)*", "a file of the checkpoint"
  ),
]
_STEP = "0|[1-9][0-9]*"
TRIES = 20  # the writer may remove checkpoints faster than they are read

# Errors of the machine, as codes and as messages of Orbax and its libraries. A
# checkpoint is not skipped for them, since it may be intact.
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
  """The content of page.json; `content` depends on the directory."""

  content: dict[str, Any]
  arrays: dict[str, sums.ArraySums]
  files: dict[FilePath, File]


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
  """A directory of checkpoints, each in a subdirectory named by its step.

  Attributes:
    folder: Path of the directory.
    item: Name of the arrays in a checkpoint.
    content: Dataclass of the metadata.
  """

  folder: pathlib.Path
  item: str
  content: type

  def steps(self) -> list[int]:
    """Returns the steps of the complete checkpoints, oldest first."""
    if remote.is_remote(self.folder):
      suffix = f"/{RECORD_FILE}"
      stored = remote.sizes(self.folder)
      names = [n.removesuffix(suffix) for n in stored if n.endswith(suffix)]
      return sorted(int(n) for n in names if re.fullmatch(_STEP, n))
    try:
      names = [p.name for p in self.folder.iterdir() if p.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
      return []
    # Unfinished checkpoints and other directories have other names.
    return sorted(int(n) for n in names if re.fullmatch(_STEP, n))

  def create(self) -> None:
    """Creates the directory, and removes unfinished checkpoints.

    Only the one process that writes checkpoints may call this.
    """
    if not remote.is_remote(self.folder):
      self.folder.mkdir(parents=True, exist_ok=True)
      files.remove_unfinished(self.folder)
      return
    complete = {str(step) for step in self.steps()}
    for name in remote.sizes(self.folder):
      step, _, inside = name.partition("/")
      if inside and re.fullmatch(_STEP, step) and step not in complete:
        remote.remove(self.folder, [name])

  def path(self, step: int) -> pathlib.Path:
    """Returns the directory of a checkpoint, which may not exist."""
    return self.folder / str(step)

  def record(self, step: int) -> dict[str, Any]:
    """Returns the metadata: "content", and checksums of "arrays" and "files".

    Raises:
      CorruptFileError: It is missing or corrupt.
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
      if _is_machine_error(error):
        raise
      raise CorruptFileError(f"{path}: {error.strerror}") from None
    return record

  @contextlib.contextmanager
  def in_use(self, step: int) -> Iterator[None]:
    """Prevents the writer from removing a checkpoint while it is read.

    It takes a shared lock on the directory of the checkpoint, and writes nothing.
    Without locks (some file systems, object stores) the checkpoint may be removed,
    and reading it fails.

    Raises:
      CorruptFileError: The checkpoint does not exist.
    """
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(lock.flock(self.path(step), fcntl.LOCK_SH))
      except (FileNotFoundError, NotADirectoryError) as error:
        raise CorruptFileError(f"{self.path(step)}: {error.strerror}") from None
      yield

  def remove(self, step: int) -> None:
    """Removes a checkpoint unless a process reads it."""
    path, how = self.path(step), fcntl.LOCK_EX | fcntl.LOCK_NB
    with contextlib.suppress(BlockingIOError), lock.flock(path, how):
      files.remove_folder(path, RECORD_FILE)

  def read(
    self, step: int, abstract: Tree, part: str = ""
  ) -> tuple[Tree, dict[str, Any]]:
    """Returns the arrays and the metadata after verifying all checksums.

    Args:
      step: Step of the checkpoint.
      abstract: Shapes, types and, unless on one device, shardings.
      part: Name of the only subtree to read; "" reads all.

    Raises:
      CorruptFileError: The checkpoint is corrupt.
      InputError: It belongs to another model; the message names both sides.
    """
    record: dict[str, Any] = {}
    reason = ""
    with self.in_use(step), contextlib.ExitStack() as stack:
      try:
        record = self.record(step)
        place = stack.enter_context(self._readable_copy(step))
        # Before Orbax reads them, whose threads print tracebacks for some kinds
        # of corruption. Files on a store would be transferred twice.
        reason = checksums.corrupt_files(
          place, record["files"], lambda name: not remote.is_remote(place)
        )
        reason = reason.replace(str(place), str(self.path(step)))
        if any(word in reason for word in _MACHINE):
          raise InputError(
            f"{reason}. The checkpoint may be intact: correct that (permissions, "
            "ulimit -n, memory), and run the same command again."
          )
      except CorruptFileError as error:
        reason = str(error)
      _raise_on_all_hosts(reason)
      prefix = f"{part}/" if part else ""
      expected = {
        name.removeprefix(prefix): entry
        for name, entry in record["arrays"].items()
        if name.startswith(prefix)
      }
      _check_model(expected, abstract, self.path(step))
      try:
        tree = _restore(place / self.item, abstract, part)
        if difference := sums.differing(tree, expected):
          reason = f"{self.path(step)}: {difference}"
      except Exception as error:  # Orbax raises many kinds for corrupt files
        if _is_machine_error(error):
          raise
        reason = (str(error).splitlines() or [repr(error)])[0][:200]
        reason = f"{self.path(step)}: {reason}"
      _raise_on_all_hosts(reason)
    return tree, record

  @contextlib.contextmanager
  def _readable_copy(self, step: int) -> Iterator[pathlib.Path]:
    """Yields a directory that Orbax can read: the checkpoint, or a local copy.

    Orbax reads local paths and gs://, but not s3://.
    """
    path = self.path(step)
    if not os.fspath(path).startswith("s3://"):
      yield path
      return
    with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
      stored = remote.sizes(path)
      for name in stored:  # an object may have any name, such as "../a"
        if pathlib.PurePath("/", name).parts != ("/", *name.split("/")) or (
          ".." in name.split("/")
        ):
          raise CorruptFileError(f"{path} has a file {name!r}")
      needed, free = sum(stored.values()), shutil.disk_usage(temporary).free
      if free < needed:
        raise InputError(
          f"disk full: to read {path}, a copy of {files.readable(needed)} is "
          f"made in {os.path.dirname(temporary)}, which has "
          f"{files.readable(free)} free. Free some space, or set TMPDIR to "
          "another folder."
        )
      remote.download(path, temporary, stored)
      yield pathlib.Path(temporary)

  def newest(
    self,
    read: Callable[[int], Any],
    count: int = 1,
    order: Callable[[int], Any] | None = None,
  ) -> tuple[list[tuple[int, Any]], dict[int, str]]:
    """Reads the newest intact checkpoints.

    Args:
      read: Reads a step; raises CorruptFileError.
      count: Number of checkpoints to read.
      order: Sort key of a step, largest first; None reads the newest first.

    Returns:
      [(step, what `read` returned)] in that order, fewer if there are no more; and
      step -> reason for the corrupt ones that were skipped.
    """
    for tries_left in reversed(range(TRIES)):
      steps = self.steps()
      intact: list[tuple[int, Any]] = []
      corrupt: dict[int, str] = {}
      for step in sorted(steps, key=order, reverse=True):
        try:
          intact.append((step, read(step)))
        except CorruptFileError as error:
          if tries_left and self.steps() != steps:
            break  # the writer has removed some: start again from the newest
          corrupt[step] = str(error)
        if len(intact) == count:
          return intact, corrupt
      else:
        return intact, corrupt
    return intact, corrupt


def no_intact_checkpoint_error(
  workdir: pathlib.Path, corrupt: dict[int, str]
) -> InputError:
  """Returns the error for a run whose checkpoints are missing or all corrupt.

  Args:
    workdir: Run directory.
    corrupt: Step -> reason.
  """
  if not corrupt:
    return InputError(
      f"{workdir} has no checkpoint. There are: none; train first."
    )
  return InputError(
    f"no checkpoint in {workdir} is whole ({'; '.join(corrupt.values())}). Bring "
    "the folder back from a copy, or train again in another --workdir."
  )


def _restore(path: pathlib.Path, abstract: Tree, part: str) -> Tree:
  """Restores arrays with Orbax."""
  item = jax.tree.map(_with_sharding, abstract)
  item = {part: item} if part else item
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    tree = reader.restore(
      path,
      args=ocp.args.PyTreeRestore(
        item=item,
        restore_args=ocp.checkpoint_utils.construct_restore_args(item),
        partial_restore=bool(part),
      ),
    )
  return tree[part] if part else tree


def _raise_on_all_hosts(reason: str) -> None:
  """Raises CorruptFileError on all hosts if any has a reason."""
  if first := hosts.first_reason_on_any_host(reason):
    raise CorruptFileError(first)


def _is_machine_error(error: Exception) -> bool:
  if isinstance(error, MemoryError):
    return True
  if isinstance(error, OSError) and error.errno in _MACHINE_CODES:
    return True
  return any(word in str(error) for word in _MACHINE)


def _with_sharding(leaf: Any) -> Any:
  """Adds the first local device as the default sharding of a leaf."""
  if isinstance(leaf, np.ndarray):  # is restored as a NumPy array
    return leaf
  sharding = getattr(leaf, "sharding", None)
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _check_model(saved: sums.Sums, wanted: Tree, path: pathlib.Path) -> None:
  """Raises InputError if a checkpoint has other arrays than a model."""
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
