"""Schedules of the learning rate."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import optax
from jax import Array

from jaxsyn.options import Choice, Registry, option
from jaxsyn.options.bounds import Amount, CountOrOff

_FIRST_RATE = 1e-7  # learning rate of the first update, as in fairseq


@dataclasses.dataclass(frozen=True)
class Schedule(Choice):
  """Base class of the learning-rate schedules, with their options."""

  def make(self, peak: float, width: int) -> optax.Schedule:
    """Returns the learning rate as a function of the update index.

    The function receives the index of an update, counted from 0, as an int32
    scalar.

    Args:
      peak: Value of config.optimiser.learning_rate.
      width: Model width.
    """
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class WarmedUp(Schedule):
  """Base class of schedules with a warm-up, and a minimum rate after it."""

  warmup: CountOrOff = option(
    1000,
    "Number of updates until the learning rate reaches its peak.",
    unit="updates",
  )
  minimum: Amount = option(
    0.0, "Minimum of the learning rate after the warm-up."
  )

  @property
  def warmup_updates(self) -> int:
    """Number of warm-up updates, at least 1."""
    return max(self.warmup, 1)

  def rise(self, n: Array, peak: float) -> Array:
    """Returns the learning rate of update `n` in a linear warm-up to the peak."""
    return _FIRST_RATE + n / self.warmup_updates * (peak - _FIRST_RATE)


@dataclasses.dataclass(frozen=True)
class InverseSquareRoot(WarmedUp):
  """Linear warm-up, then inverse-square-root decay, as in fairseq.

  After the warm-up, the rate of update n is peak · √(warmup / n).
  """

  def make(self, peak: float, width: int) -> optax.Schedule:
    warmup = self.warmup_updates

    def rate(count: Array) -> Array:
      n = jnp.asarray(count, jnp.float32)
      fall = peak * jnp.sqrt(warmup / jnp.maximum(n, 1.0))
      fall = jnp.maximum(fall, self.minimum)
      return jnp.where(n < warmup, self.rise(n, peak), fall)

    return rate


@dataclasses.dataclass(frozen=True)
class Noam(WarmedUp):
  """Noam schedule: linear warm-up, then inverse-square-root decay.

  The rate of update n, from 1, is factor · D^-½ · min(n^-½, n · warmup^-3/2)
  for a model of width D. Vaswani et al. 2017, Eq. 3, times a factor:
  config.optimiser.learning_rate.
  """

  def make(self, peak: float, width: int) -> optax.Schedule:
    warmup = self.warmup_updates

    def rate(count: Array) -> Array:
      n = jnp.asarray(count, jnp.float32) + 1.0
      now = peak * width**-0.5 * jnp.minimum(n**-0.5, n * warmup**-1.5)
      return jnp.where(n < warmup, now, jnp.maximum(now, self.minimum))

    return rate


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
  """Schedule with a constant learning rate."""

  def make(self, peak: float, width: int) -> optax.Schedule:
    return lambda count: jnp.asarray(peak, jnp.float32)


SCHEDULES: Registry[Schedule] = Registry(
  "schedule",
  {
    "inverse_sqrt": InverseSquareRoot,
    "noam": Noam,
    "constant": Constant,
  },
)
