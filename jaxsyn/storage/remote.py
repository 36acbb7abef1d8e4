"""Folders on object stores: s3://BUCKET/FOLDER and gs://BUCKET/FOLDER.

An object appears whole, by the one request that ends its upload, or not at all;
there are no folders but in names, nothing is appended to, and nothing is locked.
What follows from that stands in docs/remote.md. `files` is the door: it
calls this for paths with a scheme, and nothing of it for local ones.

The libraries (fsspec with s3fs or gcsfs) come with the extra "remote" and are
imported at the first call. Retries are theirs.
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

_CONCURRENT = 8  # requests; s3fs holds ten connections

# Scheme -> the package that speaks to such stores, and where it looks for keys.
_STORES = {
  "s3": (
    "s3fs",
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the machine's "
    "role; AWS_ENDPOINT_URL where it is not Amazon's",
  ),
  "gs": (
    "gcsfs",
    "GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login, or "
    "the machine's account",
  ),
}


def is_remote(path: PathLike) -> bool:
  """Whether a path has a scheme. Looks at its letters alone."""
  return "://" in os.fspath(path)


def path(name: PathLike) -> pathlib.Path:
  """A path for `/`, `name` and `parent`; what is there, `files` says.

  Raises:
    InputError: the scheme is unknown, or its library is not installed.
  """
  filesystem(name)
  from etils import epath

  # It has the methods of pathlib.Path, but for what depends on a kernel.
  return cast(pathlib.Path, epath.Path(name))


def filesystem(path: PathLike) -> Any:
  """What fsspec has for the scheme of a path; the same object at each call.

  Raises:
    InputError: the scheme is unknown, or its library is not installed.
  """
  scheme = os.fspath(path).partition("://")[0]
  if scheme not in _STORES:
    raise InputError(
      f"{path}: folders are local, s3:// or gs://; {scheme}:// is neither."
    )
  try:
    import fsspec

    # It logs tracebacks of what it raises as well: ninety lines for no network.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    # Listings kept from before would hide what another process has written.
    return fsspec.filesystem(scheme, use_listings_cache=False)
  except ImportError:
    raise InputError(
      f"{path}: for {scheme}:// the package {_STORES[scheme][0]} is needed: "
      "pip install -e '.[remote]'."
    ) from None


def check(folder: PathLike) -> None:
  """Finds out that a store does not answer, before hours of work.

  Raises:
    InputError: no bucket is named.
    StoreError: there is no such bucket, no right to list it, no way to it.
  """
  if not os.fspath(folder).partition("://")[2].strip("/"):
    raise InputError(f"{folder}: the name of a bucket is missing.")
  with contextlib.suppress(FileNotFoundError), _with_store_errors(folder):
    filesystem(folder).ls(os.fspath(folder))


class _Object(io.RawIOBase):
  """An object as a file to read from; each read is a request."""

  # Not fsspec's own: its reads raise whatever a library has, and fetch a block
  # ahead of every one, also of those that are large themselves.

  def __init__(self, path: PathLike):
    super().__init__()
    self.name = os.fspath(path)
    self._size = size(path)
    self._at = 0

  def readable(self) -> bool:
    return True

  def seekable(self) -> bool:
    return True

  def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
    base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
    if (at := base[whence] + offset) < 0:
      raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.name)
    self._at = at
    return at

  def readinto(self, buffer: Any) -> int:
    view = memoryview(buffer).cast("B")
    end = min(self._at + len(view), self._size)
    if end <= self._at:
      return 0
    with _with_store_errors(self.name):
      store = filesystem(self.name)
      data = store.cat_file(self.name, start=self._at, end=end)
    view[: len(data)] = data
    self._at += len(data)
    return len(data)

  def readall(self) -> bytes:
    data = bytearray(max(self._size - self._at, 0))
    return bytes(data[: self.readinto(data)])


def open_read(path: PathLike, read_ahead: int) -> io.BufferedReader:
  """A file to read and to seek in; `read_ahead` bytes are asked for at a time.

  A read of more than that is one or two requests.
  """
  return io.BufferedReader(_Object(path), read_ahead)


def read(path: PathLike) -> bytes:
  """The content of a file, in one request."""
  with _with_store_errors(path):
    # Else s3fs asks for the size before, to fetch large ones in parts.
    return filesystem(path).cat_file(os.fspath(path), max_concurrency=1)


def size(path: PathLike) -> int:
  """Bytes of a file; FileNotFoundError where there is none."""
  with _with_store_errors(path):
    return filesystem(path).info(os.fspath(path))["size"]


def is_file(path: PathLike) -> bool:
  """Whether there is an object of this name."""
  try:
    with _with_store_errors(path):
      return filesystem(path).info(os.fspath(path))["type"] == "file"
  except FileNotFoundError:
    return False


def tags(folder: PathLike, prefix: str = "") -> dict[str, str]:
  """Files below a folder by relative name -> what changes with their content.

  Args:
    folder: empty where it is not there.
    prefix: of the names.
  """
  return {
    name: str(about.get("ETag") or about.get("etag"))
    for name, about in _listed(folder, prefix)
  }


def sizes(folder: PathLike, prefix: str = "") -> dict[str, int]:
  """Files below a folder by relative name -> bytes; as `tags`."""
  return {name: about["size"] for name, about in _listed(folder, prefix)}


def _listed(
  folder: PathLike, prefix: str
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Files below a folder: relative names, and what the library says of them."""
  root = os.fspath(folder).rstrip("/") + "/"
  with _with_store_errors(folder):
    entries = filesystem(folder).find(root, prefix=prefix, detail=True)
  begin = len(root.partition("://")[2])
  for name, about in entries.items():
    if about["type"] == "file" and name[begin:]:
      yield name[begin:], about


