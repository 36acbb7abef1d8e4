"""The training step: equal on several devices, and its noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, plan_of, sentence

from jaxsyn.models.layers import Dropout, keep_mask
from jaxsyn.training.mesh import Layout, make_mesh
from jaxsyn.training.options import Mesh
from jaxsyn.training.step import evaluate_step, first_state, train_step

PAIRS = [sentence(3 + i % 5, 4 + i % 3, i) for i in range(16)]
BATCH = {k: np.asarray(v) for k, v in batch_of(PAIRS).items()}
ONE = Mesh(fsdp=1, tensor=1)
STEPS = 10  # after which devices still agree


def start(recipe):
  """Returns the initial state, made by one program as in training."""
  return jax.jit(functools.partial(first_state, recipe, seed=0))(BATCH)


def run(recipe, layout):
  """Returns the number of the last step, and the losses of all steps."""
  state, placed = layout.place_state(start(recipe)), layout.place_batch(BATCH)
  step = functools.partial(train_step, recipe=recipe)
  program, losses = layout.compile_train(step, state, placed), []
  for _ in range(STEPS):
    state, metrics = program(state, placed)
    losses.append(loss(jax.device_get(metrics)))
  return int(state.step), losses


def loss(metrics):
  total, count = metrics["terms"]["nll"]
  return total / count


@pytest.mark.usefixtures("eight_devices")
def test_eight_devices_equal_one():
  """Noise does not depend on the devices."""
  recipe = plan_of("pascal_ignoring", encoder_layers=1, dropout=0.3).recipe
  _, expected = run(recipe, Layout("jit", ONE, jax.devices()[:1]))
  layout = Layout("jit", Mesh(fsdp=2, tensor=2))
  assert layout.mesh.size == 8
  last, losses = run(recipe, layout)
  assert losses == pytest.approx(expected, rel=1e-5)
  assert last == STEPS


def test_training_noise_depends_on_the_step():
  recipe = plan_of("pascal_ignoring").recipe  # parent ignoring is on
  step = jax.jit(functools.partial(train_step, recipe=recipe))
  state = start(recipe)
  first, again, later = (
    loss(step(state.replace(step=jnp.array(index)), BATCH)[1])
    for index in (0, 0, 1)
  )
  assert first == again != later


def test_sums_do_not_depend_on_batches_and_padding():
  recipe = plan_of("pascal_ignoring").recipe
  params = start(recipe).params
  evaluate = jax.jit(functools.partial(evaluate_step, recipe=recipe))
  complete = evaluate(params, batch_of(PAIRS, extra=2))
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
  # Neighbors along both axes are independent too.
  for axis in (0, 1):
    same = np.diff(masks[0].astype(int), axis=axis) == 0
    assert abs(same.mean() - 0.58) < 0.01
  # No row or column is treated specially (five deviations of 1,000 draws).
  assert np.abs(masks[0].mean(1) - 0.7).max() < 0.0725
  # Dropout keeps the mean.
  x, rngs = jnp.ones((64, 1000)), {"dropout": jax.random.key(0)}
  result = Dropout(0.25).apply({}, x, train=True, rngs=rngs)
  assert set(np.unique(result)) == {0.0, np.float32(1 / 0.75)}
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
