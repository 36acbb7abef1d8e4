"""Word alignment of translations by cross-attention.

Words are separated by whitespace, in the raw source and in the translation. A forced
pass over source and translation gives the attention of one decoder layer, averaged
over its heads (for a recurrent decoder, over its contexts). It is summed over the
subwords of a source word, and averaged over those of a target word. Each target word
is aligned with the source word of the largest weight; EOS is not a word. The default
is the head trained by `jaxsyn.training.guided_alignment`; without such a head it is
the last layer but one, which agrees best with alignments (Garg et al. 2019, section
4.1).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsyn.data.schema import NO_WORD, UNK
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.alignments import Links, spans
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import UNKNOWN
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batches, Example
from jaxsyn.decode.forced import ForcedPass
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.models.contract import EncoderDecoder, states
from jaxsyn.session.member import Member
from jaxsyn.session.session import Session
from jaxsyn.syntax.maps import COLLECTION, Maps
from jaxsyn.training.attention_options import cross_attention
from jaxsyn.training.guided_alignment import MEAN, GuidedAlignment

DEFAULT_LAYER = -2  # of a run without guided alignment


@dataclasses.dataclass(frozen=True)
class Aligned:
  """Word alignment of a translation, with source words for unknown subwords.

  Attributes:
    links: Pairs (source word, target word), from 0.
    unknown: Source word of each unknown subword.
  """

  links: Links
  unknown: tuple[str, ...]


class Aligner:
  """Word aligner that uses the cross-attention of a run or an ensemble."""

  def __init__(self, session: Session, layer: int | None = None):
    """Selects, for each run, the attention head to align words with.

    Args:
      session: Opened run.
      layer: Decoder layer, whose heads are averaged, from 0, or negative from
        the end. None: the head of guided alignment, or else layer -2, or the
        only layer.

    Raises:
      InputError: There is no such layer.
    """
    self._session = session
    self._decode = session.sources.vocabularies[1].decode
    self.heads = [_head(member, layer) for member in session.members]
    models = [
      _showing_layer(member.plan.recipe.model, layer)
      for member, (layer, _) in zip(session.members, self.heads)
    ]
    ensemble = Ensemble(tuple(models), tuple(session.weights))
    compute = functools.partial(_cross_attention, ensemble, self.heads)
    self._pass = ForcedPass(compute, session.batcher)

  def __call__(
    self,
    sources: Sequence[Source],
    examples: Sequence[Example],
    translations: Sequence[Translation],
  ) -> list[Aligned]:
    """Returns the alignment of each translation with its source."""
    weights = self.weights(sources, examples, translations)
    return [
      self._align(weight_TW, translation, source)
      for weight_TW, translation, source in zip(
        weights, translations, sources, strict=True
      )
    ]

  def weights(
    self,
    sources: Sequence[Source],
    examples: Sequence[Example],
    translations: Sequence[Translation],
  ) -> list[np.ndarray]:
    """Returns the attention of each target subword to the source words.

    For an ensemble it is the weighted mean over the runs.
    """
    session = self._session
    targets = [translation.ids for translation in translations]
    attention = self._pass(session.params, examples, targets)
    weights = []
    for source, weights_TS in zip(sources, attention, strict=True):
      total_TW: Any = 0.0
      for member, weight, weight_TS in zip(
        session.members, session.weights, weights_TS
      ):
        columns_SW = _columns(member, source)
        weight_TS = weight_TS[:, : len(columns_SW)].astype(np.float64)
        total_TW += weight * (weight_TS @ columns_SW)
      weights.append(total_TW)
    return weights

  def _align(
    self, weight_TW: np.ndarray, translation: Translation, source: Source
  ) -> Aligned:
    if not weight_TW.shape[1]:
      return Aligned((), ())
    ids = translation.ids
    word_T = [
      max(0, len(self._decode(ids[: i + 1]).split()) - 1)
      for i in range(len(ids))
    ]
    links = []
    for word in range(len(translation.text.split())):
      rows = [i for i, of_subword in enumerate(word_T) if of_subword == word]
      if rows:
        links.append((int(weight_TW[rows].mean(0).argmax()), word))
    words = (source if isinstance(source, str) else source.text).split()
    unknown = [
      words[int(weight_TW[i].argmax())]
      for i, id_ in enumerate(ids)
      if id_ == UNK
    ]
    return Aligned(tuple(links), tuple(unknown))


def replace_unknown(text: str, unknown: Sequence[str]) -> str:
  """Replaces the unknown words in a translation with the given source words."""
  words = iter(unknown)
  return re.sub(re.escape(UNKNOWN), lambda match: next(words, match[0]), text)


def _head(member: Member, layer: int | None) -> tuple[int, int]:
  """Returns the (layer, head) used to align words; head MEAN: all heads."""
  guided = [
    (loss.layer, loss.head)
    for loss in member.plan.recipe.losses.values()
    if isinstance(loss, GuidedAlignment)
  ]
  if layer is None and guided:
    return guided[0]
  layer = DEFAULT_LAYER if layer is None else layer
  layer_count = member.plan.spec.architecture.layers("decoder")
  if layer_count == 1 and layer == DEFAULT_LAYER:
    return 0, MEAN
  if not -layer_count <= layer < layer_count:
    raise InputError(
      f"--alignment_layer={layer}: the decoder of {member.run.workdir} has "
      f"{layer_count} layers, from 0, or from the end: -1."
    )
  return layer % layer_count, MEAN


def _showing_layer(model: EncoderDecoder, layer: int) -> EncoderDecoder:
  """Returns a model that publishes the cross-attention weights of a layer.

  Fused attention exposes no weights unless they are requested.
  """
  shown = (*model.spec.published_maps, ("cross", layer))
  return model.clone(spec=dataclasses.replace(model.spec, published_maps=shown))


def _cross_attention(
  ensemble: Ensemble,
  heads: Sequence[tuple[int, int]],
  params: Sequence[Any],
  batches: Batches,
) -> list[Array]:
  """Returns the cross-attention weights (BTS) of each model.

  They are those of its (layer, head), or the mean of all heads.
  """
  outputs = ensemble.apply(
    states, params, batches, train=False, mutable=[COLLECTION]
  )
  weights = []
  for (_, state), (layer, head) in zip(outputs, heads, strict=True):
    weight_BHTS = cross_attention(Maps.of(state), layer)
    is_mean = head == MEAN
    weights.append(
      jnp.mean(weight_BHTS, axis=1) if is_mean else weight_BHTS[:, head]
    )
  return weights


def _columns(member: Member, source: Source) -> np.ndarray:
  """Returns a 0/1 matrix (S, W) that maps source subwords to source words."""
  reader = member.sources
  fitted = reader.fit(source)
  line = fitted.read if isinstance(fitted.read, str) else fitted.read.text
  pieces = fitted.pieces
  if fitted.is_cut:
    pieces = reader.vocabularies[0].encode(line)
  starts, ends = spans(line)
  word_S = words_of_pieces(line, pieces.begin, pieces.end, starts, ends)
  tags = [] if member.plan.tag is None else [NO_WORD]
  array_S = np.array([*tags, *word_S, *tags, NO_WORD])
  return (array_S[:, None] == np.arange(len(starts))).astype(np.float64)
