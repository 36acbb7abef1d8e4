"""Attention scores multiplied by a matrix from the batch, for experiments.

Add the matrix to the batch as `weighting_BSS` (the same for all heads) or
`weighting_BHSS`; the scores of the selected heads are multiplied by it.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import with_default
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import HeadChoice, OnHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier


class _GivenWeighting(Modifier):
  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    if features.weighting_BHSS is not None:
      weighting_BHQM = features.weighting_BHSS
    elif features.weighting_BSS is not None:
      weighting_BHQM = features.weighting_BSS[:, None]
    else:
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
  """Attention scores of selected heads multiplied by a matrix from the batch.

  Rows are queries and columns keys: subwords of the source with EOS and padding,
  which is masked afterwards. Without a matrix, scores stay the same.
  """

  heads: HeadChoice = with_default(OnHeads, "heads", (0, 1))

  modifier: ClassVar[type[Modifier]] = _GivenWeighting
