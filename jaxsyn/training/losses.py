"""Registry of losses, and the cross-entropy loss."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.options import Registry, option
from jaxsyn.options.bounds import Rate
from jaxsyn.syntax.maps import Maps
from jaxsyn.training.distillation import Distillation, WordDistillation
from jaxsyn.training.guided_alignment import GuidedAlignment
from jaxsyn.training.head_losses import (
  SourceHeads,
  Synchronisation,
  TargetHeads,
)
from jaxsyn.training.objective import Batch, Loss, Ratio, real_targets


def token_log_probability(logits_BTV: Array, id_BT: Array) -> Array:
  """Returns the log probability of each target subword (BT), in float32."""
  return -cross_entropy(logits_BTV, id_BT, 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def cross_entropy(logits_BTV: Array, id_BT: Array, smoothing: float) -> Array:
  """Returns each subword's label-smoothed cross-entropy in nats (float32, BT).

  It is computed in float32 without a float32 copy of the logits. The gradient is
  one pass over the logits, where JAX's own gradient of the lookup would be a
  scatter, and is rounded to their type at the end.
  """
  return _cross_entropy_forward(logits_BTV, id_BT, smoothing)[0]


def _cross_entropy_forward(
  logits_BTV: Array, id_BT: Array, smoothing: float
) -> tuple[Array, tuple[Array, Array, Array]]:
  lse_BT = jax.nn.logsumexp(logits_BTV.astype(jnp.float32), axis=-1)
  gold_BT1 = jnp.take_along_axis(logits_BTV, id_BT[..., None], axis=-1)
  wanted_BT = (1.0 - smoothing) * gold_BT1[..., 0].astype(jnp.float32)
  if smoothing:
    mean_BT = jnp.mean(logits_BTV, axis=-1, dtype=jnp.float32)
    wanted_BT += smoothing * mean_BT
  return lse_BT - wanted_BT, (logits_BTV, id_BT, lse_BT)


def _cross_entropy_backward(
  smoothing: float, residuals: tuple[Array, Array, Array], out_BT: Array
) -> tuple[Array, None]:
  logits_BTV, id_BT, lse_BT = residuals
  vocabulary_V = jnp.arange(logits_BTV.shape[-1], dtype=id_BT.dtype)
  gold_BTV = vocabulary_V == id_BT[..., None]
  p_BTV = jnp.exp(logits_BTV.astype(jnp.float32) - lse_BT[..., None])
  uniform = smoothing / logits_BTV.shape[-1]
  wanted_BTV = jnp.where(gold_BTV, 1.0 - smoothing + uniform, uniform)
  gradient_BTV = (p_BTV - wanted_BTV) * out_BT[..., None]
  return gradient_BTV.astype(logits_BTV.dtype), None


cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)


@dataclasses.dataclass(frozen=True)
class NegativeLogLikelihood(Loss):
  """Cross-entropy with label smoothing (Szegedy et al. 2016, section 7).

  (1 - ε)·(-log p(gold)) + ε · mean over the vocabulary of -log p, in nats, as a
  mean over target subwords.
  """

  smoothing: Rate = option(
    0.1,
    "Label smoothing ε: the probability mass that is spread evenly over all "
    "subwords; 0: none.",
  )

  by_position: ClassVar[bool] = True

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    real_BT = real_targets(batch)
    id_BT = batch["target_id_BT"]
    loss_BT = cross_entropy(logits_BTV, id_BT, self.smoothing)
    return jnp.sum(loss_BT * real_BT, axis=1), jnp.sum(real_BT, axis=1)


LOSSES: Registry[Loss] = Registry(
  "loss",
  {
    "nll": NegativeLogLikelihood,
    "source_heads": SourceHeads,
    "target_heads": TargetHeads,
    "synchronisation": Synchronisation,
    "guided_alignment": GuidedAlignment,
    "distillation": Distillation,
    "word_distillation": WordDistillation,
  },
)
