"""Gaussian weights for attention scores, as used by PASCAL and Deps-SAN."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Positive
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import HeadsModifier, OnHeads, on_heads
from jaxsyn.syntax.maps import publish

# Score of a hidden pair. It is finite, so that a row of hidden pairs is not NaN.
HIDDEN = -1e9


def gaussian_exponent(distance: Array, sigma: Array | float) -> Array:
  """Returns the exponent of a Gaussian, -distance² / 2σ², in float32."""
  return -0.5 * jnp.square(distance.astype(jnp.float32) / sigma)


@dataclasses.dataclass(frozen=True)
class Gaussian(OnHeads):
  """Options for weighting attention scores by a Gaussian of a distance.

  weight = c · exp(-d² / 2σ²) for a distance d
  """

  sigma: Positive = option(
    1.0,
    "Standard deviation σ in the unit of the distance (subwords in "
    'parent_scaled, edges in tree_scaled); the papers\' "variance" is its '
    "square.",
  )
  normalise: Literal["pdf", "peak1"] = option(
    "pdf",
    'Constant c of the Gaussian: "pdf", 1 / (σ√2π), as published (0.399 for σ '
    '= 1), which also shrinks all scores; "peak1", 1.',
  )
  apply: Literal["multiply", "add", "add_log"] = option(
    "multiply",
    'Effect of the weight on a score. "multiply": score · weight, as '
    "published; a small weight pulls a negative score *up* toward 0, so that "
    'heads must learn positive scores for what they attend to. "add": score + '
    'weight. "add_log" (ours, after Yang et al. 2018): score + ln weight, '
    "which scales the probabilities; c cancels out, and a weight of 0 hides "
    "the key.",
  )

  @property
  def is_additive(self) -> bool:
    return self.apply != "multiply"


class GaussianModifier(HeadsModifier):
  """Base class of modules that apply Gaussian weights to attention scores."""

  def sigma_1111(self) -> Array:
    """Returns the Gaussian's standard deviation σ in float32."""
    spec: Gaussian = self.spec
    return jnp.full((1, 1, 1, 1), spec.sigma, jnp.float32)

  def exponent(self, distance_BQM: Array) -> Array:
    """Returns the exponents of the Gaussian for given distances."""
    return gaussian_exponent(distance_BQM[:, None], self.sigma_1111())

  def apply_weights(
    self,
    score_BHQM: Array,
    exponent_BHQM: Array,
    features: SentenceFeatures,
    *,
    constant: float | None = None,
    unchanged_BHQM: Array | None = None,
    hidden_BHQM: Array | None = None,
  ) -> Array:
    """Applies Gaussian weights to the attention scores of selected heads.

    A weight is c · exp(exponent).

    Args:
      score_BHQM: Scores.
      exponent_BHQM: Exponents; -inf where the weight is 0.
      features: Features of the sentences. Without a tree, scores stay the same.
      constant: c; None: that of the Gaussian.
      unchanged_BHQM: True where a score stays the same; axes may be 1.
      hidden_BHQM: True where a pair is hidden; axes may be 1.
    """
    spec: Gaussian = self.spec
    peak: Array | float = 1.0
    if constant is not None:
      peak = constant
    elif spec.normalise == "pdf":
      peak = 1.0 / (self.sigma_1111() * math.sqrt(2.0 * math.pi))
    weight_BHQM = peak * jnp.exp(exponent_BHQM)
    publish(
      self, "weighting_BHQM", jnp.broadcast_to(weight_BHQM, score_BHQM.shape)
    )
    if spec.apply == "multiply":
      new_BHQM = score_BHQM * weight_BHQM
    elif spec.apply == "add":
      new_BHQM = score_BHQM + weight_BHQM
    else:
      new_BHQM = score_BHQM + jnp.maximum(exponent_BHQM, HIDDEN)
    if unchanged_BHQM is not None:
      new_BHQM = jnp.where(unchanged_BHQM, score_BHQM, new_BHQM)
    if hidden_BHQM is not None:
      new_BHQM = jnp.where(hidden_BHQM, HIDDEN, new_BHQM)
    new_BHQM = features.where_parsed(new_BHQM, score_BHQM)
    return on_heads(spec.heads, new_BHQM, score_BHQM)
