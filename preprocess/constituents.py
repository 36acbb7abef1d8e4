"""Constituency trees on their way from a file into the examples.

`preprocess.penn` reads a tree and ties it to its line; here are those of a
chunk, for the stages of `preprocess.parse` and `preprocess.records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence.align import MismatchError
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess import penn
from jaxsyn.preprocess.corpus import Chunk
from jaxsyn.preprocess.work import Facts

USED, OTHER, NONE = "used", "another text", "no tree"


def trees(chunk: Chunk, texts: Sequence[str]) -> list[penn.PennTree | None]:
  """The constituency trees of all lines of a chunk.

  Args:
    chunk: of a split that has some.
    texts: its source.
  """
  both = zip(chunk.brackets(), texts, strict=True)
  return [penn.tree_of(line, text, where) for (where, line), text in both]


def labels(chunk: Chunk, texts: Sequence[str], rows: Sequence[int]) -> set[str]:
  """Labels of the constituents of rows of a chunk."""
  trees_found = trees(chunk, texts)
  return {
    label for row in rows if (tree := trees_found[row]) for label in tree.labels
  }


def check(labels_found: Sequence[str], is_given: bool) -> None:
  """Raises InputError where trees are given, and none has a label."""
  if is_given and not labels_found:
    raise InputError(
      "config.prepare.parse.source_brackets: no kept line has a tree with"
      " constituents; are these the right files?"
    )


def features(
  chunk: Chunk,
  rows: Sequence[int],
  vocabulary: Vocabulary,
  ids: Mapping[str, int],
) -> tuple[list[np.ndarray], Facts]:
  """The feature `source_brackets` of rows of a chunk.

  A tree that is not of its line is left out and counted.

  Returns: the features; and "brackets", how many rows have which kind of tree,
  and "left_out", what to say of the first that was.
  """
  nothing = np.zeros(0, schema.FEATURES["source_brackets"].dtype)
  counts, left_out = dict.fromkeys((USED, OTHER, NONE), 0), ""
  texts = [source for source, _ in chunk.pairs()]
  trees_found = (
    trees(chunk, texts) if chunk.split.brackets else [None] * len(texts)
  )
  values = []
  for row in rows:
    value, kind, tree = nothing, NONE, trees_found[row]
    if tree is not None:
      try:
        value = penn.bracketing(tree, texts[row], vocabulary, ids=ids)
        kind = USED
      except MismatchError as error:
        kind = OTHER
        where = chunk.brackets()[row][0] if not left_out else ""
        left_out = left_out or f"{where}: left out: {error}"
    counts[kind] += 1
    values.append(value)
  return values, {"brackets": counts, "left_out": left_out}


def report_labels(
  counts: Mapping[str, int], left_out: str, files: Sequence[str]
) -> None:
  """Says which tree of a split was left out first.

  Args:
    counts: of all chunks.
    left_out: of the first chunk that has one; "": none.
    files: of the trees, and of the text.

  Raises:
    InputError: all were.
  """
  if left_out:
    print(left_out, flush=True)
  if counts[OTHER] and not counts[USED]:
    raise InputError(
      f"{files[0]}: no tree is of its line of {files[1]} ({dict(counts)}); are"
      " the two of the same text?"
    )
