"""A learned number added to the score of each pair, by what kind of pair it is.

The base of `linear_bias` and `tree_bias`. Each head has its own numbers, which all
layers share, as published.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import with_default
from jaxsyn.syntax.heads import HeadChoice, HeadsModifier, OnHeads, onto_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import SentenceFeatures


@dataclasses.dataclass(frozen=True)
class PairBias(OnHeads):
  """score + b, where b is of a head and a kind of pair."""

  layers: HeadChoice = with_default(OnHeads, "layers", None)
  heads: HeadChoice = with_default(OnHeads, "heads", None)

  @property
  def is_shared(self) -> bool:
    return True

  @property
  def additive(self) -> bool:
    return True


class PairBiasModifier(HeadsModifier):
  """Base of the modules; they make the numbers, and say which a pair has."""

  def setup(self) -> None:
    if self.site.layer < 0:  # the module that all layers share
      self.make_parameters()

  def make_parameters(self) -> None:
    """Makes them: of the chosen heads, H of their names."""
    raise NotImplementedError

  def bias_BHQM(self, view: SentenceFeatures) -> Array:
    """Of the chosen heads, float32; B is 1 where sentences share it."""
    raise NotImplementedError

  def make_shared_features(self, view: SentenceFeatures) -> Array:
    return self.bias_BHQM(view)

  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: SentenceFeatures,
  ) -> Array:
    pair_bias_BHQM = view.shared_features[self.site.modifier]
    B, H, Q, M = score_BHQM.shape
    pair_bias_BHQM = jnp.broadcast_to(
      pair_bias_BHQM, (B, len(self.heads), Q, M)
    )
    none_BHQM = jnp.zeros((B, H, Q, M), pair_bias_BHQM.dtype)
    bias_BHQM = onto_heads(self.heads, pair_bias_BHQM, none_BHQM)
    publish(self, "bias_BHQM", bias_BHQM)
    return score_BHQM + bias_BHQM
