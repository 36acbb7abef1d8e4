"""Files from the network: bounded, whole, and the same as the first time.

Raw corpora (`preprocess.raw`) and parser models (`jaxsyn.data.sentence.parsers`) come
through here. What a server sends is data of strangers: it may be endless, cut,
or other than yesterday. A file has its SHA-256 from the config; or else what
came first is written down beside it, in NAME.sha256 (`sha256sum -c` reads it),
and must come again ever after.
"""

from __future__ import annotations

import datetime
import fcntl
import gzip
import http.client
import os
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from jaxsyn import progress
from jaxsyn.errors import InputError
from jaxsyn.storage import cache, checksums, files, lock, remote

Check = Callable[[pathlib.Path], object]
PathLike = str | os.PathLike[str]


class UnreachableError(InputError):
  """A server that does not answer, or has no such file."""


MAX_BYTES = 4 << 30  # bytes of a file, unless the config says another limit
# Text packs three to five times; a thousand times is an attack, or no text.
MAX_UNPACKED_BYTES = 16  # bytes for each byte of MOST
_BLOCK = 1 << 20
_TIMEOUT = 60.0  # seconds without an answer
_SLOWEST = 1 << 10  # bytes a second, after the first _TIMEOUT seconds
_RECORD = re.compile(r"\b[0-9a-f]{64}\b")


class Download(NamedTuple):
  """Where a file is, and what it must be.

  Attributes:
    url: of the schemes http and https.
    sha256: of the file; "": whatever it is the first time.
    most: bytes that it may have.
  """

  url: str
  sha256: str = ""
  max_bytes: int = MAX_BYTES


def get(
  path: pathlib.Path,
  address: Download,
  check: Check = lambda path: None,
) -> str:
  """Sees to it that a file is there, whole and as it was the first time.

  One that is there is read; it is fetched again where it was damaged. Of
  processes that want the same file one fetches, the others wait for it.

  Args:
    path: of the file. Beside it stands its record, if it was fetched or the
      address has no SHA-256.
    address: where to fetch it.
    check: raises InputError for a file of the wrong kind.

  Returns:
    the SHA-256 of the file.

  Raises:
    InputError: it cannot be fetched, is too large, cut off, of the wrong kind,
      or another file than before; says why, without saying what to do.
  """
  expected = address.sha256 or recorded(path)
  if (sha256_found := _existing_sum(path, expected, check)) is None:
    if not remote.is_remote(path):
      path.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"waiting for another process, which fetches {path}"
    with lock.flock(path.parent, fcntl.LOCK_EX, waiting):
      if (sha256_found := _existing_sum(path, expected, check)) is None:
        files.remove_unfinished(path.parent)
        sha256_found = _fetch(path, address, expected, check)
  return sha256_found


def local(path: PathLike, sha256: str = "") -> pathlib.Path:
  """A file for libraries that read local ones: itself, or a copy.

  The copy of one on an object store stays in the user's cache folder, under
  its SHA-256, and is compared with it whenever it is asked for.

  Args:
    path: local or remote.
    sha256: of the file; "": whatever it is now. A local one is not looked at.

  Raises:
    InputError: it is not there, or is another.
  """
  if not remote.is_remote(path):
    return pathlib.Path(path)
  sha256 = sha256 or checksums.sha256_of(path)
  try:
    place = cache.user_folder()
  except OSError:
    place = cache.temporary_folder()
  copy = place / "files" / sha256 / os.fspath(path).rpartition("/")[2]
  copy.parent.mkdir(parents=True, exist_ok=True)
  # Of several processes of a machine one copies it, the others wait.
  with lock.flock(copy.parent, fcntl.LOCK_EX):
    if not (copy.is_file() and checksums.sha256_of(copy) == sha256):
      _copy(path, copy, sha256)
  return copy


def _copy(path: PathLike, copy: pathlib.Path, sha256: str) -> None:
  try:
    files.copy(path, copy)
  except FileNotFoundError:
    raise InputError(f"{path} is missing; copy the folder anew.") from None
  if (actual := checksums.sha256_of(copy)) != sha256:
    copy.unlink()
    raise InputError(
      f"{path} has the SHA-256 {actual} and not {sha256}, as the manifest of "
      "its folder says; copy the folder anew."
    )


def record(path: pathlib.Path) -> str:
  """What stands beside a file: where it came from, when, and its SHA-256."""
  try:
    text = files.read_bytes(_record(path)).decode(errors="replace")
  except FileNotFoundError:
    return ""
  return " ".join(text.replace("#", "").split())


def recorded(path: pathlib.Path) -> str:
  """The SHA-256 that stands beside a file; "" if none does.

  Raises:
    InputError: the record is damaged.
  """
  if match := _RECORD.search(record(path)):
    return match[0]
  if not files.is_file(_record(path)):
    return ""
  raise InputError(
    f"{_record(path)} holds no SHA-256; it was damaged. If you trust"
    f" {path.name} and the place that it comes from, delete the record."
  )


def _record(path: pathlib.Path) -> pathlib.Path:
  return path.with_name(path.name + ".sha256")


def _existing_sum(
  path: pathlib.Path, expected: str, check: Check
) -> str | None:
  """The SHA-256 of the file that is there; None if it must be fetched."""
  if not files.is_file(path):
    return None
  actual = checksums.sha256_of(path)
  if not expected:  # put there by hand
    check(path)
    _write_record(path, actual, "put here by hand")
  elif actual != expected:
    print(
      f"{path} is not what it was (SHA-256 {actual}, not {expected}): fetching"
      " it again",
      file=sys.stderr,
    )
    return None
  return actual


