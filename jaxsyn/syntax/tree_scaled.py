"""Deps-SAN: self-attention scaled by tree distance, with optional sparsity.

Peng et al., "Boosting Neural Machine Translation with Dependency-Scaled
Self-Attention Network", section 2.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import FAR, OTHER_TREE
from jaxsyn.options import option, with_default
from jaxsyn.options.bounds import CountOrOff, Probability
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import Gaussian, GaussianModifier
from jaxsyn.syntax.heads import HeadChoice, OnHeads
from jaxsyn.syntax.modifier import Modifier


def edges_BSS(features: SentenceFeatures) -> tuple[Array, Array]:
  """Returns subword tree distances, and a mask of those that count as infinite.

  EOS is infinitely far from everything but itself. In the authors' code it has
  the largest distance of the batch, even to itself; here a sentence does not
  depend on its batch.

  Returns:
    edges_BSS, float32, and far_BSS, boolean.
  """
  distance_BSS = features.tree_distance_BSS
  diagonal_SS = jnp.eye(distance_BSS.shape[1], dtype=bool)
  edges_BSS = jnp.where(diagonal_SS, 0, distance_BSS).astype(jnp.float32)
  return edges_BSS, edges_BSS >= FAR


class _TreeScaled(GaussianModifier):
  def _sparse(
    self, features: SentenceFeatures
  ) -> tuple[Array, Array, Array | None]:
    """Returns tree distances, and masks of infinite and dropped distances."""
    spec: TreeScaled = self.spec
    has_path_BSS = features.tree_distance_BSS != OTHER_TREE
    edges, far_BSS = edges_BSS(features)
    dropped_BSS = None
    if spec.wink and (features.train or spec.wink_at_evaluation):
      dropped_BSS = has_path_BSS & (edges > spec.wink)
    if features.train and spec.random_sparse > 0.0:
      # As in the authors' code, heads share the sample, but the directions of
      # a pair do not, and a subword may be dropped for itself.
      sampled_BSS = has_path_BSS & jax.random.bernoulli(
        self.make_rng("syntax"), spec.random_sparse, edges.shape
      )
      if spec.random_distance:  # RS-Sparse comes before Wink-Sparse
        edges = jnp.where(sampled_BSS, spec.random_distance, edges)
        far_BSS = far_BSS & ~sampled_BSS
        if dropped_BSS is not None:
          dropped_BSS = dropped_BSS & ~sampled_BSS
      elif dropped_BSS is None:
        dropped_BSS = sampled_BSS
      else:
        dropped_BSS = dropped_BSS | sampled_BSS
    return edges, far_BSS, dropped_BSS

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    spec: TreeScaled = self.spec
    edges, far, dropped = self._sparse(features)
    unchanged_BHQM = hidden_BHQM = None
    if dropped is not None:
      if spec.fill == "far":
        far = far | dropped
      elif spec.fill == "one":
        unchanged_BHQM = dropped[:, None]
      else:
        is_other = ~jnp.eye(dropped.shape[1], dtype=bool)
        hidden_BHQM = (dropped & is_other)[:, None]
    return self.apply_weights(
      score_BHQM,
      jnp.where(far[:, None], -jnp.inf, self.exponent(edges)),
      features,
      unchanged_BHQM=unchanged_BHQM,
      hidden_BHQM=hidden_BHQM,
    )


@dataclasses.dataclass(frozen=True)
class TreeScaled(Gaussian):
  """Attention scores weighted by a Gaussian of the tree distance.

  The distance is the number of edges between two words (section 2, Eq. 5),
  so σ is in edges. A subword itself has the highest weight; pairs without a
  path, and EOS, have weight 0. The sparse techniques never drop these, so that
  their weight is 0 in training and evaluation, whatever `fill` is.
  """

  layers: HeadChoice = with_default(OnHeads, "layers", None)
  heads: HeadChoice = with_default(OnHeads, "heads", None)
  lowest: CountOrOff = option(
    3,
    "If `layers` is None: number of layers with this modifier, counted from "
    "the lowest; three are best in the paper. 0: all layers.",
  )
  random_sparse: Probability = option(
    0.0,
    "Probability q of dropping a pair in training (RS-Sparse). Each layer "
    "samples independently, and its heads share the sample, as in the "
    'authors\' code. The paper applies this to "each element of D^s", a matrix '
    "that all layers share, but does not say whether they share the sample.",
  )
  random_distance: CountOrOff = option(
    0,
    "Distance k that RS-Sparse gives to a dropped pair; 0: `fill` "
    "determines what happens to it.",
    unit="edges",
  )
  wink: CountOrOff = option(
    0,
    "Maximum distance k: pairs of words farther apart are dropped in training "
    "(Wink-Sparse); 0: off.",
    unit="edges",
  )
  wink_at_evaluation: bool = option(
    False, "Whether Wink-Sparse is used in evaluation too."
  )
  fill: Literal["far", "one", "mask"] = option(
    "far",
    'Treatment of dropped pairs: "far", a weight of 0, as in the authors\' '
    'code (with apply="multiply", the score becomes 0); "one", the score is '
    'unchanged; "mask", the pair is hidden (a subword still sees itself).',
  )

  modifier: ClassVar[type[Modifier]] = _TreeScaled
  required_features: ClassVar[tuple[str, ...]] = ("tree_distance",)
