"""Sums and counts are added before they are divided.

This holds for the rows of a batch, the batches of an update, devices and log records.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from models_under_test import (
  JOINT,
  batch_of,
  config_of,
  parameters,
  plan_of,
  sentence,
  shape_of,
)

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import TrainBatch
from jaxsyn.errors import InputError
from jaxsyn.models.spec import Placement
from jaxsyn.plan import resolve
from jaxsyn.training.checkpoint_writer import Progress
from jaxsyn.training.logits import Logits
from jaxsyn.training.mesh import Layout
from jaxsyn.training.meter import Meter
from jaxsyn.training.options import Mesh
from jaxsyn.training.step import TrainState, outputs, train_step

# Sixteen pairs, long ones first; only the first eight, of which one has a
# single word, have trees.
PAIRS = [sentence(1 if i == 7 else 9 - i % 4, 8 - i % 3, i) for i in range(8)]
PAIRS += [sentence(2 + i % 3, 3 + i % 2, 8 + i) for i in range(8)]
TREES = np.arange(16) < 8
LARGER = batch_of(PAIRS, shape=dataclasses.replace(shape_of(PAIRS), rows=17))
BATCH = {k: np.asarray(v[:16]) for k, v in LARGER.items()}
PADDING = {k: np.asarray(v[16:]) for k, v in LARGER.items()}  # one row
BATCH |= {
  f"{side}_parsed_B": TREES.astype(np.uint8) for side in ("source", "target")
}
PADDING["weight_B"] = np.zeros(1, np.float32)
BATCH["weight_B"] = np.where(np.arange(16) % 5 == 3, 0.3, 1.0).astype("f4")


def rows(chosen, batch=BATCH):
  """Returns a batch in which all other rows are padding."""
  return {
    name: np.where(
      chosen.reshape(-1, *(1,) * (array.ndim - 1)), array, PADDING[name]
    )
    for name, array in batch.items()
  }


# Values without which modifiers have noise in training, by option.
NOISE_FREE = {"ignore": 0.0, "random_sparse": 0.0, "flip": False}


def noise_free(spec):
  """Returns a modifier without noise in training."""
  if getattr(spec, "kind", "laplacian") != "laplacian":
    return spec  # of tree positions, only these have noise
  options = {k: v for k, v in NOISE_FREE.items() if hasattr(spec, k)}
  return dataclasses.replace(spec, **options)


def quiet(config):
  """Returns a config whose modifiers have no noise in training."""
  stacks = {
    stack: tuple((name, noise_free(spec)) for name, spec in modifiers)
    for stack, modifiers in vars(config.parts).items()
  }
  return dataclasses.replace(config, parts=Placement(**stacks))


def plan_of_joint(systems):
  """Returns the plan of a model; deep context needs a second layer."""
  layers = 2 if "context_deep" in systems else 1
  return resolve(quiet(config_of(systems, encoder_layers=layers)), JOINT)


def joint_models():
  """Returns all systems, combined into few models to save compilation."""
  plans, joint = set(), []
  for name in SYSTEMS:
    plan = plan_of_joint(name)
    key = repr((plan.spec, plan.recipe.losses, plan.tag))
    if key in plans:
      continue
    plans.add(key)
    for index, rest in enumerate(joint):
      try:
        plan_of_joint(f"{rest}+{name}")
      except InputError:
        continue
      joint[index] += f"+{name}"
      break
    else:
      joint.append(name)
  return joint


def recipe_of(system, accumulate, clip=0.0):
  """Returns a recipe whose optimizer state is the gradient of the last update."""
  plan = plan_of_joint(system)
  rule = [optax.clip_by_global_norm(clip)] if clip else []
  return plan, plan.recipe.replace(
    optimiser=optax.chain(*rule, optax.trace(0.0)), accumulate=accumulate
  )


def state_of(plan, recipe):
  params = parameters(plan, BATCH)
  pending = {  # each its own arrays: they are donated
    name: (jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
    for name in recipe.losses
  }
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt=recipe.optimiser.init(params),
    key=jax.random.key_data(jax.random.key(0)),
    pending=pending if recipe.accumulate > 1 else None,
  )


def after(step, state, batches):
  """Returns the last update's gradient, the metrics of each batch, and the state."""
  metrics = []
  for batch in batches:
    state, result = step(state, batch)
    metrics.append(jax.device_get(result))
  return jax.device_get(state.opt[-1].trace), metrics, state


