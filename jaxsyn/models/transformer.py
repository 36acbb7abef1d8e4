"""Transformer encoder-decoder (Vaswani et al. 2017) with pre- or post-norm."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jax import Array

from jaxsyn.arrays.sinusoids import sinusoids
from jaxsyn.errors import InputError
from jaxsyn.models.attention import CrossAttentionCache, Memory
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.models.layers import Dropout, Embedding, dense, norm
from jaxsyn.models.spec import Architecture, ModelSpec
from jaxsyn.models.transformer_layers import (
  DecoderLayer,
  EncoderLayer,
  layer_of,
)
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Layers, Rate, Units
from jaxsyn.syntax import SentenceFeatures


@struct.dataclass
class TransformerEncoded:
  """Source batch encoded by the Transformer, with its features.

  Attributes:
    memory_BSD: Output of the encoder.
    source: Features of the source.
    layers: Keys and values of each decoder layer, from `project_memory`.
  """

  memory_BSD: Array
  source: SentenceFeatures
  layers: tuple[CrossAttentionCache, ...] = ()


@struct.dataclass
class Cache:
  """Cached self-attention keys and values of all decoder layers (BNHTK)."""

  layers: tuple[Memory, ...]


class TransformerModel(EncoderDecoder):
  """Flax module of the Transformer."""

  def setup(self) -> None:
    super().setup()
    spec, model = self.spec, self.spec.model
    options: Transformer = spec.architecture
    if not model.tie_output:
      self.output = dense(spec.target_vocabulary, model.dtype)
    self.drop = Dropout(options.dropout)
    self.encoder = [
      layer_of(EncoderLayer, spec, i) for i in range(options.encoder_layers)
    ]
    self.decoder = [
      layer_of(DecoderLayer, spec, i) for i in range(options.decoder_layers)
    ]
    if options.norm == "pre":  # the last residual sum is not normalized yet
      self.encoder_norm = norm(model.dtype)
      self.decoder_norm = norm(model.dtype)

  def _embed(self, table: Embedding, id_BS: Array) -> Array:
    return super()._embed(table, id_BS) * self.spec.model.width**0.5

  def _add_positions(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Adds position encodings to embeddings and applies dropout."""
    if self.spec.architecture.positions:
      position_1SD = sinusoids(features.position_Q[None], x_BSD.shape[-1])
      x_BSD = x_BSD + position_1SD.astype(x_BSD.dtype)
    return self.drop(x_BSD, train=features.train)

  def encode(
    self, id_BS: Array, source: SentenceFeatures
  ) -> TransformerEncoded:
    features = self._with_shared_features(source.with_positions(), "encoder")
    x_BSD = self._add_positions(self._embed_source(id_BS, features), features)
    for layer in self.encoder:
      x_BSD, features = layer(x_BSD, features)
    if self.spec.architecture.norm == "pre":
      x_BSD = self.encoder_norm(x_BSD)
    return TransformerEncoded(self._finish_encoding(x_BSD, features), source)

  def decode(
    self, encoded: TransformerEncoded, input_BT: Array, target: SentenceFeatures
  ) -> Array:
    target = self._with_shared_features(target.with_positions(), "decoder")
    x_BTD = self._add_positions(
      self._embed(self.target_table, input_BT), target
    )
    for layer in self.decoder:
      x_BTD = layer(x_BTD, encoded.memory_BSD, target, encoded.source)
    return x_BTD

  def logits(self, state_BTD: Array) -> Array:
    model = self.spec.model
    if self.spec.architecture.norm == "pre":
      state_BTD = self.decoder_norm(state_BTD)
    if model.tie_output:
      return self.target_table.attend(state_BTD)
    return self.output(state_BTD)

  def project_memory(self, encoded: TransformerEncoded) -> TransformerEncoded:
    memory_BSD = encoded.memory_BSD
    layers = tuple(
      CrossAttentionCache.of(layer.cross.project_memory(memory_BSD))
      for layer in self.decoder
    )
    return dataclasses.replace(encoded, layers=layers)

  def start(
    self, encoded: TransformerEncoded, beams: int, length: int
  ) -> Cache:
    model, heads = self.spec.model, self.spec.architecture.heads
    B = encoded.memory_BSD.shape[0]
    shape = (B, beams, heads, length, model.width // heads)
    empty_BNHTK = jnp.zeros(shape, jnp.dtype(model.dtype))
    return Cache(tuple(Memory(empty_BNHTK, empty_BNHTK) for _ in self.decoder))

  def advance(
    self, encoded: TransformerEncoded, cache: Cache, token_BN: Array, at: Array
  ) -> tuple[Array, Cache]:
    position_T = jnp.arange(cache.layers[0].k.shape[3])
    B, N = token_BN.shape
    # Each hypothesis is a sentence with one query.
    target = SentenceFeatures(
      real_BS=jnp.broadcast_to(position_T <= at, (B * N, position_T.size)),
      position_Q=at[None],
      position_M=position_T,
    )
    target = self._with_shared_features(target, "decoder")
    x_BND = self._add_positions(
      self._embed(self.target_table, token_BN), target
    )
    layers = []
    for layer, past, memory in zip(self.decoder, cache.layers, encoded.layers):
      x_BND, past = layer.step(x_BND, past, memory, target, encoded.source)
      layers.append(past)
    return self.logits(x_BND), Cache(tuple(layers))


@dataclasses.dataclass(frozen=True)
class Transformer(Architecture):
  """Options of the Transformer: sizes, norms and dropout."""

  encoder_layers: Layers = option(4, "Number of encoder layers.")
  decoder_layers: Layers = option(4, "Number of decoder layers.")
  feed_forward: Units = option(
    256, "Number F of hidden units of feed-forward layers."
  )
  heads: Units = option(
    4,
    "Number H of attention heads, which must divide the model width; each "
    "head has 1/H of the width.",
  )
  norm: Literal["pre", "post"] = option(
    "pre",
    'Position of the layer norms: "pre", before each sublayer, or "post", '
    "after each residual sum.",
  )
  activation: Literal["relu", "gelu"] = option(
    "relu", 'Activation function of the feed-forward layers: "relu" or "gelu".'
  )
  positions: bool = option(
    True, "Whether sinusoidal positions are added to the embeddings."
  )
  dropout: Rate = option(
    0.3, "Dropout rate after the embeddings and on each residual branch."
  )
  attention_dropout: Rate = option(0.0, "Dropout rate of attention weights.")
  activation_dropout: Rate = option(
    0.0, "Dropout rate inside the feed-forward layers, after the activation."
  )

  module: ClassVar[type[nn.Module]] = TransformerModel
  remats: ClassVar[tuple[str, ...]] = ("none", "attention", "layer")
  attentions: ClassVar[tuple[str, ...]] = ("einsum", "fused")

  def layers(self, stack: str) -> int:
    return self.encoder_layers if stack == "encoder" else self.decoder_layers

  def attention_heads(self) -> int:
    return self.heads

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    width = spec.model.width
    if spec.model.attention == "fused" and self.attention_dropout:
      raise (at / "attention_dropout").error(
        f"={self.attention_dropout}: config.model.attention='fused' has none; "
        "set it to 0, or use 'einsum'."
      )
    if width % self.heads:
      raise (at / "heads").error(
        f"={self.heads} must divide config.model.width={width}."
      )
    if width % 2:
      raise InputError(
        f"config.model.width={width} must be even: position encodings are "
        "pairs of sine and cosine."
      )
