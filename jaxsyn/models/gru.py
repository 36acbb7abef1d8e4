"""The recurrent encoder-decoder with attention (Bahdanau et al. 2015).

As in Sennrich et al. 2017 (Nematus): a bidirectional GRU reads the source; the
decoder is a conditional GRU, two cells with attention in between. It keeps the
model contract of `jaxsyn.models.contract`. What a step looks at are contexts,
one a window (`jaxsyn.syntax.WINDOWS`): Chen et al. 2018, "Syntax-Directed
Attention for Neural Machine Translation", with one context or two.

Letters: E width of an annotation, 2·G.
"""

from __future__ import annotations

import dataclasses
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
  """An encoded batch.

  Attributes:
    annotations: annotation_BSE of the encoder, then those of windows that have
      their own.
    source: facts about the source.
    facts: `SourceFeatures` of every step, once they are remembered.
  """

  annotations: tuple[Array, ...]
  source: SentenceFeatures
  window_features: Any = None


class GruModel(EncoderDecoder):
  """See the module's docstring; `jaxsyn.plan` makes the spec."""

  def setup(self) -> None:
    super().setup()
    spec, model = self.spec, self.spec.model
    gru: Gru = spec.architecture
    self.drop_embedding = Dropout(gru.dropout_embedding, shared=(1,))
    self.drop_first = Dropout(gru.dropout_hidden)
    settings = (gru.initialisation, model.dtype)
    # An encoder for the annotations of all windows, and one for each window
    # that has its own.
    annotation_count = sum(
      window.has_own_annotations for _, window in gru.windows
    )
    self.encoder = [
      Bidirectional(gru.hidden, gru.dropout_hidden, *settings)
      for _ in range(1 + annotation_count)
    ]
    # Initial values are drawn by the path of a parameter: with another name
    # they were others, and a checkpoint was not this model's.
    self.decoder = Decoder(spec, name="decoder_0")
    self.first_state = linear(gru.hidden, *settings)
    if model.tie_output:
      self.output_bias = self.param(
        "output_bias", nn.initializers.zeros, (spec.target_vocabulary,)
      )
    else:
      self.output = linear(spec.target_vocabulary, *settings)

  def encode(self, id_BS: Array, source: SentenceFeatures) -> GruEncoded:
    view = source.with_positions()
    x_BSD = self._embed_source(id_BS, view)
    sequences = [x_BSD, *self.decoder.cross.sequences(x_BSD, view)]
    annotations = []
    for encoder, sequence_BSD in zip(self.encoder, sequences):
      sequence_BSD = self.drop_embedding(sequence_BSD, train=view.train)
      annotations.append(encoder(sequence_BSD, view))
    annotations[0] = self._finish_encoding(annotations[0], view)
    return GruEncoded(tuple(annotations), source)

  def _embedding_init(self) -> nn.initializers.Initializer:
    if (
      self.spec.architecture.initialisation == "orthogonal"
    ):  # as Nematus draws them
      return nn.initializers.normal(0.01)
    return super()._embedding_init()

  def _embed_target(self, id_BT: Array) -> Array:
    """Embeddings of what was written; nothing is a vector of zeros."""
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
    facts = self.decoder.cross.project_memory(
      encoded.annotations, encoded.source
    )
    return dataclasses.replace(encoded, window_features=facts)

  def start(self, encoded: GruEncoded, beams: int, length: int) -> DecoderState:
    """See the base: s = tanh(W · mean of annotations)."""
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
    t_BND, cache = self.decoder.advance(
      self._embed_target(token_BN),
      cache,
      encoded.window_features,
      encoded.source,
    )
    return self.logits(t_BND), cache


@dataclasses.dataclass(frozen=True)
class Gru(Architecture):
  """The recurrent model: one layer per side, one attention head, and windows."""

  hidden: Units = option(
    256,
    "Number G of units of every GRU; annotations of the source have twice "
    "as many.",
  )
  update: Literal["first", "all"] = option(
    "first",
    'Contexts that update the decoder\'s state: the "first" one, in the '
    'order of WINDOWS, or "all" of them, concatenated.',
  )
  initialisation: Literal["xavier", "orthogonal"] = option(
    "xavier",
    'Initialization of matrices: "xavier" uniform; or "orthogonal" as in '
    "Nematus, for square matrices, and N(0, 0.01²) for all others. The "
    "latter learns much later: on the generated corpus it has learned "
    'nothing after 600 updates, where "xavier" has 68 BLEU on the '
    "validation split.",
  )
  dropout_embedding: Rate = option(
    0.2,
    "Dropout rate of embeddings. As for all dropout here, one mask is "
    "used for a complete sentence.",
  )
  dropout_hidden: Rate = option(
    0.2,
    "Dropout rate of states, annotations, contexts and the read-out, "
    "before their matrices.",
  )
  windows: NamedSpecs[WindowSpec] = choices(
    WINDOWS,
    "What the decoder looks at: a context for each window named.",
  )

  module: ClassVar[type[nn.Module]] = GruModel

  @property
  def required_features(self) -> tuple[str, ...]:
    return tuple(
      f for _, window in self.windows for f in window.required_features
    )

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    if not self.windows:
      raise (at / "windows").error(
        " is empty: a model of family 'gru' looks at its source through one "
        "window or more, e.g. 'global'. Take one of its systems (gru_*)."
      )
    for name, window in self.windows:
      window.check(at / "windows" / name)

  def check_modifier(
    self, at: ConfigPath, place: str, part: ModifierSpec
  ) -> None:
    if place != "encoder" or not part.embeds:
      raise at.error(
        " changes attention of the Transformer, which family 'gru' has not; it "
        "takes parts of the encoder's embeddings, and windows "
        "(config.model.gru.windows)."
      )
