"""Word alignments: read, and tied to subwords by character offsets.

A line of Pharaoh format is the links of a sentence pair, `0-0 1-2`: a word of the
source and one of the target, from 0. In alignments that people have made, a link
that some of them would leave out is a possible one, `1?2` or `1p2`; the others are
sure (Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment
Models", section 4.1).

Words are what stands between blanks: those of the raw text, which is never
tokenised. `preprocess.extras` reads those of a corpus, `jaxsyn.scoring.alignments`
compares, `jaxsyn.translating.alignments` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jaxsyn.data.schema import NO_WORD
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.vocabulary import Pieces
from jaxsyn.errors import InputError

Link = tuple[int, int]
Links = tuple[Link, ...]

_LINK = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")
_WORD = re.compile(r"\S+")


def parsed(line: str, where: str, *, possible: bool) -> tuple[Links, Links]:
  """The links of a line, in their order: sure ones, and all of them.

  Args:
    line: of Pharaoh format; blank: no links.
    where: it is, for messages.
    possible: whether links may be possible ones.

  Raises:
    InputError: something else stands there.
  """
  sure, links = list[Link](), list[Link]()
  for text in line.split():
    match = _LINK.fullmatch(text)
    if not match or (match[2] != "-" and not possible):
      forms = "i-j, or i?j where it is possible alone" if possible else "i-j"
      raise InputError(
        f"{where}: {text[:40]!r} is no link. Links are {forms}: a word of the"
        " source and one of the target, from 0, with blanks between links."
      )
    link = int(match[1]), int(match[3])
    links.append(link)
    if match[2] == "-":
      sure.append(link)
  return tuple(sure), tuple(links)


def pharaoh(links: Iterable[Link]) -> str:
  """Links as "0-0 1-2": source, then target."""
  return " ".join(f"{i}-{j}" for i, j in links)


def spans(text: str) -> tuple[list[int], list[int]]:
  """Where words between blanks begin, and where they end."""
  word_spans = [match.span() for match in _WORD.finditer(text)]
  return [a for a, _ in word_spans], [b for _, b in word_spans]


def units(text: str, pieces: Pieces) -> list[int]:
  """The word between blanks of each subword, that of EOS last.

  A word that comes after more words than there are subwords, as only where
  others have nothing to see, counts as none.

  Args:
    text: the untouched sentence.
    pieces: its subwords.
  """
  words = words_of_pieces(text, pieces.begin, pieces.end, *spans(text))
  word_count = len(words)
  return [*(unit if unit <= word_count else NO_WORD for unit in words), NO_WORD]


def regrouped(
  start_W: Sequence[int], end_W: Sequence[int], text: str
) -> list[int]:
  """The word between blanks of each other word of a text.

  Args:
    start_W: offset of each word's first character, ascending.
    end_W: offset after each word's last character.
    text: the untouched sentence.
  """
  return words_of_pieces(text, start_W, end_W, *spans(text))
