"""What is frozen stays to the bit, keeps no state, and is said."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import JOINT, batch_of, config_of, sentence

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.training import frozen
from jaxsyn.training.array_checksums import arrays_by_name
from jaxsyn.training.step import first_state, train_step

BATCH = batch_of([sentence(5, 6, 1), sentence(2, 6, 2)])
PATTERNS = ("encoder_*", "*table/*")


def recipe_of(patterns, ema=0.0, **changes):
  config = base.get_config()
  config.optimiser.update(changes)
  tiny = config_of("transformer")
  train = dataclasses.replace(tiny.train, freeze=patterns, ema=ema)
  optimiser = read_config(config).optimiser
  return resolve(
    dataclasses.replace(tiny, train=train, optimiser=optimiser), JOINT
  ).recipe


def after(recipe, steps=3):
  first = first_state(recipe, BATCH, 0)
  step = jax.jit(lambda state: train_step(state, BATCH, recipe))
  state = first
  for _ in range(steps):
    state, metrics = step(state)
  return first, state, metrics


@pytest.mark.parametrize(
  ("rule", "accumulate"), [("adam", 2), ("muon", 1), ("adadelta", 1)]
)
def test_frozen_parameters_stay_and_others_move(rule, accumulate):
  recipe = recipe_of(
    PATTERNS,
    name=rule,
    learning_rate=0.01,
    schedule="constant",
    weight_decay=0.1,
    clip=1.0,
    accumulate=accumulate,
    ema=0.9,
  )
  first, last, _ = after(recipe, steps=4)
  before = arrays_by_name(first.params)
  for tree in (last.params, last.ema):
    for name, value in arrays_by_name(tree).items():
      same = np.array_equal(value, before[name])
      stays = name.startswith("encoder_") or "table/" in name
      # Without a bias's gradient, that of keys, an update is 0 too.
      assert same or not stays, name
      assert not same or stays or name.endswith("key/bias"), name


@pytest.mark.parametrize("rule", ["adam", "muon", "adadelta"])
def test_the_optimiser_keeps_nothing_for_the_frozen(rule):
  def size(patterns):
    recipe = recipe_of(patterns, name=rule, learning_rate=0.01)
    state = jax.eval_shape(lambda: first_state(recipe, BATCH, 0))
    params = arrays_by_name(state.params)
    free = {
      name: x
      for name, x in params.items()
      if not any(frozen._matches(p)(name) for p in patterns)
    }
    numbers = sum(x.size for x in free.values())
    return sum(x.size for x in jax.tree.leaves(state.opt)), numbers

  (saved, free), (all_kept, all_ids) = size(PATTERNS), size(())
  assert free < all_ids / 2
  # Of every number as much as without freezing, beside a few counters.
  ratio = {"adam": 2, "adadelta": 2, "muon": 2}[rule]
  assert saved <= ratio * free + 10
  assert saved < all_kept / 2


def test_all_of_one_kind_may_be_frozen():
  """Muon is left without a matrix."""
  recipe = recipe_of(
    ("*kernel",), name="muon", learning_rate=0.01, schedule="constant"
  )
  first, last, _ = after(recipe)
  before = arrays_by_name(first.params)
  moved = {
    name
    for name, value in arrays_by_name(last.params).items()
    if not np.array_equal(value, before[name])
  }
  assert moved and not any(name.endswith("kernel") for name in moved)


def test_the_gradient_that_is_clipped_is_that_of_the_others():
  """Adam's first moment is .1 · g / max(1, |g|), |g| of what is not frozen."""
  patterns = ("encoder_*", "*table/embedding")
  recipe = recipe_of(patterns, name="adam", learning_rate=0.01, clip=1e-3)
  _, state, metrics = after(recipe, steps=1)
  moments = [
    x
    for name, x in arrays_by_name(state.opt).items()
    if "/mu/" in name and x.ndim
  ]
  norm = np.sqrt(sum(float(jnp.sum(x**2)) for x in moments))
  np.testing.assert_allclose(norm, 0.1 * 1e-3, rtol=1e-4)
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
  with pytest.raises(InputError) as error:
    frozen.check(("encoder_*", "encodr_0/kernel"), params)
  assert str(error.value) == (
    "config.train.freeze: 'encodr_0/kernel' matches no parameter. Similar: "
    "encoder_0/kernel, decoder_0/kernel, encoder_0. Names start with "
    "decoder_0, encoder_0; * is any text."
  )
  with pytest.raises(InputError, match="nothing is left to train"):
    frozen.check(("*",), params)


def test_a_run_reports_frozen_parameters(tiny, tmp_path, capsys):
  from jaxsyn import train

  config = tiny("transformer")
  config.train.update(steps=1, selection="log_likelihood")
  config.batch.shapes = 1
  config.train.freeze = ("encdoer_*",)
  with pytest.raises(InputError, match="Similar: encoder"):
    train.run(config, tmp_path / "run")
  assert not (tmp_path / "run").exists()
  config.train.freeze = ("encoder_*",)
  train.run(config, tmp_path / "run")
  output = "".join(capsys.readouterr())
  assert "frozen: 34 of 63 parameters" in output
