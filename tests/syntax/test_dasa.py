"""DASA: each way to normalise, by loops over the tree."""

import math

import graph_by_loops as graph
import numpy as np
import pytest
from graph_by_loops import HEADS, VIEW, WHERE

from jaxsyn.syntax.dasa import Dasa

RNG = np.random.default_rng(0)
SCORE = RNG.normal(size=(graph.B, HEADS, graph.S, graph.S)).astype(np.float32)


def distance(head, one, other):
  """Edges; None where there is no path."""
  if min(one, other) < 0:
    return None
  result = graph.path(head, one, other)
  return None if result is None else len(result[0]) - 1 + len(result[1])


def bias(normalise, b, q, m):
  head, _, word, _ = graph.SENTENCES[b]
  d = distance(head, word[q], word[m])
  if d is None:
    return 0.0
  row = [distance(head, word[q], other) for other in word]
  if normalise == "inverse":
    return 1 / (1 + d)
  if normalise == "rows":
    return math.exp(-d) / sum(math.exp(-x) for x in row if x is not None)
  all_ids = [distance(head, one, other) for one in word for other in word]
  return 1 - d / max(1, max(x for x in all_ids if x is not None))


@pytest.mark.parametrize("normalise", ["longest", "inverse", "rows"])
@pytest.mark.parametrize("apply", ["multiply", "add"])
@pytest.mark.parametrize("heads", [None, (2,)])
def test_against_loops(normalise, apply, heads):
  spec = Dasa(normalise=normalise, apply=apply, heads=heads, strength=0.7)
  out = spec.make(WHERE).apply({}, SCORE, None, None, VIEW, method="rescore")
  wanted = np.array(SCORE, np.float64)
  for b, q, m, *_ in graph.pairs():
    if not graph.parsed(b):
      continue
    for h in range(HEADS) if heads is None else heads:
      expected = 0.7 * bias(normalise, b, q, m)
      if apply == "multiply":
        wanted[b, h, q, m] *= 1 + expected
      else:
        wanted[b, h, q, m] += expected
  np.testing.assert_allclose(
    graph.real_pairs(out), graph.real_pairs(wanted), atol=1e-6
  )
