"""Flexible attention: a window whose width each step chooses.

Shu & Nakayama 2017, "An Empirical Study of Adequate Vision Span for
Attention-Based Neural Machine Translation". The formulas are recalled from
secondary sources; its σ is not verified.
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
from jaxsyn.syntax.gaussian import exponent
from jaxsyn.syntax.modifier import SentenceFeatures
from jaxsyn.syntax.windows.window import (
  Window,
  WindowSpec,
  row_of,
  softmax_within,
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

  def start(self, view: SentenceFeatures, beams: int) -> Array:
    # As if the step before had looked at the first subword.
    return jnp.zeros((view.real_BS.shape[0], beams), jnp.float32)

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    facts: Any,
    past: Array,
    view: SentenceFeatures,
  ) -> tuple[Array, Array]:
    raw_BN1 = self.strength(jnp.tanh(self.hidden(query_BNG)))
    strength_BN1 = jax.nn.sigmoid(raw_BN1)
    position_S = jnp.arange(score_BNS.shape[-1])
    distance_BNS = position_S - past[..., None]
    penalty_BNS = -strength_BN1 * exponent(distance_BNS, self.spec.sigma)
    allowed_BNS = jnp.broadcast_to(view.real_BS[:, None, :], penalty_BNS.shape)
    if self.spec.span and not view.train:
      nearest_BN1 = row_of(past + 0.5, view.real_BS)[..., None]
      seen_BNS = (penalty_BNS <= self.spec.span) | (position_S == nearest_BN1)
      allowed_BNS = allowed_BNS & seen_BNS
    weight_BNS = softmax_within(score_BNS - penalty_BNS, allowed_BNS)
    return weight_BNS, jnp.sum(weight_BNS * position_S, axis=-1)


@dataclasses.dataclass(frozen=True)
class Flexible(WindowSpec):
  """Window by a penalty: softmax of scores minus g · (j - p)² / 2σ².

  p is where the step before looked on average, Σ_j α_j · j (0 at the first
  step); the strength g = σ(vᵀ tanh(W q + b)), from 0 to 1, is the step's own.
  """

  sigma: Positive = option(
    1.5,
    "Standard deviation σ of the Gaussian penalty around the predicted "
    "position.",
    unit="subwords",
  )
  span: Amount = option(
    0.0,
    "Vision span τ: in evaluation, positions with a larger penalty are "
    "hidden, except for the nearest one. 0: off.",
  )

  window: ClassVar[type[Window]] = _Flexible
