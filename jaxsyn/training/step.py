"""The training step: a pure function of the train state and a batch.

`jaxsyn.training.mesh` compiles it, with jit on a mesh or with pmap.

The gradient is that of the objective (`jaxsyn.training.objective`) over all rows of
an update. With gradient accumulation, the count that divides a term is known only
after the last batch, so the gradient of each term's sum is accumulated separately.
An update of k batches is then exactly that of one batch with all their rows. With n
terms, this takes n backward passes per batch, and n times the parameters in memory
and in checkpoints. Without accumulation, or with one term, a step has one backward
pass.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

from jaxsyn.models.contract import EncoderDecoder, forward, states
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.training import frozen
from jaxsyn.training.logits import Logits
from jaxsyn.training.losses import token_log_probability
from jaxsyn.training.objective import (
  AuxiliaryMetrics,
  Batch,
  Loss,
  Ratio,
  real_targets,
)

Params = Any
Metrics = dict[str, Any]


@struct.dataclass
class TrainState:
  """State of a training run: parameters, optimizer state, step and random key.

  Attributes:
    step: Number of batches seen.
    params: Parameters of the model.
    opt: State of the optimizer.
    key: Raw data of the PRNG key, which is constant and folded with the step.
    ema: Moving average of the parameters after each update; before the first
      update, the parameters. None if it is off.
    pending: Gradient of the sum and the count of each term since the last update.
      None without gradient accumulation.
  """

  step: Array
  params: Params
  opt: optax.OptState
  key: Array
  ema: Params | None = None
  pending: dict[str, tuple[Params, Array]] | None = None

  @property
  def evaluated(self) -> Params:
    """Parameters to evaluate: moving average if enabled, else the latest."""
    return self.params if self.ema is None else self.ema


@struct.dataclass
class Recipe:
  """Static components of a training step, made by `jaxsyn.plan.resolve`.

  Attributes:
    model: Model.
    losses: Terms of the objective, by name.
    optimiser: Optimizer.
    accumulate: Number of batches per update.
    ema: Decay of the moving average; 0 disables it.
    freeze: Patterns of frozen parameters.
    logits: Maximum number of logits at a time on a device.
  """

  model: EncoderDecoder = struct.field(pytree_node=False)
  losses: Mapping[str, Loss] = struct.field(pytree_node=False)
  optimiser: optax.GradientTransformation = struct.field(pytree_node=False)
  accumulate: int = struct.field(pytree_node=False, default=1)
  ema: float = struct.field(pytree_node=False, default=0.0)
  freeze: tuple[str, ...] = struct.field(pytree_node=False, default=())
  logits: int = struct.field(pytree_node=False, default=2**28)


def outputs(
  recipe: Recipe,
  params: Params,
  batch: Mapping[str, Array],
  *,
  train: bool,
  rngs: dict[str, Array] | None = None,
) -> tuple[Array, dict[str, Maps]]:
  """Runs the model; returns decoder states and attention maps for the losses.

  Losses with `full_context` get the maps of a second pass. The compiler removes
  the parts that no loss reads.
  """

  def run(full_context: bool) -> tuple[Array, Maps]:
    state_BTD, state = recipe.model.apply(
      {"params": params},
      batch,
      train=train,
      full_context=full_context,
      method=states,
      rngs=rngs,
      mutable=[COLLECTION],
    )
    return state_BTD, Maps.of(state)

  state_BTD, maps = run(False)
  full = maps
  if any(loss.full_context for loss in recipe.losses.values()):
    full = run(True)[1]
  return state_BTD, {
    name: dataclasses.replace(
      full if loss.full_context else maps, reader=f"config.losses.{name}"
    )
    for name, loss in recipe.losses.items()
  }


def terms_of(
  recipe: Recipe,
  logits: Logits,
  maps: Mapping[str, Maps],
  batch: Mapping[str, Array],
) -> dict[str, Ratio]:
  """Returns the sum and count of each loss term in a batch.

  Args:
    recipe: Recipe with the losses.
    logits: Logits of the batch.
    maps: Maps of `outputs`.
    batch: Batch of the model.
  """

  def by_position(logits_BTV: Array, batch: Batch) -> dict[str, Ratio]:
    return {
      name: loss(logits_BTV, maps[name], batch)
      for name, loss in recipe.losses.items()
      if loss.by_position
    }

  positions = set[str]()
  for loss in recipe.losses.values():
    if loss.by_position:
      positions.update(loss.positions)
  terms = logits.sum_over_positions(by_position, batch, sorted(positions))
  for name, loss in recipe.losses.items():
    if not loss.by_position:
      terms[name] = loss(logits.all_BTV(), maps[name], batch)
  return {name: terms[name] for name in recipe.losses}


def first_params(
  recipe: Recipe, batch: Mapping[str, Any], key: Array
) -> Params:
  """Initializes the model parameters, for batches of any size."""
  return recipe.model.init({"params": key}, batch, train=False, method=forward)[
    "params"
  ]


def first_state(
  recipe: Recipe, batch: Mapping[str, Any], seed: int | Array
) -> TrainState:
  """Returns the train state before the first step, for batches of any size."""
  init, run = jax.random.split(jax.random.key(seed))
  params = first_params(recipe, batch, init)
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt=recipe.optimiser.init(params),
    key=jax.random.key_data(run),
    # A copy, since the state is donated and no buffer can be donated twice.
    ema=jax.tree.map(jnp.copy, params) if recipe.ema > 0 else None,
    pending={
      name: (jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
      for name in recipe.losses
    }
    if recipe.accumulate > 1
    else None,
  )


def moving_average(
  average: Params, params: Params, *, decay: float, updates: Array
) -> Params:
  """Updates the exponential moving average of the parameters.

  The result after n updates is the weighted mean Σ dⁿ⁻ⁱ pᵢ / Σ dⁿ⁻ⁱ of the
  parameters pᵢ after update i. It is computed as a ← (1-w)·a + w·pₙ with w =
  (1-d) / (1-dⁿ). For the first update, w is 1, so that the initial parameters
  have no weight; with a constant w = 1-d they would have dⁿ.

  Args:
    average: Average after n - 1 updates; ignored for n = 1.
    params: Parameters pₙ.
    decay: Decay d, between 0 and 1.
    updates: Number n of updates, at least 1.
  """
  # 1-w = d (1-dⁿ⁻¹) / (1-dⁿ) is exactly 0 for n = 1. For d near 1, powers of d
  # would lose their difference from 1 in float32.
  log = math.log(decay)
  retained = jnp.expm1((updates - 1) * log) / jnp.expm1(updates * log)
  return optax.incremental_update(params, average, 1.0 - decay * retained)


def train_step(
  state: TrainState,
  batch: Mapping[str, Array],
  recipe: Recipe,
  axis: str | None = None,
) -> tuple[TrainState, Metrics]:
  """Accumulates the gradients of a batch; updates the parameters when due.

  Args:
    state: Train state, which compiled steps donate.
    batch: Batch of `jaxsyn.data.loader`.
    recipe: Model, losses and optimizer.
    axis: Name of the pmap axis that the batch is split over; None for jit.

  Returns:
    The next state and metrics: "terms", the sum and count of each term in this
    batch; "updated", whether the parameters were updated; and "grad_norm", the
    norm of the gradient accumulated so far, before clipping.
  """
  key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
  if axis is not None:
    key = jax.random.fold_in(key, jax.lax.axis_index(axis))

  def sum_over_devices(tree: Params) -> Params:
    return tree if axis is None else jax.lax.psum(tree, axis)

  def sums_of_terms(
    params: Params,
  ) -> tuple[dict[str, Array], dict[str, Array]]:
    params = frozen.constant(recipe.freeze, params)
    state_BTD, maps = outputs(
      recipe,
      params,
      batch,
      train=True,
      rngs={"dropout": key, "syntax": jax.random.fold_in(key, 1)},
    )
    max_logits = recipe.logits if axis else recipe.logits * jax.device_count()
    logits = Logits(recipe.model, params, state_BTD, max_logits)
    pairs = terms_of(recipe, logits, maps, batch)
    sums, counts = ({name: p[i] for name, p in pairs.items()} for i in (0, 1))
    return sums, counts

  # Counts do not depend on the parameters, so they are constants of the backward
  # pass.
  sums, backward, counts = jax.vjp(sums_of_terms, state.params, has_aux=True)
  sums, counts = sum_over_devices((sums, counts))
  pending = None
  if state.pending is None:
    (grads,) = backward(_factors(recipe, counts))
    grads = sum_over_devices(grads)
  else:
    # Σ over terms of factor · Σ over batches of ∇ sum, where the factors depend
    # on the counts of all batches.
    pending = {}
    for name, (before, seen) in state.pending.items():
      (gradient,) = backward(
        {n: jnp.full_like(s, n == name) for n, s in sums.items()}
      )
      summed = jax.tree.map(jnp.add, before, sum_over_devices(gradient))
      pending[name] = summed, seen + counts[name]
    all_counts = {name: count for name, (_, count) in pending.items()}
    factors = _factors(recipe, all_counts)
    grads = jax.tree.map(
      lambda *by_term: sum(f * g for f, g in zip(factors.values(), by_term)),
      *(pending[name][0] for name in factors),  # in the order of the factors
    )
  norm = optax.tree.norm(grads)
  step = state.step + 1

  def update(state: TrainState) -> TrainState:
    updates, opt = recipe.optimiser.update(grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    params = frozen.retained(recipe.freeze, state.params, params)
    ema = state.ema
    if ema is not None:
      update_index = step // recipe.accumulate
      ema = moving_average(ema, params, decay=recipe.ema, updates=update_index)
      ema = frozen.retained(recipe.freeze, params, ema)
    zero = jax.tree.map(jnp.zeros_like, pending)
    return dataclasses.replace(
      state, params=params, opt=opt, ema=ema, pending=zero
    )

  updated = step % recipe.accumulate == 0
  if pending is None:
    state = update(state)
  else:
    state = jax.lax.cond(
      updated,
      update,
      lambda state: dataclasses.replace(state, pending=pending),
      state,
    )
  terms = {name: (sums[name], counts[name]) for name in sums}
  metrics = {"terms": terms, "grad_norm": norm, "updated": updated}
  return dataclasses.replace(state, step=step), metrics


def _factors(recipe: Recipe, counts: Mapping[str, Array]) -> dict[str, Array]:
  """Returns the weight of one item, such as a subword, in each loss term.

  It is the weight of the term divided by its count.

  Args:
    recipe: Recipe with the losses.
    counts: Counts of the terms over all rows of the update.
  """
  return {
    name: loss.weight / jnp.maximum(counts[name], 1.0)
    for name, loss in recipe.losses.items()
  }


def evaluate_step(
  params: Params, batch: Mapping[str, Array], recipe: Recipe
) -> Metrics:
  """Evaluates losses and metrics on a batch, without dropout or other noise.

  Returns:
    Pairs of sum and count: "terms", by loss term; "shares", by auxiliary metric;
    and "log_p", the log probability of the target subwords.
  """
  state_BTD, maps = outputs(recipe, params, batch, train=False)
  max_logits = recipe.logits * jax.device_count()
  logits = Logits(recipe.model, params, state_BTD, max_logits)
  metrics: AuxiliaryMetrics = {}
  for name, loss in recipe.losses.items():
    metrics |= loss.measure(maps[name], batch)

  def log_p(logits_BTV: Array, batch: Batch) -> Ratio:
    real_BT = real_targets(batch)
    log_p_BT = token_log_probability(logits_BTV, batch["target_id_BT"])
    return jnp.sum(log_p_BT * real_BT), jnp.sum(real_BT)

  terms = terms_of(recipe, logits, maps, batch)
  return {
    "terms": terms,
    "shares": metrics,
    "log_p": logits.sum_over_positions(log_p, batch),
  }
