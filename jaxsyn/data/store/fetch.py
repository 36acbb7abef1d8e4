"""Downloads raw corpora and parser models, and records their checksums.

The config can have the SHA-256 of a file; otherwise the SHA-256 of the first
download is recorded next to the file in NAME.sha256 (the format of `sha256sum -c`),
and later downloads must match it. A server is not trusted: a file may be endless,
truncated or changed.
"""

from __future__ import annotations

import datetime
import fcntl
import gzip
import http.client
import pathlib
import re
import sys
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files, lock, remote
from jaxsyn.utils import progress

Check = Callable[[pathlib.Path], object]

MAX_BYTES = 4 << 30  # bytes of a file, unless the config has another limit
# Decompressed bytes per byte of the limit: text is compressed three- to fivefold.
_UNPACKED = 16
_BLOCK = 1 << 20
_TIMEOUT = 60.0  # seconds without data


class UnreachableError(InputError):
  """Error for a server that does not respond or lacks a file."""


class Download(NamedTuple):
  """Specification of a file to download: its URL, checksum and size limit.

  Attributes:
    url: URL with the scheme http or https.
    sha256: SHA-256 of the file; "" accepts any file at the first download.
    max_bytes: Maximum size in bytes.
  """

  url: str
  sha256: str = ""
  max_bytes: int = MAX_BYTES


def get(
  path: pathlib.Path, download: Download, check: Check = lambda path: None
) -> str:
  """Downloads a file unless a file with the expected checksum exists.

  If several processes need the same file, one process downloads it while the
  other processes wait.

  Args:
    path: Path of the file.
    download: URL, checksum and size limit of the file.
    check: Function that raises InputError for a file of the wrong type.

  Returns:
    SHA-256 of the file.

  Raises:
    InputError: The file cannot be downloaded, is too large, truncated, of the
      wrong type, or another file than before. The message has the reason, and
      no remedy.
  """
  if not remote.is_remote(path):
    path.parent.mkdir(parents=True, exist_ok=True)
  waiting = f"waiting for another process that downloads {path}"
  with lock.flock(path.parent, fcntl.LOCK_EX, waiting):
    expected = download.sha256 or recorded(path)
    if files.is_file(path):
      actual = checksums.sha256_of(path)
      if not expected:
        check(path)
        _write_record(path, actual, "existing file, not downloaded")
      if expected in ("", actual):
        return actual
      print(
        f"{path} was changed (SHA-256 {actual}, expected {expected}); it is "
        "downloaded again",
        file=sys.stderr,
      )
    files.remove_unfinished(path.parent)
    return _download(path, download, expected, check)


def _download(
  path: pathlib.Path, download: Download, expected: str, check: Check
) -> str:
  print(f"downloading {download.url}", file=sys.stderr)
  with files.publish(path) as file:
    for block in _blocks(download, has_checksum=bool(expected)):
      file.write(block)
    file.flush()
    temporary = pathlib.Path(file.name)
    actual = checksums.sha256_of(temporary)
    if expected and actual != expected:
      origin = "config.prepare.downloads"
      if not download.sha256:
        origin = f"{_record(path)} (delete it if you trust the new file)"
      raise InputError(
        f"the file was changed or truncated: its SHA-256 is {actual}, but "
        f"{expected} in {origin}"
      )
    if path.name.endswith(".gz"):
      _check_gzip(temporary, download.max_bytes * _UNPACKED)
    check(temporary)
    # Before the file gets its final name, so that such a file has a record.
    _write_record(path, actual, f"downloaded from {download.url}")
  return actual


def _blocks(download: Download, has_checksum: bool) -> Iterator[bytes]:
  """Downloads a file and yields its bytes in blocks.

  Args:
    download: URL and size limit of the file.
    has_checksum: Whether the SHA-256 is known, so that truncation is detected.
  """
  limit, done = download.max_bytes, 0
  # No compression for the transfer, which urllib would not undo.
  headers = {"User-Agent": "jaxsyn", "Accept-Encoding": "identity"}
  try:
    _check_url(download.url, download.url)
    request = urllib.request.Request(download.url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
      _check_url(response.url, download.url)
      length = response.length
      if length is None and not response.chunked and not has_checksum:
        raise InputError(
          "the server sends no length, so truncation could not be detected; "
          "give the SHA-256 in config.prepare.downloads"
        )
      kib = length and length >> 10
      with progress.bar("downloading", kib, unit="KiB") as bar:
        while block := response.read(_BLOCK):
          done += len(block)
          if max(done, length or 0) > limit:
            raise InputError(
              f"the file has more than {limit:,} bytes; a fourth entry in "
              "config.prepare.downloads sets another limit"
            )
          bar.set_done(done >> 10)
          yield block
  except (OSError, http.client.HTTPException) as error:
    raise UnreachableError(str(error) or type(error).__name__) from None
  except ValueError as error:
    raise InputError(str(error)) from None
  if length is not None and done != length:
    raise InputError(f"the file is truncated: {done:,} of {length:,} bytes")


def _check_url(url: str, first: str) -> None:
  """Raises InputError for non-HTTP URLs and redirects from https to http."""
  parts = urllib.parse.urlsplit(url)
  if parts.scheme not in ("http", "https") or not parts.hostname:
    raise InputError(f"{url!r} is not an address with http or https")
  if parts.scheme == "http" and first.lower().startswith("https:"):
    raise InputError(f"it is redirected to {url}, which is not encrypted")


def _check_gzip(path: pathlib.Path, limit: int) -> None:
  """Raises InputError if a gzip file is corrupt, truncated or too large."""
  size = 0
  try:
    with gzip.open(path) as unpacked:
      while size <= limit and (block := unpacked.read(_BLOCK)):
        size += len(block)
  except (gzip.BadGzipFile, EOFError, zlib.error) as error:
    raise InputError(f"it is not a complete gzip file ({error})") from None
  if size > limit:
    raise InputError(f"it has more than {limit:,} bytes after decompression")


def record(path: pathlib.Path) -> str:
  """Returns the content of FILE.sha256 (origin, date, SHA-256) as one line.

  Returns "" if there is no record.
  """
  try:
    text = files.read_bytes(_record(path)).decode(errors="replace")
  except FileNotFoundError:
    return ""
  return " ".join(text.replace("#", "").split())


def recorded(path: pathlib.Path) -> str:
  """Returns the SHA-256 in the record FILE.sha256; "" if there is no record.

  Raises:
    InputError: The record is corrupt.
  """
  match = re.search(r"\b[0-9a-f]{64}\b", record(path))
  if match:
    return match[0]
  if not files.is_file(_record(path)):
    return ""
  raise InputError(
    f"{_record(path)} has no SHA-256, so it is corrupt. Delete it if you trust "
    f"{path.name} and its origin."
  )


def _record(path: pathlib.Path) -> pathlib.Path:
  return path.with_name(path.name + ".sha256")


def _write_record(path: pathlib.Path, sha256: str, origin: str) -> None:
  now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
  files.write_text(_record(path), f"# {origin}, {now}\n{sha256}  {path.name}\n")
