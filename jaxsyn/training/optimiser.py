"""The update rule: an optax chain made from `config.optimiser`."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import optax

from jaxsyn.config import Optimiser
from jaxsyn.errors import InputError, did_you_mean


def learning_rate(config: Optimiser, width: int) -> optax.Schedule:
  """Learning rate by update number, from 0.

  inverse_sqrt: linear from `warmup_start` to `learning_rate` over `warmup`
    updates, then learning_rate · √(warmup / n) (fairseq's rule).
  noam: learning_rate · D^-½ · min(n^-½, n · warmup^-3/2), n from 1
    (Vaswani et al. 2017, Eq. 3, times a factor).
  constant: learning_rate.

  Args:
    width: D of the model, read by noam only.
  """
  warmup = max(config.warmup, 1)
  peak = config.learning_rate

  def inverse_sqrt(count):
    n = jnp.asarray(count, jnp.float32)
    rise = config.warmup_start + n / warmup * (peak - config.warmup_start)
    fall = peak * jnp.sqrt(warmup / jnp.maximum(n, 1.0))
    return jnp.where(n < warmup, rise, jnp.maximum(fall, config.minimum))

  def noam(count):
    n = jnp.asarray(count, jnp.float32) + 1.0
    rate = peak * width**-0.5 * jnp.minimum(n**-0.5, n * warmup**-1.5)
    return jnp.where(n < warmup, rate, jnp.maximum(rate, config.minimum))

  return {
    "inverse_sqrt": inverse_sqrt,
    "noam": noam,
    "constant": lambda count: jnp.asarray(peak, jnp.float32),
  }[config.schedule]


def _adam(config: Optimiser) -> optax.GradientTransformation:
  return optax.scale_by_adam(
    b1=config.beta1, b2=config.beta2, eps=config.epsilon
  )


def _adadelta(config: Optimiser) -> optax.GradientTransformation:
  """Zeiler 2012, algorithm 1: Δ = -RMS(Δ before) / RMS(g) · g.

  RMS(x) = √(E[x²] + epsilon), E a running mean with decay `rho`, from 0. The
  rule needs no learning rate: a constant 1 leaves it as published.
  """
  return optax.scale_by_adadelta(rho=config.rho, eps=config.epsilon)


OPTIMISERS: dict[str, Callable[[Optimiser], optax.GradientTransformation]] = {
  "adam": _adam,
  "adadelta": _adadelta,
}


def make(config: Optimiser, width: int) -> optax.GradientTransformation:
  """Clipping, the rule, decoupled weight decay and the learning rate.

  Raises:
    InputError: unknown optimiser, or an option that it cannot work with.
  """
  if config.name not in OPTIMISERS:
    raise InputError(
      f"config.optimiser.name: no optimiser {config.name!r}. "
      f"{did_you_mean(config.name, OPTIMISERS)}"
    )
  chain = [OPTIMISERS[config.name](config)]
  if config.clip > 0:
    chain.insert(0, optax.clip_by_global_norm(config.clip))
  if config.weight_decay > 0:
    chain.append(optax.add_decayed_weights(config.weight_decay))
  chain.append(optax.scale_by_learning_rate(learning_rate(config, width)))
  return optax.chain(*chain)
