"""The decoder of the recurrent model: a conditional GRU with context vectors.

Source: Sennrich et al. 2017 (Nematus), section 3; contexts: Chen et al. 2018,
sections 2 and 3.

Letters: E width of an annotation, 2·G; A unit of an alignment; Z gate of a
cell.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from jaxsyn.models.gru_layers import Alignment, Cell, linear
from jaxsyn.models.layers import Dropout
from jaxsyn.models.spec import ModelSpec
from jaxsyn.syntax import AttentionSite, SentenceFeatures
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.windows.window import Window, softmax_within


@struct.dataclass
class DecoderState:
  """State of the recurrent decoder between two steps, for all hypotheses.

  Attributes:
    state_BNG: State of the second cell.
    past: State of each window.
  """

  state_BNG: Array
  past: tuple[Any, ...]


@struct.dataclass
class SourceFeatures:
  """Values computed once from the source and shared by all decoding steps.

  Attributes:
    annotations: annotation_BSE of each sequence of annotations.
    keys: key_BSA of each sequence.
    windows: `Window.make_shared_features` of each window.
  """

  annotations: tuple[Array, ...]
  keys: tuple[Array, ...]
  windows: tuple[Any, ...]


class Contexts(nn.Module):
  """Attention module of a recurrent decoder, which computes context vectors.

  Alignment layers score the source positions, and windows turn the scores into
  weights. A context vector is the weighted sum of the encoder states. Windows
  share one alignment, except those with their own annotations.
  """

  spec: ModelSpec

  def setup(self) -> None:
    spec, model, gru = self.spec, self.spec.model, self.spec.architecture
    site = AttentionSite(
      "cross",
      layer=0,
      heads=1,
      width=gru.hidden,
      dtype=model.dtype,
      relations=spec.source_relations,
    )
    sequences, indices = 1, []
    for name, window in gru.windows:
      setattr(self, name, window.make(site.for_modifier(name)))
      indices.append(sequences if window.has_own_annotations else 0)
      sequences += window.has_own_annotations
    self.sequence_indices = tuple(indices)  # annotations of each window
    self.drop = Dropout(gru.dropout_hidden, shared=(1,))
    self.alignment = [
      Alignment(gru.hidden, gru.initialisation, model.dtype)
      for _ in range(sequences)
    ]

  def _windows(self) -> list[Window]:
    return [getattr(self, name) for name, _ in self.spec.architecture.windows]

  def sequences(self, x_BSD: Array, features: SentenceFeatures) -> list[Array]:
    """Returns the encoder inputs of windows that have their own encoder.

    Args:
      x_BSD: Embeddings of the source.
      features: Features of the source.
    """
    return [
      window.sequence(x_BSD, features)
      for window in self._windows()
      if window.spec.has_own_annotations
    ]

  def project_memory(
    self, annotations: tuple[Array, ...], features: SentenceFeatures
  ) -> SourceFeatures:
    """Computes the attention keys and other source projections of all steps."""
    keys = [
      align.project_memory(self.drop(annotation_BSE, train=features.train))
      for align, annotation_BSE in zip(self.alignment, annotations)
    ]
    first = self.sequence_indices[0]
    if first:  # without a tree, the first context is the global one
      first_BSE = features.where_parsed(annotations[first], annotations[0])
      annotations = (
        *annotations[:first],
        first_BSE,
        *annotations[first + 1 :],
      )
    shared = [
      window.make_shared_features(features) for window in self._windows()
    ]
    return SourceFeatures(annotations, tuple(keys), tuple(shared))

  def start(self, features: SentenceFeatures, beams: int) -> tuple[Any, ...]:
    """Returns the initial decoding state of each attention window."""
    return tuple(window.start(features, beams) for window in self._windows())

  def __call__(
    self,
    query_BNG: Array,
    past: tuple[Any, ...],
    source: SourceFeatures,
    features: SentenceFeatures,
  ) -> tuple[list[Array], list[Array], tuple[Any, ...]]:
    """Computes the context vectors of all windows in one decoding step.

    For a sentence without a tree, a window that needs one is replaced: by global
    attention in the first context, by zeros in the second.

    Returns:
      context_BNE and weight_BNS of each window, and their new states.
    """
    scores = [
      align(query_BNG, key_BSA)
      for align, key_BSA in zip(self.alignment, source.keys)
    ]
    contexts, weights, states = [], [], []
    for i, window in enumerate(self._windows()):
      sequence = self.sequence_indices[i]
      weight_BNS, state = window(
        scores[sequence], query_BNG, source.windows[i], past[i], features
      )
      if window.spec.required_features:
        no_tree_BNS: ArrayLike = 0.0
        if i == 0:
          no_tree_BNS = softmax_within(scores[0], features.real_BS[:, None, :])
        weight_BNS = features.where_parsed(weight_BNS, no_tree_BNS)
      annotation_BSE = source.annotations[sequence]
      contexts.append(
        jnp.einsum(
          "BNS,BSE->BNE",
          weight_BNS.astype(annotation_BSE.dtype),
          annotation_BSE,
        )
      )
      weights.append(weight_BNS)
      states.append(state)
    return contexts, weights, tuple(states)

  def publish(self, weights: list[Array]) -> None:
    """Records each attention window's weights for losses and figures."""
    for window, weight_BTS in zip(self._windows(), weights):
      publish(window, "weight_BTS", weight_BTS)


