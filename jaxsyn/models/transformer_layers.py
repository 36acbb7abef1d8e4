"""The layers of the Transformer, pre- or post-norm, with attention by parts.

Before this file: `attention`, `layers`. After it: `transformer`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.models.attention import Attention, Memory
from jaxsyn.models.layers import Dropout, FeedForward, norm
from jaxsyn.models.spec import ModelSpec
from jaxsyn.syntax import View


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
  return Attention(
    spec.where(place, layer),
    spec.family.attention_dropout,
    spec.parts.at_layer(place, layer),
  )


def _feed_forward(spec: ModelSpec) -> FeedForward:
  own = spec.family
  return FeedForward(
    own.feed_forward, own.activation, own.activation_dropout, spec.model.dtype
  )


def _residual(spec: ModelSpec) -> Residual:
  return Residual(spec.family.norm, spec.family.dropout, spec.model.dtype)


class EncoderLayer(nn.Module):
  spec: ModelSpec
  layer: int

  def setup(self) -> None:
    self.attention = _attention(self.spec, "encoder", self.layer)
    self.feed_forward = _feed_forward(self.spec)
    self.around_attention = _residual(self.spec)
    self.around_feed_forward = _residual(self.spec)

  def __call__(self, x_BSD: Array, view: View) -> tuple[Array, View]:
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
    self, x_BTD: Array, memory_BSD: Array, target: View, source: View
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
    return self._rest(x_BTD, self.cross.remember(memory_BSD), source)

  def step(
    self,
    x_BND: Array,
    past: Memory,
    memory: Memory,
    allowed_B1NM: Array,
    target: View,
    source: View,
  ) -> tuple[Array, Memory]:
    """One target position of N beams a sentence; the past is in the cache.

    The beams of a sentence are so many queries, of one memory that holds the
    past of all of them: M = N·T slots, of which each beam may see its own
    ancestors. So a beam that changes its parent moves no keys or values.
    """
    around = self.around_attention
    query_BND = around.enter(x_BND)
    at = target.position_Q[0]

    def keep(past_BNTHK: Array, new_BNHK: Array) -> Array:
      return jax.lax.dynamic_update_slice_in_dim(
        past_BNTHK, new_BNHK[:, :, None].astype(past_BNTHK.dtype), at, axis=2
      )

    past = Memory(*map(keep, past, self.attention.remember(query_BND)))
    B, N, T, H, K = past.k.shape
    slots = Memory(*(x.reshape(B, N * T, H, K) for x in past))
    mixed_BND = self.attention.attend(query_BND, slots, allowed_B1NM, target)
    x_BND = around.leave(x_BND, mixed_BND, train=target.train)
    return self._rest(x_BND, memory, source), past

  def _rest(self, x_BTD: Array, memory: Memory, source: View) -> Array:
    around = self.around_cross
    query_BTD = around.enter(x_BTD)
    allowed_B11S = source.real_BS[:, None, None, :]
    mixed_BTD = self.cross.attend(query_BTD, memory, allowed_B11S, source)
    x_BTD = around.leave(x_BTD, mixed_BTD, train=source.train)
    around = self.around_feed_forward
    hidden_BTD = self.feed_forward(around.enter(x_BTD), train=source.train)
    return around.leave(x_BTD, hidden_BTD, train=source.train)
