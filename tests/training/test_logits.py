"""Logits of some positions at a time give the same sums and gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from models_under_test import VOCABULARY, batch_of, plan_of, sentence

from jaxsyn.training.step import evaluate_step, first_state, train_step

PAIRS = [sentence(3, 7, 1), sentence(4, 4, 3), sentence(0, 2, 5)]
BATCH = batch_of(PAIRS) | {"weight_B": jnp.array([1.0, 0.5, 0.25])}
B, T = BATCH["target_id_BT"].shape
ROW = B * VOCABULARY  # logits of one position of each sentence


def compiled(logits, system="distilled_words"):
  """Returns a state, a step and an evaluation; the optimizer state is the gradient."""
  recipe = plan_of(system, encoder_layers=1, dropout=0.1).recipe.replace(
    logits=logits // jax.device_count(), optimiser=optax.trace(0.0)
  )
  state = jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)
  jit = functools.partial(functools.partial, recipe=recipe)
  return state, jax.jit(jit(train_step)), jax.jit(jit(evaluate_step))


@functools.cache
def sums_and_gradient(logits):
  state, step, evaluate = compiled(logits)
  new, metrics = step(state, BATCH)
  return (metrics["terms"], evaluate(state.params, BATCH)), new.opt.trace


# Positions at a time: 3 do not divide T, and 0 is at least one.
@pytest.mark.parametrize("positions", [3, 0])
def test_sums_and_gradients_equal_those_of_all_positions(positions):
  assert T % 3
  wanted_sums, wanted = sums_and_gradient(2**30)
  got_sums, got = sums_and_gradient(positions * ROW)
  difference = optax.tree.norm(jax.tree.map(np.subtract, got, wanted))
  assert difference < 1e-6 * optax.tree.norm(wanted)
  for one, other in zip(
    jax.tree.leaves(got_sums), jax.tree.leaves(wanted_sums)
  ):
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_no_array_of_all_logits_is_created():
  texts = []
  for logits in (2**30, 3 * ROW):
    state, step, _ = compiled(logits, "transformer")
    texts.append(step.lower(state, BATCH).as_text())
  everywhere = [f"<{B}x{T}x{VOCABULARY}xf32>" in text for text in texts]
  assert everywhere == [True, False]
