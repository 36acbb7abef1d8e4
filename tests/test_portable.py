"""Training steps and searches of all kinds of systems lower for GPUs and TPUs.

The tests stop at the input of XLA; test_compiled_programs.py compiles some.
"""

import functools

import jax
import numpy as np
import optax
import pytest
from models_under_test import batch_of, plan_of, sentence, windows_of
from tables_under_test import decode_options, request_of, run_search

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.training.step import first_state, train_step

BATCH = batch_of([sentence(5, 6, 1), sentence(2, 6, 2)])
PLATFORMS = ("cuda", "tpu")


def programs(plan):
  """Returns keys that are equal for similar training steps, and for similar searches.

  Systems with the same kinds of modifiers and losses differ in options only.
  """
  architecture = plan.spec.architecture
  # Of two windows in one decoder, the last differs from other systems.
  kinds = [type(architecture), *map(type, [*windows_of(plan).values()][-1:])]
  modifiers = plan.spec.modifiers
  stacks = [
    tuple(type(spec) for _, spec in modifiers.modifiers_in(stack))
    for stack in ("encoder", "decoder", "cross")
  ]
  return (*kinds, *stacks, *sorted(plan.recipe.losses)), (*kinds, *stacks[1:])


# One system for each key.
STEPS: dict[object, str] = {}
SEARCHES: dict[object, str] = {}
for _name in SYSTEMS:
  _step, _search = programs(plan_of(_name))
  STEPS.setdefault(_step, _name)
  SEARCHES.setdefault(_search, _name)


def assert_is_portable(function, *arguments):
  """Also raises if Python is called back, which JAX rejects for two platforms."""
  traced = jax.jit(function).trace(*arguments)
  assert "f64" not in traced.lower(lowering_platforms=PLATFORMS).as_text()


@functools.cache
def recipe_of(system):
  """The optimizer, which is the same for all, is in one program only."""
  recipe = plan_of(system).recipe
  first = system == next(iter(SYSTEMS))
  return recipe if first else recipe.replace(optimiser=optax.identity())


@functools.cache
def state_of(system):
  return jax.eval_shape(lambda: first_state(recipe_of(system), BATCH, 0))


@pytest.mark.parametrize("system", STEPS.values())
def test_training_step_is_portable(system):
  step = functools.partial(train_step, recipe=recipe_of(system))
  assert_is_portable(step, state_of(system), BATCH)


@pytest.mark.parametrize("system", SEARCHES.values())
def test_search_is_portable(system):
  model = plan_of(system).recipe.model
  decode = decode_options(2)

  def search(params, batch):
    request = request_of([8, 8])
    return run_search(model, params, batch, request, decode=decode, length=8)

  assert_is_portable(search, state_of(system).params, BATCH)


def test_detects_callbacks():
  def called(x):
    return jax.pure_callback(np.sin, x, x)

  with pytest.raises(NotImplementedError, match="callback"):
    assert_is_portable(called, np.float32(1))
