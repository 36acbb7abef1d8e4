"""Aligns words and subwords by their character offsets in the raw sentence.

Parsers give the words and SentencePiece gives the subwords of the same text, so
no text is tokenized again. `spans` finds the offsets of words,
`words_of_pieces` the word of each subword. Spellings are compared by their
visible characters.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence

NO_WORD = -1  # the word of EOS and padding

# Control and format characters (zero-width space, byte order mark, joiners) and
# separators: tools drop them, keep them, or turn them into spaces.
_INVISIBLE = frozenset(["Cc", "Cf", "Zs", "Zl", "Zp"])


@functools.cache
def is_visible(character: str) -> bool:
  """Returns whether a character is neither a space nor a control character.

  Format characters, such as the zero-width space, are not visible either.
  """
  return unicodedata.category(character) not in _INVISIBLE


def visible(text: str) -> str:
  """Removes spaces, control characters and format characters from a text."""
  # The only printable character that is not visible is the space. Nearly all text
  # is printable, and takes a fifth of the time this way.
  if text.isprintable():
    return text.replace(" ", "")
  return "".join(filter(is_visible, text))


class MismatchError(ValueError):
  """Error for a word that is not in its text, or for text that no word covers.

  Attributes:
    word: Index of the first word that is not in the text; the number of words if
      text is left over.
  """

  def __init__(self, message: str, word: int):
    super().__init__(message)
    self.word = word


def spans(
  words: Iterable[Sequence[str]], text: str
) -> tuple[list[int], list[int]]:
  """Returns the start and end offsets of words in their text.

  Only visible characters are compared: spaces and zero-width characters may differ.
  A word without visible characters gets an empty span.

  Args:
    words: Possible spellings of each word, in order.
    text: The text that the words are from.

  Raises:
    MismatchError: The next word is not in the text, or text is left over.
  """
  positions = [i for i, character in enumerate(text) if is_visible(character)]
  visible_text = visible(text)
  start_W: list[int] = []
  end_W: list[int] = []
  matched = 0  # visible characters
  for spellings in words:
    for spelling in spellings:
      visible_word = visible(spelling)
      if visible_text.startswith(visible_word, matched):
        break
    else:
      rest = text[positions[matched] :] if matched < len(positions) else ""
      raise MismatchError(
        f"the word {shortened(spellings[0])} is not in the text where it reads"
        f" {shortened(rest)}",
        word=len(start_W),
      )
    if visible_word:
      start_W.append(positions[matched])
      matched += len(visible_word)
      end_W.append(positions[matched - 1] + 1)
    else:
      start_W.append(end_W[-1] if end_W else 0)
      end_W.append(start_W[-1])
  if matched < len(positions):
    rest = shortened(text[positions[matched] :])
    raise MismatchError(
      f"no word covers the text from {rest}", word=len(start_W)
    )
  return start_W, end_W


def words_of_pieces(
  text: str,
  begin: Sequence[int],
  end: Sequence[int],
  start_W: Sequence[int],
  end_W: Sequence[int],
) -> list[int]:
  """Returns the word index of each subword, found by character offsets.

  All are NO_WORD (-1) if there are no words. A subword belongs to the word that contains
  its first visible character. A subword without visible characters belongs to the
  word of the next subword, or of the previous one at the end of the sentence.
  Examples are a lone "▁", and all but the last subword of a character that
  normalization spells out (SentencePiece gives all of "½" to the "2" of "1⁄2" and
  empty spans to the other subwords).

  Args:
    text: The unchanged sentence.
    begin, end: Offsets of each subword's first character and after its last one.
    start_W, end_W: Offsets of each word's first character and after its last one.
  """
  if not len(start_W):
    return [NO_WORD] * len(begin)
  words: list[int] = []
  word, last = 0, len(end_W) - 1
  for position, stop in zip(begin, end):
    while position < stop and not is_visible(text[position]):
      position += 1
    if position >= stop:
      words.append(NO_WORD)
      continue
    # The first word that ends after the character contains it.
    while end_W[word] <= position and word < last:
      word += 1
    words.append(word)
  # Backwards, so that several such subwords in a row reach the next word.
  following = word
  for i in reversed(range(len(words))):
    if words[i] == NO_WORD:
      words[i] = following
    following = words[i]
  return words


def shortened(text: str) -> str:
  """Returns the repr of a text for a message, truncated after 40 characters."""
  return repr(text if len(text) <= 40 else text[:40] + "…")
