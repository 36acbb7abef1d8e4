"""Files that appear whole or not at all, and sums that tell when they change.

Whatever jaxsyn leaves on a disk goes through here: written under a name of its
own, flushed to the disk, renamed, and the folder flushed, so that a kill or a
loss of power leaves the old content or the new, never half of one.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import pathlib
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

import google_crc32c
import numpy as np

PARTIAL = ".partial"  # how the names of unfinished files and folders end
_SEAL = "crc32c"  # where a page of JSON keeps its own checksum
_BLOCK = 1 << 20

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def publish(
  path: PathLike, mode: str = "wb", *, flush: bool = True
) -> Iterator[IO[Any]]:
  """A file to write to, which gets its name when the block ends well.

  An exception in the block leaves what was there before. A link keeps pointing
  where it does; what is no regular file (/dev/null, a pipe) is written to as it
  is, since renaming over it would take its place.

  Args:
    path: of the file; its folder is made if need be.
    mode: "wb", or "w" for UTF-8 text whose lines end as they are written.
    flush: wait for the disk; else a loss of power may leave half of it, for
      what has a checksum in it and can be made again.
  """
  path = pathlib.Path(os.path.realpath(path))
  text: dict[str, Any] = {}
  if "b" not in mode:
    text = {"encoding": "utf-8", "newline": "\n"}
  if path.exists() and not stat.S_ISREG(path.stat().st_mode):
    with open(path, mode, **text) as file:
      yield file
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _beside(path)
  try:
    # Not tempfile: its files may be read by their owner alone.
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
  """Writes a file of UTF-8 text, whole or not at all."""
  with publish(path, "w") as file:
    file.write(text)


def write_json(path: PathLike, content: Any) -> None:
  """Writes a JSON file for people to read too, whole or not at all."""
  write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def copy(source: PathLike, target: PathLike) -> None:
  """Copies a file's content, whole or not at all."""
  with open(source, "rb") as old, publish(target) as new:
    shutil.copyfileobj(old, new, _BLOCK)


@contextlib.contextmanager
def publish_folder(path: PathLike) -> Iterator[pathlib.Path]:
  """A new folder, which takes the place of `path` when the block ends well.

  Where another process was first with the same name, or there was an old one,
  the last wins, whole.
  """
  path = pathlib.Path(os.path.realpath(path))
  path.parent.mkdir(parents=True, exist_ok=True)
  new = _beside(path)
  new.mkdir()
  try:
    yield new
    flush_tree(new)
    replace_folder(new, path)
  finally:
    shutil.rmtree(new, ignore_errors=True)


def replace_folder(new: pathlib.Path, path: pathlib.Path) -> None:
  """Moves a folder to a place that another may hold, which is then removed."""
  for _ in range(100):  # another process may put its own there meanwhile
    try:
      os.rename(new, path)
      break
    except OSError as error:
      if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
        raise
    old = _beside(path)
    with contextlib.suppress(FileNotFoundError):
      os.rename(path, old)
    shutil.rmtree(old, ignore_errors=True)
  flush_folder(path.parent)


def remove_folder(path: PathLike) -> None:
  """Removes a folder; who lists or opens it sees all of it or nothing."""
  path = pathlib.Path(path)
  old = _beside(path)
  os.rename(path, old)
  shutil.rmtree(old, ignore_errors=True)


def flush_tree(folder: PathLike) -> None:
  """Returns when all files below a folder, and their names, are on the disk."""
  for place, _, names in os.walk(folder):
    for name in names:
      _flush(os.path.join(place, name), os.O_RDONLY)
    flush_folder(place)


def flush_folder(folder: PathLike) -> None:
  """Returns when the names in a folder are on the disk."""
  _flush(folder, os.O_RDONLY | os.O_DIRECTORY)


def remove_unfinished(folder: PathLike, but: str = "") -> None:
  """Removes what killed processes left; only for the one writer of a folder.

  Args:
    folder: of unfinished files and folders.
    but: the name of one that stays.
  """
  for path in pathlib.Path(folder).glob(f".*{PARTIAL}"):
    if path.name == but:
      continue
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path, ignore_errors=True)
    else:
      path.unlink(missing_ok=True)