class Decoder(nn.Module):
  """Conditional GRU decoder: two cells, attention between them, and a read-out.

  s' = GRU₁(y, s); c = contexts(s'); s = GRU₂(c, s');
  t = tanh(L_d s + L_w y + Σ L_c c + b), Chen et al. 2018, Eqs. 4, 8, 13, 14.
  """

  spec: ModelSpec

  def setup(self) -> None:
    spec, model, gru = self.spec, self.spec.model, self.spec.architecture
    settings = (gru.initialisation, model.dtype)
    self.first = Cell(gru.hidden, *settings)
    self.cross = Contexts(spec)
    self.second = Cell(gru.hidden, *settings)
    self.drop = Dropout(gru.dropout_hidden)
    self.drop_read_out = Dropout(gru.dropout_hidden, shared=(1,))
    self.read_state = linear(model.width, *settings)
    self.read_word = linear(model.width, *settings, bias=False)
    self.read_context = [
      linear(model.width, *settings, bias=False) for _ in gru.windows
    ]

  def __call__(
    self,
    x_BTD: Array,
    start: DecoderState,
    source: SourceFeatures,
    features: SentenceFeatures,
  ) -> Array:
    """Returns the decoder output (BTD) at all target positions at once."""
    masks = self._masks(start.state_BNG, source, features)

    def step(
      decoder: Decoder, state: DecoderState, gates_BZG: Array
    ) -> tuple[DecoderState, Any]:
      state, contexts, weights = decoder.step(
        gates_BZG[:, None], state, source, features, masks
      )
      out = (state.state_BNG, contexts, weights)
      return state, jax.tree.map(lambda x: x[:, 0], out)

    _, (state_BTG, contexts, weights) = nn.scan(
      step,
      variable_broadcast="params",
      split_rngs={"params": False},
      in_axes=1,
      out_axes=1,
    )(self, start, self.first.input(x_BTD))
    # Not in the steps, because `nn.scan` drops maps silently.
    self.cross.publish(weights)
    state_BTG = self.drop_read_out(state_BTG, train=features.train)
    contexts = [self.drop_read_out(c, train=features.train) for c in contexts]
    t_BTD = self._read_out(x_BTD, state_BTG, contexts)
    return self.drop_read_out(t_BTD, train=features.train)

  def advance(
    self,
    x_BND: Array,
    state: DecoderState,
    source: SourceFeatures,
    features: SentenceFeatures,
  ) -> tuple[Array, DecoderState]:
    """Runs one decoding step; returns the output (BND) and the new state."""
    gates_BNZG = self.first.input(x_BND)
    state, contexts, _ = self.step(
      gates_BNZG, state, source, features, (1, 1, 1)
    )
    return self._read_out(x_BND, state.state_BNG, contexts), state

  def step(
    self,
    gates_BNZG: Array,
    state: DecoderState,
    source: SourceFeatures,
    features: SentenceFeatures,
    masks: tuple[ArrayLike, ...],
  ) -> tuple[DecoderState, list[Array], list[Array]]:
    """Returns the new state, and each window's context (BNE) and weights (BNS).

    Args:
      gates_BNZG: Previous subword, after `Cell.input` of the first cell.
      state: State after the previous step.
      source: Values of the source that all steps share.
      features: Features of the source.
      masks: Dropout masks of `_masks`.
    """
    first_mask, second_mask, context_mask = masks
    state_BNG = state.state_BNG
    query_BNG = self.first(gates_BNZG, state_BNG, state_BNG * first_mask)
    contexts, weights, past = self.cross(
      query_BNG, state.past, source, features
    )
    uses_all = self.spec.architecture.update == "all"
    updating = contexts if uses_all else contexts[:1]
    update_BNE = jnp.concatenate([c * context_mask for c in updating], axis=-1)
    gates_BNZG = self.second.input(update_BNE)
    state_BNG = self.second(gates_BNZG, query_BNG, query_BNG * second_mask)
    return DecoderState(state_BNG, past), contexts, weights

  def _masks(
    self, state_BNG: Array, source: SourceFeatures, features: SentenceFeatures
  ) -> tuple[ArrayLike, ...]:
    """Returns dropout masks for both cells' states and the context vectors.

    All steps of a sentence share them (Gal & Ghahramani 2016).
    """
    if not features.train or not self.drop.rate:
      return (1, 1, 1)
    B, _, G = state_BNG.shape
    E = source.annotations[0].shape[-1]
    ones = [jnp.ones((B, 1, n), state_BNG.dtype) for n in (G, G, E)]
    return tuple(self.drop(x, train=features.train) for x in ones)

  def _read_out(
    self, x_BTD: Array, state_BTG: Array, contexts: list[Array]
  ) -> Array:
    t_BTD = self.read_state(state_BTG) + self.read_word(x_BTD)
    for read, context_BTE in zip(self.read_context, contexts):
      t_BTD = t_BTD + read(context_BTE)
    return jnp.tanh(t_BTD)
