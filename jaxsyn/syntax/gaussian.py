"""What PASCAL and Deps-SAN share: a Gaussian of a distance, laid on scores."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Positive
from jaxsyn.syntax.heads import (
  HeadsModifier,
  OnHeads,
  on_heads,
  onto_heads,
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
    "Standard deviation σ, in the unit of the distance; the papers' "
    '"variance" is its square.',
  )
  learn_sigma: bool = option(
    False,
    "σ is a parameter of each head, softplus(ρ), that starts at `sigma`. Ours.",
  )
  normalise: Literal["pdf", "peak1"] = option(
    "pdf",
    '"pdf": c = 1 / σ√2π, as published, 0.399 at d = 0 for σ = 1, which also '
    'shrinks all scores; "peak1": c = 1.',
  )
  apply: Literal["multiply", "add", "add_log"] = option(
    "multiply",
    '"multiply": score · weight, as published. The product is on raw scores: a '
    "small weight pulls a negative score *up* toward 0, so heads must learn "
    'positive scores where they should look. "add": score + weight. "add_log": '
    "score + ln weight, i.e. a product on the probabilities, renormalised; c "
    "cancels, and weight 0 hides. Ours, as in Yang et al. 2018.",
  )

  @property
  def additive(self) -> bool:
    return self.apply != "multiply"


class GaussianModifier(HeadsModifier):
  """Base of the modules: σ, and how a weight meets a score."""

  def setup(self) -> None:
    spec: Gaussian = self.spec
    if spec.learn_sigma:
      start = spec.sigma + math.log(-math.expm1(-spec.sigma))  # softplus⁻¹
      self.raw_sigma_H = self.param(
        "raw_sigma_H",
        lambda _, shape: jnp.full(shape, start, jnp.float32),
        (len(self.heads),),
      )

  def sigma_1H11(self) -> Array:
    """σ of every head, (1, H, 1, 1); a single one where it is fixed."""
    spec: Gaussian = self.spec
    if not spec.learn_sigma:
      return jnp.full((1, 1, 1, 1), spec.sigma, jnp.float32)
    sigma_H = jnp.full(self.site.heads, spec.sigma, jnp.float32)
    learnt_H = jax.nn.softplus(self.raw_sigma_H)
    sigma_H = onto_heads(self.heads, learnt_H, sigma_H, axis=0)
    return sigma_H[None, :, None, None]

  def exponent(self, distance_BQM: Array) -> Array:
    """-d² / 2σ² of every head (exponent_BHQM, H may be 1), float32."""
    return exponent(distance_BQM[:, None], self.sigma_1H11())

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
      constant = peak(self.sigma_1H11()) if spec.normalise == "pdf" else 1.0
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
