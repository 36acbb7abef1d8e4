"""RIBES by hand, and against plain loops."""

import math
import random

import pytest
from scored import scorer_of

import jaxsyn
from jaxsyn.scoring import ribes


@pytest.mark.parametrize(
  ("hypothesis", "references", "expected"),
  [
    # The paper's H1: positions 2 1 0 3 in the reference; 3 of 6 pairs ascend.
    ("Bob hit John yesterday", ["John hit Bob yesterday"], 0.5),
    ("a b c", ["a b c"], 1.0),
    ("c b a", ["a b c"], 0.0),
    # a and c are aligned, in order: 2 of 3 words. BP = exp(1 - 4/3).
    ("a c x", ["a b c d"], (2 / 3) ** 0.25 * math.exp(-1 / 3) ** 0.10),
    # Long hypotheses have no penalty: half of the words are aligned.
    ("a b x x", ["a b"], 0.5**0.25),
    # The best reference counts.
    ("b a c d", ["d c x a b", "b a c d"], 1.0),
    ("", ["a b"], 0.0),
    ("a b", [""], 0.0),
    ("", [""], 0.0),
    ("", ["", "a b"], 0.0),
    ("x y", ["a b"], 0.0),
    ("a x", ["a b"], 0.0),  # one word has no order
    # A reference of one word can be matched.
    ("Danke", ["Danke"], 1.0),
    ("Danke sehr", ["Danke"], 0.5**0.25),
    ("Danke Danke", ["Danke"], 0.0),  # ambiguous
    ("Danke", ["Danke sehr"], 0.0),
  ],
)
def test_by_hand(hypothesis, references, expected):
  words = [line.split() for line in references]
  result = ribes.sentence(words, hypothesis.split())
  assert result == pytest.approx(expected)


def slow_places(ref: list[str], hyp: list[str]) -> list[int]:
  """The alignment, with loops over lists of words."""

  def positions(ngram, words):
    ends = range(len(words) - len(ngram) + 1)
    return [i for i in ends if words[i : i + len(ngram)] == ngram]

  def only(start, end):
    """The reference position of an n-gram that occurs once in both."""
    if start < 0 or end > len(hyp):
      return None
    in_ref, in_hyp = (positions(hyp[start:end], x) for x in (ref, hyp))
    return in_ref[0] if len(in_ref) == len(in_hyp) == 1 else None

  aligned = []
  for i in range(len(hyp)):
    for window in range(len(hyp)):
      left, right = only(i - window, i + 1), only(i, i + window + 1)
      if left is not None or right is not None:
        aligned.append(right if left is None else left + window)
        break
  return aligned


def slow_ribes(ref, hyp) -> float:
  if not ref or not hyp:
    return 0.0
  aligned = slow_places(ref, hyp)
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
  for _ in range(700):
    words = draw.randrange(2, 9)
    hypothesis, *references = (
      [f"w{draw.randrange(words)}" for _ in range(draw.randrange(0, 13))]
      for _ in range(3)
    )
    if draw.random() < 0.5:  # much of a reference, with words moved
      hypothesis = references[0][draw.randrange(4) :]
      hypothesis += references[0][: draw.randrange(4)]
    for one in references:
      assert ribes.places(one, hypothesis) == slow_places(one, hypothesis)
    repeated += len(set(hypothesis)) < len(hypothesis)
    expected = max(slow_ribes(one, hypothesis) for one in references)
    assert ribes.sentence(references, hypothesis) == pytest.approx(
      expected, abs=1e-12
    )
  assert repeated > 300


def test_a_corpus_has_the_mean_of_its_sentences_in_percent():
  references = [["a b c", "John hit Bob yesterday", "Ja."]]
  hypotheses = ["a b c", "Bob hit John yesterday", "nein"]
  result = scorer_of("ribes", references).measure(hypotheses)
  assert result.sentence_B.tolist() == [100.0, 50.0, 0.0]
  assert result.value == 50.0
  assert result.score.signature == (
    f"nrefs:1|case:mixed|alpha:0.25|beta:0.10|tok:13a|jaxsyn:{jaxsyn.__version__}"
  )


@pytest.mark.parametrize(
  ("hypothesis", "tokenizer", "lowercase", "expected"),
  [
    # 13a separates comma and full stop: Ja , gut . are all aligned, in order.
    ("Ja , gut .", "13a", False, 100.0),
    # Between spaces are "Ja," and "gut.", which are not aligned.
    ("Ja , gut .", "none", False, 0.0),
    ("J a,gut.", "char", False, 100.0),
    # "ja" is not aligned, the other three words are.
    ("ja, gut.", "13a", False, 100 * 0.75**0.25),
    ("ja, gut.", "13a", True, 100.0),
  ],
)
def test_words_depend_on_tokenizer_and_case(
  hypothesis, tokenizer, lowercase, expected
):
  scorer = scorer_of("ribes", [["Ja, gut."]], tokenizer, lowercase=lowercase)
  assert scorer.measure([hypothesis]).value == pytest.approx(expected)


def test_lines_of_thousands_of_words_take_seconds():
  assert ribes.sentence([["w", "w"]], ["w"] * 20_000) == 0.0
  many = [str(index) for index in range(20_000)]
  assert ribes.sentence([many], many) == 1.0
