"""The recurrent encoder-decoder with attention (Bahdanau et al. 2015).

As in Sennrich et al. 2017 (Nematus), the encoder is a bidirectional GRU, and the
decoder a conditional GRU: two cells with attention in between. Each window
(`jaxsyn.syntax.WINDOWS`) makes one context vector; Chen et al. 2018,
"Syntax-Directed Attention for Neural Machine Translation", use one or two.

Letters: E width of an annotation, 2·G.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jax import Array

from jaxsyn.data.schema import BOS
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.models.gru_decoder import Decoder, DecoderState
from jaxsyn.models.gru_layers import Bidirectional, linear
from jaxsyn.models.layers import Dropout
from jaxsyn.models.spec import Architecture, ModelSpec
from jaxsyn.options import ConfigPath, NamedSpecs, choices, option
from jaxsyn.options.bounds import Rate, Units
from jaxsyn.syntax import (
  WINDOWS,
  ModifierSpec,
  SentenceFeatures,
  WindowSpec,
)


@struct.dataclass
class GruEncoded:
  """Source batch encoded by the recurrent model, with its features.

  Attributes:
    annotations: annotation_BSE of the encoder, then those of windows that have
      their own.
    source: Features of the source.
    window_features: `SourceFeatures` from `project_memory`.
  """

  annotations: tuple[Array, ...]
  source: SentenceFeatures
  window_features: Any = None


class GruModel(EncoderDecoder):
  """Flax module of the recurrent encoder-decoder."""

  def setup(self) -> None:
    super().setup()
    spec, model = self.spec, self.spec.model
    gru: Gru = spec.architecture
    self.drop_embedding = Dropout(gru.dropout_embedding, shared=(1,))
    self.drop_first = Dropout(gru.dropout_hidden)
    settings = (gru.initialisation, model.dtype)
    # One encoder for all windows, and one for each with its own annotations.
    annotation_count = sum(
      window.has_own_annotations for _, window in gru.windows
    )
    self.encoder = [
      Bidirectional(gru.hidden, gru.dropout_hidden, *settings)
      for _ in range(1 + annotation_count)
    ]
    # Under another name, parameters would have other initial values, and other
    # paths than in existing checkpoints.
    self.decoder = Decoder(spec, name="decoder_0")
    self.first_state = linear(gru.hidden, *settings)
    if model.tie_output:
      self.output_bias = self.param(
        "output_bias", nn.initializers.zeros, (spec.target_vocabulary,)
      )
    else:
      self.output = linear(spec.target_vocabulary, *settings)

  def encode(self, id_BS: Array, source: SentenceFeatures) -> GruEncoded:
    features = source.with_positions()
    x_BSD = self._embed_source(id_BS, features)
    sequences = [x_BSD, *self.decoder.cross.sequences(x_BSD, features)]
    annotations = []
    for encoder, sequence_BSD in zip(self.encoder, sequences):
      sequence_BSD = self.drop_embedding(sequence_BSD, train=features.train)
      annotations.append(encoder(sequence_BSD, features))
    annotations[0] = self._finish_encoding(annotations[0], features)
    return GruEncoded(tuple(annotations), source)

  def _embedding_init(self) -> nn.initializers.Initializer:
    if self.spec.architecture.initialisation == "orthogonal":  # as in Nematus
      return nn.initializers.normal(0.01)
    return super()._embedding_init()

  def _embed_target(self, id_BT: Array) -> Array:
    """Returns embeddings of the decoder's input, with zeros for BOS."""
    x_BTD = self.target_table(id_BT)
    return jnp.where((id_BT == BOS)[..., None], 0, x_BTD)

  def decode(
    self, encoded: GruEncoded, input_BT: Array, target: SentenceFeatures
  ) -> Array:
    encoded = self.project_memory(encoded)
    x_BTD = self._embed_target(input_BT)
    x_BTD = self.drop_embedding(x_BTD, train=target.train)
    state = self.start(encoded, 1, input_BT.shape[1])
    return self.decoder(x_BTD, state, encoded.window_features, encoded.source)

  def logits(self, state_BTD: Array) -> Array:
    if self.spec.model.tie_output:
      logits_BTV = self.target_table.attend(state_BTD)
      return logits_BTV + self.output_bias.astype(logits_BTV.dtype)
    return self.output(state_BTD)

  def project_memory(self, encoded: GruEncoded) -> GruEncoded:
    window_features = self.decoder.cross.project_memory(
      encoded.annotations, encoded.source
    )
    return dataclasses.replace(encoded, window_features=window_features)

  def start(self, encoded: GruEncoded, beams: int, length: int) -> DecoderState:
    """Computes the initial decoder state from the mean encoder state."""
    annotation_BSE = encoded.annotations[0]
    length_B1 = jnp.sum(encoded.source.real_BS, axis=1, keepdims=True)
    mean_BE = jnp.sum(annotation_BSE, axis=1) / jnp.maximum(length_B1, 1)
    mean_BE = self.drop_first(
      mean_BE.astype(annotation_BSE.dtype), train=encoded.source.train
    )
    state_BG = jnp.tanh(self.first_state(mean_BE))
    B, G = state_BG.shape
    return DecoderState(
      jnp.broadcast_to(state_BG[:, None], (B, beams, G)),
      self.decoder.cross.start(encoded.source, beams),
    )

  def advance(
    self, encoded: GruEncoded, cache: DecoderState, token_BN: Array, at: Array
  ) -> tuple[Array, DecoderState]:
    x_BND = self._embed_target(token_BN)
    t_BND, cache = self.decoder.advance(
      x_BND, cache, encoded.window_features, encoded.source
    )
    return self.logits(t_BND), cache


