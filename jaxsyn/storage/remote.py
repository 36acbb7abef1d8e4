"""Sends requests to object stores: s3://BUCKET/PATH and gs://BUCKET/PATH.

An upload creates or replaces one object atomically. Directories are only common
prefixes of names, and there is no appending and no locks; docs/remote.md
describes the consequences. `jaxsyn.storage.files` has the functions that take
local and remote paths.

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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

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
  """Checks that the object store of a directory can be reached.

  Raises:
    InputError: The path has no bucket.
    StoreError: The bucket does not exist, cannot be listed, or is unreachable.
  """
  if not os.fspath(folder).partition("://")[2].strip("/"):
    raise InputError(f"{folder}: the name of a bucket is missing.")
  with contextlib.suppress(FileNotFoundError), store_errors(folder):
    filesystem(folder).ls(os.fspath(folder))


def info(path: PathLike) -> dict[str, Any]:
  """Returns fsspec's metadata of an object, with its "size" and "type".

  Raises:
    FileNotFoundError: The object does not exist.
  """
  with store_errors(path):
    return filesystem(path).info(os.fspath(path))


class ObjectReader(io.RawIOBase):
  """Unbuffered reader of an object in a store; each read is one request."""

  # The files of fsspec raise exceptions of the underlying library, and request
  # an extra block after every read, however large.

  def __init__(self, path: PathLike):
    super().__init__()
    self.name = os.fspath(path)
    self._size = info(path)["size"]
    self._position = 0

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    bases = {os.SEEK_CUR: self._position, os.SEEK_END: self._size}
    self._position = bases.get(whence, 0) + offset
    return self._position

  def readinto(self, buffer: Any) -> int:
    data = self._read(len(buffer))
    buffer[: len(data)] = data
    return len(data)

  def readall(self) -> bytes:
    return self._read(self._size)

  def _read(self, count: int) -> bytes:
    start, end = self._position, min(self._position + count, self._size)
    if start >= end:
      return b""
    with store_errors(self.name):
      data = filesystem(self.name).cat_file(self.name, start=start, end=end)
    self._position += len(data)
    return data


def sizes(folder: PathLike, prefix: str = "") -> dict[str, int]:
  """Returns the sizes in bytes of the files below a remote directory, by name.

  Args:
    folder: Path of the directory. If it is missing, the result is empty.
    prefix: Prefix of the names, which are relative to the directory.
  """
  root = _join(folder, "")
  with store_errors(folder):
    entries = filesystem(folder).find(root, prefix=prefix, detail=True)
  start = len(root.partition("://")[2])
  return {
    name[start:]: entry["size"]
    for name, entry in entries.items()
    if entry["type"] == "file" and name[start:]
  }


def upload(
  folder: PathLike, target: PathLike, names: Iterable[str], last: str = ""
) -> None:
  """Uploads files of a local directory to a store; `last` is uploaded last.

  The names are relative to both directories.
  """

  def upload_one(name: str) -> None:
    with store_errors(target, is_write=True):
      # `put` would check the bucket before each file.
      filesystem(target).put_file(
        os.path.join(folder, name), _join(target, name)
      )

  _each_but_last(upload_one, names, last)


def download(folder: PathLike, target: PathLike, names: Iterable[str]) -> None:
  """Downloads files of a directory on a store to a local directory.

  Raises:
    FileNotFoundError: A file is missing.
  """
  names = list(names)
  with store_errors(folder):
    filesystem(folder).get(
      [_join(folder, name) for name in names],
      [os.path.join(target, name) for name in names],
    )


def remove(folder: PathLike, names: Iterable[str]) -> None:
  """Removes the given files of a remote directory, if they exist."""

  def remove_one(name: str) -> None:
    with store_errors(folder), contextlib.suppress(FileNotFoundError):
      # `rm` would interpret brackets and stars in a name as a pattern.
      filesystem(folder).rm_file(_join(folder, name))

  each(remove_one, names)


def move(folder: PathLike, target: PathLike, last: str) -> None:
  """Moves all files below a remote directory to another path in its store.

  The file `last` is copied last and removed first.
  """

  def copy_one(name: str) -> None:
    with store_errors(target):
      filesystem(folder).cp_file(_join(folder, name), _join(target, name))

  names = sizes(folder)
  _each_but_last(copy_one, names, last)
  remove(folder, [last])
  remove(folder, names)


def each(
  function: Callable[[Item], Result], items: Iterable[Item]
) -> list[Result]:
  """Calls a function on all items in several threads; returns the results.

  This is for functions that wait for requests to a store.
  """
  with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:
    return list(pool.map(function, items))


def _each_but_last(
  function: Callable[[str], None], names: Iterable[str], last: str
) -> None:
  names = set(names)
  each(function, sorted(names - {last}))
  each(function, names & {last})


def _join(folder: PathLike, name: str) -> str:
  return f"{os.fspath(folder).rstrip('/')}/{name}"


@contextlib.contextmanager
def store_errors(path: PathLike, is_write: bool = False) -> Iterator[None]:
  """Converts exceptions of store libraries to FileNotFoundError or StoreError.

  Args:
    path: Path that the message names.
    is_write: Whether the `with` block writes; then only the bucket can be
      missing.
  """
  try:
    yield
  except InputError:
    raise
  except FileNotFoundError as error:
    if not error.filename and (is_write or _is_missing_bucket(error)):
      raise StoreError(
        f"{path}: the bucket does not exist. Create it, or correct the name."
      ) from None
    code = errno.ENOENT
    raise FileNotFoundError(code, os.strerror(code), os.fspath(path)) from None
  except Exception as error:
    is_bug = type(error).__module__ == "builtins" and not isinstance(
      error, OSError
    )
    if is_bug or getattr(
      error, "filename", None
    ):  # or an error of a local file
      raise
    raise StoreError(f"{path}: {_reason(path, error)}") from None


def _is_missing_bucket(error: Exception) -> bool:
  response = getattr(error.__cause__, "response", {})
  return response.get("Error", {}).get("Code", "") == "NoSuchBucket"


def _reason(path: PathLike, error: Exception) -> str:
  """Explains why a request to an object store failed, with a remedy."""
  message = (str(error).splitlines() or [repr(error)])[0][:300].rstrip(".")
  kind = type(error).__name__
  denials = ("Permission", "Credential", "Auth", "Token")
  if any(word in kind for word in denials):
    credentials = _STORES[os.fspath(path).partition("://")[0]][1]
    return f"access denied ({message}). Credentials come from {credentials}."
  return (
    f"a request to the store failed ({message}). Check the endpoint and the "
    "network, then run the same command again: published files are complete."
  )
