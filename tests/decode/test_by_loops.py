"""Searches against the same search in plain Python, over tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables_under_test import (
  Tables,
  asked,
  by,
  drawn,
  search_by_loops,
  searched,
)

from jaxsyn.data.schema import PAD
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import Sources
from jaxsyn.syntax import SentenceFeatures

RNG = np.random.default_rng(0)
SOURCES = [
  RNG.integers(4, 50, length).tolist() for length in RNG.integers(1, 9, 40)
]
LENGTH = 24
LIMITS = RNG.integers(1, LENGTH + 1, len(SOURCES))


def found_by(params, sources, limits, decode, length=LENGTH):
  """Hypotheses of each sentence: (tokens, log_p, score) of those that ended."""
  id_BS = np.full((len(sources), max(map(len, sources))), PAD, np.int32)
  for row, ids in enumerate(sources):
    id_BS[row, : len(ids)] = ids
  model = Tables(params["logits"].shape[1])
  run = jax.jit(
    lambda params, id_BS, limit_B: searched(
      model,
      params,
      Sources(id_BS, SentenceFeatures(real_BS=id_BS != PAD), asked(limit_B)),
      decode=decode,
      length=length,
    )
  )
  result = jax.device_get(run(params, id_BS, jnp.asarray(limits, jnp.int32)))
  return [
    [
      (tuple(tokens[tokens != PAD].tolist()), log_p, score)
      for tokens, log_p, score in zip(*row, strict=True)
      if score > NEG_INF / 2
    ]
    for row in zip(result.token_BNT, result.log_p_BN, result.score_BN)
  ]


def assert_the_same(found, params, sources, limits, decode):
  for row, (ids, limit) in enumerate(zip(sources, limits)):
    expected = search_by_loops(params, ids, int(limit), decode)
    assert [one[0] for one in found[row]] == [one.tokens for one in expected]
    np.testing.assert_allclose(
      [one[1:] for one in found[row]],
      [(one.log_p, one.score) for one in expected],
      rtol=1e-5,
      atol=1e-5,
    )


@pytest.mark.parametrize(
  "vocabulary, end, decode",
  [
    (12, 0.5, by(2)),
    (12, 0.5, by(5, alpha=0.6)),
    (12, 0.5, by(5, "gnmt", alpha=1.3)),
    (12, 0.5, by(4, alpha=1.5, stop="bound")),
    (12, 0.5, by(3, "gnmt", alpha=0.6, stop="bound")),
    (6, 0.0, by(5, alpha=0.0)),  # fewer subwords than continuations
    (1100, 4.0, by(2)),  # the best by chunks
  ],
)
def test_beam_search_equals_fairseqs(vocabulary, end, decode):
  params = drawn(vocabulary, end)
  result = found_by(params, SOURCES, LIMITS, decode)
  assert_the_same(result, params, SOURCES, LIMITS, decode)
  # What is compared: some that end of themselves, and some at their limit.
  forced = [
    len(one[0]) == limit for row, limit in zip(result, LIMITS) for one in row
  ]
  assert min(sum(forced), len(forced) - sum(forced)) > 10


@pytest.mark.parametrize("vocabulary, end", [(12, 0.5), (1100, 5.0)])
def test_greedy_is_a_beam_of_one(vocabulary, end):
  params, decode = drawn(vocabulary, end), by(1, alpha=0.6)
  result = found_by(params, SOURCES, LIMITS, decode)
  assert_the_same(result, params, SOURCES, LIMITS, decode)


@pytest.mark.parametrize(
  "beams, stop", [(1, "first"), (3, "first"), (3, "bound")]
)
def test_outputs_without_an_end_stop_at_their_limit(beams, stop):
  params = drawn(12, -60.0)
  sources, limits = [[7, 3], [9, 8, 3], [5, 3]], [3, 30, 1]
  decode = by(beams, stop=stop)
  combined = found_by(params, sources, limits, decode, length=30)
  for row, limit in enumerate(limits):
    assert {len(one[0]) for one in combined[row]} == {limit}
  # Alone, with no more room than it needs.
  (single,) = found_by(params, sources[:1], limits[:1], decode, length=3)
  assert [one[0] for one in single] == [one[0] for one in combined[0]]
