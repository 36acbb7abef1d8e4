"""RIBES, a metric of word order (Isozaki et al. 2010, EMNLP).

RIBES = NKT · P^alpha · BP^beta. NKT is Kendall's tau of the order of the words
that can be aligned to the reference, scaled to [0, 1]; P is the fraction of the
hypothesis words that are aligned; BP = min(1, exp(1 - reference length /
hypothesis length)). The score of a corpus is the mean over its sentences, that of
a sentence the maximum over its references.

Words are aligned as in the authors' program (RIBES 1.03); the paper does not
specify repeated words. A word that occurs once in the hypothesis and once in the
reference is aligned. Any other is extended to n-grams of 2, 3, ... words, first to
its left and then to its right; the first n-gram that occurs once in both aligns
it. nltk aligns repeated words differently and returns 0 for one-word references.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import jaxsyn
from jaxsyn.scoring.scorers import Metric, References, Scorer, mean_of
from jaxsyn.scoring.tokenizers import bleu_of, cutter

ALPHA, BETA = 0.25, 0.10  # the defaults of the authors' program, as in WAT


class Ribes(Metric):
  """RIBES metric: the mean of the sentence scores, in percent."""

  title = "RIBES"
  of_words = True

  def scorer(self, references: References) -> Scorer:
    cut = cutter(references.tokenizer, references.lowercase)
    tokenizer = bleu_of(references.tokenizer).tokenizer_signature
    signature = f"{references.case}|alpha:{ALPHA:.2f}|beta:{BETA:.2f}"
    signature += f"|tok:{tokenizer}|jaxsyn:{jaxsyn.__version__}"
    return mean_of(self, references, sentence, cut=cut, signature=signature)


def sentence(
  references: Sequence[Sequence[str]], hypothesis: Sequence[str]
) -> float:
  """Returns the RIBES of one tokenized sentence, from 0 to 1.

  It is 0 for an empty hypothesis, and if fewer than two words are aligned (one,
  for a reference of one word).
  """
  return max(_ribes(reference, hypothesis) for reference in references)


def places(reference: Sequence[str], hypothesis: Sequence[str]) -> list[int]:
  """Returns the reference position of each hypothesis word that is aligned.

  The positions are in the order of the hypothesis, and may be repeated.
  """
  # One letter for each word makes n-grams substrings, which are fast to find.
  letter: dict[str, str] = {}
  for word in (*reference, *hypothesis):
    letter.setdefault(word, chr(len(letter)))
  reference_text = "".join(letter[word] for word in reference)
  text = "".join(letter[word] for word in hypothesis)
  aligned = (_place(reference_text, text, i) for i in range(len(text)))
  return [place for place in aligned if place is not None]


def _place(reference: str, hypothesis: str, i: int) -> int | None:
  """Returns the reference position of the i-th hypothesis word, if aligned."""
  for window in range(max(i + 1, len(hypothesis) - i)):
    in_reference = False
    # Start of the n-gram, position of the word in it.
    for start, position in ((i - window, window), (i, 0)):
      end = start + window + 1
      if start < 0 or end > len(hypothesis):
        continue
      ngram = hypothesis[start:end]
      if ngram in reference:
        in_reference = True
        if _once(ngram, reference) and _once(ngram, hypothesis):
          return reference.find(ngram) + position
    if not in_reference:  # then longer n-grams are not in it either
      return None
  return None


def _once(ngram: str, text: str) -> bool:
  """Returns whether an n-gram occurs in a text exactly once."""
  first = text.find(ngram)
  return first >= 0 and text.find(ngram, first + 1) < 0


def _ribes(reference: Sequence[str], hypothesis: Sequence[str]) -> float:
  if not hypothesis or not reference:
    return 0.0
  place = places(reference, hypothesis)
  if len(place) == len(reference) == 1:
    order = 1.0
  elif len(place) < 2:
    order = 0.0
  else:
    order = _ascending(place) / math.comb(len(place), 2)
  precision = len(place) / len(hypothesis)
  brevity = min(1.0, math.exp(1.0 - len(reference) / len(hypothesis)))
  return order * precision**ALPHA * brevity**BETA


def _ascending(place: Sequence[int]) -> int:
  """Counts the pairs of positions that are in ascending order."""
  before: list[int] = []
  count = 0
  for value in place:
    count += bisect.bisect_left(before, value)
    bisect.insort(before, value)
  return count
