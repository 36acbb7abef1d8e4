"""Conversion of three-letter language codes to two letters."""

from jaxsyn.data.sentence.language_codes import TWO_LETTER_CODES, short


def test_short_codes():
  codes = ["hau", "ibo", "eng", "DEU", "zho-Hans", "pt_BR", "en", "pcm"]
  expected = ["ha", "ig", "en", "de", "zh", "pt", "en", "pcm"]
  assert [short(code) for code in codes] == expected
  assert len(TWO_LETTER_CODES) == 183
  assert {short(code) for code in TWO_LETTER_CODES} == TWO_LETTER_CODES
