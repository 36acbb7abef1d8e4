"""One update, pure: equal inputs give equal outputs, on any machine layout.

`train_step` is a function of (state, batch) alone. `jaxsyn.training.mesh`
decides where it runs: under jit on a mesh, or under pmap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct

from jaxsyn.models.contract import forward
from jaxsyn.training.losses import token_log_probability
from jaxsyn.training.objective import Loss, real_targets

Array = jax.Array
Params = Any
Metrics = dict[str, Any]


@struct.dataclass
class State:
  """Everything that training changes; all of it is in a checkpoint.

  Attributes:
    step: batches seen.
    params: the model's parameters.
    opt: the optimiser's state.
    key: raw data of the PRNG key; never changed, folded with the step.
    ema: moving average of the parameters, or None where it is off.
    pending: sum of gradients and of target subwords since the last update,
      or None where every batch is an update.
  """

  step: Array
  params: Params
  opt: optax.OptState
  key: Array
  ema: Params | None = None
  pending: tuple[Params, Array] | None = None

  @property
  def evaluated(self) -> Params:
    """The parameters to translate with."""
    return self.params if self.ema is None else self.ema


@struct.dataclass
class Recipe:
  """What a step needs besides state and batch; static, made by the plan."""

  model: nn.Module = struct.field(pytree_node=False)
  losses: Mapping[str, Loss] = struct.field(pytree_node=False)
  optimiser: optax.GradientTransformation = struct.field(pytree_node=False)
  accumulate: int = struct.field(pytree_node=False, default=1)
  ema: float = struct.field(pytree_node=False, default=0.0)


def outputs(
  recipe: Recipe,
  params: Params,
  batch: Mapping[str, Array],
  *,
  train: bool,
  rngs: Mapping[str, Array] | None = None,
) -> tuple[Array, dict[str, Mapping[str, Any]]]:
  """The model's logits (BTV), and for each loss the maps that it reads.

  What no loss reads of a second pass the compiler drops.
  """

  def run(full_context: bool):
    logits_BTV, published = recipe.model.apply(
      {"params": params},
      batch,
      train=train,
      full_context=full_context,
      method=forward,
      rngs=rngs,
      mutable=["maps"],
    )
    return logits_BTV, published.get("maps", {})

  logits_BTV, maps = run(False)
  full = maps
  if any(loss.full_context for loss in recipe.losses.values()):
    full = run(True)[1]
  return logits_BTV, {
    name: full if loss.full_context else maps
    for name, loss in recipe.losses.items()
  }


def first_state(recipe: Recipe, batch: Mapping[str, Array], seed: int) -> State:
  """The state before the first step; sizes come from any batch."""
  init, run = jax.random.split(jax.random.key(seed))
  params = recipe.model.init(
    {"params": init}, batch, train=False, method=forward
  )["params"]
  return State(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt=recipe.optimiser.init(params),
    key=jax.random.key_data(run),
    ema=jax.tree.map(jnp.copy, params) if recipe.ema > 0 else None,
    pending=(jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
    if recipe.accumulate > 1
    else None,
  )


def train_step(
  state: State,
  batch: Mapping[str, Array],
  recipe: Recipe,
  axis: str | None = None,
) -> tuple[State, Metrics]:
  """One batch: gradients, and the update when its turn has come.

  Args:
    state: donated by the callers that jit this.
    batch: see `jaxsyn.data.batches`.
    recipe: model, losses, optimiser.
    axis: name of the pmap axis the batch is split over; None: it is whole.

  Returns: the next state; sums and counts to be logged.
  """
  key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
  if axis is not None:
    key = jax.random.fold_in(key, jax.lax.axis_index(axis))

  def total(x):
    return x if axis is None else jax.lax.psum(x, axis)

  tokens = total(jnp.sum(real_targets(batch)))

  def objective(params):
    logits_BTV, maps = outputs(
      recipe,
      params,
      batch,
      train=True,
      rngs={"dropout": key, "syntax": jax.random.fold_in(key, 1)},
    )
    terms, value = {}, 0.0
    for name, loss in recipe.losses.items():
      added, count = loss(logits_BTV, maps[name], batch)
      terms[name] = (added, count)
      # Counts do not depend on the parameters: each term is a mean over the
      # whole batch, times the tokens that the gradient is divided by.
      mean = added / jnp.maximum(total(count), 1.0)
      value = value + loss.weight * mean * tokens
    return value, terms

  grads, terms = jax.grad(objective, has_aux=True)(state.params)
  grads, terms = total((grads, terms))
  if state.pending is not None:
    summed = jax.tree.map(jnp.add, state.pending[0], grads)
    pending = (summed, state.pending[1] + tokens)
  else:
    pending = (grads, tokens)
  mean_grads = jax.tree.map(
    lambda g: g / jnp.maximum(pending[1], 1.0), pending[0]
  )
  norm = optax.tree.norm(mean_grads)
  step = state.step + 1

  def update(state: State) -> State:
    updates, opt = recipe.optimiser.update(mean_grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    ema = state.ema
    if ema is not None:
      ema = optax.incremental_update(params, ema, 1.0 - recipe.ema)
    if state.pending is not None:
      zero = jax.tree.map(jnp.zeros_like, pending)
      state = state.replace(pending=zero)
    return state.replace(params=params, opt=opt, ema=ema)

  if recipe.accumulate > 1:
    state = jax.lax.cond(
      step % recipe.accumulate == 0,
      update,
      lambda state: state.replace(pending=pending),
      state,
    )
  else:
    state = update(state)
  metrics = {"terms": terms, "tokens": tokens, "grad_norm": norm}
  return state.replace(step=step), metrics


def evaluate_step(
  params: Params, batch: Mapping[str, Array], recipe: Recipe
) -> Metrics:
  """Sums over one batch, without dropout or training-only noise.

  Returns: "terms": each loss term's (sum, count); "shares": the same of what
    losses measure beside; "log_p": of the log probabilities of all target
    subwords.
  """
  logits_BTV, maps = outputs(recipe, params, batch, train=False)
  terms, shares = {}, {}
  for name, loss in recipe.losses.items():
    terms[name] = loss(logits_BTV, maps[name], batch)
    shares |= loss.measure(maps[name], batch)
  real_BT = real_targets(batch)
  log_p_BT = token_log_probability(logits_BTV, batch["target_id_BT"])
  log_p = (jnp.sum(log_p_BT * real_BT), jnp.sum(real_BT))
  return {"terms": terms, "shares": shares, "log_p": log_p}
