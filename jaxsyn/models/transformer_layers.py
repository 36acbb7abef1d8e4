"""Transformer layers with pre- or post-norm."""

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
  """Residual connection around a sublayer, with norm and dropout."""

  style: str  # "pre" or "post"
  dropout: float
  dtype: str

  def setup(self) -> None:
    self.norm = norm(self.dtype)
    self.drop = Dropout(self.dropout)

  def enter(self, x_BSD: Array) -> Array:
    """Returns the input of the sublayer, normalized if the style is "pre"."""
    return self.norm(x_BSD) if self.style == "pre" else x_BSD

  def leave(self, x_BSD: Array, branch_BSD: Array, *, train: bool) -> Array:
    """Returns the residual sum, normalized if the style is "post"."""
    x_BSD = x_BSD + self.drop(branch_BSD, train=train)
    return self.norm(x_BSD) if self.style == "post" else x_BSD


def _attention(spec: ModelSpec, stack: str, layer: int) -> Attention:
  module = Attention
  if spec.remat == "attention":
    module = nn.remat(Attention, methods=["mix"])
  is_published = (stack, layer) in spec.published_maps
  return module(
    spec.attention_site(stack, layer),
    spec.architecture.attention_dropout,
    spec.modifiers.modifiers_in_layer(stack, layer),
    fused=spec.model.attention == "fused" and not is_published,
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
  options = spec.architecture
  return Residual(options.norm, options.dropout, spec.model.dtype)


class EncoderLayer(nn.Module):
  """Transformer encoder layer: self-attention and a feed-forward network."""

  spec: ModelSpec
  layer: int

  def setup(self) -> None:
    self.attention = _attention(self.spec, "encoder", self.layer)
    self.feed_forward = _feed_forward(self.spec)
    self.around_attention = _residual(self.spec)
    self.around_feed_forward = _residual(self.spec)

  def __call__(
    self, x_BSD: Array, features: SentenceFeatures
  ) -> tuple[Array, SentenceFeatures]:
    """Returns the layer output, and features with the attention input added."""
    train, around = features.train, self.around_attention
    query_BSD = around.enter(x_BSD)
    inputs = (*features.inputs, query_BSD)
    features = dataclasses.replace(features, inputs=inputs)
    allowed_B11S = features.real_BS[:, None, None, :]
    out_BSD = self.attention(query_BSD, query_BSD, allowed_B11S, features)
    x_BSD = around.leave(x_BSD, out_BSD, train=train)
    around = self.around_feed_forward
    hidden_BSD = self.feed_forward(around.enter(x_BSD), train=train)
    return around.leave(x_BSD, hidden_BSD, train=train), features


class DecoderLayer(nn.Module):
  """Decoder layer: self-attention, cross-attention and feed-forward network."""

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
    """Returns the layer's output at all target positions."""
    length = x_BTD.shape[1]
    allowed_11TT = jnp.ones((1, 1, length, length), bool)
    if not target.full_context:
      allowed_11TT = jnp.tril(allowed_11TT)
    allowed_B1TT = allowed_11TT & target.real_BS[:, None, None, :]
    around = self.around_attention
    query_BTD = around.enter(x_BTD)
    out_BTD = self.attention(query_BTD, query_BTD, allowed_B1TT, target)
    x_BTD = around.leave(x_BTD, out_BTD, train=target.train)
    memory = self.cross.project_memory(memory_BSD)
    return self._after_self_attention(x_BTD, memory, source)

  def step(
    self,
    x_BND: Array,
    past: Memory,
    memory: CrossAttentionCache,
    target: SentenceFeatures,
    source: SentenceFeatures,
  ) -> tuple[Array, Memory]:
    """Returns the layer's output for one decoding step, and the new cache.

    Args:
      x_BND: Input of the layer.
      past: Keys and values of each hypothesis, BNHTK.
      memory: Keys and values of the source.
      target: Features of B·N sentences with one query each.
      source: Features of the source.
    """
    around = self.around_attention
    query_BND = around.enter(x_BND)
    B, N, D = query_BND.shape
    query_B1D = query_BND.reshape(B * N, 1, D)
    at = target.position_Q[0]

    def append(past_BNHTK: Array, new_B1HK: Array) -> Array:
      new_BNHTK = new_B1HK.reshape(B, N, -1, 1, new_B1HK.shape[-1])
      return jax.lax.dynamic_update_slice_in_dim(
        past_BNHTK, new_BNHTK.astype(past_BNHTK.dtype), at, axis=3
      )

    past = Memory(*map(append, past, self.attention.project_memory(query_B1D)))
    flat_past = Memory(
      *(x.reshape(B * N, *x.shape[2:]).swapaxes(1, 2) for x in past)
    )
    allowed_B11T = target.real_BS[:, None, None, :]
    out_B1D = self.attention.attend(query_B1D, flat_past, allowed_B11T, target)
    out_BND = out_B1D.reshape(B, N, D)
    x_BND = around.leave(x_BND, out_BND, train=target.train)
    x_BND = self._after_self_attention(x_BND, memory.memory(), source)
    return x_BND, past

  def _after_self_attention(
    self, x_BTD: Array, memory: Memory, source: SentenceFeatures
  ) -> Array:
    around = self.around_cross
    query_BTD = around.enter(x_BTD)
    allowed_B11S = source.real_BS[:, None, None, :]
    out_BTD = self.cross.attend(query_BTD, memory, allowed_B11S, source)
    x_BTD = around.leave(x_BTD, out_BTD, train=source.train)
    around = self.around_feed_forward
    hidden_BTD = self.feed_forward(around.enter(x_BTD), train=source.train)
    return around.leave(x_BTD, hidden_BTD, train=source.train)


LayerT = TypeVar("LayerT", EncoderLayer, DecoderLayer)


def layer_of(cls: type[LayerT], spec: ModelSpec, index: int) -> LayerT:
  """Creates a layer, rematerialized if config.train.remat is "layer"."""
  return (nn.remat(cls) if spec.remat == "layer" else cls)(spec, index)
