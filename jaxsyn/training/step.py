"""One update, pure: equal inputs give equal outputs, on any machine layout.

`train_step` is a function of (state, batch) alone. `jaxsyn.training.mesh`
decides where it runs: under jit on a mesh, or under pmap.

The gradient is that of the objective (`jaxsyn.training.objective`) over all
rows of an update. What a term is divided by is known when the last of them was
seen; so with k batches an update (config.optimiser.accumulate) each term's
gradient is added up for itself, and k batches are exactly one batch of all
their rows. The price, with n terms: n backward passes a batch, and n times the
parameters in memory and in checkpoints. With one batch an update, or one term,
a step has one backward pass.
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
  """Everything that training changes; all of it is in a checkpoint.

  Attributes:
    step: batches seen.
    params: the model's parameters.
    opt: the optimiser's state.
    key: raw data of the PRNG key; never changed, folded with the step.
    ema: moving average of the parameters after each update, or None where it
      is off; before the first update the parameters.
    pending: since the last update, by term of the objective: the gradient of
      its sum, and its count. None where every batch is an update.
  """

  step: Array
  params: Params
  opt: optax.OptState
  key: Array
  ema: Params | None = None
  pending: dict[str, tuple[Params, Array]] | None = None

  @property
  def evaluated(self) -> Params:
    """The parameters to translate with."""
    return self.params if self.ema is None else self.ema


@struct.dataclass
class Recipe:
  """What a step needs besides state and batch; static, made by the plan."""

  model: EncoderDecoder = struct.field(pytree_node=False)
  losses: Mapping[str, Loss] = struct.field(pytree_node=False)
  optimiser: optax.GradientTransformation = struct.field(pytree_node=False)
  accumulate: int = struct.field(pytree_node=False, default=1)
  ema: float = struct.field(pytree_node=False, default=0.0)
  freeze: tuple[str, ...] = struct.field(pytree_node=False, default=())
  logits: int = struct.field(pytree_node=False, default=2**28)  # of a device


def outputs(
  recipe: Recipe,
  params: Params,
  batch: Mapping[str, Array],
  *,
  train: bool,
  rngs: dict[str, Array] | None = None,
) -> tuple[Array, dict[str, Maps]]:
  """What logits are made of (BTD), and for each loss the maps that it reads.

  What no loss reads of a second pass the compiler drops.
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
  """Each term's (sum, count) in a batch.

  Args:
    recipe: with the losses.
    logits: of the batch.
    maps: of `outputs`.
    batch: as the model got it.
  """

  def by_position(logits_BTV: Array, batch: Batch) -> dict[str, Ratio]:
    return {
      name: loss(logits_BTV, maps[name], batch)
      for name, loss in recipe.losses.items()
      if loss.by_position
    }

  positions = {
    name
    for loss in recipe.losses.values()
    if loss.by_position
    for name in loss.positions
  }
  terms = logits.add_up(by_position, batch, sorted(positions))
  for name, loss in recipe.losses.items():
    if not loss.by_position:
      terms[name] = loss(logits.all_BTV(), maps[name], batch)
  return {name: terms[name] for name in recipe.losses}


def first_params(
  recipe: Recipe, batch: Mapping[str, Any], key: Array
) -> Params:
  """Parameters as they are drawn; sizes come from any batch."""
  return recipe.model.init({"params": key}, batch, train=False, method=forward)[
    "params"
  ]


def check_maps(recipe: Recipe, batch: Mapping[str, Any]) -> None:
  """A dry run of all losses, on shapes alone.

  Args:
    recipe: to be checked.
    batch: any.

  Raises:
    InputError: a loss reads a map that the model does not publish.
  """
  if set(recipe.losses) == {"nll"}:  # which reads none: a second saved
    return

  def run(key: Array) -> Metrics:
    return evaluate_step(first_params(recipe, batch, key), batch, recipe)

  jax.eval_shape(run, jax.random.key(0))


