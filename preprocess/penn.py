"""Reader of constituency trees in Penn brackets, one per line of raw text.

  (ROOT (S (NP (DT A) (NN duck)) (VP (VBZ waits)) (. .)))

Line N of the file is the tree of line N of the source. It becomes a bracketing
(`jaxsyn.data.sentence.linearise`): constituents with the positions of subwords
between their brackets. Pre-terminals (parts of speech) are left out, as in
Bugliarello & Okazaki's code, and so are traces (-NONE-) and empty constituents.
Other labels are not changed (NP-SBJ).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from jaxsyn.data.sentence.align import spans, words_of_pieces
from jaxsyn.data.sentence.linearise import CLOSE, of_subwords, opening
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError

_SIGN = re.compile(r"[()]|[^()\s]+")
_TRACE = "-NONE-"

# Spellings of the Penn treebank -> spellings in text.
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
  """A constituency tree of one line, as a sequence of brackets and words.

  Attributes:
    signs: labels of opening brackets, CLOSE, and indices of words, in order.
    words: words as spelled in the tree, without traces.
  """

  signs: tuple[str | int, ...]
  words: tuple[str, ...]

  @property
  def labels(self) -> set[str]:
    return {sign for sign in self.signs if isinstance(sign, str)}


def parse(line: str, where: str) -> PennTree | None:
  """Parses a line in Penn brackets; returns None if it has no constituents.

  A parser that failed writes empty brackets, () or (()).

  Raises:
    InputError: brackets do not match, a word is outside of them, or there
      is more than one tree; begins with `where`.
  """
  words: list[str] = []
  unclosed: list[_Bracket] = []
  signs: list[str | int] | None = None  # of the complete tree
  for sign in _SIGN.findall(line):
    if signs is not None:
      raise InputError(
        f"{where}: {sign!r} comes after the end of the tree. There must be one"
        " tree a line: parse without splitting lines into sentences."
      )
    if sign == "(":
      if unclosed:
        unclosed[-1].has_brackets = True
      unclosed.append(_Bracket())
    elif not unclosed and sign == ")":
      raise InputError(f"{where}: a bracket is closed that none has opened.")
    elif not unclosed:
      raise InputError(
        f"{where}: {sign!r} is outside of the brackets; a tree begins"
        " with one, as in (ROOT (S (NP (DT A) (NN duck)) ...))."
      )
    elif sign == ")":
      closed = unclosed.pop().close(words)
      if unclosed:
        unclosed[-1].signs += closed
      else:
        signs = closed
    elif unclosed[-1].is_new:
      unclosed[-1].label = sign
    else:
      unclosed[-1].signs.append(len(words))
      words.append(sign)
  if unclosed:
    raise InputError(
      f"{where}: {len(unclosed)} brackets are not closed; each ( needs its )."
    )
  tree = PennTree(tuple(signs or ()), tuple(words))
  return tree if tree.labels else None


@dataclasses.dataclass
class _Bracket:
  """A bracket of a tree that is being read, and what it contains so far."""

  label: str = ""
  signs: list[str | int] = dataclasses.field(default_factory=list)
  has_brackets: bool = False

  @property
  def is_new(self) -> bool:
    return not (self.label or self.signs or self.has_brackets)

  def close(self, words: list[str]) -> list[str | int]:
    """Returns the signs of the complete bracket; removes traces from `words`."""
    if len(self.signs) == 1 and not self.has_brackets:  # a pre-terminal
      if self.label != _TRACE:
        return self.signs
      words.pop()
      return []
    return [self.label, *self.signs, CLOSE] if self.signs else []


def spellings(word: str) -> tuple[str, ...]:
  """Returns possible spellings in raw text for a word of a Penn tree."""
  bare = word.replace("\\", "")  # 1\/2
  return (word, *_SPELLINGS.get(word, ()), bare)


def bracketing(
  tree: PennTree, text: str, vocabulary: Vocabulary, *, ids: Mapping[str, int]
) -> np.ndarray:
  """Returns the feature `source_brackets`: subwords in constituent brackets.

  Args:
    tree: constituency tree of the text.
    text: raw line.
    vocabulary: vocabulary of the source.
    ids: label -> id.

  Raises:
    MismatchError: the tree belongs to another text.
  """
  start_W, end_W = spans(map(spellings, tree.words), text)
  pieces = vocabulary.encode(text)
  word_S = words_of_pieces(text, pieces.begin, pieces.end, start_W, end_W)
  signs = [
    int(opening(ids[sign])) if isinstance(sign, str) else sign
    for sign in tree.signs
  ]
  return of_subwords(np.array(signs, np.int32), np.array(word_S, np.int32))
