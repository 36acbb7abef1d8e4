"""Base classes of modifiers that add learned biases to attention scores.

Each query-key pair has a kind, such as its distance, and each kind has a bias.
Each head has its own biases, which all layers share, as published.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array

from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import HeadsModifier, OnAllHeads, put_heads
from jaxsyn.syntax.maps import publish


@dataclasses.dataclass(frozen=True)
class PairBias(OnAllHeads):
  """Base class of options for learned score biases of query-key pairs.

  Each head has a bias for each kind of pair, such as each distance.
  """

  @property
  def is_additive(self) -> bool:
    return True


class PairBiasModifier(HeadsModifier):
  """Base class of modules that add learned biases to attention scores."""

  def setup(self) -> None:
    if self.site.layer < 0:  # the module that all layers share
      self.make_parameters()

  def make_parameters(self) -> None:
    """Creates the bias parameters of the selected attention heads."""
    raise NotImplementedError

  def bias_BHQM(self, features: SentenceFeatures) -> Array:
    """Returns the attention-score biases of the selected heads in float32.

    B is 1 if they do not depend on the sentence.
    """
    raise NotImplementedError

  def make_shared_features(self, features: SentenceFeatures) -> Array:
    return self.bias_BHQM(features)

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    selected_BHQM = features.shared_features[self.site.modifier]
    B, H, Q, M = score_BHQM.shape
    selected_BHQM = jnp.broadcast_to(selected_BHQM, (B, len(self.heads), Q, M))
    zero_BHQM = jnp.zeros((B, H, Q, M), selected_BHQM.dtype)
    bias_BHQM = put_heads(self.heads, selected_BHQM, zero_BHQM)
    publish(self, "bias_BHQM", bias_BHQM)
    return score_BHQM + bias_BHQM
