"""T5's learned attention-score bias for the signed distance of two positions.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer" (arXiv:1910.10683), section 2.1. The paper describes
32 biases per head, ranges of distances that grow logarithmically up to 128, one
range for all larger distances, and biases shared by all layers. The limits of
the ranges follow the authors' code, from memory.

Letters: L kind of a pair.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import Modifier
from jaxsyn.syntax.pair_bias import PairBias, PairBiasModifier

# Values of the paper: number of ranges, and the distance in subwords from which
# all distances share the last range.
BUCKETS, FARTHEST = 32, 128


def bucket(distance: Array, *, buckets: int, farthest: int) -> Array:
  """Returns the index of the distance range that contains each distance.

  A distance n < half = buckets // 2 is a range of its own; a larger one is in
  range half + floor(ln(n / half) / ln(farthest / half) · (buckets - half)), at
  most buckets - 1.

  Args:
    distance: Integers of at least 0.
    buckets: Number of ranges, at least 2.
    farthest: Distance from which all share the last range; more than half.
  """
  half = buckets // 2
  # In double precision, because a logarithm in float32 could put a distance at
  # a limit into another range on another device.
  span = math.log(farthest / half)
  starts = [
    math.ceil(half * math.exp(span * i / (buckets - half)) - 1e-9)
    for i in range(1, buckets - half)
  ]
  beyond = jnp.sum(distance[..., None] >= np.asarray(starts, np.int32), axis=-1)
  return jnp.where(distance < half, distance, half + beyond)


class _LinearBias(PairBiasModifier):
  def make_parameters(self) -> None:
    self.bias_LH = self.param(
      "bias_LH",
      nn.initializers.normal(self.site.width**-0.5),
      (BUCKETS, len(self.heads)),
    )

  def bias_BHQM(self, features: SentenceFeatures) -> Array:
    distance_QM = features.position_M[None, :] - features.position_Q[:, None]
    if self.site.stack == "decoder":
      label_QM = bucket(
        jnp.maximum(-distance_QM, 0),
        buckets=BUCKETS,
        farthest=FARTHEST,
      )
      # Later positions, which only losses show, have no range, so that they do
      # not train biases that decoding uses.
      label_QM = jnp.where(distance_QM > 0, -1, label_QM)
    else:
      half = BUCKETS // 2
      label_QM = bucket(jnp.abs(distance_QM), buckets=half, farthest=FARTHEST)
      label_QM = label_QM + half * (distance_QM > 0)
    one_QML = jax.nn.one_hot(label_QM, BUCKETS, dtype=jnp.float32)  # -1: zeros
    bias_HQM = jnp.einsum(
      "QML,LH->HQM", one_QML, self.bias_LH, precision=jax.lax.Precision.HIGHEST
    )
    return bias_HQM[None]


@dataclasses.dataclass(frozen=True)
class LinearBias(PairBias):
  """Learned attention-score bias for each range of distances in the sentence.

  The result is score + b_h[range of (m - q)], with positions in subwords. In an
  encoder, half of the ranges are for keys up to the query's position and half
  for later keys; in a decoder, all are for earlier keys. It reads no tree, and
  is the control of `tree_bias`. T5 has no other positions
  (config.model.transformer.positions=False).
  """

  modifier: ClassVar[type[Modifier]] = _LinearBias
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
