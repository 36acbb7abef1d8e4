"""Reads and atomically writes files, local or on an object store.

A local file is written under a temporary name, flushed to the disk and renamed,
and its directory is flushed as well. After a kill or a power failure, the file
therefore has the complete old content or the complete new content.

On an object store (s3://, gs://), one upload replaces an object atomically. A
directory there is complete when the file that is written last is present.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import io
import json
import os
import pathlib
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, Any, cast

from jaxsyn.storage import remote
from jaxsyn.storage.remote import PathLike

PARTIAL = ".partial"  # suffix of unfinished files and directories
_BLOCK = 1 << 20


def path_of(name: PathLike) -> pathlib.Path:
  """Returns a path object for a local path or an object-store URL.

  `pathlib.Path` would treat s3:// as a local directory.

  Raises:
    InputError: The scheme is unknown, or its library is not installed.
  """
  if not remote.is_remote(name):
    return pathlib.Path(name)
  remote.filesystem(name)
  from etils import epath

  # It has the methods of pathlib.Path except those that need local files.
  return cast(pathlib.Path, epath.Path(name))


def absolute(path: PathLike) -> pathlib.Path:
  """Makes a local path absolute; returns remote paths unchanged."""
  path = path_of(path)
  return path if remote.is_remote(path) else path.absolute()


def open_read(
  path: PathLike, read_ahead: int = 8 * _BLOCK
) -> io.BufferedReader:
  """Opens a local or remote file for binary reading with seeking.

  Args:
    path: Path of the file.
    read_ahead: Minimum number of bytes per request to an object store: large
      for sequential reads, small for random access.
  """
  if remote.is_remote(path):
    return io.BufferedReader(remote.ObjectReader(path), read_ahead)
  return open(path, "rb")


def read_bytes(path: PathLike) -> bytes:
  """Returns the content of a local or remote file as bytes."""
  if not remote.is_remote(path):
    return pathlib.Path(path).read_bytes()
  with remote.store_errors(path):
    # By default s3fs requests the size first, to fetch large files in parts.
    return remote.filesystem(path).cat_file(os.fspath(path), max_concurrency=1)


def read_json(path: PathLike) -> Any:
  """Returns the parsed content of a JSON file.

  Raises:
    OSError: The file cannot be read.
    ValueError: It is not valid; see `parse_json`.
  """
  return parse_json(read_bytes(path).decode("utf-8"))


def parse_json(text: str) -> Any:
  """Parses JSON strictly.

  Raises:
    ValueError: It is not JSON, an object has a duplicate key, or a string is not
      valid Unicode. The message has the reason.
  """
  try:
    content = json.loads(text, object_pairs_hook=_unique_keys)
    if "\\u" in text:  # a lone surrogate cannot be part of a file name
      json.dumps(content, ensure_ascii=False).encode("utf-8")
  except UnicodeEncodeError as error:
    code = ord(error.object[error.start])
    raise ValueError(
      f"a string in it has half of a surrogate pair (\\u{code:x})"
    ) from None
  except RecursionError:  # thousands of brackets
    raise ValueError("it is nested too deeply") from None
  return content


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  values = dict(pairs)
  if len(values) < len(pairs):
    ((key, _),) = collections.Counter(key for key, _ in pairs).most_common(1)
    raise ValueError(f"an object in it has the key {key[:80]!r} twice")
  return values


def size_of(path: PathLike) -> int:
  """Returns the size of a local or remote file in bytes."""
  if remote.is_remote(path):
    return remote.info(path)["size"]
  return os.stat(path).st_size


def is_file(path: PathLike) -> bool:
  """Returns whether a path is an existing local or remote file."""
  if not remote.is_remote(path):
    return os.path.isfile(path)
  try:
    return remote.info(path)["type"] == "file"
  except FileNotFoundError:
    return False


def names(folder: PathLike, pattern: str = "") -> list[str]:
  """Returns the sorted relative paths of the files below a directory.

  Args:
    folder: Path of the directory. If it is missing, the result is empty.
    pattern: Pattern of `pathlib.Path.glob` without "**"; "" matches all files.
  """
  paths: list[pathlib.PurePath]
  if remote.is_remote(folder):
    prefix = re.split(r"[*?[]", pattern)[0]
    stored = map(pathlib.PurePosixPath, remote.sizes(folder, prefix))
    depth = pattern.count("/") + 1
    paths = [
      path
      for path in stored
      if not pattern or (len(path.parts) == depth and path.match(pattern))
    ]
  else:
    root = pathlib.Path(folder)
    matches = root.glob(pattern or "**/*")
    paths = [path.relative_to(root) for path in matches if path.is_file()]
  return [path.as_posix() for path in sorted(paths)]


def folders(folder: PathLike, prefix: str) -> list[pathlib.Path]:
  """Returns the sorted subdirectories whose names start with a prefix."""
  if remote.is_remote(folder):
    below = (name.split("/") for name in remote.sizes(folder, prefix))
    subfolders = sorted({parts[0] for parts in below if len(parts) > 1})
    return [path_of(folder) / name for name in subfolders]
  matches = pathlib.Path(folder).glob(f"{prefix}*")
  return [path for path in sorted(matches) if path.is_dir()]


@contextlib.contextmanager
def publish(
  path: PathLike, mode: str = "wb", *, flush: bool = True
) -> Iterator[IO[Any]]:
  """Opens a new file that replaces `path` when the `with` block succeeds.

  After an exception in the block, the old file remains. The target of a
  symbolic link is replaced, not the link. Special files (/dev/null, a pipe) are
  written directly, since renaming would replace them.

  Args:
    path: Path of the file; missing directories are created.
    mode: Mode "wb", or "w" for UTF-8 text with "\\n" line ends.
    flush: Whether to wait for the disk. Otherwise, the file may be incomplete
      after a power failure: only for content that has a checksum and can be
      rebuilt.
  """
  text: dict[str, Any] = {}
  if "b" not in mode:
    text = {"encoding": "utf-8", "newline": "\n"}
  if remote.is_remote(path):
    folder, _, name = os.fspath(path).rpartition("/")
    with (
      filled_folder(folder) as temporary_folder,
      open(temporary_folder / name, mode, **text) as file,
    ):
      yield file
    return
  path = pathlib.Path(os.path.realpath(path))
  if path.exists() and not stat.S_ISREG(path.stat().st_mode):
    with open(path, mode, **text) as file:
      yield file
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _temporary_sibling(path)
  try:
    # Not tempfile, whose files only their owner can read.
    with open(temporary, mode.replace("w", "x"), **text) as file:
      yield file
      file.flush()
      if flush:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    if flush:
      flush_folder(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


def write_bytes(path: PathLike, content: bytes) -> None:
  """Writes bytes to a file atomically, replacing an existing file."""
  with publish(path) as file:
    file.write(content)


def write_text(path: PathLike, text: str) -> None:
  """Writes text to a UTF-8 file atomically, replacing an existing file."""
  write_bytes(path, text.encode("utf-8"))


def write_json(path: PathLike, content: Any) -> None:
  """Writes content to an indented JSON file atomically."""
  write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def copy(source: PathLike, target: PathLike) -> None:
  """Copies the content of a file to another path atomically."""
  with open_read(source) as old, publish(target) as new:
    shutil.copyfileobj(old, new, _BLOCK)


@contextlib.contextmanager
def local_file(path: PathLike) -> Iterator[pathlib.Path]:
  """Yields a local path of a file: of a temporary copy if the file is remote.

  This is for libraries that only read local files.
  """
  with contextlib.ExitStack() as stack:
    if remote.is_remote(path):
      temporary = tempfile.TemporaryDirectory(prefix="jaxsyn-")
      local = pathlib.Path(stack.enter_context(temporary), "copy")
      copy(path, local)
    else:
      local = pathlib.Path(path)
    yield local


@contextlib.contextmanager
def filled_folder(folder: PathLike) -> Iterator[pathlib.Path]:
  """Yields a local directory to fill; its files are then stored in `folder`.

  This is for libraries that only write to local directories. For a directory on
  an object store, a temporary directory is yielded, and its files are uploaded
  when the `with` block succeeds.
  """
  if not remote.is_remote(folder):
    yield pathlib.Path(folder)
    return
  with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
    yield pathlib.Path(temporary)
    remote.upload(temporary, folder, names(temporary))


@contextlib.contextmanager
def publish_folder(
  path: PathLike, last_file: str = ""
) -> Iterator[pathlib.Path]:
  """Yields a new directory that replaces `path` when the `with` block succeeds.

  Only one process at a time may call this for the same path.

  Args:
    path: Path of the directory to replace or create.
    last_file: Name of the file that is removed first and uploaded last on an
      object store. Readers must ignore a directory without this file.
  """
  if remote.is_remote(path):
    with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
      yield pathlib.Path(temporary)
      remove_folder(path, last_file)
      remote.upload(temporary, path, names(temporary), last=last_file)
    return
  path = pathlib.Path(os.path.realpath(path))
  path.parent.mkdir(parents=True, exist_ok=True)
  new = _temporary_sibling(path)
  new.mkdir()
  try:
    yield new
    flush_tree(new)
    if path.is_dir():
      remove_folder(path)
    os.rename(new, path)
    flush_folder(path.parent)
  finally:
    shutil.rmtree(new, ignore_errors=True)


def remove(path: PathLike) -> None:
  """Removes a local or remote file if it exists."""
  if remote.is_remote(path):
    folder, _, name = os.fspath(path).rpartition("/")
    remote.remove(folder, [name])
    return
  pathlib.Path(path).unlink(missing_ok=True)


def remove_folder(path: PathLike, first_file: str = "") -> None:
  """Removes a directory atomically, so that no process sees part of its files.

  Args:
    path: Path of the directory.
    first_file: Name of the file that is removed first on an object store.
      Readers must ignore a directory without this file.
  """
  if remote.is_remote(path):
    if first_file:
      remote.remove(path, [first_file])
    remote.remove(path, remote.sizes(path))
    return
  path = pathlib.Path(path)
  old = _temporary_sibling(path)
  os.rename(path, old)
  shutil.rmtree(old, ignore_errors=True)


def remove_unfinished(folder: PathLike, but: str = "") -> None:
  """Removes unfinished files and directories that killed processes have left.

  Only the one process that writes to the directory may call this. An object
  store has no such files.

  Args:
    folder: Path of the directory to clean up.
    but: Name of an unfinished file or directory to keep.
  """
  if remote.is_remote(folder):
    return
  for path in pathlib.Path(folder).glob(f".*{PARTIAL}"):
    if path.name == but:
      continue
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path, ignore_errors=True)
    else:
      path.unlink(missing_ok=True)


def flush_tree(folder: PathLike) -> None:
  """Flushes all files and directory entries below a local directory to disk."""
  for parent, _, file_names in os.walk(folder):
    for name in file_names:
      flush_folder(os.path.join(parent, name))
    flush_folder(parent)


def flush_folder(path: PathLike) -> None:
  """Flushes a local file, or the entries of a local directory, to disk."""
  file = os.open(path, os.O_RDONLY)
  try:
    os.fsync(file)
  except OSError as error:
    # File systems that cannot flush report it; other errors are disk errors.
    if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
      raise
  finally:
    os.close(file)


def _temporary_sibling(path: pathlib.Path) -> pathlib.Path:
  """Returns an unused path for a temporary file in the directory of a path."""
  # Random, since two processes may write the same file; shortened, since a file
  # name has at most 255 bytes.
  stem = path.name.encode()[:160].decode(errors="ignore")
  unique = secrets.token_hex(4)
  return path.with_name(f".{stem}.{unique}{PARTIAL}")
