"""Schedules and optimizers by hand, and their state in checkpoints."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, parameters, plan_of, sentence

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.training import optimizers


def section(**fields):
  """Returns config.optimiser with changed fields."""
  config = base.get_config()
  config.optimiser.update(fields)
  return read_config(config).optimiser


@pytest.mark.parametrize(
  "schedule, peak, options, rates",
  [
    # √(100 / 400) = 1/2
    (
      "inverse_sqrt",
      1e-3,
      {"warmup": 100, "minimum": 2e-4},
      {
        0: 1e-7,
        50: 1e-7 + 0.5 * (1e-3 - 1e-7),
        100: 1e-3,
        400: 5e-4,
        10**6: 2e-4,
      },
    ),
    # Update 1: 2 · 256^-½ · 1 · 4000^-3/2; peak at 4000: 2/16 · 4000^-½.
    (
      "noam",
      2.0,
      {"warmup": 4000, "minimum": 1e-4},
      {
        0: 2 / 16 * 4000**-1.5,
        3999: 2 / 16 * 4000**-0.5,
        15999: 2 / 16 * 16000**-0.5,
        10**7: 1e-4,
      },
    ),
    ("constant", 0.5, {}, {0: 0.5, 100: 0.5}),
  ],
)
def test_schedules_by_hand(schedule, peak, options, rates):
  options = {schedule: options} if options else {}
  config = section(schedule=schedule, learning_rate=peak, **options)
  rate = config.schedule.make(config.learning_rate, 256)
  for update, expected in rates.items():
    assert rate(update) == pytest.approx(expected), update


def test_adam_and_weight_decay():
  params = {"w": jnp.array([3.0, 4.0])}
  plain = section(schedule="constant", learning_rate=1.0)
  # Adam's first update is -lr · g / |g|, whatever the size of g.
  update, _ = _first_update(plain, params, {"w": jnp.array([30.0, -0.4])})
  np.testing.assert_allclose(update["w"], [-1.0, 1.0], rtol=1e-5)
  decayed = section(schedule="constant", learning_rate=0.1, weight_decay=0.5)
  update, _ = _first_update(decayed, params, {"w": jnp.array([1.0, 1.0])})
  # -0.1 · (1 + 0.5 · w)
  np.testing.assert_allclose(update["w"], [-0.25, -0.3], rtol=1e-5)


def _first_update(config, params, grads):
  rule = optimizers.make(config, 128)
  return jax.jit(rule.update)(grads, jax.jit(rule.init)(params), params)


ADADELTA = dict(
  name="adadelta",
  learning_rate=1.0,
  schedule="constant",
  adadelta=dict(epsilon=1e-6),
)


def test_adadelta_against_a_loop():
  """The learning rate scales the update, not the running mean."""
  config = section(**ADADELTA | dict(learning_rate=0.5))
  rule, params = optimizers.make(config, 128), {"w": jnp.zeros(5)}
  state, mean_g, mean_x = rule.init(params), np.zeros(5), np.zeros(5)
  grads = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
  for grad in grads:
    update, state = rule.update({"w": jnp.asarray(grad)}, state, params)
    mean_g = 0.95 * mean_g + 0.05 * np.float64(grad) ** 2
    expected = -np.sqrt(mean_x + 1e-6) / np.sqrt(mean_g + 1e-6) * grad
    mean_x = 0.95 * mean_x + 0.05 * expected**2
    np.testing.assert_allclose(update["w"], expected / 2, rtol=2e-5)


def test_clipping_by_the_global_norm_comes_first():
  # |(3, 4, 12)| = 13; clipped to 1 they are 13 times smaller.
  params = {"w": jnp.zeros(2), "b": jnp.zeros(1)}
  grads = {"w": jnp.array([3.0, 4.0]), "b": jnp.array([12.0])}
  config = section(**ADADELTA | dict(clip=1.0))
  update, _ = _first_update(config, params, grads)
  # -√1e-6 / √(.05 · (g/13)² + 1e-6) · g/13, for g = 3, 4 and 12:
  # √(.05 · 9/169 + 1e-6) = .05161126, .001 · .2307692 / .05161126 = .00447130.
  np.testing.assert_allclose(update["w"], [-4.471296e-3, -4.471664e-3], 1e-6)
  np.testing.assert_allclose(update["b"], [-4.472083e-3], 1e-6)
  small = jax.tree.map(lambda g: g / 26, grads)  # norm ½: not clipped
  update, _ = _first_update(config, params, small)
  plain, _ = _first_update(section(**ADADELTA), params, small)
  jax.tree.map(np.testing.assert_array_equal, update, plain)


@pytest.mark.parametrize("system", ["transformer", "gru_double_sdr"])
def test_muon_orthogonalizes_input_by_output_matrices(system):
  """Other parameters have the update of Adam."""
  # The hidden size of the GRUs is 12.
  plan = plan_of(system, width=8, tie_output=False)
  batch = batch_of([sentence(5, 6, 1), sentence(3, 4, 2)])
  params = parameters(plan, batch)
  grads = parameters(plan, batch, seed=1)
  options = {"schedule": "constant", "learning_rate": 1.0}
  update, adam = (
    _first_update(section(name=name, **options), params, grads)[0]
    for name in ("muon", "adam")
  )
  outputs = {  # axes of a kernel of three axes that are not inputs
    "query": (1, 2),
    "key": (1, 2),
    "value": (1, 2),
    "input": (1, 2),
    "recurrent": (1, 2),
    "output": (2,),
    "surroundings": (2,),  # a convolution: offset, input, output
  }
  for (path, gradient), new, plain in zip(
    jax.tree.leaves_with_path(grads), *map(jax.tree.leaves, (update, adam))
  ):
    name = jax.tree_util.keystr(path)
    if path[-1].key != "kernel" or path[0].key == "output":
      np.testing.assert_array_equal(new, plain, err_msg=name)
      continue
    axes = outputs[path[-2].key] if gradient.ndim == 3 else (1,)
    size = math.prod(gradient.shape[axis] for axis in axes)
    matrix = np.reshape(gradient, (-1, size))
    wanted = -0.2 * max(matrix.shape) ** 0.5 * orthogonalized(matrix)
    new = np.reshape(new, matrix.shape)
    np.testing.assert_allclose(new, wanted, atol=2e-3, err_msg=name)


def orthogonalized(matrix):
  """Returns five Newton-Schulz iterations with the coefficients of Jordan et al."""
  x = np.asarray(matrix, np.float64)
  x = x / np.linalg.norm(x)
  for _ in range(5):
    a = x @ x.T
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
  return x
