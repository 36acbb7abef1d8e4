"""Subwords find their words by character offsets."""

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
def test_visible_characters(character, seen):
  assert align.is_visible(character) == seen
  assert align.visible(f"x{character}y") == (f"x{character}y" if seen else "xy")
  assert align.visible_positions(f"x{character}y") == (
    [0, 1, 2] if seen else [0, 2]
  )


def test_of_what_python_prints_blanks_alone_do_not_count():
  for character in map(chr, range(1 << 16)):
    seen = character * align.is_visible(character)
    assert align.visible(character) == seen
    assert len(align.visible_positions(character)) == len(seen)


def words(text, pieces, spans):
  begin, end = zip(*pieces)
  return align.words_of_pieces(
    text, begin, end, [s for s, _ in spans], [e for _, e in spans]
  )


def test_a_piece_belongs_to_its_first_visible_character():
  text = "ab cd."
  spans = [(0, 2), (3, 5), (5, 6)]
  # "▁a" "b" "▁c" "d.": the last starts in "cd".
  assert words(text, [(0, 1), (1, 2), (2, 4), (4, 6)], spans) == [0, 0, 1, 1]


def test_lone_blanks_go_with_the_next_piece_and_the_last_with_the_one_before():
  text = "ab cd "
  spans = [(0, 2), (3, 5)]
  pieces = [(0, 0), (0, 2), (2, 3), (3, 5), (5, 6)]
  assert words(text, pieces, spans) == [0, 0, 1, 1, 1]


def test_spelt_out_characters():
  # "▁1" "⁄" "2" of "½" in "a ½": a blank, an empty span, the character.
  assert words("a ½", [(0, 1), (1, 2), (2, 2), (2, 3)], [(0, 1), (2, 3)]) == [
    0,
    1,
    1,
    1,
  ]


def test_zero_width_characters_do_not_draw_a_piece_to_the_word_before():
  # The parser left U+200B on "a"; the piece "▁b" spans "\u200b b".
  assert words("a\u200b b", [(0, 1), (1, 4)], [(0, 2), (3, 4)]) == [0, 1]


def test_words_with_empty_spans_hold_nothing():
  assert words("a b", [(0, 1), (1, 3)], [(0, 1), (1, 1), (2, 3)]) == [0, 2]


def test_what_stands_behind_the_last_word_goes_with_it():
  assert align.words_of_pieces("abc", [0, 1, 2], [1, 2, 3], [0], [1]) == [0] * 3


def test_nothing_to_align():
  assert align.words_of_pieces("", [], [], [], []) == []
  assert align.words_of_pieces("\u200b", [0], [1], [], []) == [-1]
  assert align.words_of_pieces("\u200b", [0], [1], [0], [0]) == [0]
  assert align.words_of_pieces("a", [], [], [0], [1]) == []
