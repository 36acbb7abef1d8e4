"""Scores times whatever matrix the caller puts in the batch.

The door for everybody's own idea: compute a syntax weighting matrix outside,
put it in the batch as `weighting_BSS` (the same for all heads) or
`weighting_BHSS`, and the chosen heads are scaled by it.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import with_default
from jaxsyn.syntax.heads import HeadChoice, OnHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures


class _GivenWeighting(Modifier):
  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: SentenceFeatures,
  ) -> Array:
    if view.weighting_BHSS is not None:
      weighting_BHQM = view.weighting_BHSS
    elif view.weighting_BSS is not None:
      weighting_BHQM = view.weighting_BSS[:, None]
    else:  # a batch without a matrix is that of the plain Transformer
      return score_BHQM
    publish(
      self,
      "weighting_BHQM",
      jnp.broadcast_to(weighting_BHQM, score_BHQM.shape),
    )
    scaled_BHQM = score_BHQM * weighting_BHQM.astype(jnp.float32)
    return on_heads(self.spec.heads, scaled_BHQM, score_BHQM)


@dataclasses.dataclass(frozen=True)
class GivenWeighting(OnHeads):
  """Weighting matrix from the batch, multiplied with scores of chosen heads.

  Rows are querying, columns remembered subwords of the source, EOS
  and pads included; pads are masked afterwards, whatever stands there.
  """

  heads: HeadChoice = with_default(OnHeads, "heads", (0, 1))

  modifier: ClassVar[type[Modifier]] = _GivenWeighting
