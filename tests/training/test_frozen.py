"""Frozen parameters do not change, and have no optimizer state."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, config_of, sentence

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.errors import InputError
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.plan import resolve
from jaxsyn.training import frozen
from jaxsyn.training.step import first_state, train_step

BATCH = batch_of([sentence(5, 6, 1), sentence(2, 6, 2)])
PATTERNS = ("encoder_*", "*table/*")


def is_frozen(name):
  """Returns whether PATTERNS match a name."""
  return name.startswith("encoder_") or "table/" in name


def recipe_of(patterns, ema=0.0, **changes):
  config = base.get_config()
  config.optimiser.update(changes)
  tiny = config_of("transformer")
  options = dataclasses.replace(tiny.train, freeze=patterns, ema=ema)
  optimiser = read_config(config).optimiser
  return resolve(
    dataclasses.replace(tiny, train=options, optimiser=optimiser), JOINT
  ).recipe


def after(recipe, steps):
  first = jax.jit(lambda: first_state(recipe, BATCH, 0))()
  step = jax.jit(lambda state: train_step(state, BATCH, recipe))
  state = first
  for _ in range(steps):
    state, metrics = step(state)
  return first, state, metrics


@pytest.mark.parametrize("rule, accumulate", [("adam", 2), ("muon", 1)])
def test_frozen_parameters_stay_without_optimizer_state(rule, accumulate):
  options = {"name": rule, "learning_rate": 0.01, "schedule": "constant"}
  options |= {"weight_decay": 0.1, "clip": 1.0, "accumulate": accumulate}
  recipe = recipe_of(PATTERNS, ema=0.9, **options)
  state = jax.eval_shape(lambda: first_state(recipe, BATCH, 0))
  sizes = {name: x.size for name, x in arrays_by_name(state.params).items()}
  free = sum(size for name, size in sizes.items() if not is_frozen(name))
  assert free < sum(sizes.values()) / 2
  # Two moments, and a few counters.
  assert sum(x.size for x in jax.tree.leaves(state.opt)) <= 2 * free + 10
  first, last, _ = after(recipe, steps=2 * accumulate)
  before = arrays_by_name(first.params)
  for tree in (last.params, last.ema):
    for name, value in arrays_by_name(tree).items():
      same = np.array_equal(value, before[name])
      # The biases of keys have no gradient.
      assert same == is_frozen(name) or name.endswith("key/bias"), name


@pytest.mark.parametrize("clip", [1e-3, 0.0])
def test_clipping_and_the_logged_norm_are_of_the_other_gradients(clip):
  """Adam's first moment is .1 · g after clipping."""
  patterns = ("encoder_*", "*table/embedding")
  recipe = recipe_of(patterns, name="adam", learning_rate=0.01, clip=clip)
  _, state, metrics = after(recipe, steps=1)
  moments = [
    x
    for name, x in arrays_by_name(state.opt).items()
    if "/mu/" in name and x.ndim
  ]
  norm = np.sqrt(sum(float(jnp.sum(x**2)) for x in moments))
  expected = clip or metrics["grad_norm"]
  np.testing.assert_allclose(norm, 0.1 * expected, rtol=1e-4)
  assert metrics["grad_norm"] > 1e-3


def test_reports_frozen_parameters():
  params = {
    "encoder_0": {"kernel": jnp.zeros((2, 3)), "bias": jnp.zeros(3)},
    "decoder_0": {"kernel": jnp.zeros((4, 5))},
  }
  assert frozen.check((), params) == ""
  assert frozen.check(("encoder_*",), params) == (
    "frozen: 2 of 3 parameters (9 of 29 numbers), encoder_0 (2)"
  )
  with pytest.raises(
    InputError, match=r"'encodr_0/kernel'.*with decoder_0, encoder_0;"
  ):
    frozen.check(("encoder_*", "encodr_0/kernel"), params)
  with pytest.raises(InputError, match="nothing is left to train"):
    frozen.check(("*",), params)


def test_a_run_rejects_patterns_without_parameters(tiny, tmp_path):
  config = tiny("transformer")
  config.train.freeze = ("encdoer_*",)
  with pytest.raises(InputError, match=r"start with .*, encoder_0,"):
    train.run(config, tmp_path / "run")
  assert not (tmp_path / "run").exists()
