"""Sums that tell when a file, or a page, is not as it was written.

CRC-32C finds what disks and networks do; SHA-256 names what must be the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import google_crc32c
import numpy as np

from jaxsyn.storage import files

_CHECKSUM_KEY = "crc32c"  # where a page of JSON keeps its own checksum
_BLOCK = 1 << 20


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


def crc_of(path: files.PathLike) -> str:
  """The CRC-32C of a file, in hexadecimal."""
  with files.open_read(path) as file:
    return _crc32c(iter(lambda: file.read(_BLOCK), b""))


def _crc32c(blocks: Iterable[bytes]) -> str:
  return f"{functools.reduce(google_crc32c.extend, blocks, 0):08x}"


def sha256_of(path: files.PathLike) -> str:
  """The SHA-256 of a file, in hexadecimal."""
  with files.open_read(path) as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def file_checksums(
  folder: files.PathLike, names: Iterable[str]
) -> dict[str, Any]:
  """What `damaged` compares with: name -> {"bytes", "crc32c"} of files.

  Args:
    folder: of the files.
    names: of the files, relative to it.
  """
  return {
    name: {
      "bytes": files.size_of(os.path.join(folder, name)),
      "crc32c": crc_of(os.path.join(folder, name)),
    }
    for name in names
  }


def corrupt_files(
  folder: files.PathLike,
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
      size = files.size_of(path)
      if size != facts["bytes"]:
        return f"{path} has {size} bytes and had {facts['bytes']}"
      if deep(name) and (actual := crc_of(path)) != facts["crc32c"]:
        return (
          f"{path} has another checksum ({actual}) than when it was written "
          f"({facts['crc32c']})"
        )
    except OSError as error:
      return f"{path}: {error.strerror}"
  return ""


def add_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
  """A page for JSON with its own checksum in it, under "crc32c".

  >>> add_checksum({"a": 1})
  {'a': 1, 'crc32c': '6f4c8c94'}
  """
  document = {
    name: value for name, value in content.items() if name != _CHECKSUM_KEY
  }
  return {**document, _CHECKSUM_KEY: _checksum(document)}


def verify_checksum(document: Any) -> dict[str, Any]:
  """Returns the content of a document after verifying its checksum.

  Raises:
    ValueError: it is no such page, or was changed since.
  """
  if not isinstance(document, dict) or _CHECKSUM_KEY not in document:
    raise ValueError("its checksum is not there.")
  content = {
    name: value for name, value in document.items() if name != _CHECKSUM_KEY
  }
  try:
    checksum = _checksum(content)
  except RecursionError:
    raise ValueError("it is nested too deeply.") from None
  if document[_CHECKSUM_KEY] != checksum:
    raise ValueError(
      "its checksum differs: it was changed after it was written."
    )
  return content


def _checksum(content: Mapping[str, Any]) -> str:
  return crc32c(json.dumps(content, sort_keys=True).encode("ascii"))
