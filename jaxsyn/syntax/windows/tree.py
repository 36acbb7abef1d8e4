"""Syntax-directed attention: a window of words that are near in the tree.

Chen, Wang, Utiyama, Sumita & Zhao 2018, "Syntax-Directed Attention for Neural
Machine Translation" (AAAI), section 3.2, Eqs. 9-12.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import OTHER_TREE
from jaxsyn.options import option
from jaxsyn.options.bounds import CountOrOff, Positive
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import gaussian_exponent
from jaxsyn.syntax.windows.window import (
  PredictedPosition,
  Window,
  WindowSpec,
  softmax_within,
  subword_at,
)


def distances(features: SentenceFeatures) -> Array:
  """Returns subword tree distances (BSS), with EOS as the parent of all roots.

  They are float32. The distance of EOS from a word is 1 + depth, and words in
  different trees are depth + depth + 2 apart.
  """
  depth_BS = features.depth_BS  # -1 at EOS, the parent of all roots
  via_eos_BSS = depth_BS[:, :, None] + depth_BS[:, None, :] + 2
  distance_BSS = features.tree_distance_BSS
  return jnp.where(
    distance_BSS == OTHER_TREE, via_eos_BSS, distance_BSS
  ).astype(jnp.float32)


def _row(distance_BSS: Array, row_BN: Array) -> Array:
  """Selects the tree distances from one source subword per hypothesis."""
  return jnp.take_along_axis(distance_BSS, row_BN[:, :, None], axis=1)


class _SyntaxDirected(Window):
  def setup(self) -> None:
    if self.spec.position != "expected":
      self.position = PredictedPosition(self.site.dtype)

  def make_shared_features(self, features: SentenceFeatures) -> Array:
    return distances(features)

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    shared: Array,
    past: Any,
    features: SentenceFeatures,
  ) -> tuple[Array, Any]:
    spec: SyntaxDirected = self.spec
    real_B1S = features.real_BS[:, None, :]
    if spec.position == "expected":
      weight_BNS = softmax_within(score_BNS, real_B1S)
      distance_BNS = jnp.einsum("BNQ,BQS->BNS", weight_BNS, shared)
      limit_BNS = distance_BNS
      # The nearest subword is always visible, so that no row is empty.
      masked_BNS = jnp.where(real_B1S, distance_BNS, jnp.inf)
      centre_BN = jnp.argmin(masked_BNS, axis=-1)
    else:
      position_BN = self.position(query_BNG, features.real_BS)
      centre_BN = subword_at(position_BN, features.real_BS)
      distance_BNS = limit_BNS = _row(shared, centre_BN)
      if spec.position == "interp":
        above_BN = subword_at(jnp.ceil(position_BN), features.real_BS)
        share_BN1 = (position_BN - jnp.floor(position_BN))[..., None]
        above_BNS = _row(shared, above_BN)
        distance_BNS = (1 - share_BN1) * distance_BNS + share_BN1 * above_BNS
        limit_BNS = jnp.where(share_BN1 < 0.5, limit_BNS, above_BNS)
    position_S = jnp.arange(score_BNS.shape[-1])
    near_BNS = (limit_BNS <= spec.edges) | (position_S == centre_BN[..., None])
    exponent_BNS = gaussian_exponent(distance_BNS, spec.sigma)
    if spec.apply == "multiply":
      score_BNS = score_BNS * jnp.exp(exponent_BNS)
    else:
      score_BNS = score_BNS + exponent_BNS
    return softmax_within(score_BNS, near_BNS & real_B1S), past


@dataclasses.dataclass(frozen=True)
class SyntaxDirected(WindowSpec):
  """Attention window of words near the predicted source word in the tree.

  The weights are the softmax of e · exp(-M[p]² / 2σ²) with the alignment scores
  e and the tree distances M, in edges. Choices that the paper leaves open: both
  sums of Eq. 11 are over tree distance; p selects subword ⌊p⌋, which is always
  visible; subwords of a word share its distances; EOS is the parent of the
  root.

  An index has no gradient, so with position="hard" the predictor is not trained.
  """

  edges: CountOrOff = option(
    4,
    "Maximum distance n in the tree at which words are visible from the word "
    "at the predicted position; 4 in the paper.",
    unit="edges",
  )
  sigma: Positive = option(
    2.0,
    "Standard deviation σ of the Gaussian of tree distances; n / 2 in the "
    "paper.",
    unit="edges",
  )
  position: Literal["interp", "hard", "expected"] = option(
    "interp",
    'Tree distances M[p] from the predicted position p. "interp" (our '
    "variant): interpolated between M[⌊p⌋] and M[⌈p⌉], so that p gets a "
    "gradient; for integer p, the result is the same as in the paper. The "
    'nearer of the two rows determines which words are visible. "hard": '
    'M[⌊p⌋], as in the paper. "expected" (our variant): Σ_k α_k M[k] with the '
    "global weights α, without a predicted position.",
  )
  apply: Literal["multiply", "add_log"] = option(
    "multiply",
    'Effect of the Gaussian on scores. "multiply": product, as published; a '
    'small factor pulls negative scores *up* toward 0. "add_log" (our '
    "variant): adds -M² / (2σ²), which scales the probabilities.",
  )

  window: ClassVar[type[Window]] = _SyntaxDirected
  required_features: ClassVar[tuple[str, ...]] = ("tree_distance", "head")
