"""Tests conversion of three-letter language codes to two letters."""

import pytest

from jaxsyn.corpus import contradicts, guess_language
from jaxsyn.data.sentence.language_codes import short
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean
from jaxsyn.scoring import tokenizers


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


@pytest.mark.parametrize(
  ("code", "part"), [("hau", "hau.dev.hau.gz"), ("ibo", "ibo.dev.ibo.gz")]
)
def test_hausa_and_igbo_are_known_languages(shared_data, code, part):
  assert tokenizers.is_known(code)
  assert "blanks" in tokenizers.summary(code)
  assert tokenizers.default(code) == "13a"
  lines = read_lines(shared_data / "mafand" / part)[:400]
  guessed, share = guess_language(lines)
  assert not contradicts(code, guessed, share)
  filters = clean.filters(clean.Clean(language=True), "eng", code)
  english = read_lines(shared_data / "mafand" / f"{code}.dev.en.gz")[:400]
  dropped = sum(map(filters["language"], english, lines))
  assert dropped < 0.1 * len(lines)


def test_unknown_language_is_an_error():
  with pytest.raises(InputError, match=r"target_language: .* 'qaa'"):
    clean.filters(clean.Clean(language=True), "en", "qaa")
