"""Which source word each word of a translation comes from, by cross-attention.

Words are what stands between blanks, in the raw source and in the translation. The
model reads source and translation once more; attention of one layer, the mean of its
heads (of a recurrent decoder, of its contexts), is pooled as `jaxsyn.inspect` does
it: a row is the mean of a word's subwords, a column the sum. Each word of the
translation is linked with the source word of the largest weight; EOS is
none. By default it is the head that a run was taught alignments with
(`jaxsyn.training.guided_alignment`); of any other run the last layer but one, whose
attention is nearest to alignments (Garg et al. 2019, section 4.1).
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
from jaxsyn.trained.member import Member
from jaxsyn.training.guided_alignment import MEAN, GuidedAlignment

LAYER = -2  # where no head was taught, and none is asked for


@dataclasses.dataclass(frozen=True)
class Aligned:
  """A translation with what it comes from.

  Attributes:
    links: (word of the source, word of the translation), from 0.
    unknown: for each unknown subword, the source word it comes from.
  """

  links: Links
  unknown: tuple[str, ...]


class Aligner:
  """Aligns translations of a session, which may be an ensemble."""

  def __init__(self, session: Session, layer: int | None = None):
    """Sets it up.

    Args:
      session: that translates.
      layer: of the decoder, from 0, or from the end, the mean of its heads;
        None: the head that was taught, else layer -2, or the only one.

    Raises:
      InputError: there is no such layer.
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
    """Each translation with its links.

    Args:
      sources: of each translation.
      examples: of these.
      translations: one of each.
    """
    targets = [(*one.ids, EOS) for one in translations]
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
      self._aligned(pooled_TW, one, source)
      for pooled_TW, one, source in zip(total, translations, words, strict=True)
    ]

  def _aligned(
    self, weight_TW: np.ndarray, one: Translation, source: Source
  ) -> Aligned:
    if not weight_TW.shape[1]:
      return Aligned((), ())
    tokens = (source if isinstance(source, str) else source.text).split()
    unit_T = [
      max(0, len(self._decode(one.ids[: i + 1]).split()) - 1)
      for i in range(len(one.ids))
    ]
    links = []
    for word in range(len(one.text.split())):
      rows = [i for i, unit in enumerate(unit_T) if unit == word]
      if rows:
        links.append((int(weight_TW[rows].mean(0).argmax()), word))
    unknown = tuple(
      tokens[int(weight_TW[i].argmax())]
      for i, id_ in enumerate(one.ids)
      if id_ == UNK
    )
    return Aligned(tuple(links), unknown)


def replaced(text: str, unknown: Sequence[str]) -> str:
  """A translation with source words in the place of its unknown ones."""
  words = iter(unknown)
  return re.sub(re.escape(UNKNOWN), lambda match: next(words, match[0]), text)


def _heads(member: Member, layer: int | None) -> tuple[int, int]:
  """Which layer of a run it is, and which of its heads; both from 0."""
  taught = [
    (loss.layer, loss.head)
    for loss in member.plan.recipe.losses.values()
    if isinstance(loss, GuidedAlignment)
  ]
  if layer is None and taught:
    return taught[0]
  layer = LAYER if layer is None else layer
  layer_count = member.plan.spec.architecture.layers("decoder")
  if layer_count == 1 and layer == LAYER:
    return 0, MEAN
  if not -layer_count <= layer < layer_count:
    raise InputError(
      f"--alignment_layer={layer}: the decoder of {member.run.workdir} has "
      f"{layer_count} layers, from 0, or from the end: -1."
    )
  return layer % layer_count, MEAN


def _cross(maps: Sequence[Map], layer: int, head: int) -> np.ndarray:
  """weight_TS of a head of a layer, or the mean of all."""
  cross = [m for m in maps if m.place == "cross" and m.is_attention]
  layer_index = sorted({m.layer for m in cross})[layer]
  heads = [m.value_HQM for m in cross if m.layer == layer_index]
  weight_HTS = np.concatenate(heads).astype(np.float64)
  return weight_HTS.mean(0) if head == MEAN else weight_HTS[head]


def _columns(member: Member, source: Source) -> np.ndarray:
  """member_SW: 1 where a subword belongs to a word between blanks."""
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
