"""Schedules and optimizers by hand, and their state in checkpoints."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, parameters, plan_of, sentence

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.training import optimizers
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress


def section(**fields):
  """Returns config.optimiser with changed fields."""
  config = base.get_config()
  config.optimiser.update(fields)
  return read_config(config).optimiser


def rate_of(config, width: int):
  return config.schedule.make(config.learning_rate, width)


def test_inverse_square_root_schedule():
  expected = dict(warmup=100, minimum=2e-4)
  rate = rate_of(section(learning_rate=1e-3, inverse_sqrt=expected), 128)
  assert rate(0) == pytest.approx(1e-7)
  assert rate(50) == pytest.approx(1e-7 + 0.5 * (1e-3 - 1e-7))
  assert rate(100) == pytest.approx(1e-3)
  assert rate(400) == pytest.approx(5e-4)  # √(100 / 400) = 1/2
  assert rate(10**6) == pytest.approx(2e-4)


def test_noam_schedule():
  expected = dict(warmup=4000)
  rate = rate_of(
    section(schedule="noam", learning_rate=2.0, noam=expected), 256
  )
  # Update 1: 2 · 256^-½ · 1 · 4000^-3/2; peak at 4000: 2/16 · 4000^-½.
  assert rate(0) == pytest.approx(2 / 16 * 4000**-1.5)
  assert rate(3999) == pytest.approx(2 / 16 * 4000**-0.5)
  assert rate(15999) == pytest.approx(2 / 16 * 16000**-0.5)


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
  return rule.update(grads, rule.init(params), params)


ADADELTA = dict(
  name="adadelta",
  learning_rate=1.0,
  schedule="constant",
  adadelta=dict(epsilon=1e-6),
)


def updates_of(config, *grads):
  """Returns the updates of one parameter for a sequence of gradients."""
  rule = optimizers.make(config, 128)
  params = {"w": jnp.zeros_like(jnp.asarray(grads[0]))}
  state, result = rule.init(params), []
  for grad in grads:
    update, state = rule.update({"w": jnp.asarray(grad)}, state, params)
    result.append(update["w"])
  return result


def test_adadelta_by_hand():
  # ρ = ½, ε = 1, gradients 4 and then √8; beside it one that is 0.
  # E[g²] = ½ · 16 = 8, RMS 3; E[Δ²] = 0, RMS 1:   Δ = -1/3 · 4 = -4/3.
  # E[g²] = ½ · 8 + ½ · 8 = 8, RMS 3; E[Δ²] = ½ · 16/9 = 8/9, RMS √17 / 3:
  # Δ = -√17 / 9 · √8.
  config = section(**ADADELTA | dict(adadelta=dict(rho=0.5, epsilon=1.0)))
  one, two = updates_of(config, [4.0, 0.0], [8**0.5, 0.0])
  np.testing.assert_allclose(one, [-4 / 3, 0.0], rtol=1e-6)
  np.testing.assert_allclose(two, [-(17**0.5) / 9 * 8**0.5, 0.0], rtol=1e-6)


def test_adadelta_against_a_loop_with_any_learning_rate():
  grads = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
  mean_g = mean_x = np.zeros(5)
  for grad, plain, half in zip(
    grads,
    updates_of(section(**ADADELTA), *grads),
    updates_of(section(**ADADELTA | dict(learning_rate=0.5)), *grads),
  ):
    mean_g = 0.95 * mean_g + 0.05 * np.float64(grad) ** 2
    edit = -np.sqrt(mean_x + 1e-6) / np.sqrt(mean_g + 1e-6) * grad
    mean_x = 0.95 * mean_x + 0.05 * edit**2
    np.testing.assert_allclose(plain, edit, rtol=2e-5)
    # The learning rate scales the update, not the running mean.
    np.testing.assert_allclose(half, edit / 2, rtol=2e-5)


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


def test_muon_makes_singular_values_equal():
  rng = np.random.default_rng(2)
  shapes = {
    "query": (16, 2, 4),  # DHK: 16 x 8
    "output": (2, 4, 16),  # HKD: 8 x 16, of the heads' outputs
    "inner": (16, 8),
  }
  params = {
    name: {"kernel": jnp.zeros(shape), "bias": jnp.zeros(shape[-1])}
    for name, shape in shapes.items()
  }
  tree = {"layer": params, "output": {"kernel": jnp.zeros((16, 5))}}
  grads = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), tree
  )
  config = section(name="muon", schedule="constant", learning_rate=1.0)
  update, _ = _first_update(config, tree, grads)
  for name, side in (("query", 0), ("output", -1), ("inner", 0)):
    sizes = (16, 8) if side == 0 else (8, 16)
    u, _, v = np.linalg.svd(
      grads["layer"][name]["kernel"].reshape(sizes), full_matrices=False
    )
    matrix = update["layer"][name]["kernel"].reshape(sizes)
    # -lr · .2 · √16 · u s v with each s near 1: the iteration ends in a band.
    scale_DD = -u.T @ matrix @ v.T / (0.2 * 16**0.5)
    np.testing.assert_allclose(scale_DD, np.eye(8), atol=0.35)
  # All else uses Adam, also an output projection to the vocabulary.
  plain, _ = _first_update(
    section(schedule="constant", learning_rate=1.0), tree, grads
  )
  for item, adam in (
    (update["output"]["kernel"], plain["output"]["kernel"]),
    (update["layer"]["inner"]["bias"], plain["layer"]["inner"]["bias"]),
  ):
    np.testing.assert_array_equal(item, adam)


@pytest.mark.parametrize(
  "system", ["transformer", "gru_graph", "gru_double_sdr"]
)
def test_muon_orthogonalizes_input_by_output_matrices(system):
  plan = plan_of(system, width=8)  # the hidden size of the GRUs is 12
  batch = batch_of([sentence(5, 6, 1), sentence(3, 4, 2)])
  params = parameters(plan, batch)
  grads = parameters(plan, batch, seed=1)
  config = section(name="muon", schedule="constant", learning_rate=1.0)
  update, _ = _first_update(config, params, grads)
  outputs = {  # axes of a kernel of three axes that are not inputs
    "query": (1, 2),
    "key": (1, 2),
    "value": (1, 2),
    "input": (1, 2),
    "recurrent": (1, 2),
    "output": (2,),
    "surroundings": (2,),  # a convolution: offset, input, output
  }
  for path, kernel in jax.tree.leaves_with_path(grads):
    if path[-1].key != "kernel" or path[0].key == "output":
      continue
    module = path[-2].key
    size = math.prod(
      kernel.shape[axis]
      for axis in (outputs[module] if kernel.ndim == 3 else (1,))
    )
    matrix = np.reshape(kernel, (-1, size))
    new = np.reshape(
      functools.reduce(lambda x, k: x[k.key], path, update), matrix.shape
    )
    wanted = -0.2 * max(matrix.shape) ** 0.5 * orthogonalized(matrix)
    np.testing.assert_allclose(
      new, wanted, atol=2e-3, err_msg=jax.tree_util.keystr(path)
    )


def orthogonalized(matrix):
  """Returns five Newton-Schulz iterations with the coefficients of Jordan et al."""
  x = np.asarray(matrix, np.float64)
  x = x / np.linalg.norm(x)
  for _ in range(5):
    a = x @ x.T
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
  return x


@pytest.mark.parametrize("name", optimizers.OPTIMIZERS)
def test_every_optimizer_resumes_exactly(tmp_path, name):
  config = section(
    name=name,
    learning_rate=1.0,
    clip=1.0,
    inverse_sqrt=dict(warmup=2),
  )
  rule = optimizers.make(config, 128)
  grads = np.random.default_rng(1).normal(size=(6, 3, 2)).astype(np.float32)

  @jax.jit
  def step(state, grad):
    grads = {"kernel": grad, "embedding": grad}
    update, opt = rule.update(grads, state["opt"], state["params"])
    return {
      "params": jax.tree.map(jnp.add, state["params"], update),
      "opt": opt,
    }

  params = {"kernel": jnp.ones((3, 2)), "embedding": jnp.ones((3, 2))}
  state = {"params": params, "opt": rule.init(params)}
  abstract = jax.eval_shape(lambda: state)
  for index, grad in enumerate(grads):
    if index == 3:
      checkpoints = CheckpointWriter(tmp_path, keep=1)
      checkpoints.save(3, state, Progress())
      checkpoints.wait()
      _, restored, _ = checkpoints.restore(abstract)
      checkpoints.close()
    state = step(state, grad)
    if index >= 3:
      restored = step(restored, grad)
  for name, before in params.items():
    assert not np.array_equal(state["params"][name], before)
  jax.tree.map(np.testing.assert_array_equal, restored, state)
