"""More parses of a line than the best, on their way into the examples.

Each is a CoNLL-U file of all lines of the raw file, as of other parsers. Those of a
chunk, for the stages of `preprocess.parse` and `preprocess.records`; in training one
of all is drawn (`jaxsyn.data.loader.tree_sampling`).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.errors import InputError
from jaxsyn.preprocess.corpus import Chunk, Tools
from jaxsyn.preprocess.work import Facts

USED, OTHER, NONE = "used", "other words", "no tree"

Alternative = tuple[Sequence[int], Sequence[str]]  # heads, relations
Words = tuple[Any, Any, Any]  # starts, ends, whether the best parse is one


def deduplicated(
  chunk: Chunk,
  side: str,
  lines: Sequence[str],
  *,
  rows: Sequence[int],
  words: Sequence[Words],
) -> tuple[list[list[Alternative]], Facts]:
  """The further parses of rows of a chunk that have the words of the best.

  Args:
    chunk: of a split that has some.
    side: of the parses.
    lines: of that side, of the whole chunk.
    rows: those that become examples.
    words: of the best parse of each row.

  Returns:
    of each row heads and relations of each; and how many parses of rows are of
    which kind.

  Raises:
    InputError: CoNLL-U is malformed, or of another text.
  """
  counts = dict.fromkeys((USED, OTHER, NONE), 0)
  alternatives: list[list[Alternative]] = [[] for _ in rows]
  place = {row: i for i, row in enumerate(rows)}
  for file in chunk.split.alternatives[side]:
    # All are read, so that what is malformed or of another text is told.
    for row, parse in enumerate(chunk.trees(side, lines, [file])):
      if row not in place or not lines[row].strip():
        continue
      start, end, parsed = words[place[row]]
      if not (parse.parsed and parsed):
        counts[NONE] += 1
      elif (tuple(start), tuple(end)) != (parse.start_W, parse.end_W):
        counts[OTHER] += 1
      else:
        counts[USED] += 1
        alternatives[place[row]].append((parse.head_W, parse.relation_W))
  return alternatives, counts


def sides_with_alternatives(tools: Tools) -> dict[str, list[str]]:
  """What the manifest says of the sides that have some; nothing without any."""
  wanted = tools.config.prepare.parse
  sides: list[str] = list(wanted.sides)
  sides_given = [
    side for side in sides if getattr(wanted, f"{side}_alternatives")
  ]
  return {"alternatives": sides_given} if sides_given else {}


def features(
  tools: Tools, index: int, rows: int
) -> list[dict[str, np.ndarray]]:
  """The features `schema.ALTERNATIVES` of the rows of a chunk."""
  values: list[dict[str, np.ndarray]] = [{} for _ in range(rows)]
  split = tools.chunk(index).split
  for side in tools.known.get("alternatives", ()):
    ids = schema.relation_ids(tools.known["relations"][side])
    pages: Sequence[Sequence[Alternative]] = [()] * rows
    if side in split.alternatives:
      pages = tools.work.read_json(f"trees/{index}.alternatives.{side}")
    for value, some in zip(values, pages, strict=True):
      heads = [head for head_W, _ in some for head in head_W]
      relations = [
        ids.get(label, schema.NO_RELATION)
        for _, relation_W in some
        for label in relation_W
      ]
      for field, of_all in (("head", heads), ("relation", relations)):
        name = f"{side}_other_{field}"
        value[name] = np.array(of_all, schema.FEATURES[name].dtype)
  return values


def counted(facts: Sequence[Facts]) -> dict[str, dict[str, int]]:
  """Side -> how many parses of all chunks are of which kind."""
  total: dict[str, collections.Counter[str]] = {}
  for fact in facts:
    for side, counts in fact.get("alternatives", {}).items():
      total.setdefault(side, collections.Counter()).update(counts)
  return {side: dict(counts) for side, counts in total.items()}


def check(split: str, counts: Mapping[str, Mapping[str, int]]) -> None:
  """Raises InputError where parses were given, and none has the words."""
  for side, count in counts.items():
    if count[OTHER] and not count[USED]:
      raise InputError(
        f"config.prepare.parse.{side}_alternatives.{split}: no parse has the"
        f" words of the best parse of its line ({dict(count)}); give those of the"
        " same tokenisation."
      )
