"""Flexible attention: an attention window with a width predicted in each step.

Shu & Nakayama 2017, "An Empirical Study of Adequate Vision Span for
Attention-Based Neural Machine Translation". The formulas were reconstructed from
secondary sources; σ is not verified.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Amount, Positive
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import gaussian_exponent
from jaxsyn.syntax.windows.window import (
  Window,
  WindowSpec,
  softmax_within,
  subword_at,
)


class _Flexible(Window):
  def setup(self) -> None:
    self.hidden = nn.Dense(
      self.site.width,
      dtype=self.site.dtype,
      kernel_init=nn.initializers.orthogonal(),
    )
    self.strength = nn.Dense(
      1,
      use_bias=False,
      dtype=jnp.float32,
      kernel_init=nn.initializers.normal(0.01),
    )

  def start(self, features: SentenceFeatures, beams: int) -> Array:
    # As if the previous step had attended to the first subword.
    return jnp.zeros((features.real_BS.shape[0], beams), jnp.float32)

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    shared: Any,
    past: Array,
    features: SentenceFeatures,
  ) -> tuple[Array, Array]:
    raw_BN1 = self.strength(jnp.tanh(self.hidden(query_BNG)))
    strength_BN1 = jax.nn.sigmoid(raw_BN1)
    position_S = jnp.arange(score_BNS.shape[-1])
    distance_BNS = position_S - past[..., None]
    penalty_BNS = -strength_BN1 * gaussian_exponent(
      distance_BNS, self.spec.sigma
    )
    allowed_BNS = jnp.broadcast_to(
      features.real_BS[:, None, :], penalty_BNS.shape
    )
    if self.spec.span and not features.train:
      nearest_BN1 = subword_at(past + 0.5, features.real_BS)[..., None]
      visible_BNS = (penalty_BNS <= self.spec.span) | (
        position_S == nearest_BN1
      )
      allowed_BNS = allowed_BNS & visible_BNS
    weight_BNS = softmax_within(score_BNS - penalty_BNS, allowed_BNS)
    return weight_BNS, jnp.sum(weight_BNS * position_S, axis=-1)


@dataclasses.dataclass(frozen=True)
class Flexible(WindowSpec):
  """Attention window with a distance penalty whose strength is predicted.

  The weights are the softmax of scores minus g · (j - p)² / 2σ² at position j.
  p is the average position that the previous step attended to, Σ_j α_j · j (0
  in the first step); the strength g = σ(vᵀ tanh(W q + b)) is between 0 and 1.
  """

  sigma: Positive = option(
    1.5,
    "Standard deviation σ of the Gaussian penalty around the position "
    "attended to in the previous step.",
    unit="subwords",
  )
  span: Amount = option(
    0.0,
    "Vision span τ: in evaluation, positions whose penalty exceeds τ are "
    "hidden, except for the position nearest to the center of the Gaussian. "
    "0: off.",
  )

  window: ClassVar[type[Window]] = _Flexible
