"""Corruptions of files: what disks, networks and interrupted copies do to bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rng = np.random.Generator
SECTOR = 512  # bytes


def flip(data: bytes, rng: Rng) -> bytes:
  """Flips one bit."""
  if not data:
    return b"\x01"
  corrupt = bytearray(data)
  corrupt[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
  return bytes(corrupt)


def truncate(data: bytes, rng: Rng) -> bytes:
  """Cuts a file at a random position."""
  return data[: int(rng.integers(max(len(data), 1)))]


def cut_last_byte(data: bytes, rng: Rng) -> bytes:
  """Cuts the last byte."""
  return data[:-1]


def extend(data: bytes, rng: Rng) -> bytes:
  """Appends random bytes."""
  return data + rng.bytes(int(rng.integers(1, SECTOR)))


def repeat(data: bytes, rng: Rng) -> bytes:
  """Appends a copy of the whole file."""
  return data + data


def empty(data: bytes, rng: Rng) -> bytes:
  """Removes all bytes."""
  return b""


def clear_sector(data: bytes, rng: Rng) -> bytes:
  """Sets a sector to zeros."""
  start = int(rng.integers(max(len(data), 1)))
  zeros = bytes(len(data[start : start + SECTOR]))
  return data[:start] + zeros + data[start + SECTOR :]


def swap_parts(data: bytes, rng: Rng) -> bytes:
  """Swaps the two halves of a file."""
  return data[len(data) // 2 :] + data[: len(data) // 2]


# Corruptions of the bytes of one file, by name.
CORRUPTIONS: dict[str, Callable[[bytes, Rng], bytes]] = {
  function.__name__: function
  for function in (
    flip,
    truncate,
    cut_last_byte,
    extend,
    repeat,
    empty,
    clear_sector,
    swap_parts,
  )
}


def corrupted(data: bytes, rng: Rng) -> bytes:
  """Returns bytes after a random corruption."""
  return CORRUPTIONS[str(rng.choice(list(CORRUPTIONS)))](data, rng)
