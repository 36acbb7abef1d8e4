"""RIBES by hand, and nltk's wherever nltk's is right."""

import math
import random

import pytest
from nltk.translate.ribes_score import sentence_ribes

from jaxsyn.errors import InputError
from jaxsyn.scoring import ribes
from jaxsyn.scoring.metrics import measure, scorer_of


def of(said: str, *meant: str, **settings) -> float:
  return ribes.sentence([m.split() for m in meant], said.split(), **settings)


def test_order_is_the_share_of_pairs_in_the_right_order():
  # The paper's H1: places 2 1 0 3 in the reference; of 6 pairs those with 3
  # ascend. All words are found, and none is missing.
  assert of("Bob hit John yesterday", "John hit Bob yesterday") == 0.5
  assert of("a b c", "a b c") == 1.0
  assert of("c b a", "a b c") == 0.0


def test_words_that_are_not_found_and_short_hypotheses_cost():
  # a and c are found, in order: 2 of 3 words. BP = exp(1 - 4/3).
  expected = (2 / 3) ** 0.25 * math.exp(-1 / 3) ** 0.10
  assert of("a c x", "a b c d") == pytest.approx(expected)
  assert expected == pytest.approx(0.873979, abs=1e-6)
  # alpha and beta are the two exponents; long hypotheses have no penalty.
  assert of("a c x", "a b c d", alpha=0, beta=1) == pytest.approx(
    math.exp(-1 / 3)
  )
  assert of("a b x x", "a b", alpha=1) == 0.5


def test_repeated_words_are_told_apart_by_their_neighbours():
  # The paper's H2. "the book" and "the boy" are unique, so "the" is found:
  # places 3 4 2 0 1 (was and by are not). 3-4 and 0-1 ascend, 2 of 10 pairs.
  found = of("the book was read by the boy", "the boy read the book")
  assert found == pytest.approx(0.2 * (5 / 7) ** 0.25)


def test_the_best_reference_counts():
  said, good, bad = "b a c d", "b a c d", "d c x a b"
  assert of(said, bad, good) == of(said, good, bad) == 1.0
  assert of(said, bad, bad) == of(said, bad) < 1.0


def test_nothing_to_order_is_worth_nothing():
  assert of("", "a b") == of("a b", "") == of("", "") == 0.0
  assert of("x y", "a b") == 0.0
  assert of("a x", "a b") == 0.0  # one word has no order
  assert of("", "", "a b") == 0.0


def test_a_reference_of_one_word_can_be_met():
  # nltk gives 0 to the perfect translation of every one-word sentence.
  assert sentence_ribes([["Danke"]], ["Danke"]) == 0.0
  assert of("Danke", "Danke") == 1.0
  assert of("Danke sehr", "Danke") == pytest.approx(0.5**0.25)
  assert of("Danke Danke", "Danke") == 0.0  # which of them is meant?
  assert of("Danke", "Danke sehr") == 0.0  # one of two: no order


def test_it_is_nltks_for_references_of_more_words():
  draw = random.Random(1)
  for _ in range(200):
    said, *meant = (
      [str(draw.randrange(8)) for _ in range(draw.randrange(2, 12))]
      for _ in range(3)
    )
    assert ribes.sentence(meant, said) == sentence_ribes(meant, said)


def test_a_corpus_has_the_mean_of_its_sentences_in_percent():
  meant = [["a b c", "John hit Bob yesterday", "Ja."]]
  said = ["a b c", "Bob hit John yesterday", "nein"]
  scorer = scorer_of("ribes", meant)
  found = measure(scorer, said)
  assert found.sentence_B.tolist() == [100.0, 50.0, 0.0]
  assert found.value == 50.0
  assert found.score.signature == (
    f"nrefs:1|case:mixed|alpha:0.25|beta:0.10|tok:13a|{ribes.VERSION}"
  )


def test_words_are_the_tokenisers_and_case_counts_unless_told():
  def value(said, tokenizer, lowercase=False):
    scorer = scorer_of("ribes", [["Ja, gut."]], tokenizer, lowercase)
    return measure(scorer, [said]).value

  # 13a cuts off comma and full stop: Ja , gut . are all found, in order.
  assert value("Ja , gut .", "13a") == 100.0
  # Between blanks are "Ja," and "gut.", of which nothing is found.
  assert value("Ja , gut .", "none") == 0.0
  # Cut into characters: J a , g u t . are found again.
  assert value("J a,gut.", "char") == 100.0
  # "ja" is not found, the other three are.
  assert value("ja, gut.", "13a") == pytest.approx(100 * 0.75**0.25)
  assert value("ja, gut.", "13a", lowercase=True) == 100.0


def test_a_line_that_nltk_would_not_align_is_named():
  with pytest.raises(InputError, match=r"2001 words .w w w w w"):
    of("w " * 2001, "w w")
