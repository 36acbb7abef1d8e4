"""Functions that read and atomically write files, local or on an object store.

A local file is written under a temporary name, flushed to the disk and renamed,
and its directory is flushed as well. After a kill or a power failure, the file
therefore has the complete old content or the complete new content.

Every function also takes paths on object stores (s3://, gs://), where one
upload replaces an object atomically. A directory on a store is complete when
the file that is written last is present.
"""

from __future__ import annotations

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
from typing import IO, Any

from jaxsyn.storage import remote

PARTIAL = ".partial"  # suffix of unfinished files and directories
_BLOCK = 1 << 20

PathLike = str | os.PathLike[str]


def path_of(name: PathLike) -> pathlib.Path:
  """Returns a path object for the name of a local or remote path.

  `pathlib.Path` would treat s3:// as a local directory.

  Raises:
    InputError: The scheme is unknown, or its library is not installed.
  """
  return remote.path(name) if remote.is_remote(name) else pathlib.Path(name)


def absolute(path: PathLike) -> pathlib.Path:
  """Returns a local path made absolute; remote paths are returned unchanged."""
  path = path_of(path)
  return path if remote.is_remote(path) else path.absolute()


def open_read(
  path: PathLike, read_ahead: int = 8 * _BLOCK
) -> io.BufferedReader:
  """Returns a local or remote file opened for binary reading; it can seek.

  Args:
    path: Path of the file.
    read_ahead: Minimum number of bytes per request to an object store: large
      for sequential reads, small for random access.
  """
  if remote.is_remote(path):
    return remote.open_read(path, read_ahead)
  return open(path, "rb")


def read_bytes(path: PathLike) -> bytes:
  """Returns the content of a local or remote file as bytes."""
  if remote.is_remote(path):
    return remote.read(path)
  return pathlib.Path(path).read_bytes()


def read_json(path: PathLike) -> Any:
  """Returns the parsed content of a JSON file.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is not valid JSON, an object has a duplicate key, or a
      string is not valid Unicode. The message has the reason.
  """
  try:
    text = read_bytes(path).decode("utf-8")
    content = json.loads(text, object_pairs_hook=_unique_keys)
    if "\\u" in text:  # a lone surrogate cannot be part of a file name
      json.dumps(content, ensure_ascii=False).encode("utf-8")
  except UnicodeEncodeError:
    raise ValueError("a string in it has half of a surrogate pair.") from None
  except RecursionError:  # thousands of brackets
    raise ValueError("it is nested too deeply.") from None
  return content


def size_of(path: PathLike) -> int:
  """Returns the size of a local or remote file in bytes."""
  if remote.is_remote(path):
    return remote.size(path)
  return os.stat(path).st_size


def readable(size: int) -> str:
  """Returns a number of bytes formatted with a binary unit.

  >>> [readable(size) for size in (0, 900, 4096, 1536000, 3 << 40)]
  ['0 bytes', '900 bytes', '4.0 KiB', '1.5 MiB', '3072.0 GiB']
  """
  for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
    if size >= unit:
      return f"{size / unit:.1f} {name}"
  return f"{size} bytes"


def is_file(path: PathLike) -> bool:
  """Returns whether a path is an existing local or remote file."""
  if remote.is_remote(path):
    return remote.is_file(path)
  return os.path.isfile(path)


def names(folder: PathLike, pattern: str = "") -> list[str]:
  """Returns the sorted relative paths of the files below a directory.

  Args:
    folder: Path of the directory. If it is missing, the result is empty.
    pattern: Pattern of `pathlib.Path.glob` without "**"; "" matches all files.
  """
  if remote.is_remote(folder):
    prefix = re.split(r"[*?[]", pattern)[0]
    paths = map(pathlib.PurePosixPath, remote.sizes(folder, prefix))
    depth = pattern.count("/") + 1
    return [
      path.as_posix()
      for path in sorted(paths)
      if not pattern or (len(path.parts) == depth and path.match(pattern))
    ]
  folder = pathlib.Path(folder)
  return [
    path.relative_to(folder).as_posix()
    for path in sorted(folder.glob(pattern or "**/*"))
    if path.is_file()
  ]


def folders(folder: PathLike, prefix: str) -> list[pathlib.Path]:
  """Returns the sorted subdirectories whose names start with a prefix."""
  if remote.is_remote(folder):
    below = (name.split("/") for name in remote.sizes(folder, prefix))
    found = sorted({parts[0] for parts in below if len(parts) > 1})
    return [path_of(folder) / name for name in found]
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


def write_text(path: PathLike, text: str) -> None:
  """Writes text to a UTF-8 file atomically, replacing an existing file."""
  with publish(path, "w") as file:
    file.write(text)


def write_json(path: PathLike, content: Any) -> None:
  """Writes content to an indented JSON file atomically."""
  write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_new(path: PathLike, text: str) -> None:
  """Writes text to a new local UTF-8 file atomically.

  Raises:
    FileExistsError: The file exists.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _temporary_sibling(path)
  try:
    write_text(temporary, text)
    try:
      os.link(temporary, path)  # unlike a rename, fails if the path exists
    except FileExistsError:
      raise
    except OSError:  # a file system without hard links
      if path.exists():
        raise FileExistsError(
          errno.EEXIST, os.strerror(errno.EEXIST), str(path)
        ) from None
      os.rename(temporary, path)
    flush_folder(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


def copy(source: PathLike, target: PathLike) -> None:
  """Copies the content of a file to another path atomically."""
  with open_read(source) as old, publish(target) as new:
    shutil.copyfileobj(old, new, _BLOCK)


@contextlib.contextmanager
def filled_folder(folder: PathLike) -> Iterator[pathlib.Path]:
  """Yields a local directory whose files end up in a local or remote one.

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

  If several processes write the same directory, the last process to finish
  determines the content.

  Args:
    path: Path of the directory to replace or create.
    last_file: Name of the file that is removed first and uploaded last on an
      object store. Readers must ignore a directory without this file.
  """
  if remote.is_remote(path):
    if not last_file:
      raise ValueError(f"{path}: the name of its last file is missing.")
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
    _replace_folder(new, path)
  finally:
    shutil.rmtree(new, ignore_errors=True)


def _replace_folder(new: pathlib.Path, path: pathlib.Path) -> None:
  for _ in range(100):  # another process may rename its directory meanwhile
    try:
      os.rename(new, path)
      break
    except OSError as error:
      if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
        raise
    with contextlib.suppress(FileNotFoundError):
      remove_folder(path)
  flush_folder(path.parent)


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
    remote.remove(path, remote.sizes(path), first=first_file)
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
      _flush(os.path.join(parent, name), os.O_RDONLY)
    flush_folder(parent)


def flush_folder(folder: PathLike) -> None:
  """Flushes the entries of a local directory, but not its files, to disk."""
  _flush(folder, os.O_RDONLY | os.O_DIRECTORY)


def _flush(path: PathLike, flags: int) -> None:
  file = os.open(path, flags)
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


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  values = dict(pairs)
  if len(values) < len(pairs):
    raise ValueError("an object in it has a duplicate key.")
  return values
