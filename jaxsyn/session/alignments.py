"""Word alignment of translations by cross-attention.

Words are separated by blanks, in the raw source and in the translation. A forced
pass over source and translation gives the attention of one decoder layer, averaged
over its heads (for a recurrent decoder, over its contexts). It is pooled as in
`jaxsyn.inspect`: the mean over the subwords of a target word, and the sum over those
of a source word. Each target word is aligned with the source word of the largest
weight; EOS is not a word. The default is the head trained by
`jaxsyn.training.guided_alignment`; without such a head it is the last layer but one,
which agrees best with alignments (Garg et al. 2019, section 4.1).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from jaxsyn.data.schema import EOS, NO_WORD, UNK
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.alignments import Links, spans
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import UNKNOWN
from jaxsyn.decode.examples import Example
from jaxsyn.decode.requests import Request
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.inspection.maps import Map, MapReader
from jaxsyn.session import Session
from jaxsyn.session.member import Member
from jaxsyn.training.guided_alignment import MEAN, GuidedAlignment

DEFAULT_LAYER = -2  # of a run without guided alignment


@dataclasses.dataclass(frozen=True)
class Aligned:
  """Word alignment of a translation, and the sources of its unknown words.

  Attributes:
    links: Pairs (source word, target word), from 0.
    unknown: Source word of each unknown subword.
  """

  links: Links
  unknown: tuple[str, ...]


class Aligner:
  """Function that aligns translations with the model of a run or an ensemble."""

  def __init__(self, session: Session, layer: int | None = None):
    """Initializes the function.

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
    self._readers = [
      MapReader(
        member.plan.recipe.model,
        member.sources.features,
        batch_transform=session.batch_transform,
      )
      for member in session.members
    ]
    self._heads = [_heads(member, layer) for member in session.members]

  def __call__(
    self,
    sources: Sequence[Request],
    examples: Sequence[Example],
    translations: Sequence[Translation],
  ) -> list[Aligned]:
    """Returns the alignment of each translation.

    Args:
      sources: Request of each translation.
      examples: Example of each request.
      translations: Translations.
    """
    targets = [(*translation.ids, EOS) for translation in translations]
    total = [np.zeros((0, 0))] * len(targets)
    words = [request.source for request in sources]
    for index, member in enumerate(self._session.members):
      member_examples = [
        example[index] if isinstance(example, tuple) else example
        for example in examples
      ]
      weight = self._session.weights[index]
      is_single = len(self._session.members) == 1
      params = self._session.params if is_single else member.params
      for i, maps in self._readers[index](params, member_examples, targets):
        weight_TS = _cross(maps, *self._heads[index])
        pooled_TW = weight_TS @ _columns(member, words[i])
        total[i] = weight * pooled_TW + (total[i] if index else 0)
    return [
      self._aligned(pooled_TW, translation, source)
      for pooled_TW, translation, source in zip(
        total, translations, words, strict=True
      )
    ]

  def _aligned(
    self, weight_TW: np.ndarray, translation: Translation, source: Source
  ) -> Aligned:
    if not weight_TW.shape[1]:
      return Aligned((), ())
    tokens = (source if isinstance(source, str) else source.text).split()
    ids = translation.ids
    word_T = [
      max(0, len(self._decode(ids[: i + 1]).split()) - 1)
      for i in range(len(ids))
    ]
    links = []
    for word in range(len(translation.text.split())):
      rows = [
        i for i, subword_word in enumerate(word_T) if subword_word == word
      ]
      if rows:
        links.append((int(weight_TW[rows].mean(0).argmax()), word))
    unknown = tuple(
      tokens[int(weight_TW[i].argmax())]
      for i, id_ in enumerate(ids)
      if id_ == UNK
    )
    return Aligned(tuple(links), unknown)


def replace_unknown(text: str, unknown: Sequence[str]) -> str:
  """Returns a translation with source words instead of unknown words."""
  words = iter(unknown)
  return re.sub(re.escape(UNKNOWN), lambda match: next(words, match[0]), text)


def _heads(member: Member, layer: int | None) -> tuple[int, int]:
  """Returns the decoder layer of a run, and the head or MEAN."""
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


def _cross(maps: Sequence[Map], layer: int, head: int) -> np.ndarray:
  """Returns the cross-attention (T, S) of a head, or the mean of all heads."""
  cross = [m for m in maps if m.place == "cross" and m.is_attention]
  layer_index = sorted({m.layer for m in cross})[layer]
  heads = [m.value_HQM for m in cross if m.layer == layer_index]
  weight_HTS = np.concatenate(heads).astype(np.float64)
  return weight_HTS.mean(0) if head == MEAN else weight_HTS[head]


def _columns(member: Member, source: Source) -> np.ndarray:
  """Returns an array (S, W): 1 where a subword belongs to a word, else 0."""
  fitted, read = member.sources.fit(source), member.sources
  line = fitted.read if isinstance(fitted.read, str) else fitted.read.text
  pieces = read.vocabularies[0].encode(line) if fitted.is_cut else fitted.pieces
  starts, ends = spans(line)
  word_S = words_of_pieces(line, pieces.begin, pieces.end, starts, ends)
  tags = [] if member.plan.tag is None else [NO_WORD]
  word_S = [*tags, *word_S, *tags, NO_WORD]
  return (np.array(word_S)[:, None] == np.arange(len(starts))).astype(
    np.float64
  )
