"""Multi-head attention with stages that modifiers can override.

Encoder, decoder and cross-attention share this code. Variants are modifiers
(`jaxsyn.syntax`), never branches in here.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from absl import logging
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.product import product
from jaxsyn.arrays.shapes import agree
from jaxsyn.models.layers import Dropout
from jaxsyn.syntax import AttentionSite, ModifierSpec, SentenceFeatures
from jaxsyn.syntax.maps import publish


@functools.cache
def _log_fallback(reason: str) -> None:
  """Logs why cuDNN's attention is not used, once per process and reason."""
  logging.warning(
    "config.model.attention=fused does not use cuDNN's kernel: %s.", reason
  )


class Memory(NamedTuple):
  """Keys and values of attention, with axes BMHK (in a cache, BNHTK)."""

  k: Array
  v: Array


class CrossAttentionCache(NamedTuple):
  """Keys and values of the source, transposed for fast decoding steps.

  In the layout of `Memory` it would be copied in every step.
  """

  k_BHKM: Array
  v_BHMK: Array

  @classmethod
  def of(cls, memory: Memory) -> CrossAttentionCache:
    k_BMHK, v_BMHK = memory
    return cls(k_BMHK.transpose(0, 2, 3, 1), v_BMHK.transpose(0, 2, 1, 3))

  def memory(self) -> Memory:
    return Memory(
      self.k_BHKM.transpose(0, 3, 1, 2), self.v_BHMK.transpose(0, 2, 1, 3)
    )


