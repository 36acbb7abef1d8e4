"""The Transformer encoder-decoder (Vaswani et al. 2017), pre- or post-norm.

It keeps the model contract of `jaxsyn.models.contract`: `encode`, `decode` for
training, and `remember`, `start`, `advance` for decoding step by step. What
makes a system syntax-aware are the parts handed to its attention.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from jaxsyn.config import Model
from jaxsyn.models.attention import Attention, at_layer
from jaxsyn.models.layers import Dropout, FeedForward, dense, norm, sinusoids
from jaxsyn.models.spec import ModelSpec, Parts
from jaxsyn.syntax import View, Where

Array = jax.Array


class Residual(nn.Module):
  """Norm, sublayer, dropout and the sum, in pre- or post-norm order."""

  style: str
  dropout: float
  dtype: str

  def setup(self):
    self.norm = norm(None, self.dtype)
    self.drop = Dropout(self.dropout)

  def enter(self, x_BSD: Array) -> Array:
    """What the sublayer gets."""
    return self.norm(x_BSD) if self.style == "pre" else x_BSD

  def leave(self, x_BSD: Array, branch_BSD: Array, *, train: bool) -> Array:
    """What the next sublayer gets."""
    x_BSD = x_BSD + self.drop(branch_BSD, train=train)
    return self.norm(x_BSD) if self.style == "post" else x_BSD


def _attention(model: Model, parts: Parts, place: str, layer: int) -> Attention:
  where = Where(place, layer, model.heads, model.width, model.dtype)
  return Attention(
    where, model.attention_dropout, at_layer(parts.at(place), layer)
  )


def _feed_forward(model: Model) -> FeedForward:
  return FeedForward(
    model.feed_forward, model.activation, model.activation_dropout, model.dtype
  )


def _residual(model: Model) -> Residual:
  return Residual(model.norm, model.dropout, model.dtype)


class EncoderLayer(nn.Module):
  model: Model
  parts: Parts
  layer: int

  def setup(self):
    self.attention = _attention(self.model, self.parts, "encoder", self.layer)
    self.feed_forward = _feed_forward(self.model)
    self.around_attention = _residual(self.model)
    self.around_feed_forward = _residual(self.model)

  def __call__(
    self, x_BSD: Array, view: View, *, train: bool
  ) -> tuple[Array, View]:
    """The layer's output, and the view with this layer's input added."""
    around = self.around_attention
    query_BSD = around.enter(x_BSD)
    view = view.replace(inputs=(*view.inputs, query_BSD))
    mixed_BSD = self.attention(
      query_BSD,
      query_BSD,
      view.real_BS[:, None, None, :],
      view,
      train=train,
    )
    x_BSD = around.leave(x_BSD, mixed_BSD, train=train)
    around = self.around_feed_forward
    hidden_BSD = self.feed_forward(around.enter(x_BSD), train=train)
    return around.leave(x_BSD, hidden_BSD, train=train), view


class DecoderLayer(nn.Module):
  model: Model
  parts: Parts
  layer: int

  def setup(self):
    self.attention = _attention(self.model, self.parts, "decoder", self.layer)
    self.cross = _attention(self.model, self.parts, "cross", self.layer)
    self.feed_forward = _feed_forward(self.model)
    self.around_attention = _residual(self.model)
    self.around_cross = _residual(self.model)
    self.around_feed_forward = _residual(self.model)

  def __call__(
    self,
    x_BTD: Array,
    memory_BSD: Array,
    target: View,
    source: View,
    *,
    train: bool,
  ) -> Array:
    """All target positions at once, each seeing itself and the past."""
    length = x_BTD.shape[1]
    causal_11TT = jnp.tril(jnp.ones((length, length), bool))[None, None]
    around = self.around_attention
    query_BTD = around.enter(x_BTD)
    mixed_BTD = self.attention(
      query_BTD,
      query_BTD,
      causal_11TT & target.real_BS[:, None, None, :],
      target,
      train=train,
    )
    x_BTD = around.leave(x_BTD, mixed_BTD, train=train)
    k_BSHK, v_BSHK = self.cross.remember(memory_BSD)
    return self._rest(x_BTD, k_BSHK, v_BSHK, source, train=train)

  def step(
    self,
    x_BND: Array,
    past: dict,
    memory: dict,
    allowed_B1NM: Array,
    target: View,
    source: View,
  ) -> tuple[Array, dict]:
    """One target position of N beams a sentence; the past is in the cache.

    The beams of a sentence are so many queries, of one memory that holds the
    past of all of them: M = N·T slots, of which each beam may see its own
    ancestors. So a beam that changes its parent moves no keys or values.
    """
    around = self.around_attention
    query_BND = around.enter(x_BND)
    at = target.position_Q[0]

    def keep(past_BNTHK, new_BNHK):
      return jax.lax.dynamic_update_slice_in_dim(
        past_BNTHK, new_BNHK[:, :, None].astype(past_BNTHK.dtype), at, axis=2
      )

    k_BNHK, v_BNHK = self.attention.remember(query_BND)
    past = {"k": keep(past["k"], k_BNHK), "v": keep(past["v"], v_BNHK)}
    B, N, T, H, K = past["k"].shape
    mixed_BND = self.attention.attend(
      query_BND,
      past["k"].reshape(B, N * T, H, K),
      past["v"].reshape(B, N * T, H, K),
      allowed_B1NM,
      target,
      train=False,
    )
    x_BND = around.leave(x_BND, mixed_BND, train=False)
    x_BND = self._rest(x_BND, memory["k"], memory["v"], source, train=False)
    return x_BND, past

  def _rest(
    self,
    x_BTD: Array,
    k_BSHK: Array,
    v_BSHK: Array,
    source: View,
    *,
    train: bool,
  ) -> Array:
    around = self.around_cross
    mixed_BTD = self.cross.attend(
      around.enter(x_BTD),
      k_BSHK,
      v_BSHK,
      source.real_BS[:, None, None, :],
      source,
      train=train,
    )
    x_BTD = around.leave(x_BTD, mixed_BTD, train=train)
    around = self.around_feed_forward
    hidden_BTD = self.feed_forward(around.enter(x_BTD), train=train)
    return around.leave(x_BTD, hidden_BTD, train=train)


@struct.dataclass
class Encoded:
  """An encoded batch: what the decoder looks at."""

  memory_BSD: Array
  source: View
  layers: tuple[dict, ...] = ()  # keys and values of each layer, see `remember`


@struct.dataclass
class Cache:
  """What decoding remembers of its own outputs.

  Attributes:
    layers: keys and values of each layer, BNTHK, as they were written.
    slot_BNT: in which of the N slots the ancestor of beam n at time t stands.
  """

  layers: tuple[dict, ...]
  slot_BNT: Array


class Transformer(nn.Module):
  """See the module's docstring; `jaxsyn.plan` makes the spec."""

  spec: ModelSpec

  def setup(self):
    spec, model = self.spec, self.spec.model

    def table(size):
      return nn.Embed(
        size,
        model.width,
        dtype=model.dtype,
        embedding_init=nn.initializers.normal(model.width**-0.5),
      )

    self.target_table = table(spec.target_vocabulary)
    if model.tie_embeddings:
      self.source_table = self.target_table
    else:
      self.source_table = table(spec.source_vocabulary)
    if not model.tie_output:
      self.output = dense(spec.target_vocabulary, None, model.dtype)
    self.drop = Dropout(model.dropout)
    at_embeddings = Where("encoder", -1, model.heads, model.width, model.dtype)
    self.embedding_parts = [
      part_spec.make(at_embeddings)
      for _, part_spec in spec.parts.at("encoder")
      if part_spec.embeds
    ]
    self.encoder = [
      EncoderLayer(model, spec.parts, i) for i in range(model.encoder_layers)
    ]
    self.decoder = [
      DecoderLayer(model, spec.parts, i) for i in range(model.decoder_layers)
    ]
    if model.norm == "pre":  # the last branch is still to be normalised
      self.encoder_norm = norm(None, model.dtype)
      self.decoder_norm = norm(None, model.dtype)

  def _embed(self, table: nn.Embed, id_BS: Array) -> Array:
    return table(id_BS) * self.spec.model.width**0.5

  def _place(self, x_BSD: Array, position_BS: Array, *, train: bool) -> Array:
    if self.spec.model.positions:
      x_BSD = x_BSD + sinusoids(position_BS, x_BSD.shape[-1]).astype(
        x_BSD.dtype
      )
    return self.drop(x_BSD, train=train)

  def _logits(self, x_BTD: Array) -> Array:
    model = self.spec.model
    if model.norm == "pre":
      x_BTD = self.decoder_norm(x_BTD)
    if model.tie_output:
      return self.target_table.attend(x_BTD)
    return self.output(x_BTD)

  def encode(self, id_BS: Array, source: View, *, train: bool) -> Encoded:
    """Source subwords and the facts about them to the decoder's memory."""
    position_1S = jnp.arange(id_BS.shape[1])[None, :]
    view = source.replace(
      position_Q=position_1S[0], position_M=position_1S[0]
    ).check()
    x_BSD = self._embed(self.source_table, id_BS)
    for part in self.embedding_parts:
      x_BSD = part.embed(x_BSD, view, train=train)
    x_BSD = self._place(x_BSD, position_1S, train=train)
    for layer in self.encoder:
      x_BSD, view = layer(x_BSD, view, train=train)
    if self.spec.model.norm == "pre":
      x_BSD = self.encoder_norm(x_BSD)
    return Encoded(x_BSD, source)

  def decode(
    self, encoded: Encoded, input_BT: Array, target: View, *, train: bool
  ) -> Array:
    """Logits of every target position, given the true past (logits_BTV).

    Args:
      encoded: of `encode`.
      input_BT: target subwords shifted right: BOS first.
      target: facts of the target side, of the positions of `input_BT`.
      train: dropout is on.
    """
    position_1T = jnp.arange(input_BT.shape[1])[None, :]
    target = target.replace(
      position_Q=position_1T[0], position_M=position_1T[0]
    ).check()
    x_BTD = self._embed(self.target_table, input_BT)
    x_BTD = self._place(x_BTD, position_1T, train=train)
    for layer in self.decoder:
      x_BTD = layer(
        x_BTD, encoded.memory_BSD, target, encoded.source, train=train
      )
    return self._logits(x_BTD)

  def remember(self, encoded: Encoded) -> Encoded:
    """Adds what every decoding step needs again: keys and values."""
    layers = []
    for layer in self.decoder:
      k_BSHK, v_BSHK = layer.cross.remember(encoded.memory_BSD)
      layers.append({"k": k_BSHK, "v": v_BSHK})
    return encoded.replace(layers=tuple(layers))

  def start(self, encoded: Encoded, beams: int, length: int) -> Cache:
    """An empty cache for outputs of up to `length` subwords."""
    model = self.spec.model
    shape = (encoded.memory_BSD.shape[0], beams, length)
    heads = (model.heads, model.width // model.heads)
    empty = jnp.zeros((*shape, *heads), jnp.dtype(model.dtype))
    return Cache(
      layers=tuple({"k": empty, "v": empty} for _ in self.decoder),
      slot_BNT=jnp.zeros(shape, jnp.int32),
    )

  def advance(
    self, encoded: Encoded, cache: Cache, token_BN: Array, at: Array
  ) -> tuple[Array, Cache]:
    """Logits of the position after `token_BN` (logits_BNV), and the cache.

    Args:
      encoded: of `remember`.
      cache: of `start` or the step before.
      token_BN: the last subword of each hypothesis; BOS at position 0.
      at: position of that subword, a scalar.
    """
    B, N, T = cache.slot_BNT.shape
    own_1N1 = jnp.arange(N, dtype=jnp.int32)[None, :, None]
    slot_BNT = jnp.where(jnp.arange(T) == at, own_1N1, cache.slot_BNT)
    # Slot m at time t is allowed to beam n if it is n's ancestor there.
    mine_BNNT = slot_BNT[:, :, None, :] == jnp.arange(N)[None, None, :, None]
    mine_BNNT = mine_BNNT & (jnp.arange(T) <= at)
    allowed_B1NM = mine_BNNT.reshape(B, 1, N, N * T)
    target = View(
      real_BS=jnp.ones((B, N * T), bool),
      position_Q=jnp.full(N, at),
      position_M=jnp.tile(jnp.arange(T), N),
    )
    x_BND = self._embed(self.target_table, token_BN)
    x_BND = self._place(x_BND, jnp.full((1, 1), at), train=False)
    layers = []
    for layer, past, memory in zip(self.decoder, cache.layers, encoded.layers):
      x_BND, past = layer.step(
        x_BND, past, memory, allowed_B1NM, target, encoded.source
      )
      layers.append(past)
    return self._logits(x_BND), Cache(tuple(layers), slot_BNT)

  def reorder(self, cache: Cache, beam_BN: Array) -> Cache:
    """The cache after each hypothesis was continued from a beam's."""
    slot_BNT = jnp.take_along_axis(cache.slot_BNT, beam_BN[:, :, None], axis=1)
    return cache.replace(slot_BNT=slot_BNT)
