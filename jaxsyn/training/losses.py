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


@jax.custom_vjp
def gold_logit(logits_BTV: Array, id_BT: Array) -> Array:
  """The logit of each given subword.

  Looked up; the gradient is a comparison in one pass, which XLA fuses with that
  of the softmax, where JAX's own of a look-up is a scatter.
  """
  return jnp.take_along_axis(logits_BTV, id_BT[..., None], axis=-1)[..., 0]


def _gold_forward(
  logits_BTV: Array, id_BT: Array
) -> tuple[Array, tuple[Array, Array]]:
  # What the subwords are, and of the logits how many: no copy of them is kept.
  vocabulary_V = jnp.arange(logits_BTV.shape[-1], dtype=id_BT.dtype)
  return gold_logit(logits_BTV, id_BT), (vocabulary_V, id_BT)


def _gold_backward(
  kept: tuple[Array, Array], out_BT: Array
) -> tuple[Array, None]:
  vocabulary_V, id_BT = kept
  gold_BTV = vocabulary_V == id_BT[..., None]
  return jnp.where(gold_BTV, out_BT[..., None], 0.0), None


gold_logit.defvjp(_gold_forward, _gold_backward)


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
