# jaxsyn/training/cosine.py
import dataclasses

import jax.numpy as jnp

from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.training.schedules import Schedule


@dataclasses.dataclass(frozen=True)
class Cosine(Schedule):
  """From the peak to 0 along half a cosine: Loshchilov & Hutter 2017, Eq. 5."""

  updates: Count = option(20_000, "Until it is 0.", unit="updates")

  def make(self, peak, width):
    def rate(count):
      done = jnp.minimum(count / self.updates, 1.0)
      return peak * 0.5 * (1.0 + jnp.cos(jnp.pi * done))

    return rate
