"""Decoding step by step equals the parallel pass, for all ways of decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, logits, parameters, plan_of, sentence

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.models.contract import sentence_features, shift_right

PAIRS = [sentence(5, 6, 1), sentence(2, 6, 2, bare=9)]


def caller(plan, params):
  """Returns a function that calls a method of the model."""

  def call(method, *arguments):
    return plan.recipe.model.apply(
      {"params": params}, *arguments, method=method
    )

  return call


def encode(call, batch):
  """Encodes a batch for decoding."""
  source = sentence_features(batch, "source")
  encoded = call("encode", batch["source_id_BS"], source)
  return call("project_memory", encoded)


def decoder_of(spec):
  return spec.architecture, spec.modifiers.decoder, spec.modifiers.cross


# One system for each kind of decoder.
DECODERS = {decoder_of(plan_of(name).spec): name for name in reversed(SYSTEMS)}


@pytest.mark.parametrize(
  "system, options",
  [
    ("transformer", {"norm": "post"}),
    ("transformer", {"attention": "fused"}),
    *((s, {}) for s in DECODERS.values()),
  ],
)
def test_decoding_steps_equal_the_parallel_pass(system, options):
  plan, batch = plan_of(system, **options), batch_of(PAIRS)
  params = parameters(plan, batch)
  call = caller(plan, params)
  encoded = jax.jit(lambda batch: encode(call, batch))(batch)
  input_BT = shift_right(batch["target_id_BT"])
  cache = call("start", encoded, 1, 6)
  advance = jax.jit(lambda *arguments: call("advance", *arguments))
  steps = []
  for at in range(6):
    logits_B1V, cache = advance(
      encoded, cache, input_BT[:, at : at + 1], jnp.array(at)
    )
    steps.append(logits_B1V[:, 0])
  np.testing.assert_allclose(
    np.stack(steps, 1), logits(plan, params, batch), atol=2e-5
  )


@pytest.mark.parametrize(
  "system", ["pascal", "dependency_relative_both", "gru_double_flexible"]
)
def test_reordered_beams_keep_their_history(system):
  """Two beams are swapped after every step."""
  plan, batch = plan_of(system), batch_of(PAIRS)
  params = parameters(plan, batch)
  call = caller(plan, params)
  encoded = jax.jit(lambda batch: encode(call, batch))(batch)
  advance = jax.jit(lambda *arguments: call("advance", *arguments))
  rng = np.random.default_rng(0)
  first, second = rng.integers(4, 20, (2, 2, 6))  # two targets per sentence
  swap_BN = jnp.array([[1, 0], [1, 0]])
  cache, steps = call("start", encoded, 2, 7), []
  beams = [first, second]
  last_BN = jnp.full((2, 2), 2)  # BOS
  for at in range(6):
    logits_BNV, cache = advance(encoded, cache, last_BN, jnp.array(at))
    steps.append(logits_BNV if at % 2 == 0 else logits_BNV[:, ::-1])
    cache = call("reorder", cache, swap_BN)
    beams = beams[::-1]
    last_BN = jnp.stack([beams[0][:, at], beams[1][:, at]], 1)
  for n, target in enumerate((first, second)):
    forced = dict(batch, target_id_BT=jnp.asarray(target))
    np.testing.assert_allclose(
      np.stack([f[:, n] for f in steps], 1),
      logits(plan, params, forced),
      atol=2e-5,
    )
