# jaxsyn/training/certainty.py
import dataclasses

import jax
import jax.numpy as jnp

from jaxsyn.options import option
from jaxsyn.options.bounds import Amount
from jaxsyn.training.objective import Loss, real_targets


@dataclasses.dataclass(frozen=True)
class Certainty(Loss):
  """Minus the entropy of the output distribution, in nats, over target subwords."""

  weight: Amount = option(0.1, "Of the term's mean in the objective.")

  def of_rows(self, logits_BTV, maps, batch):
    log_p_BTV = jax.nn.log_softmax(logits_BTV.astype(jnp.float32))
    certainty_BT = jnp.sum(jnp.exp(log_p_BTV) * log_p_BTV, axis=-1)
    real_BT = real_targets(batch)
    return jnp.sum(certainty_BT * real_BT, axis=1), jnp.sum(real_BT, axis=1)
