"""Decoding step by step equals the parallel pass, for all kinds of decoders."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import (
  BATCH,
  PAIRS,
  combined_systems,
  logits,
  parameters,
  plan_of,
  real,
)
from numpy.testing import assert_allclose

from jaxsyn.models.contract import sentence_features, shift_right

ROWS, STEPS = BATCH["target_id_BT"].shape


def decoding(plan, params):
  """The encoded batch, and functions that call methods of the model."""

  def call(method, *arguments):
    return plan.recipe.model.apply(
      {"params": params}, *arguments, method=method
    )

  def encode(batch):
    source = sentence_features(batch, "source")
    encoded = call("encode", batch["source_id_BS"], source)
    return call("project_memory", encoded)

  advance = jax.jit(lambda *arguments: call("advance", *arguments))
  return jax.jit(encode)(BATCH), advance, call


def decoder_of(name):
  spec = plan_of(name).spec
  return spec.architecture, spec.modifiers.decoder, spec.modifiers.cross


# One model for each combination of modifiers in decoders, and of windows.
DECODERS = {decoder_of(name): name for name in combined_systems()[::-1]}


@pytest.mark.parametrize(
  "system, options",
  [
    ("transformer", {"norm": "post"}),
    ("transformer", {"attention": "fused"}),
    *((s, {}) for s in DECODERS.values()),
  ],
)
def test_decoding_steps_equal_the_parallel_pass(system, options):
  plan = plan_of(system, **options)
  params = parameters(plan, BATCH)
  encoded, advance, call = decoding(plan, params)
  input_BT = shift_right(BATCH["target_id_BT"])
  cache, steps = call("start", encoded, 1, STEPS), []
  for at in range(STEPS):
    logits_B1V, cache = advance(
      encoded, cache, input_BT[:, at : at + 1], jnp.array(at)
    )
    steps.append(logits_B1V[:, 0])
  stepwise, parallel = np.stack(steps, 1), logits(plan, params, BATCH)
  for row, pair in enumerate(PAIRS):
    assert_allclose(
      real(pair, stepwise, row), real(pair, parallel, row), atol=2e-5
    )


@pytest.mark.parametrize(
  "system", ["dependency_relative_both", "gru_double_flexible"]
)
def test_reordered_beams_keep_their_history(system):
  """Two beams are swapped after every step."""
  plan = plan_of(system)
  params = parameters(plan, BATCH)
  encoded, advance, call = decoding(plan, params)
  rng = np.random.default_rng(0)
  targets = rng.integers(4, 20, (2, ROWS, STEPS))  # two per sentence
  swap_BN = jnp.tile(jnp.array([1, 0]), (ROWS, 1))
  cache, steps, beams = call("start", encoded, 2, STEPS), [], targets
  last_BN = jnp.full((ROWS, 2), 2)  # BOS
  for at in range(STEPS):
    logits_BNV, cache = advance(encoded, cache, last_BN, jnp.array(at))
    steps.append(logits_BNV if at % 2 == 0 else logits_BNV[:, ::-1])
    cache = call("reorder", cache, swap_BN)
    beams = beams[::-1]
    last_BN = jnp.stack([beams[0][:, at], beams[1][:, at]], 1)
  for n, target in enumerate(targets):
    forced = dict(BATCH, target_id_BT=jnp.asarray(target))
    assert_allclose(
      np.stack([f[:, n] for f in steps], 1),
      logits(plan, params, forced),
      atol=2e-5,
    )
