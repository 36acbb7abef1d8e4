"""The conditional GRU: what it looks at, a step of it, and all its steps.

Before this file: `gru_layers`. After it: `gru`. Source: Sennrich et al. 2017
(Nematus), section 3; contexts: Chen et al. 2018, sections 2 and 3.

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
  """What goes from step to step, of N hypotheses a sentence.

  Attributes:
    state_BNG: of the second cell.
    past: what each window remembers.
  """

  state_BNG: Array
  past: tuple[Any, ...]


@struct.dataclass
class SourceFeatures:
  """What all steps read of the source.

  Attributes:
    annotations: annotation_BSE of each sequence of annotations.
    keys: key_BSA of each.
    windows: `Window.facts` of each window.
  """

  annotations: tuple[Array, ...]
  keys: tuple[Array, ...]
  windows: tuple[Any, ...]


class Contexts(nn.Module):
  """All windows of a decoder, over the scores of one alignment.

  A window with annotations of its own has an alignment of its own too.
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
    sequences, which = 1, []
    for name, window in gru.windows:
      setattr(self, name, window.make(site.for_modifier(name)))
      which.append(sequences if window.has_own_annotations else 0)
      sequences += window.has_own_annotations
    self.which = tuple(which)  # sequence of annotations of each window
    self.drop = Dropout(gru.dropout_hidden, shared=(1,))
    self.alignment = [
      Alignment(gru.hidden, gru.initialisation, model.dtype)
      for _ in range(sequences)
    ]

  def _windows(self) -> list[Window]:
    return [getattr(self, name) for name, _ in self.spec.architecture.windows]

  def sequences(self, x_BSD: Array, view: SentenceFeatures) -> list[Array]:
    """What is to be annotated for windows of their own annotations.

    Args:
      x_BSD: embeddings of the source.
      view: facts about it.
    """
    return [
      window.sequence(x_BSD, view)
      for window in self._windows()
      if window.spec.has_own_annotations
    ]

  def project_memory(
    self, annotations: tuple[Array, ...], view: SentenceFeatures
  ) -> SourceFeatures:
    """What all steps read."""
    keys = [
      align.project_memory(self.drop(annotation_BSE, train=view.train))
      for align, annotation_BSE in zip(self.alignment, annotations)
    ]
    first = self.which[0]
    if first:  # without a tree, the first context is the global one
      plain_BSE = view.where_parsed(annotations[first], annotations[0])
      annotations = (
        *annotations[:first],
        plain_BSE,
        *annotations[first + 1 :],
      )
    facts = [window.features(view) for window in self._windows()]
    return SourceFeatures(annotations, tuple(keys), tuple(facts))

  def start(self, view: SentenceFeatures, beams: int) -> tuple[Any, ...]:
    """What the windows remember before the first step."""
    return tuple(window.start(view, beams) for window in self._windows())

  def __call__(
    self,
    query_BNG: Array,
    past: tuple[Any, ...],
    facts: SourceFeatures,
    view: SentenceFeatures,
  ) -> tuple[list[Array], list[Array], tuple[Any, ...]]:
    """One step of all windows.

    A sentence without a tree has, where a window needs one, the global context
    first, and no second one: that is the model without the window.

    Returns: context_BNE and weight_BNS of each; what they remember.
    """
    scores = [
      align(query_BNG, key_BSA)
      for align, key_BSA in zip(self.alignment, facts.keys)
    ]
    contexts, weights, new = [], [], []
    for index, (window, which) in enumerate(zip(self._windows(), self.which)):
      weight_BNS, now = window(
        scores[which], query_BNG, facts.windows[index], past[index], view
      )
      if window.spec.required_features:
        plain_BNS: ArrayLike = 0.0
        if index == 0:
          plain_BNS = softmax_within(scores[0], view.real_BS[:, None, :])
        weight_BNS = view.where_parsed(weight_BNS, plain_BNS)
      annotation_BSE = facts.annotations[which]
      contexts.append(
        jnp.einsum(
          "BNS,BSE->BNE",
          weight_BNS.astype(annotation_BSE.dtype),
          annotation_BSE,
        )
      )
      weights.append(weight_BNS)
      new.append(now)
    return contexts, weights, tuple(new)

  def publish(self, weights: list[Array]) -> None:
    """Makes the weights of all steps readable, see `jaxsyn.syntax.maps`.

    Args:
      weights: weight_BTS of each window.
    """
    for window, weight_BTS in zip(self._windows(), weights):
      publish(window, "weight_BTS", weight_BTS)