@dataclasses.dataclass(frozen=True)
class Gru(Architecture):
  """Options of the recurrent model: sizes, dropout and attention windows."""

  hidden: Units = option(
    256,
    "Number G of units of every GRU; encoder states, which concatenate both "
    "directions, have size 2G.",
  )
  update: Literal["first", "all"] = option(
    "first",
    'Contexts that update the decoder state: "first", only that of the first '
    "window in `windows`, in the order in which --helpconfig lists them; "
    '"all", all contexts, concatenated.',
  )
  initialisation: Literal["xavier", "orthogonal"] = option(
    "xavier",
    'Initialization of matrices: "xavier", uniform; or "orthogonal", as in '
    "Nematus: orthogonal for square matrices, and N(0, 0.01²) for all others. "
    "With the latter, learning starts much later: on the generated corpus, "
    'the model has learned nothing after 600 updates, by which time "xavier" '
    "reaches 68 BLEU on the validation split.",
  )
  dropout_embedding: Rate = option(
    0.2,
    "Dropout rate of embeddings. As for all dropout in this model, the same "
    "mask is used at all positions of a sentence.",
  )
  dropout_hidden: Rate = option(
    0.2,
    "Dropout rate of recurrent states, encoder outputs, contexts and the "
    "readout before the output projection.",
  )
  windows: NamedSpecs[WindowSpec] = choices(
    WINDOWS,
    "Windows of the decoder's attention, with one context vector each.",
  )

  module: ClassVar[type[nn.Module]] = GruModel

  @property
  def required_features(self) -> tuple[str, ...]:
    features = (window.required_features for _, window in self.windows)
    return tuple(itertools.chain.from_iterable(features))

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    if not self.windows:
      raise (at / "windows").error(
        " is empty: a model of family 'gru' needs a window, such as 'global'. "
        "Use one of its systems (gru_*)."
      )
    for name, window in self.windows:
      window.check(at / "windows" / name)

  def check_modifier(
    self, at: ConfigPath, stack: str, modifier: ModifierSpec
  ) -> None:
    if stack != "encoder" or not modifier.at_embeddings:
      raise at.error(
        " changes attention of the Transformer, which family 'gru' does not "
        "have; it supports modifiers of the encoder's embeddings, and windows "
        "(config.model.gru.windows)."
      )