class Attention(nn.Module):
  """Multi-head attention (Vaswani et al. 2017, section 3.2) with modifiers.

  Attributes:
    site: Stack, layer and sizes.
    dropout: Dropout rate of attention weights.
    modifiers: (name, spec) of the modifiers at this site, in table order.
    fused: Whether `jax.nn.dot_product_attention` computes scores and weights.
      Then all modifiers are additive, there is no dropout, and weights are not
      published.
  """

  site: AttentionSite
  dropout: float = 0.0
  modifiers: tuple[tuple[str, ModifierSpec], ...] = ()
  fused: bool = False

  def setup(self) -> None:
    heads, width = self.site.heads, self.site.width

    def projection(axis: int | tuple[int, int]) -> nn.DenseGeneral:
      return nn.DenseGeneral(
        (heads, self.site.head_width) if axis == -1 else width,
        axis=axis,
        dtype=self.site.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        dot_general=product,
      )

    self.query, self.key = projection(-1), projection(-1)
    self.value, self.output = projection(-1), projection((-2, -1))
    self.drop = Dropout(self.dropout)
    for name, spec in self.modifiers:  # parameters have the modifier's name
      setattr(self, name, spec.make(self.site.for_modifier(name)))

  def __call__(
    self,
    query_BQD: Array,
    memory_BMD: Array,
    allowed_B1QM: Array,
    features: SentenceFeatures,
  ) -> Array:
    """Projects keys and values, and returns the attention output (BQD).

    Args:
      query_BQD: Inputs of the queries.
      memory_BMD: Inputs of keys and values; in self-attention the same array.
      allowed_B1QM: Mask, boolean; Q and B may be 1.
      features: Features of the sentences, for the modifiers.
    """
    memory = self.project_memory(memory_BMD)
    return self.attend(query_BQD, memory, allowed_B1QM, features)

  def project_memory(self, memory_BMD: Array) -> Memory:
    """Returns the projected keys and values, which decoding caches."""
    return Memory(self.key(memory_BMD), self.value(memory_BMD))

  def attend(
    self,
    query_BQD: Array,
    memory: Memory,
    allowed_B1QM: Array,
    features: SentenceFeatures,
  ) -> Array:
    """Returns the attention output (BQD) for projected keys and values."""
    q_BQHK = self.query(query_BQD) * self.site.head_width**-0.5
    out_BQD = self.output(self.mix(q_BQHK, memory, allowed_B1QM, features))
    for name, _ in self.modifiers:
      out_BQD = getattr(self, name).adapt_output(out_BQD, features)
    return out_BQD

  def mix(
    self,
    q_BQHK: Array,
    memory: Memory,
    allowed_B1QM: Array,
    features: SentenceFeatures,
  ) -> Array:
    """Returns the attention-weighted values of each head (BQHK)."""
    modifiers = [getattr(self, name) for name, _ in self.modifiers]
    k_BMHK, v_BMHK = memory
    agree(q_BQHK=q_BQHK, k_BMHK=k_BMHK, v_BMHK=v_BMHK)
    for modifier in modifiers:
      q_BQHK, k_BMHK = modifier.project(q_BQHK, k_BMHK, features)
    features = dataclasses.replace(features, query_BQHK=q_BQHK, key_BMHK=k_BMHK)
    if self.fused:
      return self._fused(v_BMHK, allowed_B1QM, features)
    # In float32 from here on, also for bfloat16 operands, whose scores near 8
    # would be rounded to multiples of 1/32.
    score_BHQM = jnp.einsum(
      "BQHK,BMHK->BHQM", q_BQHK, k_BMHK, preferred_element_type=jnp.float32
    )
    for modifier in modifiers:
      score_BHQM = modifier.rescore(score_BHQM, features)
    # The mask comes last, because a product would set masked scores to 0 again.
    # It is not -inf, because a row of padding would make gradients NaN.
    lowest = jnp.finfo(jnp.float32).min
    score_BHQM = jnp.where(allowed_B1QM, score_BHQM, lowest)
    weight_BHQM = jax.nn.softmax(score_BHQM, axis=-1)
    publish(self, "weight_BHQM", weight_BHQM)  # before dropout
    weight_BHQM = self.drop(weight_BHQM, train=features.train)
    weight_BHQM = weight_BHQM.astype(v_BMHK.dtype)
    mixed_BQHK = jnp.einsum("BHQM,BMHK->BQHK", weight_BHQM, v_BMHK)
    for modifier in modifiers:
      mixed_BQHK = modifier.mix(mixed_BQHK, weight_BHQM, features)
    return mixed_BQHK

  def _fused(
    self, v_BMHK: Array, allowed_B1QM: Array, features: SentenceFeatures
  ) -> Array:
    """Computes `mix` with JAX's fused attention and the modifiers' bias."""
    q_BQHK, k_BMHK = features.query_BQHK, features.key_BMHK
    modifiers = [getattr(self, name) for name, _ in self.modifiers]
    (B, Q, H, _), M = q_BQHK.shape, k_BMHK.shape[1]
    zero_BHQM = bias_BHQM = jnp.zeros((B, H, Q, M), jnp.float32)
    for modifier in modifiers:
      bias_BHQM = modifier.rescore(bias_BHQM, features)
    has_bias = bias_BHQM is not zero_BHQM
    is_learned = has_bias and any(
      modifier.variables.get("params") or modifier.spec.is_shared
      for modifier in modifiers
    )
    reason = ""
    if jax.default_backend() != "gpu":
      reason = (
        "the program is not compiled for a GPU of this process; compile where "
        "it runs"
      )
    elif q_BQHK.dtype != jnp.bfloat16:
      reason = "it needs half precision; set config.model.dtype=bfloat16"
    elif Q % 2 or M % 2:
      reason = "a batch has an odd length"
    elif is_learned:
      reason = (
        "a modifier adds a bias that is learned, for which the kernel has no "
        "gradient; use config.model.attention=einsum"
      )
    if reason and Q > 1:  # a decoding step has no other kernel
      _log_fallback(reason)
    if not reason:
      bias_BHQM = bias_BHQM.astype(q_BQHK.dtype)
    return jax.nn.dot_product_attention(
      q_BQHK,
      k_BMHK,
      v_BMHK,
      bias=bias_BHQM if has_bias else None,
      mask=jnp.broadcast_to(allowed_B1QM, (B, 1, Q, M)),
      scale=1.0,  # queries are divided already
      implementation=None if reason else "cudnn",
    )
