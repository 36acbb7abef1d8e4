"""Subwords drawn at random, over the pieces and scores of a SentencePiece model.

SentencePiece draws too, but its random numbers differ from process to process
whatever seed is set (version 0.2.3), so no run could be resumed. Without chance
both give SentencePiece's own subwords.

Sources: Provilkov, Emelianenko & Voita 2020, "BPE-Dropout" (arXiv:1910.13267),
algorithm 1; Kudo 2018, "Subword Regularization" (arXiv:1804.10959), section 3.

Before this file: `vocabulary`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping

BLANK = "▁"  # SentencePiece's, before each word
Cut = Callable[[str, Mapping[str, float], float, random.Random], list[int]]

_NONE = math.inf
# Below the least score of a piece: what SentencePiece takes of a character that
# the vocabulary lacks.
_PENALTY = 10.0


def by_merges(
  normal: str, scores: Mapping[str, float], alpha: float, rng: random.Random
) -> list[int]:
  """Where subwords of a normalised sentence end, by BPE with dropout.

  Args:
    normal: as SentencePiece normalises it.
    scores: of all pieces; of two merges that of the higher one comes first.
    alpha: p, how probably a merge is left out, drawn for each at each step
      (SentencePiece leaves what it left out once out for good).
    rng: of the sentence.
  """
  ends, position = [], 0
  for word in _words(normal):
    for symbol in _merged(list(word), scores, alpha, rng):
      position += len(symbol)
      ends.append(position)
  return ends


def _words(normal: str) -> Iterator[str]:
  """Parts that begin with a blank: no piece has one within it."""
  starts = [i for i, c in enumerate(normal) if c == BLANK and i]
  for begin, end in itertools.pairwise([0, *starts, len(normal)]):
    yield normal[begin:end]


def _merged(
  symbols: list[str],
  scores: Mapping[str, float],
  alpha: float,
  rng: random.Random,
) -> list[str]:
  def rank(left: str, right: str) -> float:
    return -scores.get(left + right, -_NONE)

  ranks = [rank(a, b) for a, b in itertools.pairwise(symbols)]
  while ranks:
    dropped = []
    # The first in their order that is not left out, the leftmost of equal ones.
    while (best := min(ranks)) < _NONE:
      i = ranks.index(best)
      if not alpha or rng.random() >= alpha:
        break
      dropped.append((i, best))
      ranks[i] = _NONE
    for j, was in dropped:
      ranks[j] = was
    if best == _NONE:  # there are none, or all were left out: it ends
      break
    symbols[i] += symbols.pop(i + 1)
    del ranks[i]
    if i:
      ranks[i - 1] = rank(symbols[i - 1], symbols[i])
    if i < len(ranks):
      ranks[i] = rank(symbols[i], symbols[i + 1])
  return symbols


def by_lattice(
  normal: str,
  scores: Mapping[str, float],
  alpha: float,
  rng: random.Random | None,
) -> list[int]:
  """Where subwords end, drawn of all segmentations; P ∝ exp(alpha · Σ scores).

  Filtered forward, drawn backward.

  Args:
    normal: as SentencePiece normalises it.
    scores: of all pieces, logarithms of probabilities.
    alpha: of the power.
    rng: of the sentence; None: the most probable one.
  """
  longest = max(map(len, scores), default=1)
  unknown = min(scores.values(), default=0.0) - _PENALTY
  size = len(normal)
  total = [0.0, *[-_NONE] * size]  # of all that end here, or of the best
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
    if rng:
      total[position] += math.log(sum(math.exp(v - best) for v in values))
  ends, position = [], size
  while position:
    ends.append(position)
    choices = into[position]
    if rng is None:
      position = max(choices, key=lambda choice: choice[1])[0]
      continue
    left, total_weight = rng.random(), total[position]
    for position, value in choices:  # noqa: B007  # rounding may leave the last
      left -= math.exp(value - total_weight)
      if left < 0:
        break
  return ends[::-1]
