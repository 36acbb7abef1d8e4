"""How bytes are damaged: what disks, networks and people do to files."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np

Rng = np.random.Generator
BLOCK = 512  # bytes; disks lose sectors


def flip(data: bytes, rng: Rng) -> bytes:
  """One bit is another."""
  return _flipped(data, rng, 1)


def flips(data: bytes, rng: Rng) -> bytes:
  """A few bits are others."""
  return _flipped(data, rng, int(rng.integers(2, 33)))


def _flipped(data: bytes, rng: Rng, count: int) -> bytes:
  if not data:
    return b"\x01"
  new = bytearray(data)
  for place in rng.choice(len(data), min(count, len(data)), replace=False):
    new[place] ^= 1 << int(rng.integers(8))
  return bytes(new)


def cut(data: bytes, rng: Rng) -> bytes:
  """The end is missing."""
  return data[: int(rng.integers(max(len(data), 1)))]


def empty(data: bytes, rng: Rng) -> bytes:
  """Nothing is left."""
  return b""


def zeros(data: bytes, rng: Rng) -> bytes:
  """A sector reads as zeros."""
  start = int(rng.integers(max(len(data), 1)))
  size = len(data[start : start + BLOCK])
  return data[:start] + bytes(size) + data[start + size :]


def grow(data: bytes, rng: Rng) -> bytes:
  """Something stands behind the end."""
  return data + rng.bytes(int(rng.integers(1, BLOCK)))


def swap(data: bytes, rng: Rng) -> bytes:
  """Two stretches stand in each other's place."""
  if len(data) < 4:
    return data[::-1]
  size = int(rng.integers(1, min(BLOCK, len(data) // 2) + 1))
  a = int(rng.integers(0, len(data) - 2 * size + 1))
  b = int(rng.integers(a + size, len(data) - size + 1))
  return (
    data[:a]
    + data[b : b + size]
    + data[a + size : b]
    + data[a : a + size]
    + data[b + size :]
  )


HARMS: dict[str, Callable[[bytes, Rng], bytes]] = {
  harm.__name__: harm for harm in (flip, flips, cut, empty, zeros, grow, swap)
}


def damage(path: pathlib.Path, rng: Rng) -> str:
  """Damages a file in place, or removes it; says how.

  One of its neighbours may come in its place: whole, with whatever checksums it
  has in itself, and yet another file.
  """
  chance = rng.random()
  if chance < 0.1:
    path.unlink()
    return "removed"
  name = str(rng.choice(list(HARMS)))
  old = path.read_bytes()
  new = HARMS[name](old, rng)
  others = sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
  if chance < 0.25 and others:
    other = others[int(rng.integers(len(others)))]
    name, new = f"as {other.name}", other.read_bytes()
  if new == old:  # a sector of zeros that was one
    name, new = "flip", flip(old, rng)
  path.write_bytes(new)
  return name
