"""Beam and diverse beam search over tables, compared with loops in plain Python."""

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
  RNG.integers(4, 50, length).tolist() for length in RNG.integers(1, 9, 30)
]
LENGTH = 24
LIMITS = RNG.integers(1, LENGTH + 1, len(SOURCES))


def diverse(beam, groups, strength, **fields):
  options = {"groups": groups, "strength": strength}
  return decode_options(
    beam, nbest=beam, search="diverse", diverse=options, **fields
  )


@pytest.mark.parametrize(
  "vocabulary, end, decode",
  [
    (12, 0.5, decode_options(1, alpha=0.6)),
    (12, 0.5, decode_options(5, "gnmt", alpha=1.3)),
    (12, 0.5, decode_options(3, alpha=1.0, stop="bound")),
    # All end at their limits.
    (12, -60.0, decode_options(3)),
    # There are fewer subwords than continuations.
    (6, 0.0, decode_options(5, alpha=0.0)),
    # The best are found by chunks.
    (1100, 4.0, decode_options(2)),
    (1100, 5.0, diverse(4, 2, 2.0)),
    # One group; then one group for each hypothesis.
    (12, 0.5, diverse(3, 1, 5.0, alpha=0.6)),
    (12, 0.5, diverse(5, 0, 0.3)),
    (12, 0.5, diverse(6, 2, 0.7, alpha=0.6, stop="bound")),
  ],
)
def test_search_equals_loops(vocabulary, end, decode):
  params = random_params(vocabulary, end)
  result = search_tables(
    params, SOURCES, request_of(LIMITS), decode, length=LENGTH
  )
  for found, ids, limit in zip(result, SOURCES, LIMITS, strict=True):
    expected = search_by_loops(params, ids, int(limit), decode)
    assert_same_hypotheses(found, expected)
  distinct = [len({one.tokens for one in found}) for found in result]
  assert max(distinct) == decode.beam
