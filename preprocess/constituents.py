"""Constituency trees on their way from a file into the examples.

`preprocess.penn` reads a tree and ties it to its line; here are those of a
whole split, for `preprocess.build`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence.align import Mismatch
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from preprocess import penn, report
from preprocess.split import RawSplit


def labels(splits: Collection[RawSplit]) -> list[str]:
  """Labels of the constituents of all kept lines, sorted; none if not given."""
  found: set[str] = set()
  for split in splits:
    for tree in _trees(split):
      found |= tree.labels if tree else set()
  if not found and any(split.brackets for split in splits):
    raise InputError(
      "config.prepare.parse.source_brackets: no kept line has a tree with"
      " constituents; are these the right files?"
    )
  return sorted(found)


def _trees(split: RawSplit) -> Iterator[penn.PennTree | None]:
  """The constituency trees of the kept lines of a split."""
  if split.brackets is not None:
    kept = set(split.kept)
    trees = penn.read(split.brackets, split.all_lines("source"))
    yield from (tree for i, tree in enumerate(trees) if i in kept)


def added(
  rows: Iterator[dict[str, Any]],
  split: RawSplit,
  vocabulary: Vocabulary,
  *,
  ids: Mapping[str, int],
  counts: report.Counts,
) -> Iterator[dict[str, Any]]:
  """The examples with their constituency trees, where the data set has some.

  A tree that is not of its line is left out and counted, the first one shown.
  """
  if not ids:
    yield from rows
    return
  trees = itertools.chain(_trees(split), itertools.repeat(None))
  nothing = np.zeros(0, schema.FEATURES["source_brackets"].dtype)
  for made, number, text, tree in zip(
    rows, split.numbers, split.lines("source"), trees
  ):
    made["source_brackets"], found = nothing, "no tree"
    if tree is not None:
      try:
        made["source_brackets"] = penn.bracketing(
          tree, text, vocabulary, ids=ids
        )
        found = "used"
      except Mismatch as error:
        found = "another text"
        if not counts.brackets[found]:
          print(f"{split.brackets}:{number}: left out: {error}", flush=True)
    counts.brackets[found] += 1
    yield made
  if counts.brackets["another text"] and not counts.brackets["used"]:
    raise InputError(
      f"{split.brackets}: no tree is of its line of {split.file('source')}"
      f" ({counts.brackets}); are the two of the same text?"
    )