def create(path: PathLike, content: bytes) -> bool:
  """Writes a file unless there is one; whether it did.

  Where a store knows no conditions it writes, whatever there is.
  """
  try:
    with _with_store_errors(path, writes=True):
      filesystem(path).pipe_file(os.fspath(path), content, mode="create")
  except FileExistsError:
    return False
  return True


def write(path: PathLike, content: bytes) -> None:
  """Writes a small file."""
  with _with_store_errors(path, writes=True):
    filesystem(path).pipe_file(os.fspath(path), content)


def upload(
  folder: PathLike, target: PathLike, names: Iterable[str], last: str = ""
) -> None:
  """Copies files of a local folder to one of the same names there.

  Args:
    folder: the local one.
    target: on a store.
    names: relative to both.
    last: of the names, the one that is written when the others are there.
  """

  def upload_one(name: str) -> None:
    with _with_store_errors(target, writes=True):
      # Not `put`, which asks whether there is a bucket before each.
      filesystem(target).put_file(
        os.path.join(folder, name), _join(target, name)
      )

  each(upload_one, (name for name in names if name != last))
  each(upload_one, [last] if last else [])


def download(folder: PathLike, target: PathLike, names: Iterable[str]) -> None:
  """Copies files of a folder on a store to a local one of the same names.

  Raises:
    FileNotFoundError: one is not there.
  """
  names = list(names)
  with _with_store_errors(folder):
    filesystem(folder).get(
      [_join(folder, name) for name in names],
      [os.path.join(target, name) for name in names],
    )


def remove(folder: PathLike, names: Iterable[str], first: str = "") -> None:
  """Removes files of a folder, as far as they are there.

  Args:
    folder: on a store.
    names: relative to it.
    first: of the names, the one that goes before the others.
  """

  def remove_one(name: str) -> None:
    with _with_store_errors(folder), contextlib.suppress(FileNotFoundError):
      # Not `rm`, to which a name with a bracket or a star is a pattern.
      filesystem(folder).rm_file(_join(folder, name))

  names = set(names)
  each(remove_one, names & {first})
  each(remove_one, sorted(names - {first}))


def move(folder: PathLike, target: PathLike, last: str) -> None:
  """Moves all files below a folder to another of the same store.

  Args:
    folder, target: on a store.
    last: the name that is copied last and removed first.
  """

  def copy_one(name: str) -> None:
    with _with_store_errors(target):
      filesystem(folder).cp_file(_join(folder, name), _join(target, name))

  names = set(tags(folder))
  each(copy_one, sorted(names - {last}))
  each(copy_one, names & {last})
  remove(folder, names, first=last)


def each(
  function: Callable[[Item], Result], items: Iterable[Item]
) -> list[Result]:
  """What a function that waits for a store says of each, some at a time."""
  with concurrent.futures.ThreadPoolExecutor(_CONCURRENT) as pool:
    return list(pool.map(function, items))


def _join(folder: PathLike, name: str) -> str:
  return f"{os.fspath(folder).rstrip('/')}/{name}"


@contextlib.contextmanager
def _with_store_errors(path: PathLike, writes: bool = False) -> Iterator[None]:
  """What the libraries raise, as FileNotFoundError of the path or StoreError.

  Args:
    path: what it is about.
    writes: so what is not found is the bucket.
  """
  try:
    yield
  except (FileExistsError, MemoryError, InputError):
    raise
  except FileNotFoundError as error:
    if not error.filename and (writes or _is_of_bucket(error)):
      raise StoreError(
        f"{path}: there is no such bucket. Make it first, or mend the name."
      ) from None
    code = errno.ENOENT
    raise FileNotFoundError(code, os.strerror(code), os.fspath(path)) from None
  except Exception as error:
    theirs = isinstance(error, OSError) or type(error).__module__ != "builtins"
    if not theirs or getattr(error, "filename", None):  # ours; or a local file
      raise
    raise StoreError(f"{path}: {_words(path, error)}") from None


def _is_of_bucket(error: Exception) -> bool:
  answer = getattr(error.__cause__, "response", {})
  code = answer.get("Error", {}).get("Code", "")
  return code == "NoSuchBucket"


def _words(path: PathLike, error: Exception) -> str:
  """What a store, or the way to it, lacks; and what to do."""
  message = (str(error).splitlines() or [repr(error)])[0][:300].rstrip(".")
  kind = type(error).__name__
  if any(
    word in kind for word in ("Permission", "Credential", "Auth", "Token")
  ):
    keys = _STORES[os.fspath(path).partition("://")[0]][1]
    return f"the store refuses ({message}). Keys are looked for in {keys}."
  return (
    f"the store does not answer as it should ({message}). Check its address and "
    "the network, and run the same command again: what is there is whole."
  )
