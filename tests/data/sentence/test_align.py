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
  assert align.visible_positions(f"x{character}y") == (
    [0, 1, 2] if seen else [0, 2]
  )


def test_blank_is_the_only_invisible_printable_character():
  for character in map(chr, range(1 << 16)):
    seen = character * align.is_visible(character)
    assert align.visible(character) == seen
    assert len(align.visible_positions(character)) == len(seen)


def words(text, pieces, spans):
  begin, end = zip(*pieces)
  return align.words_of_pieces(
    text, begin, end, [s for s, _ in spans], [e for _, e in spans]
  )


def test_subword_belongs_to_word_of_first_visible_character():
  text = "ab cd."
  spans = [(0, 2), (3, 5), (5, 6)]
  # "▁a" "b" "▁c" "d.": the last starts in "cd".
  assert words(text, [(0, 1), (1, 2), (2, 4), (4, 6)], spans) == [0, 0, 1, 1]


def test_blank_subword_takes_next_word_and_last_one_previous_word():
  text = "ab cd "
  spans = [(0, 2), (3, 5)]
  pieces = [(0, 0), (0, 2), (2, 3), (3, 5), (5, 6)]
  assert words(text, pieces, spans) == [0, 0, 1, 1, 1]


def test_subwords_of_spelled_out_characters():
  # "▁1" "⁄" "2" of "½" in "a ½": a blank, an empty span, the character.
  assert words("a ½", [(0, 1), (1, 2), (2, 2), (2, 3)], [(0, 1), (2, 3)]) == [
    0,
    1,
    1,
    1,
  ]


def test_leading_zero_width_characters_are_ignored():
  # The parser left U+200B on "a"; the piece "▁b" spans "\u200b b".
  assert words("a\u200b b", [(0, 1), (1, 4)], [(0, 2), (3, 4)]) == [0, 1]


def test_words_with_empty_spans_get_no_subwords():
  assert words("a b", [(0, 1), (1, 3)], [(0, 1), (1, 1), (2, 3)]) == [0, 2]


def test_text_after_the_last_word_belongs_to_it():
  assert align.words_of_pieces("abc", [0, 1, 2], [1, 2, 3], [0], [1]) == [0] * 3


def test_empty_words_or_subwords():
  assert align.words_of_pieces("", [], [], [], []) == []
  assert align.words_of_pieces("\u200b", [0], [1], [], []) == [-1]
  assert align.words_of_pieces("\u200b", [0], [1], [0], [0]) == [0]
  assert align.words_of_pieces("a", [], [], [0], [1]) == []
