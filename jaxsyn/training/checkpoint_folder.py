"""A directory of checkpoints, which another process may be writing to.

  STEP/state or STEP/params     arrays, written by Orbax
  STEP/metadata/metadata.json   see `jaxsyn.training.checkpoint_metadata`
  STEP/commit_success.txt       written last by Orbax

On an object store, commit_success.txt is removed first, too: a step without it is
not a checkpoint.

A corrupt checkpoint raises `CorruptFileError`. Errors of the machine (no memory, no
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
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.storage import checksums, files, lock, remote
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training import hosts
from jaxsyn.training.checkpoint_metadata import FILE as METADATA_FILE
from jaxsyn.training.checkpoint_metadata import Metadata, array_formats

Tree = Any

COMMIT_FILE = ocp.path.atomicity_types.COMMIT_SUCCESS_FILE
_TEMPORARY = ocp.path.atomicity_types.TMP_DIR_SUFFIX
_STEP = re.compile("0|[1-9][0-9]*")
_TRIES = 20  # the writer may remove checkpoints faster than they are read

# Errors of the machine, as codes and as words in messages of Orbax.
_MACHINE_CODES = {
  errno.EACCES,
  errno.EPERM,
  errno.EMFILE,
  errno.ENFILE,
  errno.ENOMEM,
}
_MACHINE_WORDS = (
  "RESOURCE_EXHAUSTED",
  "PERMISSION_DENIED",
  *map(os.strerror, _MACHINE_CODES),
)


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
  """Directory of checkpoints, each in a subdirectory named by its step.

  Attributes:
    folder: Path of the directory.
    item: Name of the arrays in a checkpoint.
    content: Dataclass of the content of the metadata.
  """

  folder: pathlib.Path
  item: str
  content: type

  def steps(self) -> list[int]:
    """Returns the steps of the complete checkpoints, oldest first."""
    if remote.is_remote(self.folder):
      suffix = f"/{COMMIT_FILE}"
      stored = remote.sizes(self.folder)
      names = [n.removesuffix(suffix) for n in stored if n.endswith(suffix)]
    else:
      try:
        names = [p.name for p in self.folder.iterdir() if p.is_dir()]
      except (FileNotFoundError, NotADirectoryError):
        return []
    # Unfinished checkpoints and other directories have other names.
    return sorted(int(name) for name in names if _STEP.fullmatch(name))

  def remove_unfinished(self) -> None:
    """Removes unfinished checkpoints and incompletely removed ones.

    Only the one process that writes checkpoints may call this.
    """
    if not remote.is_remote(self.folder):
      for path in self.folder.glob(f"*{_TEMPORARY}"):
        shutil.rmtree(path, ignore_errors=True)
      files.remove_unfinished(self.folder)
      return
    complete = {str(step) for step in self.steps()}
    for name in remote.sizes(self.folder):
      step, _, inside = name.partition("/")
      if inside and _STEP.fullmatch(step) and step not in complete:
        remote.remove(self.folder, [name])

  def path(self, step: int) -> pathlib.Path:
    """Returns the directory of a checkpoint, whether or not it exists."""
    return self.folder / str(step)

  def metadata(self, step: int) -> dict[str, Any]:
    """Reads the metadata of a checkpoint, including its checksums.

    The keys are those of `Metadata`.

    Raises:
      CorruptFileError: It is missing or corrupt.
    """
    path, root = self.path(step) / METADATA_FILE, ConfigPath("metadata")
    try:
      metadata = checksums.verify_checksum(files.read_json(path))
      from_config(Metadata, metadata, root, CHECKPOINT_MODE)
      content = metadata["content"]
      from_config(self.content, content, root / "content", CHECKPOINT_MODE)
    except ValueError as error:
      reason = str(error).rstrip(".")
      raise CorruptFileError(f"{path} is corrupt: {reason}") from None
    except OSError as error:
      if _is_machine_error(error):
        raise
      raise CorruptFileError(f"{path}: {error.strerror}") from None
    return metadata

  @contextlib.contextmanager
  def in_use(self, step: int) -> Iterator[None]:
    """Prevents the writer from removing a checkpoint while it is read.

    It takes a shared lock on the directory of the checkpoint, without writing.
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
      files.remove_folder(path, COMMIT_FILE)

  def read(
    self, step: int, abstract: Tree, part: str = ""
  ) -> tuple[Tree, dict[str, Any]]:
    """Reads a checkpoint's arrays and metadata, and verifies all checksums.

    Args:
      step: Step of the checkpoint.
      abstract: Shapes and types of the arrays, with shardings unless they go to
        the first device.
      part: Name of the only subtree to read; "" reads all.

    Raises:
      CorruptFileError: The checkpoint is corrupt.
      InputError: It belongs to another model; the message names both sides.
    """
    metadata: dict[str, Any] = {}
    reason, path = "", self.path(step)
    with self.in_use(step), contextlib.ExitStack() as stack:
      try:
        metadata = self.metadata(step)
        local_path = stack.enter_context(_local_copy(path))
        reason = checksums.corrupt_files(local_path, metadata["files"])
        reason = reason.replace(str(local_path), str(path))
        if any(word in reason for word in _MACHINE_WORDS):
          raise InputError(
            f"{reason}. The checkpoint may be intact: correct that (permissions, "
            "ulimit -n, memory), and run the same command again."
          )
      except CorruptFileError as error:
        reason = str(error)
      _raise_on_all_hosts(reason)
      prefix = f"{part}/" if part else ""
      saved = {
        name.removeprefix(prefix): array_format
        for name, array_format in metadata["arrays"].items()
        if name.startswith(prefix)
      }
      _check_model(saved, abstract, path)
      try:
        tree = _restore(local_path / self.item, abstract, part)
      except Exception as error:  # Orbax raises many kinds for corrupt files
        if _is_machine_error(error):
          raise
        reason = (str(error).splitlines() or [repr(error)])[0][:200]
      _raise_on_all_hosts(f"{path}: {reason}" if reason else "")
    return tree, metadata

  def newest(
    self, read: Callable[[int], Any], count: int = 1
  ) -> tuple[list[tuple[int, Any]], dict[int, str]]:
    """Reads the newest intact checkpoints, up to a given number.

    Args:
      read: Function that reads a step; it raises CorruptFileError.
      count: Number of checkpoints to read.

    Returns:
      Pairs of step and result of `read`, newest first, fewer if there are no more;
      and the reason for each corrupt checkpoint that was skipped, by step.
    """
    for _ in range(_TRIES):
      steps = self.steps()
      intact: list[tuple[int, Any]] = []
      corrupt: dict[int, str] = {}
      for step in reversed(steps):
        try:
          intact.append((step, read(step)))
        except CorruptFileError as error:
          corrupt[step] = str(error)
        if len(intact) == count:
          break
      if not corrupt or self.steps() == steps:
        break  # otherwise the writer may have removed them
    return intact, corrupt


