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
from jaxsyn.syntax.gaussian import exponent
from jaxsyn.syntax.modifier import SentenceFeatures
from jaxsyn.syntax.windows.window import (
  PredictedPosition,
  Window,
  WindowSpec,
  row_of,
  softmax_within,
)


class _Local(Window):
  def setup(self) -> None:
    self.position = PredictedPosition(self.site.dtype)

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    facts: Any,
    past: Any,
    view: SentenceFeatures,
  ) -> tuple[Array, Any]:
    position_BN = self.position(query_BNG, view.real_BS)
    position_S = jnp.arange(score_BNS.shape[-1])
    centre_BN1 = row_of(position_BN, view.real_BS)[..., None]
    near_BNS = jnp.abs(position_S - centre_BN1) <= self.spec.reach
    allowed_BNS = near_BNS & view.real_BS[:, None, :]
    distance_BNS = position_S - position_BN[..., None]
    fall_BNS = jnp.exp(exponent(distance_BNS, self.spec.sigma))
    weight_BNS = softmax_within(score_BNS, allowed_BNS) * fall_BNS
    # An even row of padding stays harmless, but no weight is ever on a pad.
    return jnp.where(allowed_BNS, weight_BNS, 0.0), past


@dataclasses.dataclass(frozen=True)
class Local(WindowSpec):
  """Window of ⌊p⌋ ± reach: its softmax times exp(-(j - p)² / 2σ²).

  The product is not renormalised, so weights sum to less than 1; p learns
  through the Gaussian alone. Whether the paper normalises within the window or
  before it is unknown; within is what Nematus's branch of it does.
  """

  reach: CountOrOff = option(
    10,
    "Number D of subwords that are visible on each side of the predicted "
    "position; 10 in both papers.",
    unit="subwords",
  )
  sigma: Positive = option(
    5.0,
    "Standard deviation σ of the Gaussian around the predicted position; "
    "D / 2 in both papers.",
    unit="subwords",
  )

  window: ClassVar[type[Window]] = _Local
