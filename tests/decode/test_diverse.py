"""Diverse beam search against the same in plain Python."""

import jax
import numpy as np
import pytest
from tables_under_test import (
  Ended,
  Tables,
  asked,
  by,
  drawn,
  search_by_loops,
  searched,
  stepped,
)

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import Sources
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath
from jaxsyn.syntax import SentenceFeatures

RNG = np.random.default_rng(1)
SOURCES = [
  RNG.integers(4, 50, length).tolist() for length in RNG.integers(1, 9, 30)
]
LENGTH = 16
LIMITS = RNG.integers(1, LENGTH + 1, len(SOURCES))


def diverse(beam, groups, strength, **fields):
  expected = {"groups": groups, "strength": strength}
  return by(beam, nbest=beam, search="diverse", diverse=expected, **fields)


def found_by(params, decode):
  id_BS = np.full((len(SOURCES), 9), PAD, np.int32)
  for row, ids in enumerate(SOURCES):
    id_BS[row, : len(ids)] = ids
  model = Tables(params["logits"].shape[1])

  def run(params, id_BS):
    inputs = Sources(
      id_BS, SentenceFeatures(real_BS=id_BS != PAD), asked(LIMITS)
    )
    return searched(model, params, inputs, decode=decode, length=LENGTH)

  result = jax.device_get(jax.jit(run)(params, id_BS))
  return [
    [
      (tuple(tokens[tokens != PAD].tolist()), log_p, score)
      for tokens, log_p, score in zip(*row)
      if score > NEG_INF / 2
    ]
    for row in zip(result.token_BNT, result.log_p_BN, result.score_BN)
  ]


def groups_by_loops(params, ids, limit, decode):
  """Best of each group, then second best of each, and so on."""
  G = decode.search.groups or decode.beam
  M, strength = decode.beam // G, decode.search.strength
  log_p, state, step = stepped(params, ids)
  # (tokens, own log p, log p less penalties, state)
  beams = [[((), 0.0, 0.0, step(state, BOS))] for _ in range(G)]
  ended = [[] for _ in range(G)]
  is_open = [True] * G
  for length in range(1, limit + 1):
    used = np.zeros(log_p.shape[1])
    for g in range(G):
      if not is_open[g]:
        continue
      new = [
        (
          (*tokens, token),
          item + log_p[at, token],
          rank + log_p[at, token] - strength * used[token],
          at,
        )
        for tokens, item, rank, state in beams[g]
        for at in [state % len(log_p)]
        for token in range(log_p.shape[1])
        if token not in (PAD, BOS) and (length < limit or token == EOS)
      ]
      states = {tokens: state for tokens, _, _, state in beams[g]}
      new = sorted(new, key=lambda one: -one[2])[: 2 * M]
      for tokens, item, _, _ in new[:M]:
        if tokens[-1] == EOS:
          score = item / length**decode.alpha
          ended[g].append(Ended(tokens, item, score))
      ended[g] = sorted(ended[g], key=lambda one: -one.score)[:M]
      beams[g] = [
        (tokens, item, rank, step(states[tokens[:-1]], tokens[-1]))
        for tokens, item, rank, _ in new
        if tokens[-1] != EOS
      ][:M]
      if len(ended[g]) == M:
        best = max((item for _, item, _, _ in beams[g]), default=-np.inf)
        wins = best / limit**decode.alpha > ended[g][-1].score
        is_open[g] = decode.stop == "bound" and wins
      if is_open[g]:
        for tokens, *_ in beams[g]:
          used[tokens[-1]] += 1
    if not any(is_open):
      break
  return [ended[g][m] for m in range(M) for g in range(G) if m < len(ended[g])]


@pytest.mark.parametrize(
  "vocabulary, end, decode",
  [
    (12, 0.5, diverse(4, 4, 1.0)),
    (12, 0.5, diverse(6, 3, 0.7, alpha=0.6)),
    (12, 0.5, diverse(6, 2, 0.7, alpha=0.6, stop="bound")),
    (12, 0.5, diverse(5, 0, 0.3)),  # as many groups as hypotheses
    (1100, 5.0, diverse(4, 2, 2.0)),
  ],
)
def test_against_loops(vocabulary, end, decode):
  params = drawn(vocabulary, end)
  texts = []
  for row, result in enumerate(found_by(params, decode)):
    expected = groups_by_loops(params, SOURCES[row], int(LIMITS[row]), decode)
    assert [one[0] for one in result] == [one.tokens for one in expected]
    np.testing.assert_allclose(
      [one[1:] for one in result],
      [(one.log_p, one.score) for one in expected],
      rtol=1e-5,
      atol=1e-5,
    )
    texts.append(len({one[0] for one in result}))
  assert max(texts) == decode.beam


@pytest.mark.parametrize("beam", [1, 3])
def test_one_group_is_a_beam(beam):
  params, decode = drawn(12, 0.5), diverse(beam, 1, 5.0, alpha=0.6)
  for row, result in enumerate(found_by(params, decode)):
    expected = search_by_loops(params, SOURCES[row], int(LIMITS[row]), decode)
    assert [one[0] for one in result] == [one.tokens for one in expected]


def test_the_first_group_is_a_beam_and_strength_makes_others_differ():
  params = drawn(12, 0.5)
  differing = []
  for strength in (0.0, 0.5, 4.0):
    result = found_by(params, diverse(6, 3, strength))
    first = [
      search_by_loops(params, ids, int(limit), by(2))[0].tokens
      for ids, limit in zip(SOURCES, LIMITS)
    ]
    assert [row[0][0] for row in result] == first
    differing.append(sum(len({one[0] for one in row[:3]}) for row in result))
  assert differing[0] == len(SOURCES) < differing[1] < differing[2]


def test_groups_divide_the_beam():
  decode = diverse(6, 4, 1.0)
  with pytest.raises(
    InputError, match=r"config\.decode\.diverse\.groups=4 must divide .*beam=6"
  ):
    decode.search.check(ConfigPath("config", "decode"), decode)
