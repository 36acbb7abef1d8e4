"""Attention: one short story with stages that parts may override.

For encoder, decoder and cross-attention alike: project, score, rescore, mask,
softmax, mix, and what stands beside. A variant is a part (`jaxsyn.syntax`),
never a branch in here.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from absl import logging
from flax import linen as nn
from jax import Array

from jaxsyn.models.layers import Dropout
from jaxsyn.product import product
from jaxsyn.shapes import agree
from jaxsyn.syntax import AttentionSite, ModifierSpec, SentenceFeatures
from jaxsyn.syntax.maps import publish


@functools.cache
def _log_fallback(reason: str) -> None:
  """Logs once per process and reason that cuDNN's kernel is not used."""
  logging.warning(
    "config.model.attention=fused does not use cuDNN's kernel: %s.", reason
  )


class Memory(NamedTuple):
  """Keys and values of what is looked at: BMHK; in a cache BNTHK."""

  k: Array
  v: Array


class CrossAttentionCache(NamedTuple):
  """A memory as the products of every decoding step read it.

  Laid out as `Memory`, it was copied in each step.
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
  """Multi-head attention (Vaswani et al. 2017, section 3.2) with parts.

  Attributes:
    site: stack, layer and sizes.
    dropout: rate on the attention weights.
    modifiers: (name, spec) of the modifiers at this site, in table order.
    fused: scores and weights are left to `jax.nn.dot_product_attention`; then
      all parts are `additive`, there is no dropout, and no weights are published.
  """

  site: AttentionSite
  dropout: float = 0.0
  modifiers: tuple[tuple[str, ModifierSpec], ...] = ()
  fused: bool = False

  def setup(self) -> None:
    heads, width = self.site.heads, self.site.width

    def project(axis: int | tuple[int, int]) -> nn.DenseGeneral:
      return nn.DenseGeneral(
        (heads, self.site.head_width) if axis == -1 else width,
        axis=axis,
        dtype=self.site.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        dot_general=product,
      )

    self.query, self.key, self.value = project(-1), project(-1), project(-1)
    self.output = project((-2, -1))
    self.drop = Dropout(self.dropout)
    for name, spec in self.modifiers:  # parameters bear the part's name
      setattr(self, name, spec.make(self.site.for_modifier(name)))

  def __call__(
    self,
    query_BQD: Array,
    memory_BMD: Array,
    allowed_B1QM: Array,
    view: SentenceFeatures,
  ) -> Array:
    """Queries look at a memory.

    Args:
      query_BQD: what asks; for self-attention the same array as the memory.
      memory_BMD: what is looked at.
      allowed_B1QM: boolean (Q or B may be 1); False is never looked at.
      view: facts for the parts.

    Returns: mixed_BQD.
    """
    memory = self.project_memory(memory_BMD)
    return self.attend(query_BQD, memory, allowed_B1QM, view)

  def project_memory(self, memory_BMD: Array) -> Memory:
    """Computed once and kept when decoding."""
    return Memory(self.key(memory_BMD), self.value(memory_BMD))

  def attend(
    self,
    query_BQD: Array,
    memory: Memory,
    allowed_B1QM: Array,
    view: SentenceFeatures,
  ) -> Array:
    """See `__call__`; the memory is that of `remember`."""
    q_BQHK = self.query(query_BQD) * self.site.head_width**-0.5
    out_BQD = self.output(self.mixed(q_BQHK, memory, allowed_B1QM, view))
    for name, _ in self.modifiers:
      out_BQD = getattr(self, name).adapt_output(out_BQD, query_BQD, view)
    return out_BQD

  def mixed(
    self,
    q_BQHK: Array,
    memory: Memory,
    allowed_B1QM: Array,
    view: SentenceFeatures,
  ) -> Array:
    """The story itself, between the projections: the mixed values (BQHK)."""
    parts = [getattr(self, name) for name, _ in self.modifiers]
    k_BMHK, v_BMHK = memory
    agree(q_BQHK=q_BQHK, k_BMHK=k_BMHK, v_BMHK=v_BMHK)
    for part in parts:
      q_BQHK, k_BMHK = part.project(q_BQHK, k_BMHK, view)
    if self.fused:
      memory = Memory(k_BMHK, v_BMHK)
      return self._fused(q_BQHK, memory, allowed_B1QM, view)
    # In float32 from the product on, also where the operands are bfloat16:
    # rounded there, scores near 8 lie 1/32 apart before a part has seen them.
    score_BHQM = jnp.einsum(
      "BQHK,BMHK->BHQM", q_BQHK, k_BMHK, preferred_element_type=jnp.float32
    )
    for part in parts:
      score_BHQM = part.rescore(score_BHQM, q_BQHK, k_BMHK, view)
    # Mask last: a product after the mask would bring pads back to score 0. And
    # not with -inf: a row of padding alone made its batch's gradient NaN.
    lowest = jnp.finfo(jnp.float32).min
    score_BHQM = jnp.where(allowed_B1QM, score_BHQM, lowest)
    weight_BHQM = jax.nn.softmax(score_BHQM, axis=-1)
    # Before dropout: losses and pictures are of the weights, not of its noise.
    publish(self, "weight_BHQM", weight_BHQM)
    weight_BHQM = self.drop(weight_BHQM, train=view.train).astype(v_BMHK.dtype)
    mixed_BQHK = jnp.einsum("BHQM,BMHK->BQHK", weight_BHQM, v_BMHK)
    for part in parts:
      mixed_BQHK = part.mix(mixed_BQHK, weight_BHQM, view)
    return mixed_BQHK

  def _fused(
    self,
    q_BQHK: Array,
    memory: Memory,
    allowed_B1QM: Array,
    view: SentenceFeatures,
  ) -> Array:
    """The same, all that parts add to scores as one bias."""
    k_BMHK, v_BMHK = memory
    parts = [getattr(self, name) for name, _ in self.modifiers]
    (B, Q, H, _), M = q_BQHK.shape, k_BMHK.shape[1]
    none_BHQM = bias_BHQM = jnp.zeros((B, H, Q, M), jnp.float32)
    for part in parts:
      bias_BHQM = part.rescore(bias_BHQM, q_BQHK, k_BMHK, view)
    biased = bias_BHQM is not none_BHQM
    # cuDNN's kernel wants halves and even lengths, and it gives a bias no
    # gradient. Elsewhere JAX has none but the einsum.
    learnt = biased and any(
      part.variables.get("params") or part.spec.is_shared for part in parts
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
    elif learnt:
      reason = (
        "a modifier adds a bias that is learned, for which the kernel has no "
        "gradient; use config.model.attention=einsum"
      )
    if reason and Q > 1:  # a decoding step has no other kernel
      _log_fallback(reason)
    cudnn = not reason
    if cudnn:
      bias_BHQM = bias_BHQM.astype(q_BQHK.dtype)
    return jax.nn.dot_product_attention(
      q_BQHK,
      k_BMHK,
      v_BMHK,
      bias=bias_BHQM if biased else None,
      mask=jnp.broadcast_to(allowed_B1QM, (B, 1, Q, M)),
      scale=1.0,  # queries are divided already
      implementation="cudnn" if cudnn else None,
    )
