"""Which characters count, where words stand, and which word a subword is of.

Words (from a parser) and subwords (from SentencePiece) both know their span in
the untouched sentence, so they are matched by character offsets and nothing
is ever re-tokenised. `spans` finds those of words, `jaxsyn.data.sentence.vocabulary`
those of subwords, `jaxsyn.data.sentence.example` joins them.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence

from jaxsyn.data.schema import NO_WORD

# Control and format characters (zero-width space, byte order mark, joiners)
# and separators: tools drop, keep or turn them into spaces as they please.
_INVISIBLE = frozenset(["Cc", "Cf", "Zs", "Zl", "Zp"])


@functools.cache
def is_visible(character: str) -> bool:
  """Whether a character counts when two spellings of a text are compared.

  Blanks and control and format characters do not; combining marks do.
  """
  return unicodedata.category(character) not in _INVISIBLE


def visible_positions(text: str) -> list[int]:
  """The offsets of the visible characters of a text, ascending."""
  if text.isprintable():
    return [i for i, character in enumerate(text) if character != " "]
  return [i for i, character in enumerate(text) if is_visible(character)]


def visible(text: str) -> str:
  """The visible characters of a text."""
  # To Python what is printable has, of those that do not count, blanks alone:
  # a fifth of the time, for nearly all text.
  if text.isprintable():
    return text.replace(" ", "")
  return "".join(filter(is_visible, text))


class MismatchError(ValueError):
  """Words are not those of a text.

  Attributes:
    word: which is not in it, from 0; behind the last: text is left over.
  """

  def __init__(self, what: str, word: int):
    super().__init__(what)
    self.word = word


def spans(
  words: Iterable[Sequence[str]], text: str
) -> tuple[list[int], list[int]]:
  """Where words begin and end in a text, by offsets.

  Compared are visible characters only: blanks and zero-width characters may
  differ. A word without any has no span of its own.

  Args:
    words: in order, each as it may be spelled.
    text: that they are the words of.

  Raises:
    Mismatch: a word is not in the text in its turn, or text is left over.
  """
  words = list(words)
  if word_spans := _plain_spans([spellings[0] for spellings in words], text):
    return word_spans
  positions, wanted = visible_positions(text), visible(text)
  start_W: list[int] = []
  end_W: list[int] = []
  done = 0
  for spellings in words:
    for spelling in spellings:
      seen = visible(spelling)
      if wanted.startswith(seen, done):
        break
    else:
      rest = text[positions[done] :] if done < len(positions) else ""
      raise MismatchError(
        f"the word {shortened(spellings[0])} is not in the text where it reads"
        f" {shortened(rest)}",
        word=len(start_W),
      )
    if seen:
      start_W.append(positions[done])
      done += len(seen)
      end_W.append(positions[done - 1] + 1)
    else:
      start_W.append(end_W[-1] if end_W else 0)
      end_W.append(start_W[-1])
  if done < len(positions):
    rest = shortened(text[positions[done] :])
    raise MismatchError(
      f"no word covers the text from {rest}", word=len(start_W)
    )
  return start_W, end_W


def _plain_spans(
  words: list[str], text: str
) -> tuple[list[int], list[int]] | None:
  """What `spans` gives where words stand as they are, a blank or none between.

  That is nearly always so, and takes a third of the time. None: it is not.
  """
  joined = "".join(words)
  if not joined.isprintable() or " " in joined or not all(words):
    return None
  start_W, end_W, position = [], [], 0
  for word in words:
    if not text.startswith(word, position):
      position += 1
      if text[position - 1 : position] != " " or not text.startswith(
        word, position
      ):
        return None
    start_W.append(position)
    position += len(word)
    end_W.append(position)
  return (start_W, end_W) if position == len(text) else None


def words_of_pieces(
  text: str,
  begin: Sequence[int],
  end: Sequence[int],
  start_W: Sequence[int],
  end_W: Sequence[int],
) -> list[int]:
  """The word of each subword.

  A subword belongs to the word that holds its first visible character. One
  without any goes with the subword after it, the last with the one before: a
  lone "▁", or the first subwords of a character that normalisation spells out
  (SentencePiece gives all of "½" to the "2" of "1⁄2" and empty spans to the
  others).

  Args:
    text: the untouched sentence.
    begin: offset of each subword's first character, ascending.
    end: offset after each subword's last character.
    start_W: offset of each word's first character, ascending.
    end_W: offset after each word's last character.

  Returns:
    word indices from 0; all -1 if the sentence has no words.
  """
  if not len(start_W):
    return [NO_WORD] * len(begin)
  words: list[int] = []
  word, last = 0, len(end_W) - 1
  printable = text.isprintable()  # then all is visible but blanks
  for first, stop in zip(begin, end):
    position = first
    if printable:
      while position < stop and text[position] == " ":
        position += 1
    else:
      while position < stop and not is_visible(text[position]):
        position += 1
    if position >= stop:
      words.append(NO_WORD)
      continue
    # The first word that ends behind the character holds it.
    while end_W[word] <= position and word < last:
      word += 1
    words.append(word)
  # Backwards, so that runs of such subwords reach the next one with a word.
  following = word
  for place in reversed(range(len(words))):
    if words[place] == NO_WORD:
      words[place] = following
    following = words[place]
  return words


def before_composing(
  text: str, start_W: Sequence[int], end_W: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Where words of the NFC of a text are in the text itself.

  Args:
    text: as it was.
    start_W, end_W: offsets in its NFC.

  Returns: the same in the text.

  Raises:
    Mismatch: parts of it do not compose as the whole does.
  """
  # What composes is a character with those after it that combine with it.
  first = [
    i
    for i, character in enumerate(text)
    if not i or not (unicodedata.combining(character) or _joins(character))
  ]
  start: list[int] = []  # of each character of the NFC
  end: list[int] = []
  composed = []
  for low, high in zip(first, [*first[1:], len(text)]):
    part = unicodedata.normalize("NFC", text[low:high])
    same = part == text[low:high]
    start += range(low, high) if same else [low] * len(part)
    end += range(low + 1, high + 1) if same else [high] * len(part)
    composed.append(part)
  if "".join(composed) != unicodedata.normalize("NFC", text):
    raise MismatchError("characters compose across letters", word=0)
  starts = [*start, len(text)]
  return (
    tuple(starts[offset] for offset in start_W),
    tuple(end[offset - 1] if offset else 0 for offset in end_W),
  )


def _joins(character: str) -> bool:
  """Whether it may become one with the letter before it, though a letter."""
  return "\u1161" <= character <= "\u11c2"  # vowels and finals of Hangul


def shortened(text: str) -> str:
  """A text for a message."""
  return repr(text if len(text) <= 40 else text[:40] + "…")
