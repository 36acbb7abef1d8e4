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
from jaxsyn.decode.examples import Batcher, Batches, Example
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
    self._passes = [
      _attention_pass(member, *head, session)
      for member, head in zip(session.members, self.heads)
    ]

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
    targets = [translation.ids for translation in translations]
    total: list[Any] = [0.0] * len(targets)
    for index, member in enumerate(self._session.members):
      attention = self._passes[index](
        [self._session.params[index]],
        [(example[index],) for example in examples],
        targets,
      )
      for i, weight_TS in enumerate(attention):
        columns_SW = _columns(member, sources[i])
        weight_TS = weight_TS[:, : len(columns_SW)].astype(np.float64)
        total[i] += self._session.weights[index] * (weight_TS @ columns_SW)
    return total

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


def _attention_pass(
  member: Member, layer: int, head: int, session: Session
) -> ForcedPass:
  """Returns a forced-decoding pass that computes cross-attention weights."""
  model = member.plan.recipe.model
  # Fused attention exposes no weights unless they are requested.
  shown = (*model.spec.published_maps, ("cross", layer))
  model = model.clone(
    spec=dataclasses.replace(model.spec, published_maps=shown)
  )
  batcher = Batcher(
    [member.sources.features], batch_transform=session.batch_transform
  )
  compute = functools.partial(_cross_attention, model, layer, head)
  return ForcedPass(compute, batcher)


def _cross_attention(
  model: EncoderDecoder,
  layer: int,
  head: int,
  params: Sequence[Any],
  batches: Batches,
) -> Array:
  """Returns the cross-attention weights of one head, or the mean of all."""
  (one,), (batch,) = params, batches
  _, state = model.apply(
    {"params": one}, batch, train=False, method=states, mutable=[COLLECTION]
  )
  weight_BHTS = cross_attention(Maps.of(state), layer)
  if head == MEAN:
    return jnp.mean(weight_BHTS, axis=1)
  return weight_BHTS[:, head]


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
