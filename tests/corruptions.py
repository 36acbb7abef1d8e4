"""Corruptions of files: what disks, networks and interrupted copies do to bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Rng = np.random.Generator
SECTOR = 512  # bytes


def flip(data: bytes, rng: Rng) -> bytes:
  """Flips one bit."""
  corrupt = bytearray(data or b"\0")
  corrupt[int(rng.integers(len(corrupt)))] ^= 1 << int(rng.integers(8))
  return bytes(corrupt)


def clear_sector(data: bytes, rng: Rng) -> bytes:
  """Sets a sector to zeros."""
  start = int(rng.integers(max(len(data), 1)))
  zeros = bytes(len(data[start : start + SECTOR]))
  return data[:start] + zeros + data[start + SECTOR :]


# Corruptions of the bytes of one file, by name.
CORRUPTIONS: dict[str, Callable[[bytes, Rng], bytes]] = {
  "flip": flip,
  "truncate": lambda data, rng: data[: int(rng.integers(max(len(data), 1)))],
  "cut_last_byte": lambda data, rng: data[:-1],
  "extend": lambda data, rng: data + rng.bytes(int(rng.integers(1, SECTOR))),
  "repeat": lambda data, rng: data + data,
  "empty": lambda data, rng: b"",
  "clear_sector": clear_sector,
  "swap_parts": lambda data, rng: (
    data[len(data) // 2 :] + data[: len(data) // 2]
  ),
}


def corrupted(data: bytes, rng: Rng) -> bytes:
  """Returns bytes after a random corruption."""
  return CORRUPTIONS[str(rng.choice(list(CORRUPTIONS)))](data, rng)
