# jaxsyn/training/lion.py
import dataclasses

import optax

from jaxsyn.options import option
from jaxsyn.options.bounds import Rate
from jaxsyn.training.optimiser import Rule


@dataclasses.dataclass(frozen=True)
class Lion(Rule):
  """Chen et al. 2023, algorithm 2."""

  beta1: Rate = option(0.9, "Share of the old momentum in an update.")
  beta2: Rate = option(0.99, "Decay of the momentum.")

  def make(self):
    return optax.scale_by_lion(b1=self.beta1, b2=self.beta2)
