"""Samples subword segmentations from the scores of a SentencePiece model.

SentencePiece can sample too, but its random numbers differ between processes for the
same seed (version 0.2.3), so runs could not be resumed exactly.

Sources: Provilkov, Emelianenko & Voita 2020, "BPE-Dropout" (arXiv:1910.13267),
algorithm 1; Kudo 2018, "Subword Regularization" (arXiv:1804.10959), section 3.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Mapping

BLANK = "▁"  # SentencePiece's blank before each word
Segment = Callable[[str, Mapping[str, float], float, random.Random], list[int]]

# A word with the space before it; no subword contains parts of two words.
_WORD = re.compile(f"^[^{BLANK}]+|{BLANK}[^{BLANK}]*")
_NONE = -math.inf  # score of an impossible merge or segmentation
# SentencePiece's score of an unknown character is this much below the lowest score.
_PENALTY = 10.0


def by_merges(
  normal: str, scores: Mapping[str, float], alpha: float, rng: random.Random
) -> list[int]:
  """Samples a BPE-dropout segmentation; returns the end offsets of subwords.

  Args:
    normal: Sentence as normalized by SentencePiece.
    scores: Score of each piece; merges with higher scores come first.
    alpha: Probability of dropping a merge, p, applied to each merge at each step (in
      SentencePiece a dropped merge stays dropped).
    rng: Random numbers of the sentence.
  """
  ends, position = [], 0
  for word in _WORD.findall(normal):
    for symbol in _merged(list(word), scores, alpha, rng):
      position += len(symbol)
      ends.append(position)
  return ends


def _merged(
  symbols: list[str],
  scores: Mapping[str, float],
  alpha: float,
  rng: random.Random,
) -> list[str]:
  """Merges the symbols of a word by BPE, dropping merges at random."""
  score_of, draw = scores.get, rng.random
  # Score of merging each symbol with the next one.
  merges = [score_of(a + b, _NONE) for a, b in itertools.pairwise(symbols)]
  while merges:
    dropped = []
    # The best merge that is not dropped, the leftmost of equal ones.
    while (best := max(merges)) > _NONE:
      i = merges.index(best)
      if draw() >= alpha:
        break
      dropped.append((i, best))
      merges[i] = _NONE
    for j, score in dropped:
      merges[j] = score
    if best == _NONE:  # there are none, or all are dropped
      break
    symbols[i] += symbols.pop(i + 1)
    del merges[i]
    if i:
      merges[i - 1] = score_of(symbols[i - 1] + symbols[i], _NONE)
    if i < len(merges):
      merges[i] = score_of(symbols[i] + symbols[i + 1], _NONE)
  return symbols


def by_lattice(
  normal: str, scores: Mapping[str, float], alpha: float, rng: random.Random
) -> list[int]:
  """Samples a unigram segmentation; returns the end offsets of subwords.

  The probability of a segmentation is proportional to exp(alpha · Σ scores): forward
  filtering, backward sampling.

  Args:
    normal: Sentence as normalized by SentencePiece.
    scores: Log-probability of each piece.
    alpha: Exponent of the probabilities.
    rng: Random numbers of the sentence.
  """
  longest = max(map(len, scores), default=1)
  unknown = min(scores.values(), default=0.0) - _PENALTY
  size = len(normal)
  # Log-sum over the segmentations that end at each offset.
  total = [0.0, *[_NONE] * size]
  into: list[list[tuple[int, float]]] = [[] for _ in range(size + 1)]
  for begin in range(size):
    is_single = False
    for end in range(begin + 1, min(size, begin + longest) + 1):
      score = scores.get(normal[begin:end])
      if score is None:
        if end > begin + 1 or is_single:
          continue
        score = unknown
      is_single = True
      into[end].append((begin, total[begin] + alpha * score))
    position = begin + 1
    values = [value for _, value in into[position]]
    best = max(values)
    total[position] = best
    total[position] += math.log(sum(math.exp(v - best) for v in values))
  ends, position = [], size
  while position:
    ends.append(position)
    choices = into[position]
    remaining, total_weight = rng.random(), total[position]
    for position, value in choices:  # noqa: B007  # or the last, after rounding
      remaining -= math.exp(value - total_weight)
      if remaining < 0:
        break
  return ends[::-1]
