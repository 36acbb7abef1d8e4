"""The layers of the Transformer, pre- or post-norm, with attention by parts.

Before this file: `attention`, `layers`. After it: `transformer`.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.models.attention import Attention, CrossAttentionCache, Memory
from jaxsyn.models.layers import Dropout, FeedForward, norm
from jaxsyn.models.spec import ModelSpec
from jaxsyn.syntax import SentenceFeatures


class Residual(nn.Module):
  """Norm, sublayer, dropout and the sum, in pre- or post-norm order."""

  style: str
  dropout: float
  dtype: str

  def setup(self) -> None:
    self.norm = norm(self.dtype)
    self.drop = Dropout(self.dropout)

  def enter(self, x_BSD: Array) -> Array:
    """What the sublayer gets."""
    return self.norm(x_BSD) if self.style == "pre" else x_BSD

  def leave(self, x_BSD: Array, branch_BSD: Array, *, train: bool) -> Array:
    """What the next sublayer gets."""
    x_BSD = x_BSD + self.drop(branch_BSD, train=train)
    return self.norm(x_BSD) if self.style == "post" else x_BSD


def _attention(spec: ModelSpec, place: str, layer: int) -> Attention:
  kind = Attention
  if spec.remat == "attention":
    kind = nn.remat(Attention, methods=["mixed"])
  fused = (
    spec.model.attention == "fused"
    and (place, layer) not in spec.published_maps
  )
  return kind(
    spec.attention_site(place, layer),
    spec.architecture.attention_dropout,
    spec.modifiers.modifiers_in_layer(place, layer),
    fused=fused,
  )


def _feed_forward(spec: ModelSpec) -> FeedForward:
  options = spec.architecture
  return FeedForward(
    options.feed_forward,
    options.activation,
    options.activation_dropout,
    spec.model.dtype,
  )


def _residual(spec: ModelSpec) -> Residual:
  return Residual(
    spec.architecture.norm, spec.architecture.dropout, spec.model.dtype
  )


class EncoderLayer(nn.Module):
  spec: ModelSpec
  layer: int

  def setup(self) -> None:
    self.attention = _attention(self.spec, "encoder", self.layer)
    self.feed_forward = _feed_forward(self.spec)
    self.around_attention = _residual(self.spec)
    self.around_feed_forward = _residual(self.spec)

  def __call__(
    self, x_BSD: Array, view: SentenceFeatures
  ) -> tuple[Array, SentenceFeatures]:
    """The layer's output, and the view with this layer's input added."""
    around = self.around_attention
    query_BSD = around.enter(x_BSD)
    view = dataclasses.replace(view, inputs=(*view.inputs, query_BSD))
    allowed_B11S = view.real_BS[:, None, None, :]
    mixed_BSD = self.attention(query_BSD, query_BSD, allowed_B11S, view)
    x_BSD = around.leave(x_BSD, mixed_BSD, train=view.train)
    around = self.around_feed_forward
    hidden_BSD = self.feed_forward(around.enter(x_BSD), train=view.train)
    return around.leave(x_BSD, hidden_BSD, train=view.train), view


class DecoderLayer(nn.Module):
  spec: ModelSpec
  layer: int

  def setup(self) -> None:
    self.attention = _attention(self.spec, "decoder", self.layer)
    self.cross = _attention(self.spec, "cross", self.layer)
    self.feed_forward = _feed_forward(self.spec)
    self.around_attention = _residual(self.spec)
    self.around_cross = _residual(self.spec)
    self.around_feed_forward = _residual(self.spec)

  def __call__(
    self,
    x_BTD: Array,
    memory_BSD: Array,
    target: SentenceFeatures,
    source: SentenceFeatures,
  ) -> Array:
    """All target positions at once, each seeing itself and the past."""
    length = x_BTD.shape[1]
    seen_11TT = jnp.ones((1, 1, length, length), bool)
    if not target.full_context:
      seen_11TT = jnp.tril(seen_11TT)
    allowed_B1TT = seen_11TT & target.real_BS[:, None, None, :]
    around = self.around_attention
    query_BTD = around.enter(x_BTD)
    mixed_BTD = self.attention(query_BTD, query_BTD, allowed_B1TT, target)
    x_BTD = around.leave(x_BTD, mixed_BTD, train=target.train)
    return self._rest(x_BTD, self.cross.project_memory(memory_BSD), source)

  def step(
    self,
    x_BND: Array,
    past: Memory,
    memory: CrossAttentionCache,
    target: SentenceFeatures,
    source: SentenceFeatures,
  ) -> tuple[Array, Memory]:
    """One target position of N hypotheses a sentence; `past` is their cache.

    Args:
      x_BND: what enters the layer.
      past: keys and values of each hypothesis (BNHTK).
      memory: of the source, shared by a sentence's hypotheses.
      target: of B·N sentences with one query each.
      source: of the source side.
    """
    around = self.around_attention
    query_BND = around.enter(x_BND)
    B, N, D = query_BND.shape
    query_B1D = query_BND.reshape(B * N, 1, D)
    at = target.position_Q[0]

    def keep(past_BNHTK: Array, new_B1HK: Array) -> Array:
      new_BNHTK = new_B1HK.reshape(B, N, -1, 1, new_B1HK.shape[-1])
      return jax.lax.dynamic_update_slice_in_dim(
        past_BNHTK, new_BNHTK.astype(past_BNHTK.dtype), at, axis=3
      )

    past = Memory(*map(keep, past, self.attention.project_memory(query_B1D)))
    seen = Memory(
      *(x.reshape(B * N, *x.shape[2:]).swapaxes(1, 2) for x in past)
    )
    allowed_B11T = target.real_BS[:, None, None, :]
    mixed_B1D = self.attention.attend(query_B1D, seen, allowed_B11T, target)
    x_BND = around.leave(x_BND, mixed_B1D.reshape(B, N, D), train=target.train)
    return self._rest(x_BND, memory.memory(), source), past

  def _rest(
    self, x_BTD: Array, memory: Memory, source: SentenceFeatures
  ) -> Array:
    around = self.around_cross
    query_BTD = around.enter(x_BTD)
    allowed_B11S = source.real_BS[:, None, None, :]
    mixed_BTD = self.cross.attend(query_BTD, memory, allowed_B11S, source)
    x_BTD = around.leave(x_BTD, mixed_BTD, train=source.train)
    around = self.around_feed_forward
    hidden_BTD = self.feed_forward(around.enter(x_BTD), train=source.train)
    return around.leave(x_BTD, hidden_BTD, train=source.train)


LayerT = TypeVar("LayerT", EncoderLayer, DecoderLayer)


def layer_of(kind: type[LayerT], spec: ModelSpec, index: int) -> LayerT:
  """A layer, computed again in the backward pass where the spec has it so."""
  return (nn.remat(kind) if spec.remat == "layer" else kind)(spec, index)
