"""PASCAL: self-attention scaled by the distance from each word's parent.

Bugliarello & Okazaki 2020, "Enhancing Machine Translation with
Dependency-Aware Self-Attention" (arXiv:1909.03149), section 3.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.options.bounds import Probability
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import Gaussian, GaussianModifier
from jaxsyn.syntax.heads import HeadChoice, OnHeads
from jaxsyn.syntax.modifier import Modifier, StackShape


def parent_offset_BQM(parent_BQ: Array, length_M: int) -> Array:
  """Returns each key's signed distance from the parent of each query.

  It is m - parent[b,q] for key m.

  Args:
    parent_BQ: Middle position of the parent word's subwords, fractional if
      their number is even.
    length_M: Number of keys.
  """
  position_11M = jnp.arange(length_M, dtype=jnp.float32)[None, None, :]
  return position_11M - parent_BQ.astype(jnp.float32)[:, :, None]


def is_parent_BQM(parent_BQ: Array, length_M: int) -> Array:
  """Returns a mask of the keys in the middle of each query's parent word.

  The paper calls these weights "parent-only" (Table 7b). Keys nearer than one
  subword count: the middle subword of an odd number, and both middle subwords
  of an even number, with weight 1 each. The paper leaves this open; the
  authors' code does the same.
  """
  return jnp.abs(parent_offset_BQM(parent_BQ, length_M)) < 1.0


class _ParentScaled(GaussianModifier):
  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    spec: ParentScaled = self.spec
    parent_BQ, length_M = features.parent_mid_BS, score_BHQM.shape[3]
    constant = None
    if spec.weighting == "parent_only":
      is_parent_B1QM = is_parent_BQM(parent_BQ, length_M)[:, None]
      exponent_BHQM = jnp.where(is_parent_B1QM, 0.0, -jnp.inf)
      constant = 1.0
    else:
      exponent_BHQM = self.exponent(parent_offset_BQM(parent_BQ, length_M))
    ignored_BHQ1 = None
    if features.train and spec.ignore > 0.0:
      # Section 3.2: the complete row of the matrix becomes 1.
      ignored_BHQ1 = jax.random.bernoulli(
        self.make_rng("syntax"), spec.ignore, (*score_BHQM.shape[:3], 1)
      )
    return self.apply_weights(
      score_BHQM,
      exponent_BHQM,
      features,
      constant=constant,
      unchanged_BHQM=ignored_BHQ1,
    )


@dataclasses.dataclass(frozen=True)
class ParentScaled(Gaussian):
  """Attention scores weighted by a Gaussian around the middle of the parent.

  Distances are in subwords, fractional; σ is in subwords. The density's constant
  is part of the method (section 3.2).
  """

  heads: HeadChoice = with_default(OnHeads, "heads", (0, 1))
  weighting: Literal["gaussian", "parent_only"] = option(
    "gaussian",
    'Weight of a subword: "gaussian", around the parent\'s middle; '
    '"parent_only" (Table 7b), 1 on the middle subword(s) of the parent and 0 '
    'elsewhere, without σ. With apply="multiply", a weight of 0 makes the '
    "score 0 but does not hide the subword.",
  )
  ignore: Probability = option(
    0.0,
    "Probability of ignoring a subword's parent in training, sampled for each "
    'layer, head and query subword. The paper says "each row" of the matrix, '
    "but not whether heads or layers share the sample.",
  )

  modifier: ClassVar[type[Modifier]] = _ParentScaled
  required_features: ClassVar[tuple[str, ...]] = ("parent_mid",)

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    if self.weighting == "parent_only":
      unused = ("sigma", "normalise")
      self.reject_changed_options(at, unused, "weighting='parent_only'")
