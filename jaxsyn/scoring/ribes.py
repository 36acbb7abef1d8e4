"""RIBES: are the words in the right order? (Isozaki et al. 2010, EMNLP)

RIBES = NKT · P^alpha · BP^beta: NKT is Kendall's tau of the order of those words
that can be found in the reference, moved to [0, 1]; P is their share in the
hypothesis; BP = min(1, exp(1 - reference length / hypothesis length)). A corpus
has the mean of its sentences, a sentence the best of its references.

Words are found as the authors' program (RIBES 1.03) finds them, which the paper
leaves open where a word is repeated: a word that stands once in the hypothesis
and once in the reference is found there. Any other is looked for together with
its window of 1, 2, ... neighbours, at first those to its left and then those to
its right; the first n-gram that stands once in both says where the word is. nltk
looks elsewhere for repeated words, and has 0 for one-word references.
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
  """See the module."""

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
  """RIBES of one sentence, from 0 to 1.

  Args:
    references: one or more, each cut into words.
    hypothesis: cut into words in the same way.

  Returns:
    The best over the references; 0 for an empty hypothesis, and where fewer
    than two words are found (one, for a reference of one word).
  """
  return max(_ribes(reference, hypothesis) for reference in references)


def places(reference: Sequence[str], hypothesis: Sequence[str]) -> list[int]:
  """Where in the reference the words of a hypothesis are, for those found.

  Returns: indices of reference words, in the order of the hypothesis. One word
    may be found twice.
  """
  # A letter for each word makes n-grams strings, which are quick to look for.
  letter: dict[str, str] = {}
  for word in (*reference, *hypothesis):
    letter.setdefault(word, chr(len(letter)))
  meant = "".join(letter[word] for word in reference)
  hypothesis_text = "".join(letter[word] for word in hypothesis)
  all_places = (
    _place(meant, hypothesis_text, i) for i in range(len(hypothesis_text))
  )
  return [place for place in all_places if place is not None]


def _place(meant: str, hypothesis: str, i: int) -> int | None:
  """Where the i-th word of a hypothesis is in the reference."""
  if _once(hypothesis[i], meant) and _once(hypothesis[i], hypothesis):
    return meant.find(hypothesis[i])
  left = right = hypothesis[i] in meant  # a longer n-gram is nowhere either
  for window in range(1, max(i + 1, len(hypothesis) - i)):
    if left := left and window <= i:
      ngram = hypothesis[i - window : i + 1]
      if _once(ngram, meant) and _once(ngram, hypothesis):
        return meant.find(ngram) + window
      left = ngram in meant
    if right := right and i + window < len(hypothesis):
      ngram = hypothesis[i : i + window + 1]
      if _once(ngram, meant) and _once(ngram, hypothesis):
        return meant.find(ngram)
      right = ngram in meant
    if not (left or right):
      break
  return None


def _once(ngram: str, text: str) -> bool:
  """Whether it stands in a text exactly once; occurrences may overlap."""
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
  share = len(place) / len(hypothesis)
  brevity = min(1.0, math.exp(1.0 - len(reference) / len(hypothesis)))
  return order * share**ALPHA * brevity**BETA


def _ascending(place: Sequence[int]) -> int:
  """Pairs whose second place is the larger one."""
  before: list[int] = []
  count = 0
  for value in place:
    count += bisect.bisect_left(before, value)
    bisect.insort(before, value)
  return count
