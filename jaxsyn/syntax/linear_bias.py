"""A learned bias of each head for the signed distance in the sentence.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer" (arXiv:1910.10683), section 2.1. The paper has the
idea, 32 numbers a head, ranges that grow logarithmically up to 128 and what lies
beyond as one, shared by all layers; where the ranges begin is only in the
authors' code, recalled here.

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

from jaxsyn.syntax.modifier import Modifier, SentenceFeatures
from jaxsyn.syntax.pair_bias import PairBias, PairBiasModifier

# Values of the paper: number of distance ranges, and the distance in subwords from
# which all distances share the last range.
BUCKETS, FARTHEST = 32, 128


def bucket(distance: Array, *, buckets: int, farthest: int) -> Array:
  """Which of the ranges a distance of 0 or more falls into, from 0.

  n where n < half = buckets // 2, each distance for itself; beyond it
  half + floor(ln(n / half) / ln(farthest / half) · (buckets - half)), at most
  buckets - 1, which holds `farthest` and all that is farther.

  Args:
    distance: integers.
    buckets: how many ranges, 2 or more.
    farthest: more than half.
  """
  half = buckets // 2
  # Where each range begins, in double precision and here: a logarithm of 32
  # bits puts a distance at the edge into another range on another device.
  span = math.log(farthest / half)
  begins = [
    math.ceil(half * math.exp(span * i / (buckets - half)) - 1e-9)
    for i in range(1, buckets - half)
  ]
  beyond = jnp.sum(distance[..., None] >= np.asarray(begins, np.int32), axis=-1)
  return jnp.where(distance < half, distance, half + beyond)


class _LinearBias(PairBiasModifier):
  def make_parameters(self) -> None:
    self.bias_LH = self.param(
      "bias_LH",
      nn.initializers.normal(self.site.width**-0.5),
      (BUCKETS, len(self.heads)),
    )

  def bias_BHQM(self, view: SentenceFeatures) -> Array:
    distance_QM = view.position_M[None, :] - view.position_Q[:, None]
    if self.site.stack == "decoder":  # it sees what stands before
      label_QM = bucket(
        jnp.maximum(-distance_QM, 0),
        buckets=BUCKETS,
        farthest=FARTHEST,
      )
      # Where a loss has it see all of the target: what stands after has no
      # range, and trains none that translating reads.
      label_QM = jnp.where(distance_QM > 0, -1, label_QM)
    else:
      half = BUCKETS // 2
      label_QM = bucket(jnp.abs(distance_QM), buckets=half, farthest=FARTHEST)
      label_QM = label_QM + half * (distance_QM > 0)
    one_QML = jax.nn.one_hot(  # of -1: zeros
      label_QM, BUCKETS, dtype=jnp.float32
    )
    bias_HQM = jnp.einsum(
      "QML,LH->HQM", one_QML, self.bias_LH, precision=jax.lax.Precision.HIGHEST
    )
    return bias_HQM[None]


@dataclasses.dataclass(frozen=True)
class LinearBias(PairBias):
  """Bias of ranges of distances, score + b_h[range of (m - q)], in subwords.

  In an encoder half of the ranges are of what stands before the query, and it
  itself, half of what stands behind it; in a decoder all are of what stands
  before. It reads no tree: the control of `tree_bias`. T5 has no other positions
  (config.model.transformer.positions=False).
  """

  modifier: ClassVar[type[Modifier]] = _LinearBias
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
