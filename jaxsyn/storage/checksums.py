"""Checksums of files, arrays and JSON documents.

CRC-32C detects corruption by disks and networks. SHA-256 identifies files that
must be equal, such as a vocabulary.
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
from jaxsyn.storage.remote import PathLike

_CHECKSUM_KEY = "crc32c"  # key of a JSON document's own checksum
_BLOCK = 1 << 20


class CorruptFileError(ValueError):
  """Error for a file whose content is not what was written to it."""


def crc32c(data: bytes | np.ndarray) -> str:
  """Returns the CRC-32C of bytes or of a row-major array, in hexadecimal.

  >>> crc32c(b"123456789")
  'e3069283'
  """
  if isinstance(data, np.ndarray):  # bfloat16 has no buffer, its bytes do
    data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
  # The library only accepts bytes; copies of small blocks are cheap.
  starts = range(0, len(data), _BLOCK)
  return _crc32c(bytes(data[start : start + _BLOCK]) for start in starts)


def crc_of(path: PathLike) -> str:
  """Returns the CRC-32C of a file's content, in hexadecimal."""
  with files.open_read(path) as file:
    return _crc32c(iter(lambda: file.read(_BLOCK), b""))


def _crc32c(blocks: Iterable[bytes]) -> str:
  return f"{functools.reduce(google_crc32c.extend, blocks, 0):08x}"


def sha256_of(path: PathLike) -> str:
  """Returns the SHA-256 of a file's content, in hexadecimal."""
  with files.open_read(path) as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_texts(texts: Iterable[str]) -> str:
  """Returns a single SHA-256 hash of a sequence of texts."""
  digest = hashlib.sha256()
  for text in texts:
    data = text.encode("utf-8")
    digest.update(len(data).to_bytes(8, "little") + data)
  return digest.hexdigest()


def file_checksums(folder: PathLike, names: Iterable[str]) -> dict[str, Any]:
  """Returns the size and CRC-32C of each given file in a folder, by name."""
  paths = {name: os.path.join(folder, name) for name in names}
  return {
    name: {"bytes": files.size_of(path), "crc32c": crc_of(path)}
    for name, path in paths.items()
  }


def corrupt_files(
  folder: PathLike,
  expected: Mapping[str, Mapping[str, Any]],
  deep: Callable[[str], bool] = lambda name: True,
) -> str:
  """Returns a message about the first corrupt or missing file, or "".

  Args:
    folder: Directory of the files.
    expected: Result of `file_checksums`.
    deep: Function from a file name to whether the file is read; otherwise only
      its size is compared.
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
  """Returns a JSON document with a checksum of its content added.

  The key of the checksum is "crc32c".
  >>> add_checksum({"a": 1})
  {'a': 1, 'crc32c': '6f4c8c94'}
  """
  content = _without_checksum(content)
  return {**content, _CHECKSUM_KEY: _checksum(content)}


def verify_checksum(document: Any) -> dict[str, Any]:
  """Verifies the checksum of a JSON document; returns the content.

  Raises:
    CorruptFileError: The checksum is missing or differs.
  """
  if not isinstance(document, dict) or _CHECKSUM_KEY not in document:
    raise CorruptFileError("its checksum is missing.")
  content = _without_checksum(document)
  if document[_CHECKSUM_KEY] != _checksum(content):
    raise CorruptFileError(
      "its checksum differs: it was changed after it was written."
    )
  return content


def _without_checksum(document: Mapping[str, Any]) -> dict[str, Any]:
  return {key: document[key] for key in document if key != _CHECKSUM_KEY}


def _checksum(content: Mapping[str, Any]) -> str:
  return crc32c(json.dumps(content, sort_keys=True).encode("ascii"))
