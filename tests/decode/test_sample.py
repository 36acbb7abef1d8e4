"""Samples against exact probabilities, and against loops that draw alike."""

import collections
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tables_under_test import (
  MORE,
  ROWS,
  STEP,
  Tables,
  by,
  drawn,
  searched,
)

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.sample import Sample
from jaxsyn.decode.search import DecodeRequest, Sources
from jaxsyn.syntax import SentenceFeatures

SOURCES = [[7, 5, 3], [9, 3], [6, 6, 6, 3]]


def sampled(params, sources, places, limit, nbest, **options):
  """(ids, log_p, score) of each sample of each sentence, as they are given."""
  id_BS = np.full((len(sources), max(map(len, sources))), PAD, np.int32)
  for row, ids in enumerate(sources):
    id_BS[row, : len(ids)] = ids
  decode = by(1, nbest=nbest, alpha=0.6, search="sample", sample=options)
  limit_B = jnp.full(len(sources), limit)
  place_B = jnp.asarray([*places], jnp.int32)

  def run(params, id_BS, place_B):
    view = SentenceFeatures(real_BS=id_BS != PAD)
    inputs = Sources(id_BS, view, DecodeRequest(limit_B, place_B))
    model = Tables(params["logits"].shape[1])
    return searched(model, params, inputs, decode=decode, length=limit)

  result = jax.device_get(jax.jit(run)(params, id_BS, place_B))
  assert (result.score_BN > NEG_INF / 2).all()
  return [
    [
      (tuple(tokens[tokens != PAD].tolist()), log_p, score)
      for tokens, log_p, score in zip(*row)
    ]
    for row in zip(result.token_BNT, result.log_p_BN, result.score_BN)
  ]


def log_p_of(params):
  """A function (source, past) -> log p of each subword, by loops."""
  logits = np.asarray(params["logits"], np.float64)
  log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))

  def of(ids, past):
    state = sum(i * place for place, i in enumerate(ids, start=1)) % 2**32
    for token in (BOS, *past):
      state = (state * STEP + token * MORE) % 2**32
    return log_p[state % ROWS]

  return of


def truncated(log_p, temperature=1.0, top_k=0, top_p=1.0, epsilon=0.0):
  """{subword: probability} of what a subword is drawn from."""
  p = {
    token: np.exp(value / temperature)
    for token, value in enumerate(log_p)
    if token not in (PAD, BOS)
  }

  def normal(p):
    return {token: value / sum(p.values()) for token, value in p.items()}

  p, best = normal(p), sorted(p, key=lambda token: -p[token])
  if top_k:
    p = normal({token: p[token] for token in best[:top_k]})
  if top_p < 1:
    nucleus, total = [], 0.0
    for token in best:
      if token in p and total < top_p:
        nucleus.append(token)
        total += p[token]
    p = normal({token: p[token] for token in nucleus})
  saved = {token: value for token, value in p.items() if value >= epsilon}
  return normal(saved or {best[0]: 1.0})


OPTIONS = [
  {},
  {"temperature": 0.6},
  {"top_k": 2},
  {"top_p": 0.7},
  {"epsilon": 0.2},
  {"temperature": 1.7, "top_k": 4, "top_p": 0.8, "epsilon": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_samples_are_as_frequent_as_they_are_probable(options):
  """All outputs of up to 3 subwords of 6, by a chi-square test."""
  params, limit, index = drawn(6, 0.7), 3, 40_000
  log_p = log_p_of(params)
  rows = sampled(params, SOURCES[:1] * 40, range(40), limit, 1000, **options)
  result = list(itertools.chain(*rows))
  counts = collections.Counter(ids for ids, *_ in result)
  for ids, value, score in set(result[:1000]):
    exact = sum(log_p(SOURCES[0], ids[:i])[ids[i]] for i in range(len(ids)))
    assert value == pytest.approx(exact, abs=1e-5)  # the model's own
    assert score == pytest.approx(exact / len(ids) ** 0.6, abs=1e-5)
  expected = {}
  for size in range(limit):
    for middle in itertools.product((1, 4, 5), repeat=size):
      ids, p = (*middle, EOS), 1.0
      for i, token in enumerate(ids):
        if i < limit - 1:  # in the last place EOS is, whatever
          p *= truncated(log_p(SOURCES[0], ids[:i]), **options).get(token, 0)
      expected[ids] = p * index
  assert sum(expected.values()) == pytest.approx(index)
  assert set(counts) <= {ids for ids, n in expected.items() if n}
  often = {ids: n for ids, n in expected.items() if n > 5}
  rest = index - sum(often.values())
  observed = [counts[ids] for ids in often]
  wanted = list(often.values())
  if rest > 1e-6:
    observed.append(index - sum(observed))
    wanted.append(rest)
  assert len(wanted) > 1 + (not options)
  assert stats.chisquare(observed, wanted).pvalue > 0.01


@pytest.mark.parametrize("options", OPTIONS)
def test_samples_are_those_of_loops_with_the_same_noise(options):
  params, limit = drawn(12, 0.5), 7
  log_p = log_p_of(params)
  result = sampled(params, SOURCES, [4, 0, 70_000], limit, 5, seed=3, **options)
  lengths = set()
  for ids, place, samples in zip(SOURCES, [4, 0, 70_000], result):
    for index, (tokens, *_) in enumerate(samples):
      past = ()
      while not past or past[-1] != EOS:
        key = jax.random.key(3, impl="threefry2x32")
        for one in (place, index, len(past)):
          key = jax.random.fold_in(key, one)
        noise = np.asarray(jax.random.gumbel(key, (12,)))
        p = truncated(log_p(ids, past), **options)
        best = max(p, key=lambda token: np.log(p[token]) + noise[token])
        past += (EOS if len(past) == limit - 1 else best,)
      assert tokens == past
      lengths.add(len(past))
  assert len(lengths) > 2


def test_samples_depend_on_seed_place_and_number_alone():
  params, limit = drawn(12, 0.5), 9
  combined = sampled(params, SOURCES, [5, 6, 7], limit, 6)
  for row in range(3):
    (single,) = sampled(params, SOURCES[row : row + 1], [5 + row], limit, 6)
    assert single == combined[row]
  small_set = sampled(params, SOURCES, [5, 6, 7], limit, 2)
  assert small_set == [samples[:2] for samples in combined]
  elsewhere = sampled(params, SOURCES[:1] * 2, [5, 8], limit, 6)
  assert elsewhere[0] == combined[0] != elsewhere[1]
  assert sampled(params, SOURCES, [5, 6, 7], limit, 6, seed=1) != combined


def test_all_that_are_equal_at_an_edge_are_drawn_from():
  # 2 ** -1, 2 ** -2, 2 ** -3, 2 ** -3 of subwords 4, 5, 1, 3; PAD, BOS at 2.
  log_p = np.log([0.9, 0.125, 0.9, 0.125, 0.5, 0.25])[None, None]

  def kept(**options):
    result = Sample(**options).restrict(jnp.asarray(log_p, jnp.float32))
    return np.flatnonzero(np.asarray(result)[0, 0] > NEG_INF / 2).tolist()

  assert kept() == [1, 3, 4, 5]
  assert kept(top_k=3) == [1, 3, 4, 5] and kept(top_k=2) == [4, 5]
  assert kept(top_p=0.5) == [4] and kept(top_p=0.51) == [4, 5]
  assert kept(top_p=0.76) == [1, 3, 4, 5] and kept(epsilon=0.9) == [4]
  assert kept(top_k=100, epsilon=0.2) == [4, 5]