def apart(one, other):
  """Returns the difference of two gradients relative to the second."""
  difference = jax.tree.map(np.subtract, one, other)
  assert float(optax.tree.norm(other)) > 1e-3
  return float(optax.tree.norm(difference) / optax.tree.norm(other))


@pytest.mark.parametrize("systems", joint_models())
def test_two_accumulated_batches_equal_one_batch(systems):
  """All trees are in one of the two. All parameters have a gradient."""
  plan, recipe = recipe_of(systems, 2)
  step = jax.jit(functools.partial(train_step, recipe=recipe))
  state = state_of(plan, recipe)
  nobody = np.zeros(16, bool)
  small_set = np.arange(16) < 5
  complete, _, _ = after(step, state, [rows(~nobody), rows(nobody)])
  halves, _, _ = after(step, state, [rows(small_set), rows(~small_set)])
  assert apart(halves, complete) < 1e-6
  still = [
    jax.tree_util.keystr(path)
    for path, gradient in jax.tree_util.tree_leaves_with_path(complete)
    if not np.any(gradient)
  ]
  assert not still, "parameters without a gradient"


def test_the_objective_is_a_weighted_sum_of_mean_losses():
  plan, recipe = recipe_of("dbsa", 1)
  weights = dict(zip(recipe.losses, (0.7, 0.2, 3.0), strict=True))
  losses = {
    name: dataclasses.replace(loss, weight=weights[name])
    for name, loss in recipe.losses.items()
  }
  recipe = recipe.replace(losses=losses)

  def objective(params):
    state_BTD, maps = outputs(recipe, params, BATCH, train=False)
    logits_BTV = Logits(recipe.model, params, state_BTD, 2**30).all_BTV()
    total = 0.0
    for name, loss in losses.items():
      added, count = loss(logits_BTV, maps[name], BATCH)
      total += weights[name] * added / count
    return total

  state = state_of(plan, recipe)
  expected = jax.device_get(jax.jit(jax.grad(objective))(state.params))
  step = jax.jit(functools.partial(train_step, recipe=recipe))
  gradient, _, _ = after(step, state, [BATCH])
  assert apart(gradient, expected) < 1e-6


@functools.cache
def one_batch():
  """Returns step and state without accumulation, on one device."""
  plan, recipe = recipe_of("sync_attention", 1)
  step = jax.jit(functools.partial(train_step, recipe=recipe))
  return step, state_of(plan, recipe)


CLIP = 0.2


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("parallelism", ["jit", "pmap"])
def test_accumulation_on_eight_devices_equals_one_batch(parallelism):
  """Clipping and norm apply to the gradient of the update."""
  complete, (of_whole,), _ = after(*one_batch(), [BATCH])
  norm = float(of_whole["grad_norm"])
  assert norm == pytest.approx(float(optax.tree.norm(complete)), rel=1e-5)
  assert norm > CLIP
  clipped = jax.tree.map(lambda g: g * (CLIP / norm), complete)
  plan, recipe = recipe_of("sync_attention", 2, CLIP)
  layout = Layout(parallelism, Mesh(fsdp=1, tensor=1))
  assert layout.mesh.size == 8
  state = layout.place_state(state_of(plan, recipe))
  step = functools.partial(train_step, recipe=recipe)

  def place_and_step(state, batch):
    placed = layout.place_batch(batch)
    return layout.compile_train(step, state, placed)(state, placed)

  first = jax.device_get(state.params)
  halves = [{k: v[i : i + 8] for k, v in BATCH.items()} for i in (0, 8)]
  _, of_first, state = after(place_and_step, state, halves[:1])
  params = jax.device_get(state.params)
  jax.tree.map(np.testing.assert_array_equal, params, first)  # nothing yet
  _, of_second, state = after(place_and_step, state, halves[1:])
  state = jax.device_get(state)
  assert apart(state.opt[-1].trace, clipped) < 1e-6
  metrics = of_first + of_second
  assert metrics[1]["grad_norm"] == pytest.approx(norm, rel=1e-5)
  assert [bool(m["updated"]) for m in metrics] == [False, True]
  assert not any(np.any(x) for x in jax.tree.leaves(state.pending))
  for name, (total, count) in of_whole["terms"].items():
    of_halves = [m["terms"][name] for m in metrics]
    added = np.sum(of_halves, axis=0)
    np.testing.assert_allclose(added, [total, count], rtol=1e-5)
    assert (of_halves[1][1] == 0) == name.endswith("_heads")


