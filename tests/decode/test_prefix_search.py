"""Searches with prefixes against all outputs of a model of tables."""

import itertools

import jax
import numpy as np
import pytest
from tables_under_test import Tables, by, drawn, searched, stepped

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.prefix import State, batch_prefixes, padded_sizes
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import DecodeRequest, Sources
from jaxsyn.syntax import SentenceFeatures

SIZE = 7  # PAD, UNK, BOS, EOS, and 4, 5, 6
SOURCES = [[7, 5, 3], [9, 3], [6, 6, 6, 3], [8, 3]]
LENGTH = 5


def search_all(prefixes, decode):
  """Returns (ids, log_p) of each hypothesis of each sentence."""
  id_BS = np.full((len(SOURCES), 4), PAD, np.int32)
  for row, ids in enumerate(SOURCES):
    id_BS[row, : len(ids)] = ids
  request = DecodeRequest(
    np.full(len(SOURCES), LENGTH, np.int32),
    np.arange(len(SOURCES), dtype=np.int32),
    batch_prefixes(prefixes, padded_sizes(prefixes)) if any(prefixes) else None,
  )
  rank_V = np.arange(SIZE) - 4

  def run(params, id_BS, request):
    sources = Sources(id_BS, SentenceFeatures(real_BS=id_BS != PAD), request)
    return searched(
      Tables(SIZE),
      params,
      sources,
      decode=decode,
      length=LENGTH,
      piece_rank=lambda: rank_V,
    )

  result = jax.device_get(jax.jit(run)(drawn(SIZE, 0.5), id_BS, request))
  return [
    [
      (tuple(tokens[tokens != PAD].tolist()), log_p)
      for tokens, log_p, score in zip(*row)
      if score > NEG_INF / 2
    ]
    for row in zip(result.token_BNT, result.log_p_BN, result.score_BN)
  ]


def all_outputs(ids):
  """Returns the log probability of every output; EOS is the last subword."""
  log_p, state, step = stepped(drawn(SIZE, 0.5), ids)
  outputs = {}
  for size in range(LENGTH):
    for middle in itertools.product((1, 4, 5, 6), repeat=size):
      now, total = step(state, BOS), 0.0
      for token in (*middle, EOS):
        total += log_p[now % len(log_p), token]
        now = step(now, token)
      outputs[*middle, EOS] = total
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
  decode = by(60, nbest=60, alpha=0.0, search=search, diverse={"groups": 2})
  result = search_all([PREFIX, PREFIX, PREFIX, ()], decode)
  free = search_all([(), (), (), ()], decode)
  assert [ids for ids, _ in result[3]] == [ids for ids, _ in free[3]]
  for row in range(3):
    outputs = all_outputs(SOURCES[row])
    assert {ids[:2] for ids, _ in result[row]} == BEGINNINGS
    for ids, log_p in result[row]:
      assert log_p == pytest.approx(outputs[ids], abs=1e-4)


def test_a_wide_beam_finds_every_output_with_the_prefix():
  decode = by(300, nbest=300, alpha=0.0, stop="bound")
  for ids, result in zip(SOURCES, search_all([PREFIX] * 4, decode)):
    expected = [
      pair for pair in all_outputs(ids).items() if pair[0][:2] in BEGINNINGS
    ]
    expected.sort(key=lambda pair: -pair[1])
    assert [output for output, _ in result] == [o for o, _ in expected]
    np.testing.assert_allclose(
      [log_p for _, log_p in result], [p for _, p in expected], atol=1e-4
    )
