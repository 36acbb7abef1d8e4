"""Constituency trees in Penn brackets, a tree a line, tied to the raw text.

  (ROOT (S (NP (DT A) (NN duck)) (VP (VBZ waits)) (. .)))

Line N of the file is the tree of line N of the source, as parsers that are
given a sentence a line write it. What becomes of it is what
`jaxsyn.data.sentence.linearise` calls a bracketing: constituents, between whose brackets
stand the positions of subwords. Pre-terminals (the parts of speech and their
brackets) are left out, as in Bugliarello & Okazaki's code; traces (-NONE-) and
constituents without words too. Other labels stay as they are (NP-SBJ).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from jaxsyn.data.sentence.align import spans, visible, words_of_pieces
from jaxsyn.data.sentence.linearise import CLOSE, of_subwords, opening
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError

_SIGN = re.compile(r"[()]|[^()\s]+")
_TRACE = "-NONE-"

# What the Penn treebank spells in its own way -> how that stands in text.
_SPELLINGS = {
  "-LRB-": ("(",),
  "-RRB-": (")",),
  "-LSB-": ("[",),
  "-RSB-": ("]",),
  "-LCB-": ("{",),
  "-RCB-": ("}",),
  "``": ('"', "“", "„"),
  "''": ('"', "”", "“"),
  "`": ("'", "‘"),
  "'": ("’",),
  "--": ("–", "—"),
  "...": ("…",),
}


@dataclasses.dataclass(frozen=True)
class PennTree:
  """A constituency tree.

  Attributes:
    signs: in order: the label of a bracket that opens; CLOSE; or the number of
      a word, from 0.
    words: as they stand in the tree, without traces.
  """

  signs: tuple[str | int, ...]
  words: tuple[str, ...]

  @property
  def labels(self) -> set[str]:
    return {sign for sign in self.signs if isinstance(sign, str)}


def tree_of(line: str, text: str, where: str) -> PennTree | None:
  """The tree that stands on a line of a file; None where the text has none.

  A parser that failed says so with empty brackets, () or (()); a text without
  visible characters has an empty line or those.

  Args:
    line: of the file of trees.
    text: the raw line that it is the tree of.
    where: FILE:LINE for messages.

  Raises:
    InputError: the line is no tree, there are several on it, or it is empty and
      the text is not; names FILE:LINE.
  """
  if line.strip():
    return parse(line, where)
  if visible(text):
    raise InputError(
      f"{where}: the line is empty, but that of the text is not. Line N must"
      " hold the tree of line N; write () for one that has no tree."
    )
  return None


def parse(line: str, where: str) -> PennTree | None:
  """The tree of a line; None for one without constituents.

  Args:
    line: Penn brackets.
    where: FILE:LINE for messages.

  Raises:
    InputError: brackets do not match, a word stands outside of them, or there
      is more than one tree.
  """
  signs: list[str | int] = []
  words: list[str] = []
  todo: list[_Bracket] = []
  done = fresh = False  # fresh: the next word is a label
  for sign in _SIGN.findall(line):
    if done:
      raise InputError(
        f"{where}: {sign!r} comes after the end of the tree. There must be one"
        " tree a line: parse without splitting lines into sentences."
      )
    if sign == "(":
      if todo:
        todo[-1].brackets += 1
      todo.append(_Bracket(len(signs)))
      signs.append("")
      fresh = True
    elif sign == ")":
      if not todo:
        raise InputError(f"{where}: a bracket is closed that none has opened.")
      _close(todo.pop(), signs, words)
      done, fresh = not todo, False
    elif not todo:
      raise InputError(
        f"{where}: {sign!r} stands outside of the brackets; a tree begins"
        " with one, as in (ROOT (S (NP (DT A) (NN duck)) ...))."
      )
    elif fresh:
      signs[todo[-1].start], fresh = sign, False
    else:
      todo[-1].words += 1
      signs.append(len(words))
      words.append(sign)
  if todo:
    raise InputError(
      f"{where}: {len(todo)} brackets are not closed; each ( needs its )."
    )
  tree = PennTree(tuple(signs), tuple(words))
  return tree if tree.labels else None


@dataclasses.dataclass
class _Bracket:
  """An open bracket: where its sign is, and what it directly holds."""

  start: int
  words: int = 0
  brackets: int = 0


def _close(bracket: _Bracket, signs: list[str | int], words: list[str]) -> None:
  """Ends a bracket, or takes it away: pre-terminals, traces, empty ones."""
  start = bracket.start
  if len(signs) == start + 1:  # nothing in it, or only traces
    del signs[start]
  elif bracket.words == 1 and not bracket.brackets:
    if signs[start] == _TRACE:
      del signs[start:]
      words.pop()
    else:
      del signs[start]
  else:
    signs.append(CLOSE)


def spellings(word: str) -> tuple[str, ...]:
  """How a word of a tree may stand in the text, as it is in the tree first."""
  bare = word.replace("\\", "")  # 1\/2
  return (word, *_SPELLINGS.get(word, ()), bare)


def bracketing(
  tree: PennTree, text: str, vocabulary: Vocabulary, *, ids: Mapping[str, int]
) -> np.ndarray:
  """The feature `source_brackets`: a bracketing of the text's subwords.

  Args:
    tree: of the text.
    text: the raw line.
    vocabulary: of the source.
    ids: label -> id, from `jaxsyn.data.schema.relation_ids`.

  Raises:
    Mismatch: the tree is not of this text (`align.spans`).
  """
  start_W, end_W = spans(map(spellings, tree.words), text)
  pieces = vocabulary.encode(text)
  word_S = words_of_pieces(text, pieces.begin, pieces.end, start_W, end_W)
  signs = [
    int(opening(ids[sign])) if isinstance(sign, str) else sign
    for sign in tree.signs
  ]
  return of_subwords(np.array(signs, np.int32), np.array(word_S, np.int32))
