"""One sentence of CoNLL-U: its rows checked, its multi-word tokens joined.

`jaxsyn.data.sentence.conllu` cuts a file into sentences and calls `joined` for each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxsyn.data.annotations.annotation import FORM, HEAD, ID, MISC, RELATION
from jaxsyn.data.sentence.align import shortened
from jaxsyn.errors import InputError

COLUMNS = MISC + 1
Row = tuple[int, str]  # number of its line in the file, from 1; the line
_Columns = tuple[int, list[str]]  # the same, the columns of the line
# A surface token: its first and last word, form, whether a blank follows.
Unit = tuple[int, int, str, bool]

# 8, the range 8-9, or the empty node 8.1
_ID = re.compile(r"(0|[1-9]\d{0,8})(?:-([1-9]\d{0,8})|\.[1-9]\d*)?", re.ASCII)
# Of the sentences that `_plain` takes.
_NUMBERS = tuple(map(str, range(1000)))
_NUMBER_OF = {number: i for i, number in enumerate(_NUMBERS)}
_IDS = _NUMBERS[1:]
_HEAD = re.compile(r"\d{1,9}", re.ASCII)


def joined(file: str, rows: Sequence[Row]) -> tuple[Any, ...]:
  """The surface tokens of a sentence.

  Args:
    file: name of the file, for messages.
    rows: at least one, each of COLUMNS columns.

  Returns:
    form, head (from 0; a root is its own), relation of each surface token,
    whether a blank follows it, and the line of its member nearest to the root.

  Raises:
    InputError: the rows are no tree; the message starts with FILE:LINE.
  """
  lines = [line for _, line in rows]
  if plain := _plain(lines):
    return plain
  words, units = _words(file, [(n, line.split("\t")) for n, line in rows])
  heads = [0, *(int(columns[HEAD]) for _, columns in words)]  # by id
  depths = _depths(file, heads, words)
  unit_of = [0]  # syntactic word, by id -> its surface token
  for unit, (low, high, _, _) in enumerate(units):
    unit_of += [unit] * (high + 1 - low)
  head_W, row_W = [], []
  for unit, (low, high, _, _) in enumerate(units):
    # The member nearest to the root hangs outside its token, and taking it
    # cannot close a cycle: the token above is nearer to the root still.
    top = low
    if low < high:
      top = min(range(low, high + 1), key=depths.__getitem__)
    head_W.append(unit_of[heads[top]] if heads[top] else unit)
    row_W.append(words[top - 1][1])
  _, _, form_W, space_after_W = zip(*units)
  relation_W = tuple(columns[RELATION] for columns in row_W)
  line_W = tuple(map("\t".join, row_W))
  return form_W, tuple(head_W), relation_W, space_after_W, line_W


def _plain(lines: list[str]) -> tuple[Any, ...] | None:
  """What `joined` gives where each line is a word; None: it is not so simple.

  Nearly all sentences are, and take a third of the time.
  """
  words = len(lines)
  if words >= len(_NUMBERS):
    return None
  columns = zip(*(line.split("\t") for line in lines))
  id_W, form_W, *_, head_W, relation_W, _, misc_W = columns
  if id_W != _IDS[:words] or not all(form_W):
    return None
  try:
    heads = [0, *map(_NUMBER_OF.__getitem__, head_W)]  # by id
  except KeyError:
    return None
  if max(heads) > words:
    return None
  above = heads  # doubling: in the end everything has led to 0, or to a cycle
  for _ in range(words.bit_length()):
    if not any(above):
      break
    above = [above[head] for head in above]
  if any(above):
    return None
  head_W = tuple(h - 1 if h else i for i, h in enumerate(heads[1:]))
  space_after_W = tuple("SpaceAfter=No" not in misc for misc in misc_W)
  return form_W, head_W, relation_W, space_after_W, tuple(lines)


def _words(
  file: str, rows: Sequence[_Columns]
) -> tuple[Sequence[_Columns], list[Unit]]:
  """Checks the rows of one sentence.

  Returns:
    the row of each syntactic word; and of each surface token its first word,
    last word, form, and whether a blank follows.
  """
  words: list[_Columns] = []
  units: list[Unit] = []
  covered, widest = 0, ""  # the last word in a surface token; the last range
  for row in rows:
    line, columns = row
    name, form, misc = columns[ID], columns[FORM], columns[MISC]
    word, last = len(words) + 1, 0
    # To match the pattern for each row took a tenth of the reading.
    if name != str(word):
      id_, empty = _ID.fullmatch(name), "." in name
      if not id_ or int(id_[1]) != word - empty:
        raise InputError(
          f"{file}:{line}: the id is {shortened(name)} where {word} is due;"
          " ids must count up from 1 in every sentence."
        )
      if empty:
        continue
      last = int(id_[2])
    if not form:
      raise InputError(f"{file}:{line}: the word has no form (second column).")
    if last:
      widest = f"{file}:{line}: the multi-word token {name}"
      if word <= covered or last < word:
        raise InputError(
          f"{widest} overlaps another or ends before it starts; ranges must be"
          " disjoint and ascending."
        )
      covered = last
      units.append((word, covered, form, "SpaceAfter=No" not in misc))
      continue
    if not _HEAD.fullmatch(head := columns[HEAD]):
      raise InputError(
        f"{file}:{line}: the head (seventh column) is {shortened(head)}, but"
        " must be a word's id or 0; was the text parsed?"
      )
    words.append(row)
    if word > covered:  # else its surface token stands above
      covered = word
      units.append((word, word, form, "SpaceAfter=No" not in misc))
  if not words:
    raise InputError(
      f"{file}:{rows[0][0]}: a sentence without words; remove the block."
    )
  if covered > len(words):
    raise InputError(f"{widest} reaches beyond the last word, {len(words)}.")
  return words, units


def _depths(
  file: str, heads: list[int], words: Sequence[_Columns]
) -> list[int]:
  """Edges above each word, 0 (above the roots), 1, 2, ...; checks the tree."""
  for word, head in enumerate(heads):
    if head > len(words):
      raise InputError(
        f"{file}:{words[word - 1][0]}: the head of word {word} is {head}, but"
        f" the sentence has {len(words)} words."
      )
  if 0 not in heads[1:]:
    raise InputError(
      f"{file}:{words[0][0]}: the sentence has no root; one word must have"
      " head 0."
    )
  depths = [0] + [-1] * len(words)
  for word in range(1, len(heads)):
    path: list[int] = []
    ancestor = word
    while depths[ancestor] < 0:
      if len(path) == len(words):  # longer than any path without a cycle
        raise InputError(
          f"{file}:{words[ancestor - 1][0]}: the heads form a cycle through word"
          f" {ancestor}; each word must lead to a root."
        )
      path.append(ancestor)
      ancestor = heads[ancestor]
    for depth, seen in enumerate(reversed(path), start=depths[ancestor] + 1):
      depths[seen] = depth
  return depths
