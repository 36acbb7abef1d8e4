"""Beam search over tables, compared with the same search in plain Python."""

import numpy as np
import pytest
from tables_under_test import (
  assert_same_hypotheses,
  decode_options,
  random_params,
  request_of,
  search_by_loops,
  search_tables,
)

RNG = np.random.default_rng(0)
SOURCES = [
  RNG.integers(4, 50, length).tolist() for length in RNG.integers(1, 9, 40)
]
LENGTH = 24
LIMITS = RNG.integers(1, LENGTH + 1, len(SOURCES))


@pytest.mark.parametrize(
  "vocabulary, end, decode",
  [
    (12, 0.5, decode_options(1, alpha=0.6)),
    (12, 0.5, decode_options(2)),
    (12, 0.5, decode_options(5, alpha=0.6)),
    (12, 0.5, decode_options(5, "gnmt", alpha=1.3)),
    (12, 0.5, decode_options(4, alpha=1.5, stop="bound")),
    (12, 0.5, decode_options(3, "gnmt", alpha=0.6, stop="bound")),
    (6, 0.0, decode_options(5, alpha=0.0)),  # fewer subwords than continuations
    (1100, 4.0, decode_options(2)),  # the best by chunks
    (1100, 5.0, decode_options(1, alpha=0.6)),
  ],
)
def test_beam_search_equals_loops(vocabulary, end, decode):
  params = random_params(vocabulary, end)
  result = search_tables(
    params, SOURCES, request_of(LIMITS), decode, length=LENGTH
  )
  for found, ids, limit in zip(result, SOURCES, LIMITS, strict=True):
    expected = search_by_loops(params, ids, int(limit), decode)
    assert_same_hypotheses(found, expected)
  if decode.beam > 1:  # some end by themselves, and some at their limit
    lengths = [
      (len(one.tokens), limit)
      for found, limit in zip(result, LIMITS)
      for one in found
    ]
    at_limit = sum(length == limit for length, limit in lengths)
    assert min(at_limit, len(lengths) - at_limit) > 10


@pytest.mark.parametrize(
  "beam, stop", [(1, "first"), (3, "first"), (3, "bound")]
)
def test_outputs_without_an_end_stop_at_their_limit(beam, stop):
  params, decode = random_params(12, -60.0), decode_options(beam, stop=stop)
  sources, limits = [[7, 3], [9, 8, 3], [5, 3]], [3, 30, 1]
  combined = search_tables(
    params, sources, request_of(limits), decode, length=30
  )
  for found, limit in zip(combined, limits, strict=True):
    assert {len(one.tokens) for one in found} == {limit}
  # Alone, in arrays that are no longer than needed.
  (single,) = search_tables(
    params, sources[:1], request_of(limits[:1]), decode, length=3
  )
  assert [x.tokens for x in single] == [x.tokens for x in combined[0]]
