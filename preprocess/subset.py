"""A random subset of the training pairs: config.prepare.subset.

Each line has a random rank, a function of the seed and of its number alone; the
pairs with the lowest ranks are drawn. So the draw depends neither on chunks nor
on processes, and with one seed smaller subsets are part of larger ones.
"""

from __future__ import annotations

import gzip
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from jaxsyn.data.loader.philox import philox
from jaxsyn.errors import InputError
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.storage import files

_RECORD_NAME = "subset.page"
_BLOCK = 1 << 20  # lines whose ranks are sorted at once, beside those drawn


def draw(tools: Tools, count: int, clean: Iterable[np.ndarray]) -> int:
  """Draws the subset and records the highest rank in it.

  Args:
    tools: of the job.
    count: number of clean training pairs.
    clean: their line indices in the files, from 0, chunk by chunk.

  Returns: number of pairs that are not drawn.

  Raises:
    InputError: there are fewer pairs than are to be drawn.
  """
  options, cut = tools.config.prepare.subset, tools.cuts[0]
  if options.pairs > count:
    raise InputError(
      f"config.prepare.subset.pairs is {options.pairs:,}, but the training split"
      f" has {count:,} clean pairs, of {cut.last - cut.first:,}. Give at most"
      f" {count:,}, or 0 for all."
    )
  lowest = np.zeros((0, 2), np.uint64)  # ranks and lines
  waiting: list[np.ndarray] = []
  for lines in clean:
    ranks = _ranks(options.seed, lines)
    waiting.append(np.column_stack([ranks, lines.astype(np.uint64)]))
    if sum(map(len, waiting)) > options.pairs + _BLOCK:
      lowest, waiting = _lowest([lowest, *waiting], options.pairs), []
  lowest = _lowest([lowest, *waiting], options.pairs)
  tools.work.write_json(_RECORD_NAME, lowest[-1].tolist())
  return count - options.pairs


def _lowest(tables: Sequence[np.ndarray], pairs: int) -> np.ndarray:
  table = np.concatenate(tables)
  return table[np.lexsort((table[:, 1], table[:, 0]))[:pairs]]


def _ranks(seed: int, lines: np.ndarray) -> np.ndarray:
  """Returns a random number of 64 bits for each line index."""
  high, low, *_ = philox((seed, 0), (lines & 0xFFFFFFFF, lines >> 32, 0, 0))
  return high << np.uint64(32) | low


def is_drawn(tools: Tools, lines: np.ndarray) -> np.ndarray:
  """Returns for each clean training line whether it is in the subset.

  Args:
    tools: of the job.
    lines: line indices in the files, from 0.
  """
  options = tools.config.prepare.subset
  if not options.pairs:
    return np.ones(len(lines), bool)
  rank, line = tools.work.read_json(_RECORD_NAME)
  ranks, last = _ranks(options.seed, lines), np.uint64(rank)
  return (ranks < last) | ((ranks == last) & (lines <= line))


def file_of(split: str) -> str:
  """Returns the name of the file of drawn lines in a prepared folder."""
  return f"text/{split}.drawn.gz"


def write(folder: pathlib.Path, split: str, lines: Iterable[int]) -> None:
  """Writes the numbers of the drawn lines, from 1, one a line."""
  text = "".join(f"{line + 1}\n" for line in lines)
  path = folder / file_of(split)
  with files.publish(path) as file:
    file.write(gzip.compress(text.encode(), 6, mtime=0))


def read(folder: pathlib.Path, split: str) -> np.ndarray:
  """Reads what `write` has written: line numbers, from 1."""
  text = gzip.decompress(files.read_bytes(folder / file_of(split)))
  return np.array(text.split(), np.int64)
