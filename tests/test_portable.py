"""Every system's step and search are made for GPUs and TPUs too, in seconds.

The tests stop at the input of XLA; test_accelerator_programs.py compiles a few.
"""

import functools

import jax
import numpy as np
import optax
import pytest
from models_under_test import batch_of, plan_of, sentence
from tables_under_test import asked, by, searched

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.decode.search import Sources
from jaxsyn.models.contract import sentence_features
from jaxsyn.training.step import first_state, train_step

BATCH = batch_of([sentence(5, 6, 1), sentence(2, 6, 2)])
PLATFORMS = ("cuda", "tpu")


def programs(plan):
  """What is told apart in training, and in searching after it was read."""
  spec, losses = plan.spec, tuple(sorted(plan.recipe.losses.items()))
  return (spec, losses), (
    spec.architecture,
    spec.modifiers.decoder,
    spec.modifiers.cross,
  )


# Controls differ in their data alone; decoders are shared.
STEPS, SEARCHES = ({} for _ in range(2))
for _name in SYSTEMS:
  _step, _search = programs(plan_of(_name))
  STEPS.setdefault(_step, _name)
  SEARCHES.setdefault(_search, _name)


def assert_is_portable(function, *arguments):
  """Raises where Python is called back, too, which JAX refuses for several."""
  traced = jax.jit(function).trace(*arguments)
  assert "f64" not in traced.lower(lowering_platforms=PLATFORMS).as_text()


@functools.cache
def recipe_of(system):
  """The optimiser is the same for all: it is in one program alone."""
  recipe = plan_of(system).recipe
  first = system == next(iter(SYSTEMS))
  return recipe if first else recipe.replace(optimiser=optax.identity())


@functools.cache
def state_of(system):
  return jax.eval_shape(lambda: first_state(recipe_of(system), BATCH, 0))


@pytest.mark.parametrize("system", STEPS.values())
def test_a_step(system):
  step = functools.partial(train_step, recipe=recipe_of(system))
  assert_is_portable(step, state_of(system), BATCH)


@pytest.mark.parametrize("system", SEARCHES.values())
def test_a_search(system):
  model = plan_of(system).recipe.model
  limit_B = np.full(2, 8, np.int32)

  def search(params, batch):
    view = sentence_features(batch, "source")
    sources = Sources(batch["source_id_BS"], view, asked(limit_B))
    return searched(model, params, sources, decode=by(2), length=8)

  assert_is_portable(search, state_of(system).params, BATCH)


def test_what_is_not_portable_is_seen():
  def called(x):
    return jax.pure_callback(np.sin, x, x)

  with pytest.raises(NotImplementedError, match="callback"):
    assert_is_portable(called, np.float32(1))
  with jax.enable_x64(True), pytest.raises(AssertionError, match="f64"):
    assert_is_portable(jax.numpy.sin, np.float64(1))