@contextlib.contextmanager
def _local_copy(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the path of a checkpoint, or of a local copy of a remote one."""
  if not remote.is_remote(path):
    yield path
    return
  with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
    names = remote.sizes(path)
    for name in names:  # an object may have any name, such as "../a"
      parts = name.split("/")
      if ".." in parts or pathlib.PurePath("/", name).parts != ("/", *parts):
        raise CorruptFileError(f"{path} has a file {name!r}")
    try:
      remote.download(path, temporary, names)
    except FileNotFoundError:  # the writer has removed the checkpoint
      raise CorruptFileError(f"{path} was removed") from None
    yield pathlib.Path(temporary)


def _restore(path: pathlib.Path, abstract: Tree, part: str) -> Tree:
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


def _with_sharding(leaf: Any) -> Any:
  """Returns an array spec whose sharding defaults to the first local device."""
  if isinstance(leaf, np.ndarray):  # is restored as a NumPy array
    return leaf
  sharding = getattr(leaf, "sharding", None)
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _raise_on_all_hosts(reason: str) -> None:
  """Raises CorruptFileError on all hosts if any host found a corrupt file."""
  if first := hosts.first_reason_on_any_host(reason):
    raise CorruptFileError(first)


def _is_machine_error(error: Exception) -> bool:
  return (
    isinstance(error, MemoryError)
    or (isinstance(error, OSError) and error.errno in _MACHINE_CODES)
    or any(word in str(error) for word in _MACHINE_WORDS)
  )


def _check_model(
  theirs: Mapping[str, str], abstract: Tree, path: pathlib.Path
) -> None:
  """Raises InputError if a checkpoint's arrays differ from the model's."""
  ours = array_formats(abstract)
  differences = [
    f"{name} is {theirs.get(name, 'missing')} there and "
    f"{ours.get(name, 'missing')} here"
    for name in sorted({*theirs, *ours})
    if theirs.get(name) != ours.get(name)
  ]
  if differences:
    more = f"; {len(differences) - 4} more" if len(differences) > 4 else ""
    raise InputError(
      f"checkpoint {path} is of another model: {'; '.join(differences[:4])}{more}. "
      "Use the config it was trained with, or another --workdir."
    )
