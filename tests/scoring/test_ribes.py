"""RIBES by hand, and against a copy of its rule in plain loops."""

import math
import random
import time

import pytest

import jaxsyn
from jaxsyn.scoring import ribes
from jaxsyn.scoring.metrics import scorer_of


def of(message: str, *meant: str) -> float:
  return ribes.sentence([m.split() for m in meant], message.split())


def found(messages: str, meant: str) -> list[int]:
  return ribes.places(meant.split(), messages.split())


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
  # Long hypotheses have no penalty: half of the words are found.
  assert of("a b x x", "a b") == pytest.approx(0.5**0.25)


def slowly(ref: list[str], hyp: list[str]) -> list[int]:
  """The rule again: nothing but loops over lists of words."""

  def count(ngram, words):
    n = 0
    for start in range(len(words)):
      n += words[start : start + len(ngram)] == ngram
    return n

  def index(ngram, words):
    start = 0
    while words[start : start + len(ngram)] != ngram:
      start += 1
    return start

  aligned = []
  for i, word in enumerate(hyp):
    if count([word], ref) == 0:
      continue
    if count([word], ref) == 1 and count([word], hyp) == 1:
      aligned.append(index([word], ref))
      continue
    for window in range(1, max(i + 1, len(hyp) - i + 1)):
      if window <= i:
        ngram = hyp[i - window : i + 1]
        if count(ngram, ref) == 1 and count(ngram, hyp) == 1:
          aligned.append(index(ngram, ref) + len(ngram) - 1)
          break
      if i + window < len(hyp):
        ngram = hyp[i : i + window + 1]
        if count(ngram, ref) == 1 and count(ngram, hyp) == 1:
          aligned.append(index(ngram, ref))
          break
  return aligned


def slow_ribes(ref, hyp) -> float:
  if not ref or not hyp:
    return 0.0
  aligned = slowly(ref, hyp)
  brevity = min(1.0, math.exp(1.0 - len(ref) / len(hyp)))
  if len(aligned) == 1 and len(ref) == 1:
    return (1.0 / len(hyp)) ** 0.25 * brevity**0.10
  if len(aligned) < 2:
    return 0.0
  ascending = pairs = 0
  for i in range(len(aligned)):
    for j in range(i + 1, len(aligned)):
      pairs += 1
      ascending += aligned[i] < aligned[j]
  precision = len(aligned) / len(hyp)
  return ascending / pairs * precision**0.25 * brevity**0.10


def test_equals_the_reference_on_random_sentences():
  draw = random.Random(1)
  repeated = 0
  for _ in range(4000):
    words = draw.randrange(2, 9)
    message, *meant = (
      [f"w{draw.randrange(words)}" for _ in range(draw.randrange(0, 13))]
      for _ in range(3)
    )
    if draw.random() < 0.5:  # much of a reference, with words moved
      message = meant[0][draw.randrange(4) :] + meant[0][: draw.randrange(4)]
    for one in meant:
      assert ribes.places(one, message) == slowly(one, message), (one, message)
    repeated += len(set(message)) < len(message)
    expected = max(slow_ribes(one, message) for one in meant)
    assert ribes.sentence(meant, message) == pytest.approx(expected, abs=1e-12)
  assert repeated > 2000


def test_the_best_reference_counts():
  message, good, bad = "b a c d", "b a c d", "d c x a b"
  assert of(message, bad, good) == of(message, good, bad) == 1.0
  assert of(message, bad, bad) == of(message, bad) < 1.0


def test_nothing_to_order_is_worth_nothing():
  assert of("", "a b") == of("a b", "") == of("", "") == 0.0
  assert of("x y", "a b") == 0.0
  assert of("a x", "a b") == 0.0  # one word has no order
  assert of("", "", "a b") == 0.0


def test_a_reference_of_one_word_can_be_met():
  assert of("Danke", "Danke") == 1.0
  # Order 1, one of two words found, not too short.
  assert of("Danke sehr", "Danke") == pytest.approx(0.5**0.25)
  assert of("Danke Danke", "Danke") == 0.0  # which of them is meant?
  # One word found, but not the only one of the reference: no order.
  assert of("Danke", "Danke sehr") == 0.0


def test_a_corpus_has_the_mean_of_its_sentences_in_percent():
  meant = [["a b c", "John hit Bob yesterday", "Ja."]]
  messages = ["a b c", "Bob hit John yesterday", "nein"]
  scorer = scorer_of("ribes", meant)
  result = scorer.measure(messages)
  assert result.sentence_B.tolist() == [100.0, 50.0, 0.0]
  assert result.value == 50.0
  assert result.score.signature == (
    f"nrefs:1|case:mixed|alpha:0.25|beta:0.10|tok:13a|jaxsyn:{jaxsyn.__version__}"
  )


def test_words_are_the_tokenisers_and_case_counts_unless_told():
  def value(message, tokenizer, lowercase=False):
    scorer = scorer_of("ribes", [["Ja, gut."]], tokenizer, lowercase=lowercase)
    return scorer.measure([message]).value

  # 13a cuts off comma and full stop: Ja , gut . are all found, in order.
  assert value("Ja , gut .", "13a") == 100.0
  # Between blanks are "Ja," and "gut.", of which nothing is found.
  assert value("Ja , gut .", "none") == 0.0
  # Cut into characters: J a , g u t . are found again.
  assert value("J a,gut.", "char") == 100.0
  # "ja" is not found, the other three are.
  assert value("ja, gut.", "13a") == pytest.approx(100 * 0.75**0.25)
  assert value("ja, gut.", "13a", lowercase=True) == 100.0


def test_a_line_of_thousands_of_words_takes_no_minute():
  began = time.process_time()
  assert of("w " * 20_000, "w w") == 0.0
  assert of("a b " * 1500, "b a c " * 1500) >= 0.0
  many = [str(index) for index in range(20_000)]
  assert ribes.sentence([many], many) == 1.0
  assert time.process_time() - began < 30
