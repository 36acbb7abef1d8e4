"""The rules by the amount of data, at the values that they stand on."""

import collections

import pytest

from jaxsyn.survey import choices
from jaxsyn.survey.pairs import CorpusStats, Files, Side


def seen(words=11.9, looked=1000, characters=""):
  """A look at text with so many words a line."""
  side = Side(words=round(words * looked), letters=5 * round(words * looked))
  side.characters = collections.Counter(characters or "abcdefghijklmnopq")
  side.sample = ["some words with blanks"]
  return CorpusStats(Files("a", "b"), looked, looked, side, side)


@pytest.mark.parametrize(
  ("pairs", "held"),
  [(20, 2), (400, 40), (2000, 200), (29_000, 1000), (4_000_000, 2000)],
)
def test_held_out(pairs, held):
  assert choices.held_out(pairs).value == held


@pytest.mark.parametrize(
  ("pairs", "size"),
  [
    (100, 1000),
    (5000, 2000),
    (19_900, 7900),
    (29_000, 8000),
    (236_000, 16_000),
    (4_500_000, 32_000),
  ],
)
def test_vocabulary(pairs, size):
  choice, coverage = choices.vocabulary(pairs, seen())
  assert (choice.value, coverage) == (size, 1.0)


def test_a_vocabulary_holds_the_characters_of_the_text():
  # 600 characters, each as frequent: all but 0.05 % are all 600; with the four
  # special symbols, twice 604 and rounded up.
  kanji = "".join(chr(0x4E00 + i) for i in range(600))
  choice, coverage = choices.vocabulary(1000, seen(characters=kanji))
  assert (choice.value, coverage) == (1300, 0.9995)
  assert "twice the 604 characters" in choice.rule
  # A hundred that are 1 in 2,001 together are left out: 200 + 4, twice.
  rare = collections.Counter(dict.fromkeys(kanji[:200], 1000))
  rare.update(dict.fromkeys(kanji[200:300], 1))
  sample = seen()
  sample.source.characters = sample.target.characters = rare
  choice, coverage = choices.vocabulary(1000, sample)
  assert (choice.value, coverage) == (1000, 0.9995)


@pytest.mark.parametrize(
  ("pairs", "updates"),
  [(29_000, 7000), (50, 2000), (8000, 2000), (150_000, 20_000)],
)
def test_updates(pairs, updates):
  """Multi30k's is what its own config says."""
  result = choices.training(pairs, seen(), 8000)
  assert (result.updates.value, result.dropout) == (updates, None)


@pytest.mark.parametrize(
  ("pairs", "updates", "dropout"),
  [(200_000, 20_000, 0.3), (1_000_000, 100_000, 0.1)],
)
def test_large_corpora_have_what_was_published(pairs, updates, dropout):
  result = choices.training(pairs, seen(), 8000)
  assert (result.updates.value, result.dropout) == (updates, dropout)


def test_subwords_where_no_blanks_part_words():
  sample = seen()
  assert choices.subwords(sample, 8000) == pytest.approx(11.9 * 1.54)
  assert choices.subwords(sample, 32_000) == pytest.approx(11.9 * 1.54)
  # Captions of 1,000 subwords were 2.6 and 2.8 a word; between, by the logarithm.
  assert choices.subwords(sample, 1000) == pytest.approx(11.9 * 2.7)
  assert choices.subwords(sample, 500) == pytest.approx(11.9 * 2.7)
  assert choices.subwords(sample, 2000) == pytest.approx(
    11.9 * (1.54 + 2 / 3 * 1.16)
  )
  sample.source.sample = ["犬が草の上を走っている。"]
  sample.source.letters = 24 * sample.examined
  assert (
    choices.subwords(sample, 1000) == 16
  )  # both sides are one here; 24 / 1.5