def test_the_weight_of_an_auxiliary_task_scales_its_gradient():
  """g(weight) is on the line from g(0), the first task alone, to g(1)."""
  step, state = one_batch()
  weight, is_second = 0.3, np.arange(16) % 2 == 0
  at = {}
  for each in (0, weight, 1):
    weight_B = np.where(is_second, each, 1.0).astype(np.float32)
    at[each] = after(step, state, [BATCH | {"weight_B": weight_B}])[0]
  expected = jax.tree.map(
    lambda none, all: none + weight * (all - none), at[0], at[1]
  )
  assert apart(at[weight], expected) < 1e-6
  assert apart(at[0], at[1]) > 0.1


def test_rows_of_padding_count_nothing():
  step, state = one_batch()
  saved = np.arange(16) < 5
  _, (result,), _ = after(step, state, [rows(saved)])
  real_T = (BATCH["target_id_BT"] != 0).sum(1)
  parsed_S = (BATCH["source_word_BS"] >= 0).sum(1)
  counts = {name: count for name, (_, count) in result["terms"].items()}
  assert counts["nll"] == counts["synchronisation"] == real_T[:5].sum()
  assert counts["source_heads"] == parsed_S[:5].sum()
  assert all(np.isfinite(total) for total, _ in result["terms"].values())
  nobody, (result,), _ = after(step, state, [rows(np.zeros(16, bool))])
  assert not any(np.any(x) for x in jax.tree.leaves(nobody))
  for total, count in result["terms"].values():
    assert total == count == 0


def test_a_log_record_averages_over_all_its_batches():
  """Sums (60, 3, 9) over counts (20, 1, 0), and 2 of 4 beside 5 of 5."""
  config = config_of("sisa")
  meter = Meter(config, plan_of("sisa").recipe.losses, 0, Progress())

  def metrics(nll, heads, norm, updated):
    terms = {"nll": np.float32(nll), "source_heads": np.float32(heads)}
    return {"terms": terms, "grad_norm": norm, "updated": updated}

  def record(*steps):
    meter.add_metrics(steps)
    return meter.record(1, Progress())

  # There was no update yet. In all, 7 + 9 of 32 positions are real.
  for source, target in ((3, 5), (4, 4)):
    batch = TrainBatch(Position(), {}, source, target, positions=16)
    meter.add_batch(batch, flops=6.0, waited=0.0)
  first = record(metrics((4, 1), (0, 0), 9.0, False))
  assert first["padding"] == 0.5
  assert first["tokens_per_s"] / first["flops"] == pytest.approx(9 / 12)
  assert first["loss/nll"] == 4 and first["loss/source_heads"] == 0
  assert "grad_norm" not in first
  result = record(
    metrics((60, 20), (2, 4), 7.0, False),
    metrics((3, 1), (0, 0), 8.0, True),
    metrics((6, 0), (5, 5), 9.0, False),
  )
  assert result["loss/nll"] == pytest.approx(69 / 21)
  assert result["loss/source_heads"] == pytest.approx(7 / 9)
  assert result["loss"] == pytest.approx(69 / 21 + 7 / 9)
  assert result["grad_norm"] == 8.0
  # Between updates, it is that of the last one.
  assert record(metrics((1, 1), (0, 0), 9.5, False))["grad_norm"] == 8.0
