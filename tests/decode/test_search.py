"""Searches, compared with exhaustive enumeration and forced decoding."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  batch_of,
  logits,
  parameters,
  plan_of,
  sentence,
  shape_of,
)
from tables_under_test import decode_options, request_of, run_search

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import NEG_INF, continuations
from jaxsyn.training.losses import token_log_probability

PAIRS = [
  sentence(5, 6, 1),
  sentence(2, 4, 2, bare=16),
  sentence(7, 5, 3),
]


# One of each architecture; the cache of the second has more than its state.
@pytest.fixture(scope="module", params=["pascal", "gru_double_flexible"])
def model(request):
  plan = plan_of(request.param)
  return plan, parameters(plan, batch_of(PAIRS))


@functools.partial(jax.jit, static_argnames=("model", "decode", "length"))
def search_batch(params, batch, *, model, decode, length):
  request = request_of([length] * len(batch["source_id_BS"]))
  return run_search(model, params, batch, request, decode=decode, length=length)


def find(plan, params, batch, decode, length):
  """Returns hypotheses of at most `length` subwords."""
  model = plan.recipe.model
  result = search_batch(
    params, batch, model=model, decode=decode, length=length
  )
  return jax.device_get(result)


def test_a_wide_beam_finds_the_best_of_all_outputs(model):
  plan, params = model
  # A vocabulary of 6: PAD, UNK, BOS, EOS and two more; outputs of up to 3
  # subwords. Allowed before the end are UNK, 4 and 5: 1 + 3 + 9 outputs.
  sliced = {"target_table", "output_bias"}
  small = jax.tree_util.tree_map_with_path(
    lambda path, x: x[:6] if path[0].key in sliced else x, params
  )
  batch = batch_of(PAIRS)
  batch["source_id_BS"] = jnp.minimum(batch["source_id_BS"], 5)
  spec = dataclasses.replace(
    plan.spec, source_vocabulary=6, target_vocabulary=6
  )
  recipe = plan.recipe.replace(model=type(plan.recipe.model)(spec))
  plan = dataclasses.replace(plan, spec=spec, recipe=recipe)
  decode = decode_options(16, alpha=0.7, stop="bound")
  result = find(plan, small, batch, decode, length=3)
  outputs = [
    (*middle, EOS)
    for size in (0, 1, 2)
    for middle in itertools.product((1, 4, 5), repeat=size)
  ]
  log_p = []
  for output in outputs:
    token_BT = np.zeros((3, 3), np.int32)
    token_BT[:, : len(output)] = output
    given = {k: v for k, v in batch.items() if k.startswith("source")}
    given["target_id_BT"] = jnp.asarray(token_BT)
    log_p_BT = token_log_probability(logits(plan, small, given), token_BT)
    log_p.append(np.asarray(log_p_BT * (token_BT != PAD)).sum(1))
  log_p_BO = np.stack(log_p, axis=1)
  score_BO = log_p_BO / np.array([len(output) for output in outputs]) ** 0.7
  for row in range(3):
    order = np.argsort(-score_BO[row])
    for name, expected_O in (
      ("score", score_BO[row]),
      ("log_p", log_p_BO[row]),
    ):
      found_N = getattr(result, f"{name}_BN")[row]
      np.testing.assert_allclose(found_N[:13], expected_O[order], atol=1e-5)
    best = result.token_BNT[row, 0]
    assert tuple(best[best != PAD]) == outputs[order[0]]
    assert (result.score_BN[row, 13:] <= NEG_INF / 2).all()


def test_a_sentence_is_translated_equally_alone_and_in_a_batch(model):
  find_by = functools.partial(find, *model)
  batch, decode = batch_of(PAIRS, extra=4), decode_options(3)
  combined = find_by(batch, decode, length=12)
  shape = dataclasses.replace(shape_of(PAIRS), rows=1)
  for row, pair in enumerate(PAIRS):
    single = find_by(batch_of([pair], shape=shape), decode, length=12)
    np.testing.assert_array_equal(combined.token_BNT[row], single.token_BNT[0])
    np.testing.assert_allclose(
      combined.score_BN[row], single.score_BN[0], atol=1e-4
    )
  padding = {k: v.at[1].set(0) if v.ndim else v for k, v in batch.items()}
  result = find_by(padding, decode, length=12)
  assert (result.token_BNT[1] == PAD).all()
  assert (result.score_BN[1] <= NEG_INF / 2).all()
  np.testing.assert_array_equal(result.token_BNT[0], combined.token_BNT[0])


@pytest.mark.parametrize("size, count", [(5, 20), (40, 9), (3001, 9)])
def test_continuations_are_the_best_of_all(size, count):
  rng = np.random.default_rng(size)
  # Logits in steps of a quarter, without rounding: the largest is rare, and many
  # others are equal.
  logits_BNV = np.round(4 * rng.normal(0, 1.5, (4, 3, size))) / 4
  log_p_BN = -rng.integers(0, 40, (4, 3)) / 4
  log_p_BN[1, 1:] = NEG_INF  # only one hypothesis
  last_B = np.array([False, False, True, False])
  lse_BN = np.log(np.exp(logits_BNV).sum(-1))
  result = continuations(
    *(jnp.asarray(x, jnp.float32) for x in (logits_BNV, lse_BN, log_p_BN)),
    jnp.asarray(last_B),
    count,
  )
  assert [x.shape for x in result] == [(4, count)] * 3
  for row, (log_p, beam, token) in enumerate(zip(*map(np.asarray, result))):
    candidates = [
      (log_p_BN[row, n] + logits_BNV[row, n, v] - lse_BN[row, n], n, v)
      for n in range(3)
      for v in ([EOS] if last_B[row] else range(size))
      if v not in (PAD, BOS) and log_p_BN[row, n] > NEG_INF / 2
    ]
    # Ties go to the earlier hypothesis, then to the lower subword.
    best = sorted(candidates, key=lambda one: (-round(one[0], 5), *one[1:]))
    best = best[:count]
    found = len(best)
    assert (log_p[found:] <= NEG_INF / 2).all()
    np.testing.assert_allclose(
      log_p[:found], [one[0] for one in best], atol=1e-5
    )
    assert [*zip(beam[:found], token[:found])] == [one[1:] for one in best]
