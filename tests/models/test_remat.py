"""Computing again in the backward pass saves memory and changes no number."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, config_of, sentence

from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.training.flops import product_flops
from jaxsyn.training.programs import model_flops
from jaxsyn.training.step import first_state, train_step

BATCH = batch_of([sentence(5, 6, 1), sentence(7, 8, 3), sentence(0, 2, 5)])


def recipe_of(remat, system="sync_attention+pascal_ignoring", **model):
  config = config_of(system, **model)
  train = dataclasses.replace(config.train, remat=remat)
  return resolve(dataclasses.replace(config, train=train), JOINT).recipe


def first_step(remat):
  """The parameters of the first step, what it logs, and its text."""
  rates = {"dropout": 0.3, "attention_dropout": 0.2}
  recipe = recipe_of(remat, encoder_layers=1, **rates)
  state = jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)
  step = jax.jit(functools.partial(train_step, recipe=recipe)).trace(
    state, BATCH
  )
  new, metrics = step.lower().compile()(state, BATCH)
  return (state.params, new.params, metrics), str(step.jaxpr)


def test_rematerialization_does_not_change_numbers():
  wanted, text = first_step("none")
  assert "remat" not in text
  for remat in ("attention", "layer"):
    got, text = first_step(remat)
    assert "remat" in text
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted)):
      np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_repeated_products_do_not_count_as_flops_of_the_model():
  counts, executed = {}, {}
  for remat in ("none", "attention", "layer"):
    recipe = recipe_of(remat)
    state = jax.eval_shape(
      functools.partial(first_state, recipe, seed=0), BATCH
    )
    counts[remat] = model_flops(recipe, state, BATCH)
    step = functools.partial(train_step, recipe=recipe)
    executed[remat] = product_flops(step, state, BATCH)
  assert counts == dict.fromkeys(counts, executed["none"])
  assert executed["none"] < executed["attention"] < executed["layer"]


def test_rejects_architectures_without_support():
  with pytest.raises(
    InputError,
    match=r"^config\.train\.remat='layer' is not for family 'gru'; take 'none'",
  ):
    recipe_of("layer", system="gru_global")
