"""Tests conversion of three-letter language codes to two letters."""

import pytest

from jaxsyn.data.sentence.language_codes import short
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean


@pytest.mark.parametrize(
  ("code", "due"),
  [
    *(("hau", "ha"), ("ibo", "ig"), ("eng", "en"), ("DEU", "de")),
    *(("zho-Hans", "zh"), ("pt_BR", "pt"), ("en", "en"), ("pcm", "pcm")),
  ],
)
def test_short_codes(code, due):
  assert short(code) == due


def test_each_two_letter_code_has_one_language():
  from jaxsyn.data.sentence import language_codes

  codes = language_codes._TWO_LETTERS
  assert len(set(codes.values())) == len(codes) == 183
  assert all(len(a) == 3 and len(b) == 2 for a, b in codes.items())


def test_unknown_language_is_an_error():
  with pytest.raises(InputError, match=r"target_language: .* 'qaa'"):
    clean.filters(clean.Clean(language=True), "en", "qaa")
