"""Reads word alignments in Pharaoh format and maps their words to subwords.

A line has the links of a sentence pair, `0-0 1-2`: indices of a source word and a
target word, from 0. In manual alignments a link that annotators disagree on is
possible, `1?2` or `1p2`; all other links are sure (Och & Ney 2003, "A Systematic
Comparison of Various Statistical Alignment Models", section 4.1). Words are
separated by whitespace in the raw text, which is never tokenized.
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


def parse_links(
  line: str, where: str, *, possible: bool
) -> tuple[Links, Links]:
  """Parses a line of word alignments; returns the sure links and all links.

  Args:
    line: Line in Pharaoh format; empty: no links.
    where: File and line number, for messages.
    possible: Whether possible links are allowed.

  Raises:
    InputError: The line has anything but links.
  """
  sure, links = list[Link](), list[Link]()
  for text in line.split():
    match = _LINK.fullmatch(text)
    if not match or (match[2] != "-" and not possible):
      forms = "i-j, or i?j for a possible link" if possible else "i-j"
      raise InputError(
        f"{where}: {text[:40]!r} is not a link. Links are {forms}: a source word and"
        " a target word, from 0; links are separated by spaces."
      )
    link = int(match[1]), int(match[3])
    links.append(link)
    if match[2] == "-":
      sure.append(link)
  return tuple(sure), tuple(links)


def pharaoh(links: Iterable[Link]) -> str:
  """Formats a word alignment in Pharaoh format, such as "0-0 1-2"."""
  return " ".join(f"{i}-{j}" for i, j in links)


def spans(text: str) -> tuple[list[int], list[int]]:
  """Returns the start and end offsets of whitespace-separated words."""
  word_spans = [match.span() for match in _WORD.finditer(text)]
  return [a for a, _ in word_spans], [b for _, b in word_spans]


def units_of_pieces(text: str, pieces: Pieces) -> list[int]:
  """Returns the index of each subword's whitespace-separated word; -1 for EOS.

  A word index above the number of subwords also becomes -1; this happens only if
  earlier words have no visible characters.
  """
  words = words_of_pieces(text, pieces.begin, pieces.end, *spans(text))
  count = len(words)
  return [*(word if word <= count else NO_WORD for word in words), NO_WORD]


def units_of_words(
  start_W: Sequence[int], end_W: Sequence[int], text: str
) -> list[int]:
  """Maps each word to the index of the whitespace-separated word it is in."""
  return words_of_pieces(text, start_W, end_W, *spans(text))
