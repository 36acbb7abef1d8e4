"""Alignment of words and subwords by character offsets."""

import pytest

from jaxsyn.data.sentence import align

# With a combining mark, a skin tone and a code point that is not assigned.
VISIBLE = "a日\u0301🏽\U000e0fff"
INVISIBLE = " \t\xa0\u3000\u2028\u200b\u200d\ufeff\x00"


def test_visible_characters():
  assert align.visible(f"x{VISIBLE}y") == f"x{VISIBLE}y"
  assert align.visible(f"x{INVISIBLE}y") == "xy"
  for character in map(chr, range(1 << 16)):
    expected = character * align.is_visible(character)
    assert align.visible(character) == expected


def test_spans_of_words():
  words = [("ab",), ("x", "b"), ("\u200b",), ("c.",)]
  assert align.spans(words, "ab b  c .") == ([0, 3, 4, 6], [2, 4, 4, 9])


@pytest.mark.parametrize(
  "text, pieces, words, expected",
  [
    # "▁a" "b" "▁c" "d.": the last one starts in "cd".
    (
      "ab cd.",
      [(0, 1), (1, 2), (2, 4), (4, 6)],
      [(0, 2), (3, 5), (5, 6)],
      [0, 0, 1, 1],
    ),
    ("cd.", [(0, 2), (2, 3)], [(0, 2), (2, 3)], [0, 1]),
    # A blank takes the next word, or the previous one at the end.
    (
      "ab cd ",
      [(0, 0), (0, 2), (2, 3), (3, 5), (5, 6)],
      [(0, 2), (3, 5)],
      [0, 0, 1, 1, 1],
    ),
    # "▁1" "⁄" "2" of "½" in "a ½": a blank, an empty span, the character.
    ("a ½", [(0, 1), (1, 2), (2, 2), (2, 3)], [(0, 1), (2, 3)], [0, 1, 1, 1]),
    # The parser left U+200B on "a"; the piece "▁b" spans "\u200b b".
    ("a\u200b b", [(0, 1), (1, 4)], [(0, 2), (3, 4)], [0, 1]),
    # A word without characters gets no subwords.
    ("a b", [(0, 1), (1, 3)], [(0, 1), (1, 1), (2, 3)], [0, 2]),
    # Text after the last word belongs to it.
    ("abc", [(0, 1), (1, 2), (2, 3)], [(0, 1)], [0, 0, 0]),
    ("", [], [], []),
    ("\u200b", [(0, 1)], [], [-1]),
    ("\u200b", [(0, 1)], [(0, 0)], [0]),
  ],
)
def test_words_of_pieces(text, pieces, words, expected):
  begin, end = [a for a, _ in pieces], [b for _, b in pieces]
  start_W, end_W = [a for a, _ in words], [b for _, b in words]
  result = align.words_of_pieces(text, begin, end, start_W, end_W)
  assert result == expected
