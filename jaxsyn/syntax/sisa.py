"""SISA: an encoder attention head that is trained as a bi-affine parser.

Strubell et al. 2018's head (LISA) in the form that Bugliarello & Okazaki 2020
(arXiv:1909.03149) compare with PASCAL. The loss is that of the publications; in
their code a second softmax is applied to the weights, over the wrong axis and
with padding.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from flax import linen as nn
from jax import Array

from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import Modifier
from jaxsyn.syntax.supervised import (
  Supervised,
  SupervisedModifier,
  first_of_parent_BS,
)

SLOPE = 0.01  # of the leaky ReLU below 0


class _Sisa(SupervisedModifier):
  def initializer(self) -> nn.initializers.Initializer:
    return nn.initializers.zeros

  def inputs(self, q_BQHK: Array, k_BMHK: Array) -> tuple[Array, Array]:
    # The projections of the head are its two perceptrons; there is no 1/√K.
    return nn.leaky_relu(q_BQHK, SLOPE), nn.leaky_relu(k_BMHK, SLOPE)

  def targets(self, features: SentenceFeatures) -> Array:
    return first_of_parent_BS(features)


@dataclasses.dataclass(frozen=True)
class Sisa(Supervised):
  """Attention heads that learn to find parents by bi-affine scores (SISA).

  The score of query q and key k is [leaky(q); 1]ᵀ Θ leaky(k). Θ = [U; u] is
  initialized to 0, and "leaky" is the leaky ReLU. Every subword should attend
  to the first subword of its parent word.
  """

  modifier: ClassVar[type[Modifier]] = _Sisa
