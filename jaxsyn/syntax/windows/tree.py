"""Syntax-directed attention: near in the tree of the source.

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
from jaxsyn.syntax.gaussian import exponent
from jaxsyn.syntax.modifier import SentenceFeatures
from jaxsyn.syntax.windows.window import (
  PredictedPosition,
  Window,
  WindowSpec,
  row_of,
  softmax_within,
)


def distances(view: SentenceFeatures) -> Array:
  """Edges between the words of two subwords, total and finite; float32 BSS.

  EOS depends on the root, so it is 1 + depth from every word; words of
  two trees of one sentence meet there: depth + depth + 2. Subwords of one word
  are 0 apart.
  """
  depth_BS = view.depth_BS  # -1 at EOS: it stands above all roots
  around_BSS = depth_BS[:, :, None] + depth_BS[:, None, :] + 2
  distance_BSS = view.tree_distance_BSS
  return jnp.where(distance_BSS == OTHER_TREE, around_BSS, distance_BSS).astype(
    jnp.float32
  )


def _row(distance_BSS: Array, row_BN: Array) -> Array:
  """M[row]: the distances of one subword a hypothesis (BNS)."""
  return jnp.take_along_axis(distance_BSS, row_BN[:, :, None], axis=1)


class _SyntaxDirected(Window):
  def setup(self) -> None:
    if self.spec.position != "expected":
      self.position = PredictedPosition(self.site.dtype)

  def features(self, view: SentenceFeatures) -> Array:
    return distances(view)

  def __call__(
    self,
    score_BNS: Array,
    query_BNG: Array,
    facts: Array,
    past: Any,
    view: SentenceFeatures,
  ) -> tuple[Array, Any]:
    spec: SyntaxDirected = self.spec
    real_B1S = view.real_BS[:, None, :]
    if spec.position == "expected":
      weight_BNS = softmax_within(score_BNS, real_B1S)
      distance_BNS = jnp.einsum("BNQ,BQS->BNS", weight_BNS, facts)
      test_BNS = distance_BNS
      # No row is empty: the subword nearest to all that is looked at.
      among_BNS = jnp.where(real_B1S, distance_BNS, jnp.inf)
      centre_BN = jnp.argmin(among_BNS, axis=-1)
    else:
      position_BN = self.position(query_BNG, view.real_BS)
      centre_BN = row_of(position_BN, view.real_BS)
      distance_BNS = test_BNS = _row(facts, centre_BN)
      if spec.position == "interp":
        above_BN = row_of(jnp.ceil(position_BN), view.real_BS)
        share_BN1 = (position_BN - jnp.floor(position_BN))[..., None]
        above_BNS = _row(facts, above_BN)
        distance_BNS = (1 - share_BN1) * distance_BNS + share_BN1 * above_BNS
        test_BNS = jnp.where(share_BN1 < 0.5, test_BNS, above_BNS)
    position_S = jnp.arange(score_BNS.shape[-1])
    near_BNS = (test_BNS <= spec.edges) | (position_S == centre_BN[..., None])
    fall_BNS = exponent(distance_BNS, spec.sigma)
    if spec.apply == "multiply":
      score_BNS = score_BNS * jnp.exp(fall_BNS)
    else:
      score_BNS = score_BNS + fall_BNS
    return softmax_within(score_BNS, near_BNS & real_B1S), past


@dataclasses.dataclass(frozen=True)
class SyntaxDirected(WindowSpec):
  """Window of n edges around the predicted word: softmax of e · exp(-M[p]² / 2σ²).

  M counts edges of the tree. Left open by the paper, and taken here: the sum
  in Eq. 11 runs over tree distance in both its places; p falls on subword
  ⌊p⌋, which is always seen; subwords of a word share its distances; EOS
  depends on the root.

  The index p lets no gradient through, so taken at its word ("hard") the
  predictor stays as it was drawn.
  """

  edges: CountOrOff = option(
    4,
    "Maximum tree distance n of visible words from the word at the "
    "predicted position; 4 in the paper.",
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
    'Tree distances M[p] from the predicted position p. "interp": M of '
    "⌊p⌋ and ⌈p⌉, mixed by the fraction of p, so that p gets a gradient; "
    "equal to the paper for integer p. The nearer of the two determines "
    'which words are visible. Ours. "hard": M of ⌊p⌋, exactly as in the '
    'paper. "expected": Σ_k α_k M[k] with the global weights α, without a '
    "predicted position. Ours.",
  )
  apply: Literal["multiply", "add_log"] = option(
    "multiply",
    'Effect of the Gaussian on scores. "multiply": product, as published; '
    "scores may be negative, and a small factor pulls those *up*. "
    '"add_log": sum with -M² / 2σ², which is a product on the '
    "probabilities. Ours.",
  )

  window: ClassVar[type[Window]] = _SyntaxDirected
  required_features: ClassVar[tuple[str, ...]] = ("tree_distance", "head")
