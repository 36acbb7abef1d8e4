"""What PASCAL and Deps-SAN share: a Gaussian of a distance, laid on scores."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Positive
from jaxsyn.syntax.heads import (
  HeadsModifier,
  OnHeads,
  on_heads,
)
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import SentenceFeatures

# Added to a score it leaves nothing of it after the softmax, and it is finite:
# a row that is hidden as a whole has no NaN.
HIDDEN = -1e9


def exponent(distance: Array, sigma: Array | float) -> Array:
  """-d² / 2σ², float32."""
  return -0.5 * jnp.square(distance.astype(jnp.float32) / sigma)


def peak(sigma: Array | float) -> Array | float:
  """The normal density's value at its mean, 1 / σ√2π."""
  return 1.0 / (sigma * math.sqrt(2.0 * math.pi))


@dataclasses.dataclass(frozen=True)
class Gaussian(OnHeads):
  """A weight for every pair of positions, falling with some distance d.

  weight = c · exp(-d² / 2σ²)
  """

  sigma: Positive = option(
    1.0,
    "Standard deviation σ in the unit of the distance; the papers' "
    '"variance" is its square.',
  )
  normalise: Literal["pdf", "peak1"] = option(
    "pdf",
    'Constant c of the Gaussian: "pdf", 1 / σ√2π, as published, 0.399 for '
    'σ = 1, which also shrinks all scores; "peak1", 1.',
  )
  apply: Literal["multiply", "add", "add_log"] = option(
    "multiply",
    'Effect of the weight on a score. "multiply": score · weight, as '
    "published; a small weight pulls a negative score *up* toward 0, so "
    "that heads must learn positive scores for what they attend to. "
    '"add": score + weight. "add_log": score + ln weight, a product on '
    "the probabilities, in which c cancels and weight 0 hides. Ours, as "
    "in Yang et al. 2018.",
  )

  @property
  def additive(self) -> bool:
    return self.apply != "multiply"


class GaussianModifier(HeadsModifier):
  """Base of the modules: σ, and how a weight meets a score."""

  def sigma_1111(self) -> Array:
    """Returns σ in float32, (1, 1, 1, 1)."""
    spec: Gaussian = self.spec
    return jnp.full((1, 1, 1, 1), spec.sigma, jnp.float32)

  def exponent(self, distance_BQM: Array) -> Array:
    """-d² / 2σ² of every head (exponent_BHQM, H may be 1), float32."""
    return exponent(distance_BQM[:, None], self.sigma_1111())

  def lay(
    self,
    score_BHQM: Array,
    exponent_BHQM: Array,
    view: SentenceFeatures,
    *,
    constant: Array | float | None = None,
    untouched_BHQM: Array | None = None,
    hidden_BHQM: Array | None = None,
  ) -> Array:
    """The scores of the chosen heads with the weight on them.

    Args:
      score_BHQM: before.
      exponent_BHQM: ln(weight / c); -inf where the weight is 0.
      view: a sentence without a tree keeps its scores.
      constant: c; None: that of the Gaussian. Its axes may be 1.
      untouched_BHQM: where a score stays as it is; its axes may be 1.
      hidden_BHQM: where a pair is not looked at; likewise.
    """
    spec: Gaussian = self.spec
    if constant is None:
      constant = peak(self.sigma_1111()) if spec.normalise == "pdf" else 1.0
    weight_BHQM = constant * jnp.exp(exponent_BHQM)
    publish(
      self, "weighting_BHQM", jnp.broadcast_to(weight_BHQM, score_BHQM.shape)
    )
    if spec.apply == "multiply":
      new_BHQM = score_BHQM * weight_BHQM
    elif spec.apply == "add":
      new_BHQM = score_BHQM + weight_BHQM
    else:
      new_BHQM = score_BHQM + jnp.maximum(exponent_BHQM, HIDDEN)
    if untouched_BHQM is not None:
      new_BHQM = jnp.where(untouched_BHQM, score_BHQM, new_BHQM)
    if hidden_BHQM is not None:
      new_BHQM = jnp.where(hidden_BHQM, HIDDEN, new_BHQM)
    new_BHQM = view.where_parsed(new_BHQM, score_BHQM)
    return on_heads(spec.heads, new_BHQM, score_BHQM)
