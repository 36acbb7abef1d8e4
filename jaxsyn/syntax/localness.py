"""Localness: a Gaussian attention bias with a learned center and width.

Yang et al. 2018, "Modeling Localness for Self-Attention Networks"
(arXiv:1810.10182); compared by Peng et al., "Boosting Neural Machine
Translation with Dependency-Scaled Self-Attention Network".
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import CountOrOff, Positive
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.heads import (
  HeadsModifier,
  OnAllHeads,
  put_heads,
  take_heads,
)
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier

MIN_WINDOW = 0.1  # added to a predicted window, so that σ never reaches 0

# Xavier for one matrix or vector per head; the heads do not add to its fan.
MATRICES = nn.initializers.xavier_uniform(-2, -1, batch_axis=0)
VECTORS = nn.initializers.xavier_uniform(-1, (), batch_axis=0)


def gaussian_bias_BHQM(
  centre_BHQ: Array, window_BHQ: Array, position_M: Array
) -> Array:
  """Returns a Gaussian bias of attention scores around predicted centers.

  The bias of the key at position m is -(m - P)² / 2σ² with σ = D / 2.

  Args:
    centre_BHQ: Center P in subwords, fractional.
    window_BHQ: Window D in subwords, above 0; axes may be 1.
    position_M: Positions of the keys.
  """
  offset_BHQM = position_M.astype(jnp.float32) - centre_BHQ[..., None]
  # 2σ² = D² / 2
  return -2.0 * jnp.square(offset_BHQM / window_BHQ[..., None])


class _Localness(HeadsModifier):
  def setup(self) -> None:
    spec: Localness = self.spec
    heads, K = len(self.heads), self.site.head_width
    if not heads:
      return
    # In the paper: W_p, u_p, W_d, u_d.
    self.hidden_HKK = self.param("hidden_HKK", MATRICES, (heads, K, K))
    self.centre_HK = self.param("centre_HK", VECTORS, (heads, K))
    if spec.window == "layer":
      self.key_hidden_HKK = self.param(
        "key_hidden_HKK", MATRICES, (heads, K, K)
      )
    if spec.window != "fixed":
      self.window_HK = self.param("window_HK", VECTORS, (heads, K))

  def _window_BHQ(
    self, hidden_BQHK: Array, k_BMHK: Array, real_BS: Array
  ) -> Array:
    """Returns predicted window widths as fractions of the sentence length."""
    if self.spec.window == "layer":
      real_BM11 = real_BS[:, :, None, None]
      count_B11 = jnp.maximum(real_BS.sum(1), 1)[:, None, None]
      mean_BHK = jnp.where(real_BM11, k_BMHK, 0.0).sum(1) / count_B11
      hidden_BQHK = jnp.tanh(
        jnp.einsum("BHK,HKk->BHk", mean_BHK, self.key_hidden_HKK)
      )[:, None]
    return jax.nn.sigmoid(
      jnp.einsum("BQHK,HK->BHQ", hidden_BQHK, self.window_HK)
    )

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    spec: Localness = self.spec
    # In float32, because in bfloat16 a center beyond 128 misses its subword.
    q_BQHK = features.query_BQHK.astype(jnp.float32)
    q_BQHK = take_heads(self.heads, q_BQHK * self.site.head_width**0.5)
    k_BMHK = take_heads(self.heads, features.key_BMHK.astype(jnp.float32))
    length_B11 = features.real_BS.sum(1).astype(jnp.float32)[:, None, None]
    hidden_BQHK = jnp.tanh(
      jnp.einsum("BQHK,HKk->BQHk", q_BQHK, self.hidden_HKK)
    )
    centre_BHQ = length_B11 * jax.nn.sigmoid(
      jnp.einsum("BQHK,HK->BHQ", hidden_BQHK, self.centre_HK)
    )
    if spec.window == "fixed":
      window_BHQ = jnp.full((1, 1, 1), spec.width, jnp.float32)
    else:
      share_BHQ = self._window_BHQ(hidden_BQHK, k_BMHK, features.real_BS)
      window_BHQ = length_B11 * share_BHQ + MIN_WINDOW
    bias_BHQM = gaussian_bias_BHQM(centre_BHQ, window_BHQ, features.position_M)
    zero_BHQM = jnp.zeros(score_BHQM.shape, jnp.float32)
    bias_BHQM = put_heads(self.heads, bias_BHQM, zero_BHQM)
    publish(self, "bias_BHQM", bias_BHQM)
    return score_BHQM + bias_BHQM


@dataclasses.dataclass(frozen=True)
class Localness(OnAllHeads):
  """Gaussian bias of attention scores around a predicted center.

  The bias of the key at position m is -(m - P)² / 2σ². P = I · sigmoid(u_p ·
  tanh(W_p q)) is the center that a query predicts, D the window and σ = D / 2,
  all in subwords; I is the length of the sentence with EOS, and q the query
  before it is divided by √K. It reads no tree.

  Choices that the paper leaves open: positions count from 0; every head has its
  own W and u without biases, applied to its queries and keys after other
  modifiers; means exclude padding. As in the authors' code, 0.1 is added to a
  predicted D, so that σ is never 0.
  """

  lowest: CountOrOff = option(
    3,
    "If `layers` is None: number of layers with this modifier, counted from "
    "the lowest; three are best in the paper. 0: all layers.",
  )
  window: Literal["fixed", "layer", "query"] = option(
    "query",
    'Window size D: "fixed", `width`; "layer", I · sigmoid(u_d · tanh(W_d '
    "k̄)) for a sentence of length I with the mean key k̄, one window per "
    'sentence and head; "query", I · sigmoid(u_d · tanh(W_p q)) with the '
    "matrix W_p of the predicted center.",
  )
  width: Positive = option(
    10.0,
    'Window size D with window="fixed", twice the standard deviation σ.',
    unit="subwords",
  )

  modifier: ClassVar[type[Modifier]] = _Localness
  is_additive: ClassVar[bool] = True
