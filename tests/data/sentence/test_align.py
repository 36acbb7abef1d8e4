"""Tests the alignment of words and subwords by character offsets."""

from __future__ import annotations

import pytest

from jaxsyn.data.sentence import align


@pytest.mark.parametrize(
  "character, seen",
  [
    ("a", True),
    ("日", True),
    ("\u0301", True),  # a combining mark
    ("🏽", True),  # a skin tone
    ("\U000e0fff", True),  # not assigned (yet)
    (" ", False),
    ("\t", False),
    ("\u00a0", False),
    ("\u3000", False),
    ("\u2028", False),
    ("\u200b", False),  # zero-width space
    ("\u200d", False),  # zero-width joiner
    ("\ufeff", False),
    ("\x00", False),
  ],
)
def test_is_visible_and_visible_agree(character, seen):
  assert align.is_visible(character) == seen
  assert align.visible(f"x{character}y") == (f"x{character}y" if seen else "xy")


def test_blank_is_the_only_invisible_printable_character():
  for character in map(chr, range(1 << 16)):
    seen = character * align.is_visible(character)
    assert align.visible(character) == seen


@pytest.mark.parametrize(
  ("text", "pieces", "words", "expected"),
  [
    # "▁a" "b" "▁c" "d.": the last starts in "cd".
    (
      "ab cd.",
      [(0, 1), (1, 2), (2, 4), (4, 6)],
      [(0, 2), (3, 5), (5, 6)],
      [0, 0, 1, 1],
    ),
    # A blank takes the next word, or the previous one at the end.
    (
      "ab cd ",
      [(0, 0), (0, 2), (2, 3), (3, 5), (5, 6)],
      [(0, 2), (3, 5)],
      [0, 0, 1, 1, 1],
    ),
    # "▁1" "⁄" "2" of "½" in "a ½": a blank, an empty span, the character.
    (
      "a ½",
      [(0, 1), (1, 2), (2, 2), (2, 3)],
      [(0, 1), (2, 3)],
      [0, 1, 1, 1],
    ),
    # The parser left U+200B on "a"; the piece "▁b" spans "\u200b b".
    ("a\u200b b", [(0, 1), (1, 4)], [(0, 2), (3, 4)], [0, 1]),
    # A word without characters gets no subwords.
    ("a b", [(0, 1), (1, 3)], [(0, 1), (1, 1), (2, 3)], [0, 2]),
    # Text after the last word belongs to it.
    ("abc", [(0, 1), (1, 2), (2, 3)], [(0, 1)], [0, 0, 0]),
    ("", [], [], []),
    ("\u200b", [(0, 1)], [], [-1]),
    ("\u200b", [(0, 1)], [(0, 0)], [0]),
    ("a", [], [(0, 1)], []),
  ],
)
def test_words_of_pieces(text, pieces, words, expected):
  begin, end = [a for a, _ in pieces], [b for _, b in pieces]
  start_W, end_W = [a for a, _ in words], [b for _, b in words]
  found = align.words_of_pieces(text, begin, end, start_W, end_W)
  assert found == expected