def crc32c(data: bytes | np.ndarray) -> str:
  """The CRC-32C of bytes, or of an array's in row-major order, in hexadecimal.

  >>> crc32c(b"123456789")
  'e3069283'
  """
  if isinstance(data, np.ndarray):  # bfloat16 has no buffer, its bytes do
    data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
  # The library wants bytes themselves; a copy in small blocks is cheap.
  starts = range(0, len(data), _BLOCK)
  return _crc32c(bytes(data[start : start + _BLOCK]) for start in starts)


def crc_of(path: PathLike) -> str:
  """The CRC-32C of a file, in hexadecimal."""
  with open(path, "rb") as file:
    return _crc32c(iter(lambda: file.read(_BLOCK), b""))


def _crc32c(blocks: Iterable[bytes]) -> str:
  return f"{functools.reduce(google_crc32c.extend, blocks, 0):08x}"


def sha256_of(path: PathLike) -> str:
  """The SHA-256 of a file, in hexadecimal."""
  with open(path, "rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def sums(folder: PathLike, names: Iterable[str]) -> dict[str, Any]:
  """What `damaged` compares with: name -> {"bytes", "crc32c"} of files.

  Args:
    folder: of the files.
    names: of the files, relative to it.
  """
  return {
    name: {
      "bytes": os.stat(os.path.join(folder, name)).st_size,
      "crc32c": crc_of(os.path.join(folder, name)),
    }
    for name in names
  }


def damaged(
  folder: PathLike,
  expected: Mapping[str, Mapping[str, Any]],
  deep: Callable[[str], bool] = lambda name: True,
) -> str:
  """The first file that is not as it was, and how; "" where all are.

  Args:
    folder: of the files.
    expected: of `sums`.
    deep: whether to read a file, or to look at its size alone.
  """
  for name, facts in expected.items():
    path = os.path.join(folder, name)
    try:
      size = os.stat(path).st_size
      if size != facts["bytes"]:
        return f"{path} has {size} bytes and had {facts['bytes']}"
      if deep(name) and (found := crc_of(path)) != facts["crc32c"]:
        return (
          f"{path} has another checksum ({found}) than when it was written "
          f"({facts['crc32c']})"
        )
    except OSError as error:
      return f"{path}: {error.strerror}"
  return ""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
  """A page for JSON with its own checksum in it, under "crc32c".

  >>> sealed({"a": 1})
  {'a': 1, 'crc32c': '6f4c8c94'}
  """
  page = {name: value for name, value in content.items() if name != _SEAL}
  return {**page, _SEAL: _seal(page)}


def unsealed(page: Any) -> dict[str, Any]:
  """What was sealed, however it is laid out in its file.

  Raises:
    ValueError: it is no such page, or was changed since.
  """
  if not isinstance(page, dict) or _SEAL not in page:
    raise ValueError("its checksum is not there.")
  content = {name: value for name, value in page.items() if name != _SEAL}
  if page[_SEAL] != _seal(content):
    raise ValueError(
      "its checksum differs: it was changed after it was written."
    )
  return content


def read_json(path: PathLike) -> Any:
  """What a JSON file holds.

  Raises:
    OSError: the file cannot be read.
    ValueError: it is no JSON; says why.
  """
  try:
    return json.loads(pathlib.Path(path).read_bytes().decode("utf-8"))
  except RecursionError:  # thousands of brackets
    raise ValueError("it is nested too deeply.") from None


def _seal(content: Mapping[str, Any]) -> str:
  return crc32c(json.dumps(content, sort_keys=True).encode("ascii"))


def _beside(path: pathlib.Path) -> pathlib.Path:
  """A name in the same folder that nobody else uses."""
  # Random, since two processes of one program may write the same file; short,
  # since a file name has at most 255 bytes.
  stem = path.name.encode()[:160].decode(errors="ignore")
  unique = secrets.token_hex(4)
  return path.with_name(f".{stem}.{unique}{PARTIAL}")


def _flush(path: PathLike, flags: int) -> None:
  file = os.open(path, flags)
  try:
    os.fsync(file)
  except OSError as error:
    # File systems that cannot flush say so; all else is a fault of the disk.
    if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
      raise
  finally:
    os.close(file)