class Decoder(nn.Module):
  """Two cells with the contexts between them, and the read-out.

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
    facts: SourceFeatures,
    view: SentenceFeatures,
  ) -> Array:
    """The read-out of every position, given the words before it (t_BTD)."""
    masks = self._masks(start.state_BNG, facts, view)

    def step(
      decoder: Decoder, state: DecoderState, gates_BZG: Array
    ) -> tuple[DecoderState, Any]:
      state, contexts, weights = decoder.step(
        gates_BZG[:, None], state, facts, view, masks
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
    # After the steps: what a step itself publishes, `nn.scan` drops silently.
    self.cross.publish(weights)
    state_BTG = self.drop_read_out(state_BTG, train=view.train)
    contexts = [self.drop_read_out(c, train=view.train) for c in contexts]
    t_BTD = self._read_out(x_BTD, state_BTG, contexts)
    return self.drop_read_out(t_BTD, train=view.train)

  def advance(
    self,
    x_BND: Array,
    state: DecoderState,
    facts: SourceFeatures,
    view: SentenceFeatures,
  ) -> tuple[Array, DecoderState]:
    """One step of N hypotheses a sentence: t_BND, and the state after it."""
    state, contexts, _ = self.step(
      self.first.input(x_BND), state, facts, view, (1, 1, 1)
    )
    return self._read_out(x_BND, state.state_BNG, contexts), state

  def step(
    self,
    gates_BNZG: Array,
    state: DecoderState,
    facts: SourceFeatures,
    view: SentenceFeatures,
    masks: tuple[ArrayLike, ...],
  ) -> tuple[DecoderState, list[Array], list[Array]]:
    """One step: the state, and context_BNE and weight_BNS of each window.

    Args:
      gates_BNZG: the word before, as the first cell takes it.
      state: of the step before.
      facts, view: about the source.
      masks: of dropout, see `_masks`.
    """
    first, second, context = masks
    seen_BNG = state.state_BNG * first
    query_BNG = self.first(gates_BNZG, state.state_BNG, seen_BNG)
    contexts, weights, past = self.cross(query_BNG, state.past, facts, view)
    moving = (
      contexts if self.spec.architecture.update == "all" else contexts[:1]
    )
    moving_BNE = jnp.concatenate([c * context for c in moving], axis=-1)
    gates_BNZG = self.second.input(moving_BNE)
    state_BNG = self.second(gates_BNZG, query_BNG, query_BNG * second)
    return DecoderState(state_BNG, past), contexts, weights

  def _masks(
    self, state_BNG: Array, facts: SourceFeatures, view: SentenceFeatures
  ) -> tuple[ArrayLike, ...]:
    """Dropout masks of both recurrent matrices and the context, one a sentence.

    Each stays the same through all steps: Gal & Ghahramani 2016.
    """
    if not view.train or not self.drop.rate:
      return (1, 1, 1)
    B, _, G = state_BNG.shape
    E = facts.annotations[0].shape[-1]
    ones = [jnp.ones((B, 1, n), state_BNG.dtype) for n in (G, G, E)]
    return tuple(self.drop(x, train=view.train) for x in ones)

  def _read_out(
    self, x_BTD: Array, state_BTG: Array, contexts: list[Array]
  ) -> Array:
    t_BTD = self.read_state(state_BTG) + self.read_word(x_BTD)
    for read, context_BTE in zip(self.read_context, contexts):
      t_BTD = t_BTD + read(context_BTE)
    return jnp.tanh(t_BTD)
