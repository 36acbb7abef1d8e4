"""Files that appear whole or not at all; `checksums` tells when they change.

Whatever jaxsyn leaves on a disk goes through here: written under a name of its
own, flushed to the disk, renamed, and the folder flushed, so that a kill or a
loss of power leaves the old content or the new, never half of one.

Paths may be on an object store, s3:// or gs:// (`remote`): there a file
is one object, which appears whole, and a folder counts when the page that is
written last is there.
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

PARTIAL = ".partial"  # how the names of unfinished files and folders end
_BLOCK = 1 << 20

PathLike = str | os.PathLike[str]


def path_of(name: PathLike) -> pathlib.Path:
  """A path, local or remote; not `pathlib.Path`, to which s3:// is a folder.

  Raises:
    InputError: the scheme is unknown, or its library is not installed.
  """
  return remote.path(name) if remote.is_remote(name) else pathlib.Path(name)


def open_read(
  path: PathLike, read_ahead: int = 8 * _BLOCK
) -> io.BufferedReader:
  """A file to read and to seek in, local or remote.

  Args:
    path: of the file.
    read_ahead: bytes of a request to a store where less is read: few for who
      reads here and there, many for who reads on.
  """
  if remote.is_remote(path):
    return remote.open_read(path, read_ahead)
  return open(path, "rb")


def read_bytes(path: PathLike) -> bytes:
  """The content of a file."""
  if remote.is_remote(path):
    return remote.read(path)
  return pathlib.Path(path).read_bytes()


def size_of(path: PathLike) -> int:
  """Bytes of a file."""
  if remote.is_remote(path):
    return remote.size(path)
  return os.stat(path).st_size


def readable(size: int) -> str:
  """A number of bytes with a binary unit, for messages.

  >>> [readable(size) for size in (0, 900, 4096, 1536000, 3 << 40)]
  ['0 bytes', '900 bytes', '4.0 KiB', '1.5 MiB', '3072.0 GiB']
  """
  for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
    if size >= unit:
      return f"{size / unit:.1f} {name}"
  return f"{size} bytes"


def is_file(path: PathLike) -> bool:
  """Whether there is a file of this name."""
  if remote.is_remote(path):
    return remote.is_file(path)
  return os.path.isfile(path)


def absolute(path: PathLike) -> pathlib.Path:
  """The same path, for whoever has another current folder."""
  path = path_of(path)
  return path if remote.is_remote(path) else path.absolute()


def names(folder: PathLike, pattern: str = "") -> list[str]:
  """Files below a folder, relative to it, in the order of their paths.

  Args:
    folder: empty where it is not there.
    pattern: of `pathlib.Path.glob`, without "**"; "": all of them.
  """
  if remote.is_remote(folder):
    begin = re.split(r"[*?[]", pattern)[0]
    paths = map(pathlib.PurePosixPath, remote.tags(folder, begin))
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


def folders(folder: PathLike, begin: str) -> list[pathlib.Path]:
  """Folders in a folder whose names begin so."""
  if remote.is_remote(folder):
    below = (name.split("/") for name in remote.tags(folder, begin))
    names_found = sorted({parts[0] for parts in below if len(parts) > 1})
    return [path_of(folder) / name for name in names_found]
  matches = pathlib.Path(folder).glob(f"{begin}*")
  return [path for path in sorted(matches) if path.is_dir()]


@contextlib.contextmanager
def filled_folder(folder: PathLike) -> Iterator[pathlib.Path]:
  """A local folder for libraries that write into one: itself, or another.

  The files of that are in `folder` when the block ends well.
  """
  if not remote.is_remote(folder):
    yield pathlib.Path(folder)
    return
  with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
    yield pathlib.Path(temporary)
    remote.upload(temporary, folder, names(temporary))


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
  text: dict[str, Any] = {}
  if "b" not in mode:
    text = {"encoding": "utf-8", "newline": "\n"}
  if remote.is_remote(path):
    folder, _, name = os.fspath(path).rpartition("/")
    with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary_folder:
      with open(os.path.join(temporary_folder, name), mode, **text) as file:
        yield file
      remote.upload(temporary_folder, folder, [name])
    return
  path = pathlib.Path(os.path.realpath(path))
  if path.exists() and not stat.S_ISREG(path.stat().st_mode):
    with open(path, mode, **text) as file:
      yield file
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _temporary_sibling(path)
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


def write_new(path: PathLike, text: str) -> None:
  """Writes a local file of text, whole or not at all, never over another.

  Raises:
    FileExistsError: there is one.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _temporary_sibling(path)
  try:
    write_text(temporary, text)
    try:
      os.link(temporary, path)  # unlike a renaming, it fails where there is one
    except FileExistsError:
      raise
    except OSError:  # a file system without links
      if path.exists():
        raise FileExistsError(
          errno.EEXIST, os.strerror(errno.EEXIST), str(path)
        ) from None
      os.rename(temporary, path)
    flush_folder(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


def write_json(path: PathLike, content: Any) -> None:
  """Writes a JSON file for people to read too, whole or not at all."""
  write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def copy(source: PathLike, target: PathLike) -> None:
  """Copies a file's content, whole or not at all."""
  with open_read(source) as old, publish(target) as new:
    shutil.copyfileobj(old, new, _BLOCK)


@contextlib.contextmanager
def publish_folder(
  path: PathLike, last_file: str = ""
) -> Iterator[pathlib.Path]:
  """A new folder, which takes the place of `path` when the block ends well.

  Where another process was first with the same name, or there was an old one,
  the last wins, whole.

  Args:
    path: of the folder.
    last_file: as of `replace_folder`.
  """
  if remote.is_remote(path):
    with tempfile.TemporaryDirectory(prefix="jaxsyn-") as temporary:
      yield pathlib.Path(temporary)
      replace_folder(pathlib.Path(temporary), path, last_file)
    return
  path = pathlib.Path(os.path.realpath(path))
  path.parent.mkdir(parents=True, exist_ok=True)
  new = _temporary_sibling(path)
  new.mkdir()
  try:
    yield new
    flush_tree(new)
    replace_folder(new, path)
  finally:
    shutil.rmtree(new, ignore_errors=True)


def replace_folder(
  new: pathlib.Path, path: PathLike, last_file: str = ""
) -> None:
  """Moves a folder to a place that another may hold, which is then removed.

  On an object store nothing can be moved: the files are copied, and their
  readers must wait for the page.

  Args:
    new: a local folder.
    path: where it is to be.
    last_file: of its files, the one without which the folder does not count;
      for object stores.
  """
  if remote.is_remote(path):
    if not last_file:
      raise ValueError(f"{path}: no page to be written last.")
    remove_folder(path, last_file)
    remote.upload(new, path, names(new), last=last_file)
    return
  path = pathlib.Path(path)
  for _ in range(100):  # another process may put its own there meanwhile
    try:
      os.rename(new, path)
      break
    except OSError as error:
      if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
        raise
    old = _temporary_sibling(path)
    with contextlib.suppress(FileNotFoundError):
      os.rename(path, old)
    shutil.rmtree(old, ignore_errors=True)
  flush_folder(path.parent)


def remove(path: PathLike) -> None:
  """Removes a file, if it is there."""
  if remote.is_remote(path):
    folder, _, name = os.fspath(path).rpartition("/")
    remote.remove(folder, [name])
    return
  pathlib.Path(path).unlink(missing_ok=True)


def remove_folder(path: PathLike, first_file: str = "") -> None:
  """Removes a folder; who lists or opens it sees all of it or nothing.

  Args:
    path: of the folder.
    first_file: as of `replace_folder`.
  """
  if remote.is_remote(path):
    remote.remove(path, remote.tags(path), first=first_file)
    return
  path = pathlib.Path(path)
  old = _temporary_sibling(path)
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

  On an object store they leave nothing that has a name.

  Args:
    folder: of unfinished files and folders.
    but: the name of one that stays.
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


def last_line(file: IO[bytes]) -> str:
  """The last line with something on it, of what a process writes; "" if none."""
  if file.closed:
    return ""
  size = os.fstat(file.fileno()).st_size
  end = os.pread(file.fileno(), 1 << 12, max(0, size - (1 << 12)))
  rows = end.decode(errors="replace").split("\n")
  return next((row.strip() for row in reversed(rows) if row.strip()), "")


def read_json(path: PathLike) -> Any:
  """What a JSON file holds.

  Raises:
    OSError: the file cannot be read.
    ValueError: it is no JSON, an object has a name twice, or a text is no
      Unicode; says why.
  """
  try:
    text = read_bytes(path).decode("utf-8")
    content = json.loads(text, object_pairs_hook=_unique)
    if "\\u" in text:  # half of a surrogate pair, which no file can be named by
      json.dumps(content, ensure_ascii=False).encode("utf-8")
  except UnicodeEncodeError:
    raise ValueError("a text in it has half a character.") from None
  except RecursionError:  # thousands of brackets
    raise ValueError("it is nested too deeply.") from None
  return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """An object of JSON; ValueError if it has a name twice."""
  values = dict(pairs)
  if len(values) < len(pairs):
    raise ValueError("an object in it has a name twice.")
  return values


def _temporary_sibling(path: pathlib.Path) -> pathlib.Path:
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
