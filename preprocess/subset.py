"""Draws a random subset of training pairs (config.prepare.subset).

Each line has a random number that depends only on the seed and the line index.
The clean pairs with the lowest numbers are sampled. So the subset depends on
neither chunks of lines nor processes, and for the same seed a smaller subset is
contained in a larger one.
"""

from __future__ import annotations

import gzip
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from jaxsyn.data.loader.philox import philox
from jaxsyn.data.options import Subset
from jaxsyn.errors import InputError
from jaxsyn.storage import files

_BLOCK = 1 << 20  # lines that are sorted at once, in addition to the subset


def draw(
  options: Subset, count: int, total: int, clean_lines: Iterable[np.ndarray]
) -> list[int]:
  """Draws a random subset; returns (random number, line) of its last pair.

  Args:
    options: Size and seed of the subset.
    count: Number of clean training pairs.
    total: Number of training pairs.
    clean_lines: Line indices of the clean pairs in the files, for each chunk.

  Raises:
    InputError: There are fewer clean pairs than the subset needs.
  """
  if options.pairs > count:
    raise InputError(
      f"config.prepare.subset.pairs is {options.pairs:,}, but the training split"
      f" has {count:,} clean pairs, of {total:,}. Give at most {count:,}, or 0"
      " for all."
    )
  tables: list[np.ndarray] = []  # columns: ranks and lines
  for lines in clean_lines:
    ranks = _ranks(options.seed, lines)
    tables.append(np.column_stack([ranks, lines.astype(np.uint64)]))
    if sum(map(len, tables)) > 2 * options.pairs + _BLOCK:
      tables = [_lowest(tables, options.pairs)]
  return _lowest(tables, options.pairs)[-1].tolist()


def _lowest(tables: Sequence[np.ndarray], pairs: int) -> np.ndarray:
  table = np.concatenate(tables)
  return table[np.lexsort((table[:, 1], table[:, 0]))[:pairs]]


def _ranks(seed: int, lines: np.ndarray) -> np.ndarray:
  """Returns a 64-bit random number for each line index."""
  high, low, *_ = philox((seed, 0), (lines & 0xFFFFFFFF, lines >> 32, 0, 0))
  return high << np.uint64(32) | low


def is_drawn(
  seed: int, lines: np.ndarray, last_drawn: Sequence[int]
) -> np.ndarray:
  """Returns a mask of the given training lines that belong to the subset.

  Args:
    seed: Seed of the subset.
    lines: Line indices.
    last_drawn: Result of `draw`.
  """
  rank, line = last_drawn
  ranks, last = _ranks(seed, lines), np.uint64(rank)
  return (ranks < last) | ((ranks == last) & (lines <= line))


def file_of(split: str) -> str:
  """Returns the relative path of the file with a subset's line numbers."""
  return f"text/{split}.drawn.gz"


def write(folder: pathlib.Path, split: str, lines: Iterable[int]) -> None:
  """Writes the line numbers of the random subset, counted from 1, to a file."""
  text = "".join(f"{line + 1}\n" for line in lines)
  with files.publish(folder / file_of(split)) as file:
    file.write(gzip.compress(text.encode(), 6, mtime=0))


def read(folder: pathlib.Path, split: str) -> np.ndarray:
  """Reads the line numbers of the random subset, counted from 1."""
  text = gzip.decompress(files.read_bytes(folder / file_of(split)))
  return np.array(text.split(), np.int64)