def first_state(
  recipe: Recipe, batch: Mapping[str, Any], seed: int | Array
) -> TrainState:
  """The state before the first step; sizes come from any batch."""
  init, run = jax.random.split(jax.random.key(seed))
  params = first_params(recipe, batch, init)
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt=recipe.optimiser.init(params),
    key=jax.random.key_data(run),
    # A copy: a step is given the state's memory, and no buffer can be given twice.
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
  """Σ dⁿ⁻ⁱ pᵢ / Σ dⁿ⁻ⁱ over the parameters p₁ ... pₙ after each update.

  The running form of it, a ← (1-w)·a + w·pₙ with w = (1-d) / (1-dⁿ): the first
  update has w = 1, so that the initial parameters do not count, where a
  constant w = 1-d would keep dⁿ of them.

  Args:
    average: that of n - 1 updates; of none, anything.
    params: pₙ.
    decay: d, from above 0 to below 1.
    updates: n, from 1.
  """
  # 1-w = d (1-dⁿ⁻¹) / (1-dⁿ), exactly 0 at first. Powers of a d near 1 would
  # lose in float32 what they differ from 1 by.
  log = math.log(decay)
  retained = jnp.expm1((updates - 1) * log) / jnp.expm1(updates * log)
  return optax.incremental_update(params, average, 1.0 - decay * retained)


def train_step(
  state: TrainState,
  batch: Mapping[str, Array],
  recipe: Recipe,
  axis: str | None = None,
) -> tuple[TrainState, Metrics]:
  """One batch: gradients, and the update when its turn has come.

  Args:
    state: donated by the callers that jit this.
    batch: see `jaxsyn.data.loader.loader`.
    recipe: model, losses, optimiser.
    axis: name of the pmap axis the batch is split over; None: it is whole.

  Returns: the next state; and what is logged: "terms", each term's (sum,
    count) in this batch; "updated", whether the parameters were; "grad_norm",
    that of the update's gradient before clipping, and where there was none of
    what is gathered so far.
  """
  key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
  if axis is not None:
    key = jax.random.fold_in(key, jax.lax.axis_index(axis))

  def total(tree: Params) -> Params:
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

  # Counts do not depend on the parameters, so what a sum is divided by is a
  # constant of the backward pass.
  sums, backward, counts = jax.vjp(sums_of_terms, state.params, has_aux=True)
  sums, counts = total((sums, counts))
  pending = None
  if state.pending is None:
    (grads,) = backward(_auxiliary_metrics(recipe, counts))
    grads = total(grads)
  else:
    # A term's share of the whole batch is known after its last part, so sums of
    # gradients are kept for each term: Σ_terms share · Σ_parts ∇ sum.
    pending = {}
    for name, (before, seen) in state.pending.items():
      (of_term,) = backward(
        {n: jnp.full_like(s, n == name) for n, s in sums.items()}
      )
      summed = jax.tree.map(jnp.add, before, total(of_term))
      pending[name] = summed, seen + counts[name]
    shares = _auxiliary_metrics(
      recipe, {name: n for name, (_, n) in pending.items()}
    )
    grads = jax.tree.map(
      lambda *of_terms: sum(s * g for s, g in zip(shares.values(), of_terms)),
      *(pending[name][0] for name in shares),  # in the order of the shares
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


def _auxiliary_metrics(
  recipe: Recipe, counts: Mapping[str, Array]
) -> dict[str, Array]:
  """What one unit of each term's sum adds to the objective.

  Args:
    counts: of the terms, over all rows of the update; a term without items has
      the sum 0.
  """
  return {
    name: loss.weight / jnp.maximum(counts[name], 1.0)
    for name, loss in recipe.losses.items()
  }


def evaluate_step(
  params: Params, batch: Mapping[str, Array], recipe: Recipe
) -> Metrics:
  """Sums over one batch, without dropout or training-only noise.

  Returns: "terms": each loss term's (sum, count); "shares": the same of what
    losses measure beside; "log_p": of the log probabilities of all target
    subwords.
  """
  state_BTD, maps = outputs(recipe, params, batch, train=False)
  max_logits = recipe.logits * jax.device_count()
  logits = Logits(recipe.model, params, state_BTD, max_logits)
  shares: AuxiliaryMetrics = {}
  for name, loss in recipe.losses.items():
    shares |= loss.measure(maps[name], batch)

  def log_p(logits_BTV: Array, batch: Batch) -> Ratio:
    real_BT = real_targets(batch)
    log_p_BT = token_log_probability(logits_BTV, batch["target_id_BT"])
    return jnp.sum(log_p_BT * real_BT), jnp.sum(real_BT)

  terms = terms_of(recipe, logits, maps, batch)
  return {
    "terms": terms,
    "shares": shares,
    "log_p": logits.add_up(log_p, batch),
  }
