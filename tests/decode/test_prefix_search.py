"""Searches with prefixes, compared with all outputs of a table."""

import itertools

import numpy as np
import pytest
from tables_under_test import (
  TableStates,
  decode_options,
  random_params,
  search_tables,
)

from jaxsyn.data.schema import EOS
from jaxsyn.decode.prefix import State, batch_prefixes, padded_sizes
from jaxsyn.decode.search import DecodeRequest

SIZE = 7  # PAD, UNK, BOS, EOS, and 4, 5, 6
SOURCES = [[7, 5, 3], [9, 3], [6, 6, 6, 3], [8, 3]]
LENGTH = 5
PARAMS = random_params(SIZE, 0.5)


def search_all(prefixes, decode):
  request = DecodeRequest(
    np.full(len(SOURCES), LENGTH, np.int32),
    np.arange(len(SOURCES), dtype=np.int32),
    batch_prefixes(prefixes, padded_sizes(prefixes)) if any(prefixes) else None,
  )
  rank_V = np.arange(SIZE) - 4
  return search_tables(
    PARAMS,
    SOURCES,
    request,
    decode,
    length=LENGTH,
    piece_rank=lambda: rank_V,
  )


def all_outputs(ids):
  """Returns the log probability of every output, EOS included."""
  table, outputs = TableStates(PARAMS, ids), {}
  for size in range(LENGTH):
    for middle in itertools.product((1, 4, 5, 6), repeat=size):
      output = (*middle, EOS)
      outputs[output] = sum(
        table.log_p_after(output[:i])[token] for i, token in enumerate(output)
      )
  return outputs


# Begins with (4, 5), (4, 6) or (6, 4): after 4 the pieces 1 and 2 in alphabetical
# order (5 and 6) complete the prefix, after 6 piece 0 does (4).
PREFIX = (
  State(0, 0, {4: 1, 6: 2}),
  State(1, 3, {}),
  State(0, 1, {}),
)
BEGINNINGS = {(4, 5), (4, 6), (6, 4)}


@pytest.mark.parametrize("search", ["beam", "diverse", "sample"])
def test_all_outputs_begin_with_the_prefix(search):
  decode = decode_options(
    60, nbest=60, alpha=0.0, search=search, diverse={"groups": 2}
  )
  result = search_all([PREFIX, PREFIX, PREFIX, ()], decode)
  free = search_all([(), (), (), ()], decode)
  assert [x.tokens for x in result[3]] == [x.tokens for x in free[3]]
  for row in range(3):
    outputs = all_outputs(SOURCES[row])
    assert {one.tokens[:2] for one in result[row]} == BEGINNINGS
    for one in result[row]:
      assert one.log_p == pytest.approx(outputs[one.tokens], abs=1e-4)


def test_a_wide_beam_finds_every_output_with_the_prefix():
  decode = decode_options(300, nbest=300, alpha=0.0, stop="bound")
  for ids, result in zip(SOURCES, search_all([PREFIX] * 4, decode)):
    expected = [
      pair for pair in all_outputs(ids).items() if pair[0][:2] in BEGINNINGS
    ]
    expected.sort(key=lambda pair: -pair[1])
    assert [one.tokens for one in result] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose(
      [one.log_p for one in result], [p for _, p in expected], atol=1e-4
    )
