"""DASA: each normalization by loops over the tree."""

import math

import pytest
from cases import expected_scores, real_pairs, rescore
from numpy.testing import assert_allclose

from jaxsyn.syntax.dasa import Dasa


def bias(normalise, sentence, q, m):
  word = sentence.word
  distance = sentence.word_edges(word[q], word[m])
  if distance is None:
    return 0.0
  row = [sentence.word_edges(word[q], other) for other in word]
  if normalise == "inverse":
    return 1 / (1 + distance)
  if normalise == "rows":
    return math.exp(-distance) / sum(math.exp(-d) for d in row if d is not None)
  table = [sentence.word_edges(one, other) for one in word for other in word]
  return 1 - distance / max(1, max(d for d in table if d is not None))


@pytest.mark.parametrize(
  "normalise, apply, heads",
  [
    ("longest", "multiply", None),
    ("inverse", "multiply", (2,)),
    ("rows", "add", None),
  ],
)
def test_scores_equal_loops(normalise, apply, heads):
  spec = Dasa(normalise=normalise, apply=apply, heads=heads, strength=0.7)

  def score_of(score, sentence, i, q, m):
    b = 0.7 * bias(normalise, sentence, q, m)
    return score * (1 + b) if apply == "multiply" else score + b

  assert_allclose(
    real_pairs(rescore(spec)), expected_scores(spec, score_of), atol=1e-6
  )
