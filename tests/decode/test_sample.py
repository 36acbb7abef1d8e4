"""Samples, compared with loops in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables_under_test import (
  TableStates,
  decode_options,
  random_params,
  search_tables,
)

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.sample import Sample
from jaxsyn.decode.search import DecodeRequest

SOURCES = [[7, 5, 3], [9, 3], [6, 6, 6, 3]]


def sample(params, sources, indices, limit, nbest, **options):
  """Returns the samples of each sentence, in their order."""
  decode = decode_options(
    1, nbest=nbest, alpha=0.6, search="sample", sample=options
  )
  request = DecodeRequest(
    jnp.full(len(sources), limit), jnp.asarray([*indices], jnp.int32)
  )
  samples = search_tables(params, sources, request, decode, length=limit)
  assert {len(row) for row in samples} == {nbest}
  return samples


def truncated(log_p, temperature=1.0, top_k=0, top_p=1.0, epsilon=0.0):
  """Returns {subword: probability} of the distribution that is sampled from."""
  p = {
    token: np.exp(value / temperature)
    for token, value in enumerate(log_p)
    if token not in (PAD, BOS)
  }

  def normalized(p):
    return {token: value / sum(p.values()) for token, value in p.items()}

  p, best = normalized(p), sorted(p, key=lambda token: -p[token])
  if top_k:
    p = normalized({token: p[token] for token in best[:top_k]})
  if top_p < 1:
    nucleus, total = [], 0.0
    for token in best:
      if token in p and total < top_p:
        nucleus.append(token)
        total += p[token]
    p = normalized({token: p[token] for token in nucleus})
  likely = {token: value for token, value in p.items() if value >= epsilon}
  return normalized(likely or {best[0]: 1.0})


OPTIONS = [
  {},
  {"temperature": 0.6, "top_k": 2},
  {"top_p": 0.7},
  {"epsilon": 0.2},
  {"temperature": 1.7, "top_k": 4, "top_p": 0.8, "epsilon": 0.1},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_samples_equal_those_of_loops_with_the_same_noise(options):
  params, limit, indices = random_params(12, 0.5), 7, [4, 0, 70_000]
  result = sample(params, SOURCES, indices, limit, 5, seed=3, **options)
  lengths = set()
  for ids, index, samples in zip(SOURCES, indices, result):
    table = TableStates(params, ids)
    for n, one in enumerate(samples):
      past, total = (), 0.0
      while not past or past[-1] != EOS:
        key = jax.random.key(3, impl="threefry2x32")
        for number in (index, n, len(past)):
          key = jax.random.fold_in(key, number)
        noise = np.asarray(jax.random.gumbel(key, (12,)))
        log_p = table.log_p_after(past)
        p = truncated(log_p, **options)
        best = max(p, key=lambda token: np.log(p[token]) + noise[token])
        new = EOS if len(past) == limit - 1 else best
        past, total = (*past, new), total + log_p[new]
      assert one.tokens == past
      assert one.log_p == pytest.approx(total, abs=1e-5)  # the model's
      assert one.score == pytest.approx(total / len(past) ** 0.6, abs=1e-5)
      lengths.add(len(past))
  assert len(lengths) > 2


def test_samples_depend_on_seed_index_and_number_only():
  params, limit = random_params(12, 0.5), 9
  combined = sample(params, SOURCES, [5, 6, 7], limit, 6)
  (single,) = sample(params, SOURCES[1:2], [6], limit, 6)
  assert single == combined[1]
  fewer = sample(params, SOURCES, [5, 6, 7], limit, 2)
  assert fewer == [samples[:2] for samples in combined]
  same_source = sample(params, SOURCES[:1] * 2, [5, 8], limit, 6)
  assert same_source[0] == combined[0] != same_source[1]
  assert sample(params, SOURCES, [5, 6, 7], limit, 6, seed=1) != combined


def test_ties_at_the_border_are_included():
  # 2 ** -1, 2 ** -2, 2 ** -3, 2 ** -3 of subwords 4, 5, 1, 3; PAD, BOS at 2.
  log_p = np.log([0.9, 0.125, 0.9, 0.125, 0.5, 0.25])[None, None]

  def allowed(**options):
    result = Sample(**options).restrict(jnp.asarray(log_p, jnp.float32))
    return np.flatnonzero(np.asarray(result)[0, 0] > NEG_INF / 2).tolist()

  assert allowed() == [1, 3, 4, 5]
  assert allowed(top_k=3) == [1, 3, 4, 5] and allowed(top_k=2) == [4, 5]
  assert allowed(top_p=0.5) == [4] and allowed(top_p=0.51) == [4, 5]
  assert allowed(top_p=0.76) == [1, 3, 4, 5] and allowed(epsilon=0.9) == [4]
  assert allowed(top_k=100, epsilon=0.2) == [4, 5]