def _write_record(path: pathlib.Path, sha256: str, origin: str) -> None:
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
  files.write_text(_record(path), f"# {origin}, {now}\n{sha256}  {path.name}\n")


def _fetch(
  path: pathlib.Path, address: Download, expected: str, check: Check
) -> str:
  print(f"fetching {address.url}", file=sys.stderr)
  with files.publish(path) as file:
    for block in _blocks(address, known=bool(expected)):
      file.write(block)
    file.flush()
    temporary = pathlib.Path(file.name)
    actual = checksums.sha256_of(temporary)
    if expected and actual != expected:
      source = "config.prepare.downloads says"
      if not address.sha256:
        source = f"{_record(path)} (delete it if you trust the new file) says"
      raise InputError(
        f"it has changed or was cut off: its SHA-256 is {actual}, {source}"
        f" {expected}"
      )
    if path.name.endswith(".gz"):
      _unpacks(temporary, address.max_bytes * MAX_UNPACKED_BYTES)
    check(temporary)
    # Before the file has its name: what has a name has a record.
    _write_record(path, actual, f"fetched from {address.url}")
  return actual


def _unpacks(path: pathlib.Path, limit: int) -> None:
  """Raises InputError unless a gzip file is whole and not too large."""
  size = 0
  try:
    with gzip.open(path) as unpacked:
      while size <= limit and (block := unpacked.read(_BLOCK)):
        size += len(block)
  except (gzip.BadGzipFile, EOFError, zlib.error) as error:
    raise InputError(f"it is no whole gzip file ({error})") from None
  if size > limit:
    raise InputError(f"unpacked it has more than {limit:,} bytes")


def _blocks(address: Download, known: bool) -> Iterator[bytes]:
  """What a server sends, to its end; `known`: its SHA-256 will be compared."""
  try:
    with _opener().open(_request(address.url), timeout=_TIMEOUT) as answer:
      yield from _bounded(answer, address.max_bytes, known)
  except urllib.error.HTTPError as error:
    error.close()
    raise UnreachableError(str(error)) from None
  except (OSError, http.client.HTTPException) as error:
    raise UnreachableError(str(error) or type(error).__name__) from None
  except ValueError as error:
    raise InputError(str(error)) from None


def _bounded(
  answer: http.client.HTTPResponse, limit: int, known: bool
) -> Iterator[bytes]:
  if answer.status != http.HTTPStatus.OK:
    raise InputError(f"the server answers {answer.status} {answer.reason}")
  length = answer.length
  if length is None and not answer.chunked and not known:
    raise InputError(
      "the server does not say how long the file is, so that a cut one could"
      " not be told from a whole one"
    )
  if length is not None and length > limit:
    raise InputError(_too_large(f"{length:,} bytes", limit))
  done, started = 0, time.monotonic()
  with progress.bar("fetching", length and length >> 10, unit="KiB") as bar:
    # read1, since read waits until a whole block is there, however slowly.
    while block := answer.read1(_BLOCK):
      done += len(block)
      bar.set_done(done >> 10)
      seconds = time.monotonic() - started
      if done > limit:
        raise InputError(_too_large("no end yet", limit))
      if seconds > _TIMEOUT and done < seconds * _SLOWEST:
        raise InputError(f"{done:,} bytes in {seconds:.0f} s are too slow")
      yield block
  if length is not None and done != length:
    raise InputError(f"it was cut off: {done:,} of {length:,} bytes came")


def _too_large(what: str, limit: int) -> str:
  return (
    f"it has {what}, the limit is {limit:,}; a fourth entry in"
    " config.prepare.downloads sets another"
  )


def _request(url: str) -> urllib.request.Request:
  _check_scheme(url)
  # Nothing packed on the way: urllib would write it down as it came.
  agent = {"User-Agent": "jaxsyn", "Accept-Encoding": "identity"}
  return urllib.request.Request(url, headers=agent)


def _check_scheme(url: str) -> None:
  parts = urllib.parse.urlsplit(url)
  if parts.scheme not in ("http", "https") or not parts.hostname:
    raise InputError(f"{url!r} is no address of http or https")


class _Redirects(urllib.request.HTTPRedirectHandler):
  """Follows redirects to the web, never to weaker ones or to local files."""

  def redirect_request(
    self,
    request: urllib.request.Request,
    file: IO[bytes],
    code: int,
    message: str,
    headers: http.client.HTTPMessage,
    new: str,
  ) -> urllib.request.Request | None:
    _check_scheme(new)
    if request.type == "https" and not new.lower().startswith("https:"):
      raise InputError(f"it is redirected to {new}, which is not encrypted")
    return super().redirect_request(request, file, code, message, headers, new)


def _opener() -> urllib.request.OpenerDirector:
  """Knows http and https alone: the usual one reads file: and ftp: too."""
  opener = urllib.request.OpenerDirector()
  for handler in (
    urllib.request.ProxyHandler(),
    urllib.request.HTTPHandler(),
    urllib.request.HTTPSHandler(),
    urllib.request.HTTPDefaultErrorHandler(),
    urllib.request.HTTPErrorProcessor(),
    _Redirects(),
  ):
    opener.add_handler(handler)
  return opener
