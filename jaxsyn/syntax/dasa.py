"""DASA: attention scores scaled by normalized dependency distances.

Chi et al. 2026, PLoS ONE 21(2), e0342772. Only the abstract was available: a
bias from the normalized matrix of dependency distances modulates the attention
logits element by element. The normalization, and the product as the meaning of
"modulates", are our reading; the options offer alternatives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import OTHER_TREE
from jaxsyn.options import option
from jaxsyn.options.bounds import Amount
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import OnAllHeads, on_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier


def nearness_BSS(features: SentenceFeatures, normalise: str) -> Array:
  """Returns the tree nearness of each pair of subwords, from 0 (no path) to 1.

  Args:
    features: Features with `word_BS` and `tree_distance_BWW`.
    normalise: Option of `Dasa`.
  """
  distance_BSS = features.tree_distance_BSS
  real_BSS = features.real_BS[:, :, None] & features.real_BS[:, None, :]
  has_path_BSS = real_BSS & (distance_BSS != OTHER_TREE)
  edges_BSS = jnp.where(has_path_BSS, distance_BSS, 0).astype(jnp.float32)
  if normalise == "longest":
    longest_B11 = edges_BSS.max((1, 2), keepdims=True)
    near_BSS = 1.0 - edges_BSS / jnp.maximum(longest_B11, 1.0)
  elif normalise == "inverse":
    near_BSS = 1.0 / (1.0 + edges_BSS)
  else:
    near_BSS = jnp.exp(-edges_BSS)
    total_BS1 = jnp.where(has_path_BSS, near_BSS, 0.0).sum(2, keepdims=True)
    near_BSS = near_BSS / jnp.maximum(total_BS1, 1.0)
  return jnp.where(has_path_BSS, near_BSS, 0.0)


class _Dasa(Modifier):
  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    spec: Dasa = self.spec
    bias_BSS = spec.strength * nearness_BSS(features, spec.normalise)
    bias_B1QM = features.where_parsed(bias_BSS, 0.0)[:, None]
    publish(self, "bias_BQM", bias_B1QM[:, 0])
    if spec.apply == "multiply":
      new_BHQM = score_BHQM * (1.0 + bias_B1QM)
    else:
      new_BHQM = score_BHQM + bias_B1QM
    return on_heads(spec.heads, new_BHQM, score_BHQM)


@dataclasses.dataclass(frozen=True)
class Dasa(OnAllHeads):
  """Attention scores scaled by the nearness of two words in the tree.

  The result is score · (1 + α b) with the nearness b, from 0 to 1. As in
  Deps-SAN, the product makes a negative score of a near pair more negative;
  unlike there, far pairs keep their scores. Pairs without a path and pairs with
  EOS have b = 0.
  """

  strength: Amount = option(1.0, "Strength α of the bias b; 0: none.")
  normalise: Literal["longest", "inverse", "rows"] = option(
    "longest",
    'Conversion of a tree distance d to the bias b: "longest", 1 - d / the '
    'longest distance in the sentence; "inverse", 1 / (1 + d); "rows", '
    "exp(-d) divided by its sum over the query's row of subwords.",
  )
  apply: Literal["multiply", "add"] = option(
    "multiply",
    'Effect of the bias b on a score: "multiply", score · (1 + α b); '
    '"add", score + α b.',
  )

  modifier: ClassVar[type[Modifier]] = _Dasa
  required_features: ClassVar[tuple[str, ...]] = ("tree_distance",)
  disabled_options: ClassVar[Mapping[str, Any]] = {"strength": 0.0}

  @property
  def is_additive(self) -> bool:
    return self.apply == "add"
