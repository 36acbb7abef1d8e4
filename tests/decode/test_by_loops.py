"""Beam and diverse beam search over tables, compared with loops in plain Python."""

import numpy as np
import pytest
from tables_under_test import (
  Ended,
  TableStates,
  assert_same_hypotheses,
  decode_options,
  random_params,
  request_of,
  search_by_loops,
  search_tables,
)

from jaxsyn.data.schema import BOS, EOS, PAD

RNG = np.random.default_rng(0)
SOURCES = [
  RNG.integers(4, 50, length).tolist() for length in RNG.integers(1, 9, 30)
]
LENGTH = 24
LIMITS = RNG.integers(1, LENGTH + 1, len(SOURCES))


def diverse(beam, groups, strength, **fields):
  options = {"groups": groups, "strength": strength}
  return decode_options(
    beam, nbest=beam, search="diverse", diverse=options, **fields
  )


def groups_by_loops(params, ids, limit, decode):
  """Returns the best of each group, then the second best of each, and so on."""
  G = decode.search.groups or decode.beam
  M, strength = decode.beam // G, decode.search.strength
  table = TableStates(params, ids)
  # (tokens, log p, log p minus penalties, state)
  beams = [[((), 0.0, 0.0, table.first)] for _ in range(G)]
  ended = [[] for _ in range(G)]
  is_open = [True] * G
  for length in range(1, limit + 1):
    used = np.zeros(params["logits"].shape[1])
    for g in range(G):
      if not is_open[g]:
        continue
      new = [
        ((*tokens, token), total + p, rank + p - strength * used[token], state)
        for tokens, total, rank, state in beams[g]
        for token, p in enumerate(table.log_p(state))
        if token not in (PAD, BOS) and (length < limit or token == EOS)
      ]
      new = sorted(new, key=lambda one: -one[2])[: 2 * M]
      for tokens, total, _, _ in new[:M]:
        if tokens[-1] == EOS:
          ended[g].append(Ended(tokens, total, total / length**decode.alpha))
      ended[g] = sorted(ended[g], key=lambda one: -one.score)[:M]
      beams[g] = [
        (tokens, total, rank, table.next(state, tokens[-1]))
        for tokens, total, rank, state in new
        if tokens[-1] != EOS
      ][:M]
      if len(ended[g]) == M:
        best = max((total for _, total, _, _ in beams[g]), default=-np.inf)
        wins = best / limit**decode.alpha > ended[g][-1].score
        is_open[g] = decode.stop == "bound" and wins
      if is_open[g]:
        for tokens, *_ in beams[g]:
          used[tokens[-1]] += 1
    if not any(is_open):
      break
  return [ended[g][m] for m in range(M) for g in range(G) if m < len(ended[g])]


@pytest.mark.parametrize(
  "vocabulary, end, decode, reference",
  [
    (12, 0.5, decode_options(1, alpha=0.6), search_by_loops),
    (12, 0.5, decode_options(5, "gnmt", alpha=1.3), search_by_loops),
    (12, 0.5, decode_options(3, alpha=1.0, stop="bound"), search_by_loops),
    # All end at their limits.
    (12, -60.0, decode_options(3), search_by_loops),
    # There are fewer subwords than continuations.
    (6, 0.0, decode_options(5, alpha=0.0), search_by_loops),
    # The best are found by chunks.
    (1100, 4.0, decode_options(2), search_by_loops),
    (1100, 5.0, diverse(4, 2, 2.0), groups_by_loops),
    # One group; then one group for each hypothesis.
    (12, 0.5, diverse(3, 1, 5.0, alpha=0.6), search_by_loops),
    (12, 0.5, diverse(5, 0, 0.3), groups_by_loops),
    (12, 0.5, diverse(6, 3, 0.7, alpha=0.6), groups_by_loops),
    (12, 0.5, diverse(6, 2, 0.7, alpha=0.6, stop="bound"), groups_by_loops),
  ],
)
def test_search_equals_loops(vocabulary, end, decode, reference):
  params = random_params(vocabulary, end)
  result = search_tables(
    params, SOURCES, request_of(LIMITS), decode, length=LENGTH
  )
  for found, ids, limit in zip(result, SOURCES, LIMITS, strict=True):
    expected = reference(params, ids, int(limit), decode)
    assert_same_hypotheses(found, expected)
  distinct = [len({one.tokens for one in found}) for found in result]
  assert max(distinct) == decode.beam
