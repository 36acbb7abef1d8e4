"""One sentence of CoNLL-U: its rows checked, its multi-word tokens joined.

`jaxsyn.data.sentence.conllu` cuts a file into sentences and calls `joined` for each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxsyn.errors import InputError

COLUMNS = 10
Row = tuple[int, list[str]]  # its line in the file, from 1; its columns
# A surface token: its first and last word, form, whether a blank follows.
Unit = tuple[int, int, str, bool]

# 8, the range 8-9, or the empty node 8.1
_ID = re.compile(r"(0|[1-9]\d{0,8})(?:-([1-9]\d{0,8})|\.[1-9]\d*)?", re.ASCII)
_HEAD = re.compile(r"\d{1,9}", re.ASCII)


def joined(file: str, rows: Sequence[Row]) -> tuple[Any, ...]:
  """The surface tokens of a sentence.

  Args:
    file: name of the file, for messages.
    rows: at least one, each of COLUMNS columns.

  Returns:
    form, head (from 0; a root is its own), relation of each surface token,
    whether a blank follows it, and the row of its member nearest to the root.

  Raises:
    InputError: the rows are no tree; the message starts with FILE:LINE.
  """
  heads, relations, row_of, units = _words(file, rows)
  depths = _depths(file, heads, row_of)
  unit_of = [0] * (len(heads) + 1)  # syntactic word -> its surface token
  for unit, (low, high, _, _) in enumerate(units):
    unit_of[low : high + 1] = [unit] * (high + 1 - low)
  head_W, relation_W, row_W = [], [], []
  words = [columns for _, columns in rows if columns[0].isdecimal()]
  for unit, (low, high, _, _) in enumerate(units):
    # The member nearest to the root hangs outside its token, and taking it
    # cannot close a cycle: the token above is nearer to the root still.
    top = min(range(low, high + 1), key=lambda word: depths[word])
    head = heads[top - 1]
    head_W.append(unit_of[head] if head else unit)
    relation_W.append(relations[top - 1])
    row_W.append(words[top - 1])
  _, _, form_W, space_after_W = zip(*units)
  return form_W, tuple(head_W), tuple(relation_W), space_after_W, tuple(row_W)


def _words(
  file: str, rows: Sequence[Row]
) -> tuple[list[int], list[str], list[int], list[Unit]]:
  """Checks the rows of one sentence.

  Returns:
    head (from 1; a root's is 0), relation and file line of each syntactic
    word; and of each surface token its first word, last word, form, and
    whether a blank follows.
  """
  heads: list[int] = []
  relations: list[str] = []
  row_of: list[int] = []
  units: list[Unit] = []
  covered, widest = 0, ""  # the last word in a surface token; the last range
  for number, columns in rows:
    where = f"{file}:{number}"
    name, form, head, misc = (columns[i] for i in (0, 1, 6, 9))
    word = len(heads) + 1
    id_, empty = _ID.fullmatch(name), "." in name
    if not id_ or int(id_[1]) != word - empty:
      raise InputError(
        f"{where}: the id is {shortened(name)} where {word} is due; ids must"
        " count up from 1 in every sentence."
      )
    if empty:
      continue
    if not form:
      raise InputError(f"{where}: the word has no form (second column).")
    if id_[2]:
      if word <= covered or int(id_[2]) < word:
        raise InputError(
          f"{where}: the multi-word token {name} overlaps another or ends"
          " before it starts; ranges must be disjoint and ascending."
        )
      covered, widest = int(id_[2]), f"{where}: the multi-word token {name}"
      units.append((word, covered, form, "SpaceAfter=No" not in misc))
      continue
    if not _HEAD.fullmatch(head):
      raise InputError(
        f"{where}: the head (seventh column) is {shortened(head)}, but must be a"
        " word's id or 0; was the text parsed?"
      )
    heads.append(int(head))
    relations.append(columns[7])
    row_of.append(number)
    if word > covered:  # else its surface token stands above
      covered = word
      units.append((word, word, form, "SpaceAfter=No" not in misc))
  if not heads:
    raise InputError(
      f"{file}:{rows[0][0]}: a sentence without words; remove the block."
    )
  if covered > len(heads):
    raise InputError(f"{widest} reaches beyond the last word, {len(heads)}.")
  return heads, relations, row_of, units


def _depths(file: str, heads: list[int], row_of: list[int]) -> list[int]:
  """Edges above each word, 0 (above the roots), 1, 2, ...; checks the tree."""
  words = len(heads)
  for word, head in enumerate(heads, start=1):
    if head > words:
      raise InputError(
        f"{file}:{row_of[word - 1]}: the head of word {word} is {head}, but"
        f" the sentence has {words} words."
      )
  if 0 not in heads:
    raise InputError(
      f"{file}:{row_of[0]}: the sentence has no root; one word must have"
      " head 0."
    )
  depths = [0] + [-1] * words
  for word in range(1, words + 1):
    path: list[int] = []
    here = word
    while depths[here] < 0:
      if len(path) == words:  # longer than any path without a cycle
        raise InputError(
          f"{file}:{row_of[here - 1]}: the heads form a cycle through word"
          f" {here}; each word must lead to a root."
        )
      path.append(here)
      here = heads[here - 1]
    for depth, seen in enumerate(reversed(path), start=depths[here] + 1):
      depths[seen] = depth
  return depths


def shortened(text: str) -> str:
  """A text for a message."""
  return repr(text if len(text) <= 40 else text[:40] + "…")
