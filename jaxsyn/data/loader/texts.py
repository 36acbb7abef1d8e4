"""Sentences and where their words end, beside the columns of a split.

What subwords are drawn from (`sampling`). They are made once, from the text and
the trees of the prepared folder, and kept as other columns that are not stored.

Before this file: `column_cache`. After it: `sampling`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from jaxsyn.data.loader import column_cache
from jaxsyn.data.schema import SIDES, SPELT
from jaxsyn.data.store import integrity
from jaxsyn.data.store.prepared import ColumnFiles, PreparedSplit
from jaxsyn.data.store.rows import Rows

RECIPE = 1  # raise it when the same text gives other columns


def open_texts(
  records: PreparedSplit, sides: Collection[str], *, memory_gib: float
) -> ColumnFiles:
  """Texts of some sides, and ends of words where there are trees.

  Args:
    records: the opened split.
    sides: "source", "target" or both.
    memory_gib: see `column_cache.open_columns`.

  Raises:
    InputError: text or trees of the folder cannot be read.
  """
  trees = records.manifest["sides"]
  names = tuple(
    name
    for name in SPELT
    for side, _, feature in (name.partition("_"),)
    if side in sides and (feature == "utf8" or side in trees)
  )
  files, _ = column_cache.open_columns(
    lambda _: _made(records, sides),
    names,
    column_cache.folder_of(records, names, ["texts", RECIPE]),
    memory_gib=memory_gib,
  )
  return files


def features(files: ColumnFiles) -> tuple[str, ...]:
  """Names of what is there."""
  stored = files.blocks[0][1] if files.blocks else ()
  return tuple(name for name in SPELT if name in stored)


def line(rows: Rows, side: str, i: int) -> str:
  """The sentence of an example."""
  start = rows.start[f"{side}_utf8"]
  return rows.flat[f"{side}_utf8"][start[i] : start[i + 1]].tobytes().decode()


def _made(records: PreparedSplit, sides: Iterable[str]) -> Iterator[Rows]:
  """Texts and ends of words of all examples, and what tells their lengths."""
  sentences = {
    side: integrity.sentences(
      records.directory, records.manifest, records.split, side
    )
    for side in sides
  }
  blocks = range(len(records.columns.blocks))
  for rows in records.columns.read(blocks, [f"{side}_id" for side in SIDES]):
    flat, start = dict(rows.flat), dict(rows.start)

    def put(name: str, values: np.ndarray, size: Iterable[int]) -> None:
      flat[name], start[name] = values, np.cumsum([0, *size])  # noqa: B023

    for side, side_texts in sentences.items():
      some = [*itertools.islice(side_texts, len(rows))]
      texts = [one if isinstance(one, str) else one.text for one in some]
      data = [text.encode() for text in texts]
      joined = np.frombuffer(b"".join(data), np.uint8)
      put(f"{side}_utf8", joined, map(len, data))
      ends = [one.end_W for one in some if not isinstance(one, str)]
      if ends:
        joined = np.fromiter(itertools.chain.from_iterable(ends), np.int32)
        put(f"{side}_word_end", joined, map(len, ends))
    yield Rows(flat, start)
