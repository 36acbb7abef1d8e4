"""Local attention around a predicted position: Luong et al. 2015, "local-p".

"Effective Approaches to Attention-based Neural Machine Translation"
(arXiv:1508.04025), section 3.2; Chen et al. 2018, Eqs. 5-7.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import CountOrOff, Positive
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import gaussian_exponent
from jaxsyn.syntax.windows.window import (
  PredictedPosition,
  Window,
  WindowSpec,
  softmax_within,
  subword_at,
)


class _Local(Window):
  def setup(self) -> None:
    self.position = PredictedPosition(self.site.dtype)

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    shared: Any,
    past: Any,
    features: SentenceFeatures,
  ) -> tuple[Array, Any]:
    position_BN = self.position(query_BNG, features.real_BS)
    position_S = jnp.arange(score_BNS.shape[-1])
    centre_BN1 = subword_at(position_BN, features.real_BS)[..., None]
    near_BNS = jnp.abs(position_S - centre_BN1) <= self.spec.reach
    allowed_BNS = near_BNS & features.real_BS[:, None, :]
    distance_BNS = position_S - position_BN[..., None]
    decay_BNS = jnp.exp(gaussian_exponent(distance_BNS, self.spec.sigma))
    weight_BNS = softmax_within(score_BNS, allowed_BNS) * decay_BNS
    # Also in a uniform row of padding, no weight is on padding.
    return jnp.where(allowed_BNS, weight_BNS, 0.0), past


@dataclasses.dataclass(frozen=True)
class Local(WindowSpec):
  """Attention window of fixed width around a predicted source position.

  The subwords from ⌊p⌋ - reach to ⌊p⌋ + reach are visible for the position p.
  The weights are the softmax in the window times exp(-(j - p)² / 2σ²). The
  product is not renormalized, so they sum to less than 1; p gets its gradient
  from the Gaussian. The paper does not state whether the softmax covers the
  window only; it does in Nematus's implementation.
  """

  reach: CountOrOff = option(
    10,
    "Number D of subwords that are visible on each side of the predicted "
    "position; 10 in Luong et al. 2015 and Chen et al. 2018.",
    unit="subwords",
  )
  sigma: Positive = option(
    5.0,
    "Standard deviation σ of the Gaussian around the predicted position; D / "
    "2 in Luong et al. 2015 and Chen et al. 2018.",
    unit="subwords",
  )

  window: ClassVar[type[Window]] = _Local
