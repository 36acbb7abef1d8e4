"""Functions for files on object stores, s3://BUCKET/PATH and gs://BUCKET/PATH.

An upload creates or replaces one object atomically. Directories are only common
prefixes of names, and there is no appending and no locks; docs/remote.md
describes the consequences. Other modules call `jaxsyn.storage.files`, which
calls this module only for paths with a scheme.

The libraries (fsspec with s3fs or gcsfs, from the extra "remote") are imported
at the first call. They retry failed requests.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import io
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from jaxsyn.errors import InputError, StoreError

PathLike = str | os.PathLike[str]
Item = TypeVar("Item")
Result = TypeVar("Result")

_CONCURRENT = 8  # requests at a time; s3fs has ten connections

# Scheme -> Python package, and sources of the package's credentials.
_STORES = {
  "s3": (
    "s3fs",
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the "
    "machine; AWS_ENDPOINT_URL for a store other than Amazon's",
  ),
  "gs": (
    "gcsfs",
    "GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login, or "
    "the service account of the machine",
  ),
}


def is_remote(path: PathLike) -> bool:
  """Returns whether a path has a URL scheme, without a network request."""
  return "://" in os.fspath(path)


def path(name: PathLike) -> pathlib.Path:
  """Returns a `pathlib`-like object for the name of a remote path.

  Raises:
    InputError: The scheme is unknown, or its library is not installed.
  """
  filesystem(name)
  from etils import epath

  # It has the methods of pathlib.Path except those that need local files.
  return cast(pathlib.Path, epath.Path(name))


def filesystem(path: PathLike) -> Any:
  """Returns the fsspec file system for the scheme of a path.

  Raises:
    InputError: The scheme is unknown, or its library is not installed.
  """
  scheme = os.fspath(path).partition("://")[0]
  if scheme not in _STORES:
    raise InputError(
      f"{path}: paths are local, s3:// or gs://; {scheme}:// is not supported."
    )
  try:
    import fsspec

    # gcsfs also logs the tracebacks of the exceptions that it raises.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    # Cached listings would hide files that other processes wrote.
    return fsspec.filesystem(scheme, use_listings_cache=False)
  except ImportError:
    raise InputError(
      f"{path}: {scheme}:// needs the package {_STORES[scheme][0]}: "
      "pip install -e '.[remote]'."
    ) from None


def check(folder: PathLike) -> None:
  """Raises an error if the object store of a directory cannot be reached.

  Commands call this before hours of work.

  Raises:
    InputError: The path has no bucket.
    StoreError: The bucket does not exist, cannot be listed, or is unreachable.
  """
  if not os.fspath(folder).partition("://")[2].strip("/"):
    raise InputError(f"{folder}: the name of a bucket is missing.")
  with contextlib.suppress(FileNotFoundError), _store_errors(folder):
    filesystem(folder).ls(os.fspath(folder))


class _Object(io.RawIOBase):
  """Raw readable file for an object in a store; each read is one request."""

  # The files of fsspec raise exceptions of the underlying library, and request
  # an extra block after every read, however large.

  def __init__(self, path: PathLike):
    super().__init__()
    self.name = os.fspath(path)
    self._size = size(path)
    self._position = 0

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    bases = {
      os.SEEK_SET: 0,
      os.SEEK_CUR: self._position,
      os.SEEK_END: self._size,
    }
    position = bases[whence] + offset
    if position < 0:
      raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.name)
    self._position = position
    return position

  def readinto(self, buffer: Any) -> int:
    view = memoryview(buffer).cast("B")
    end = min(self._position + len(view), self._size)
    if end <= self._position:
      return 0
    with _store_errors(self.name):
      data = filesystem(self.name).cat_file(
        self.name, start=self._position, end=end
      )
    view[: len(data)] = data
    self._position += len(data)
    return len(data)

  def readall(self) -> bytes:
    data = bytearray(max(self._size - self._position, 0))
    return bytes(data[: self.readinto(data)])


def open_read(path: PathLike, read_ahead: int) -> io.BufferedReader:
  """Returns a remote file opened for reading; it can seek.

  Each request to the store fetches at least `read_ahead` bytes.
  """
  return io.BufferedReader(_Object(path), read_ahead)


def read(path: PathLike) -> bytes:
  """Returns the content of a remote file, fetched with one request."""
  with _store_errors(path):
    # By default s3fs requests the size first, to fetch large files in parts.
    return filesystem(path).cat_file(os.fspath(path), max_concurrency=1)


def size(path: PathLike) -> int:
  """Returns the size of a remote file in bytes.

  Raises:
    FileNotFoundError: The file does not exist.
  """
  with _store_errors(path):
    return filesystem(path).info(os.fspath(path))["size"]


def is_file(path: PathLike) -> bool:
  """Returns whether a path is an existing file on an object store."""
  try:
    with _store_errors(path):
      return filesystem(path).info(os.fspath(path))["type"] == "file"
  except FileNotFoundError:
    return False


def sizes(folder: PathLike, prefix: str = "") -> dict[str, int]:
  """Returns the sizes in bytes of the files below a remote directory, by name.

  Args:
    folder: Path of the directory. If it is missing, the result is empty.
    prefix: Prefix of the names, which are relative to the directory.
  """
  root = os.fspath(folder).rstrip("/") + "/"
  with _store_errors(folder):
    entries = filesystem(folder).find(root, prefix=prefix, detail=True)
  start = len(root.partition("://")[2])
  return {
    name[start:]: entry["size"]
    for name, entry in entries.items()
    if entry["type"] == "file" and name[start:]
  }


def write(path: PathLike, content: bytes) -> None:
  """Writes a small remote file with one request."""
  with _store_errors(path, is_write=True):
    filesystem(path).pipe_file(os.fspath(path), content)


def upload(
  folder: PathLike, target: PathLike, names: Iterable[str], last: str = ""
) -> None:
  """Copies files from a local directory to an object store.

  Args:
    folder: Path of the local directory.
    target: Path of the directory on the store.
    names: Paths of the files, relative to both directories.
    last: Name of the file to upload last, if it is in `names`.
  """

  def upload_one(name: str) -> None:
    with _store_errors(target, is_write=True):
      # `put` would check the bucket before each file.
      filesystem(target).put_file(
        os.path.join(folder, name), _join(target, name)
      )

  names = set(names)
  each(upload_one, sorted(names - {last}))
  each(upload_one, names & {last})


def download(folder: PathLike, target: PathLike, names: Iterable[str]) -> None:
  """Copies files from a directory on an object store to a local directory.

  Raises:
    FileNotFoundError: A file is missing.
  """
  names = list(names)
  with _store_errors(folder):
    filesystem(folder).get(
      [_join(folder, name) for name in names],
      [os.path.join(target, name) for name in names],
    )


def remove(folder: PathLike, names: Iterable[str], first: str = "") -> None:
  """Removes the given files in a remote directory, if they exist.

  Args:
    folder: Path of the directory on a store.
    names: Paths of the files, relative to the directory.
    first: Name of the file to remove first, if it is in `names`.
  """

  def remove_one(name: str) -> None:
    with _store_errors(folder), contextlib.suppress(FileNotFoundError):
      # `rm` would interpret brackets and stars in a name as a pattern.
      filesystem(folder).rm_file(_join(folder, name))

  names = set(names)
  each(remove_one, names & {first})
  each(remove_one, sorted(names - {first}))


def move(folder: PathLike, target: PathLike, last: str) -> None:
  """Moves all files below a remote directory to another path in its store.

  Args:
    folder: Path of the directory to move.
    target: New path of the directory.
    last: Name of the file that is copied last and removed first.
  """

  def copy_one(name: str) -> None:
    with _store_errors(target):
      filesystem(folder).cp_file(_join(folder, name), _join(target, name))

  names = set(sizes(folder))
  each(copy_one, sorted(names - {last}))
  each(copy_one, names & {last})
  remove(folder, names, first=last)


def each(
  function: Callable[[Item], Result], items: Iterable[Item]
) -> list[Result]:
  """Returns a function's results for all items, computed in several threads.

  This is for functions that wait for requests to a store.
  """
  with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:
    return list(pool.map(function, items))


def _join(folder: PathLike, name: str) -> str:
  return f"{os.fspath(folder).rstrip('/')}/{name}"


@contextlib.contextmanager
def _store_errors(path: PathLike, is_write: bool = False) -> Iterator[None]:
  """Turns store libraries' exceptions into FileNotFoundError or StoreError.

  Args:
    path: Path that the message names.
    is_write: Whether the `with` block writes; then only the bucket can be
      missing.
  """
  try:
    yield
  except (FileExistsError, MemoryError, InputError):
    raise
  except FileNotFoundError as error:
    if not error.filename and (is_write or _is_missing_bucket(error)):
      raise StoreError(
        f"{path}: the bucket does not exist. Create it, or correct the name."
      ) from None
    code = errno.ENOENT
    raise FileNotFoundError(code, os.strerror(code), os.fspath(path)) from None
  except Exception as error:
    theirs = isinstance(error, OSError) or type(error).__module__ != "builtins"
    if not theirs or getattr(error, "filename", None):  # ours; or a local file
      raise
    raise StoreError(f"{path}: {_reason(path, error)}") from None


def _is_missing_bucket(error: Exception) -> bool:
  response = getattr(error.__cause__, "response", {})
  return response.get("Error", {}).get("Code", "") == "NoSuchBucket"


def _reason(path: PathLike, error: Exception) -> str:
  """Returns the cause and remedy of a failed request to an object store."""
  message = (str(error).splitlines() or [repr(error)])[0][:300].rstrip(".")
  kind = type(error).__name__
  if any(
    word in kind for word in ("Permission", "Credential", "Auth", "Token")
  ):
    credentials = _STORES[os.fspath(path).partition("://")[0]][1]
    return f"access denied ({message}). Credentials come from {credentials}."
  return (
    f"a request to the store failed ({message}). Check the endpoint and the "
    "network, then run the same command again: published files are complete."
  )
