"""The terms of the objective: a named table, and the first of them.

Before this file: `objective`, what a term is, and `head_losses`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.options import Table, option
from jaxsyn.options.bounds import Rate
from jaxsyn.syntax.maps import Maps
from jaxsyn.training.head_losses import (
  SourceHeads,
  Synchronisation,
  TargetHeads,
)
from jaxsyn.training.objective import Batch, Loss, Ratio, real_targets


def token_log_probability(logits_BTV: Array, id_BT: Array) -> Array:
  """log p of each given subword (log_p_BT), computed in float32."""
  logits_BTV = logits_BTV.astype(jnp.float32)
  return gold_logit(logits_BTV, id_BT) - jax.nn.logsumexp(logits_BTV, axis=-1)


def gold_logit(logits_BTV: Array, id_BT: Array) -> Array:
  """The logit of each given subword.

  A comparison and a sum rather than a gather: the gradient then stays one
  fused pass, where a gather's would be a scatter.
  """
  vocabulary_V = jnp.arange(logits_BTV.shape[-1])
  gold_BTV = vocabulary_V == id_BT[..., None]
  return jnp.sum(jnp.where(gold_BTV, logits_BTV, 0.0), axis=-1)


@dataclasses.dataclass(frozen=True)
class NegativeLogLikelihood(Loss):
  """Cross-entropy with label smoothing (Szegedy et al. 2016, section 7).

  (1 - ε)·(-log p(gold)) + ε · mean over the vocabulary of -log p, in nats, over
  target subwords.
  """

  smoothing: Rate = option(0.1, "ε; 0: none.")

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    real_BT = real_targets(batch)
    logits_BTV = logits_BTV.astype(jnp.float32)
    lse_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
    gold_BT = gold_logit(logits_BTV, batch["target_id_BT"])
    mean_BT = jnp.mean(logits_BTV, axis=-1)
    wanted_BT = (1.0 - self.smoothing) * gold_BT + self.smoothing * mean_BT
    sum_B = jnp.sum((lse_BT - wanted_BT) * real_BT, axis=1)
    return sum_B, jnp.sum(real_BT, axis=1)


LOSSES: Table[Loss] = Table(
  "loss",
  {
    "nll": NegativeLogLikelihood,
    "source_heads": SourceHeads,
    "target_heads": TargetHeads,
    "synchronisation": Synchronisation,
  },
)
