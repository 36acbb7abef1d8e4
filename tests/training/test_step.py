"""The training step: equal on several devices, and its noise."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.models.layers import Dropout, keep_mask
from jaxsyn.training import optimizers
from jaxsyn.training.mesh import Layout, make_mesh
from jaxsyn.training.options import Mesh
from jaxsyn.training.step import evaluate_step, first_state, train_step

BATCH = {
  k: np.asarray(v)
  for k, v in batch_of(
    [sentence(3 + i % 5, 4 + i % 3, i) for i in range(16)]
  ).items()
}
ONE = Mesh(fsdp=1, tensor=1)
STEPS = 10  # after which devices still agree


def recipe_of(**changes):
  plan = plan_of("pascal_ignoring")
  return plan.recipe.replace(**changes)


def start(recipe):
  """Returns the initial state, made by one program as in training."""
  return jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)


def run(recipe, steps=3, layout=None, batches=(BATCH,)):
  """Returns the state after some steps, and the metrics of each."""
  layout = layout or Layout("jit", ONE)
  state = layout.place_state(start(recipe))
  step = functools.partial(train_step, recipe=recipe)
  collected = []
  for index in range(steps):
    placed = layout.place_batch(batches[index % len(batches)])
    state, metrics = layout.compile_train(step, state, placed)(state, placed)
    collected.append(jax.device_get(metrics))
  return jax.device_get(layout.take_state(state)), collected


def loss(metrics):
  total, count = metrics["terms"]["nll"]
  return np.ravel(total)[0] / np.ravel(count)[0]


# Dropout rates of all architectures.
NOISE = {
  **dict.fromkeys(("dropout", "dropout_embedding", "dropout_hidden"), 0.3),
}


def recipe_with_noise(system):
  plan = plan_of(system)
  family = plan.spec.architecture
  noise = {name: rate for name, rate in NOISE.items() if hasattr(family, name)}
  noisy = dataclasses.replace(family, **noise)
  model = dataclasses.replace(plan.spec.model, family=noisy)
  spec = dataclasses.replace(plan.spec, model=model)
  return plan.recipe.replace(model=type(plan.recipe.model)(spec))


def recipe_by_muon():
  config = base.get_config()
  base.small_corpus(config)
  rule = optimizers.make(read_config(config).optimiser, width=16)
  return plan_of("pascal").recipe.replace(optimiser=rule)


RECIPES = {
  "pascal with noise": lambda: recipe_with_noise("pascal_ignoring"),
  "muon": recipe_by_muon,
}


@functools.cache
def losses_on_one_device(name):
  recipe = RECIPES[name]()
  step = jax.jit(functools.partial(train_step, recipe=recipe))
  state, result = start(recipe), []
  for _ in range(STEPS):
    state, metrics = step(state, BATCH)
    result.append(float(loss(metrics)))
  return result


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize(
  "name, parallelism, mesh",
  [
    ("pascal with noise", "jit", Mesh(fsdp=2, tensor=2)),
    # Without noise, since pmap draws other noise on each device.
    ("muon", "pmap", Mesh(fsdp=1, tensor=1)),
  ],
)
def test_eight_devices_equal_one(name, parallelism, mesh):
  layout = Layout(parallelism, mesh)
  assert layout.mesh.size == 8
  state, result = run(RECIPES[name](), STEPS, layout)
  expected = losses_on_one_device(name)
  assert [loss(m) for m in result] == pytest.approx(expected, rel=1e-5)
  assert int(state.step) == STEPS


def test_training_noise_depends_on_the_step():
  recipe = recipe_of()  # parent ignoring is on
  step = jax.jit(functools.partial(train_step, recipe=recipe))
  state = start(recipe)
  first, again, later = (
    loss(step(state.replace(step=jnp.array(index)), BATCH)[1])
    for index in (0, 0, 1)
  )
  assert first == again != later


def test_sums_do_not_depend_on_batches():
  recipe = recipe_of()
  params = start(recipe).params
  evaluate = jax.jit(functools.partial(evaluate_step, recipe=recipe))
  complete = evaluate(params, BATCH)
  parts = [
    evaluate(params, {k: v[i : i + 4] for k, v in BATCH.items()})
    for i in range(0, 16, 4)
  ]
  assert {*complete} == {"terms", "shares", "log_p"}
  total = jax.tree.map(lambda *shares: sum(map(float, shares)), *parts)
  for one, other in zip(jax.tree.leaves(total), jax.tree.leaves(complete)):
    assert one == pytest.approx(float(other), rel=1e-5)


def test_dropout_masks_are_independent():
  masks = [
    np.asarray(keep_mask(jax.random.key(k), 0.3, (64, 1000))) for k in (0, 1)
  ]
  # 64,000 draws: five standard deviations are 0.009.
  assert abs(masks[0].mean() - 0.7) < 0.009
  # Two independent masks agree in 0.7² + 0.3² = 58 % of places.
  assert abs((masks[0] == masks[1]).mean() - 0.58) < 0.01
  # Neighbours along both axes are independent too.
  for a, b in (
    (masks[0][:, 1:], masks[0][:, :-1]),
    (masks[0][1:], masks[0][:-1]),
  ):
    assert abs((a == b).mean() - 0.58) < 0.01
  # No row or column is treated specially (five deviations of 1,000 draws).
  assert np.abs(masks[0].mean(1) - 0.7).max() < 0.0725


def test_dropout_keeps_the_mean():
  x = jnp.ones((64, 1000))
  out = Dropout(0.25).apply(
    {}, x, train=True, rngs={"dropout": jax.random.key(0)}
  )
  assert set(np.unique(out)) == {0.0, np.float32(1 / 0.75)}
  assert abs(float(out.mean()) - 1.0) < 0.012
  same = Dropout(0.25).apply({}, x, train=False)
  np.testing.assert_array_equal(same, x)


@pytest.mark.usefixtures("eight_devices")
def test_rejects_a_mesh_that_does_not_fit():
  with pytest.raises(ValueError, match="does not divide the 8 devices"):
    make_mesh(Mesh(fsdp=3, tensor=1))
  with pytest.raises(ValueError, match="at most one may be -1"):
    make_mesh(Mesh(fsdp=-1, tensor=-1))
  with pytest.raises(ValueError, match="pmap"):
    Layout("pmap", Mesh(fsdp=2, tensor=1))
