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

from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures, StackShape
from jaxsyn.syntax.pair_bias import PairBias, PairBiasModifier


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
    spec: LinearBias = self.spec
    self.bias_LH = self.param(
      "bias_LH",
      nn.initializers.normal(self.site.width**-0.5),
      (spec.buckets, len(self.heads)),
    )

  def bias_BHQM(self, view: SentenceFeatures) -> Array:
    spec: LinearBias = self.spec
    distance_QM = view.position_M[None, :] - view.position_Q[:, None]
    if self.site.stack == "decoder":  # it sees what stands before
      label_QM = bucket(
        jnp.maximum(-distance_QM, 0),
        buckets=spec.buckets,
        farthest=spec.farthest,
      )
      # Where a loss has it see all of the target: what stands after has no
      # range, and trains none that translating reads.
      label_QM = jnp.where(distance_QM > 0, -1, label_QM)
    else:
      half = spec.buckets // 2
      label_QM = bucket(
        jnp.abs(distance_QM), buckets=half, farthest=spec.farthest
      )
      label_QM = label_QM + half * (distance_QM > 0)
    one_QML = jax.nn.one_hot(  # of -1: zeros
      label_QM, spec.buckets, dtype=jnp.float32
    )
    bias_HQM = jnp.einsum(
      "QML,LH->HQM", one_QML, self.bias_LH, precision=jax.lax.Precision.HIGHEST
    )
    return bias_HQM[None]


@dataclasses.dataclass(frozen=True)
class LinearBias(PairBias):
  """score + b_h[range of (m - q)], in subwords.

  In an encoder half of the ranges are of what stands before the query, and it
  itself, half of what stands behind it; in a decoder all are of what stands
  before. It reads no tree: the control of `tree_bias`. T5 has no other positions
  (config.model.transformer.positions=False).
  """

  buckets: Count = option(32, "Ranges of distances, of a head.")
  farthest: Count = option(
    128,
    "From here on all distances are one range, with those near it: ranges grow "
    "as its logarithm, and the last of 32 begins at 91 in an encoder, at 113 in "
    "a decoder.",
    unit="subwords",
  )

  modifier: ClassVar[type[Modifier]] = _LinearBias
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    minimum = 2 if stack_shape.stack == "decoder" else 4
    if self.buckets < minimum or (
      stack_shape.stack == "encoder" and self.buckets % 2
    ):
      raise (at / "buckets").error(
        f"={self.buckets}: an encoder takes an even number from 4 on, half of "
        "them for each direction, a decoder 2 or more."
      )
    half = self.buckets // (4 if stack_shape.stack == "encoder" else 2)
    if self.farthest <= half:
      raise (at / "farthest").error(
        f"={self.farthest} must be more than {half}: up to there each distance "
        f"is a range of its own with buckets={self.buckets}."
      )
