"""Digests of TFRecord shards, computed without the project's own reader.

The wire format is read here itself, so that a digest does not depend on the reader
that it checks.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterator
from typing import Any

from jaxsyn.errors import InputError


def sha256(data: bytes) -> str:
  """Returns the SHA-256 of bytes, in hexadecimal."""
  return hashlib.sha256(data).hexdigest()


def digests(folder: pathlib.Path) -> dict[str, Any]:
  """Returns a digest per shard and, for each split, a digest per feature.

  Together they distinguish a new feature from a changed one.
  """
  shards: dict[str, str] = {}
  hashes: dict[str, Any] = {}  # hash objects
  for path in sorted(folder.rglob("*.tfrecord-*")):
    if path.suffix.startswith(".tfrecord") and path.is_file():
      data = path.read_bytes()
      shards[path.name] = sha256(data)
      split = path.name.split(".")[0].split("-")[-1]
      for name, value in features(data):
        hashes.setdefault(f"{split}/{name}", hashlib.sha256()).update(value)
  if not shards:
    raise InputError(f"no TFRecord shards below {folder}.")
  return {
    "shards": shards,
    "features": {name: one.hexdigest() for name, one in hashes.items()},
    "vocabulary": sha256((folder / "vocabulary.model").read_bytes()),
  }


def features(shard: bytes) -> Iterator[tuple[str, bytes]]:
  """Yields (name, serialized value) for every feature in a shard's records.

  It reads the wire format itself, so that it does not depend on the reader that
  it is to check. A record is length (8 bytes), CRC (4), tf.train.Example, CRC (4).
  """
  start = 0
  while start < len(shard):
    length = int.from_bytes(shard[start : start + 8], "little")
    example = shard[start + 12 : start + 12 + length]
    for features in _fields(example):
      for entry in _fields(features):
        name, value = _fields(entry)
        yield name.decode(), value
    start += 16 + length


def _fields(message: bytes) -> Iterator[bytes]:
  """Yields the length-delimited fields in a protocol buffer message."""
  start = 0
  while start < len(message):
    start += 1  # the tag
    length = shift = 0
    while True:
      byte = message[start]
      start += 1
      length |= (byte & 0x7F) << shift
      shift += 7
      if byte < 0x80:
        break
    yield message[start : start + length]
    start += length
