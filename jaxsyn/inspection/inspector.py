"""Inspects sentences with a run: trees, attention and modifier outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jaxsyn.data.schema import EOS, NO_WORD
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.linearise import TRANSLATE, symbols
from jaxsyn.data.sentence.segmentation import BLANK
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import Pieces
from jaxsyn.decode.sources import SourceReader
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.inspection.maps import Map, MapReader
from jaxsyn.inspection.pooling import (
  END,
  TargetUnits,
  Units,
  pool,
  source_units,
  target_units,
)
from jaxsyn.inspection.sentence import ReadSource, Sentence
from jaxsyn.session import Session

TAG = symbols([])[TRANSLATE]  # pooled with EOS
PARSE = "parse"  # kind of the maps of supervised heads, see `Map`


class SentenceTooLongError(InputError):
  """Error for a line with more subwords than can be inspected."""


def attention_of(session: Session, sources: Iterable[Source]) -> list[Sentence]:
  """Returns attention, tree and translation of a few sentences.

  Args:
    session: Opened run.
    sources: Raw lines or parses.

  Raises:
    InputError: A line is empty or too long, there is no parser, or the session
      is an ensemble.
  """
  inspector = Inspector(session)
  read = []
  for index, source in enumerate(sources, start=1):
    if (one := inspector.read(source)) is None:
      raise InputError(f"sentence {index} has no words.")
    read.append(one)
  sentences = dict(inspector.inspect(read))
  return [sentences[i] for i in range(len(read))]


class Inspector:
  """Collector of a run's attention maps, modifier outputs and translations.

  Attributes:
    session: Opened run.
    maps: Function that returns the maps of the run's model.
  """

  def __init__(self, session: Session):
    if len(session.members) > 1:
      raise InputError("an ensemble has no maps of its own; open one run.")
    self.session = session
    self.maps = MapReader(
      session.plan.recipe.model,
      session.sources.features,
      batch_transform=session.batch_transform,
    )

  def read(self, source: Source) -> ReadSource | None:
    """Parses a line and converts it to model inputs (`read_source`)."""
    return read_source(self.session.sources, self.session.plan.tag, source)

  def inspect(
    self,
    sources: Sequence[ReadSource],
    nbests: Sequence[Sequence[Translation]] | None = None,
  ) -> Iterator[tuple[int, Sentence]]:
    """Translates sentences; yields their indices and results in any order.

    Args:
      sources: Sentences.
      nbests: Translations of each sentence, if they are known.
    """
    examples = [source.example for source in sources]
    if nbests is None:
      nbests = self.session.search([(example,) for example in examples])
    best = [nbest[0] for nbest in nbests]
    targets = [(*translation.ids, EOS) for translation in best]
    decode = self.session.sources.vocabularies[1].decode
    for i, maps in self.maps(self.session.params[0], examples, targets):
      units = target_units(best[i].ids, decode)
      yield i, _sentence(sources[i], best[i].text, units, maps)


def encoder_attention(
  maps: MapReader, params: Any, sources: Sequence[ReadSource]
) -> Iterator[tuple[int, list[Map]]]:
  """Yields each sentence's index and its encoder attention between words.

  This needs no translation. The sentences are in any order.
  """
  for i, published in maps(params, [source.example for source in sources]):
    units = sources[i].units
    yield i, [_pooled(m, units, units) for m in published if m.is_attention]


def read_source(
  sources: SourceReader, tag: int | None, source: Source
) -> ReadSource | None:
  """Parses a line and converts it to model inputs; None if it has no words.

  Args:
    sources: Reader of the run.
    tag: Task tag of the run's plan.
    source: Raw line or parse.

  Raises:
    SentenceTooLongError: The line has more subwords than the run reads.
    InputError: The run has no parser, and the line is not parsed.
  """
  fitted = sources.fit(source)
  line, pieces = fitted.text, fitted.pieces
  if not line.strip():
    return None
  if fitted.is_cut:
    raise SentenceTooLongError(
      f"{len(pieces.id)} subwords are too many: {line[:40]!r}…; at most "
      f"{sources.longest - 1} can be inspected."
    )
  # Systems without trees are parsed as well: their figures have words.
  parse = sources.parser(line) if isinstance(source, str) else source
  word_S = words_of_pieces(
    line, pieces.begin, pieces.end, parse.start_W, parse.end_W
  )
  if not any(word >= 0 for word in word_S):
    return None
  words = tuple(line[a:b] for a, b in zip(parse.start_W, parse.end_W))
  tags = [] if tag is None else [TAG]
  tag_word = [NO_WORD] * len(tags)
  example = sources.example(parse)
  given_head_W = example.get("source_head")
  return ReadSource(
    text=line,
    words=words,
    head_W=parse.head_W,
    relation_W=parse.relation_W,
    parsed=parse.parsed,
    tree=sources.tree,
    given_head_W=None if given_head_W is None else (*given_head_W.tolist(),),
    subwords=(*tags, *_subwords(line, pieces), *tags, END),
    units=source_units(words, [*tag_word, *word_S, *tag_word, NO_WORD]),
    example=example,
  )


def _subwords(line: str, pieces: Pieces) -> Iterator[str]:
  """Yields the text of each subword, with "▁" for a space before it."""
  for index, (begin, end) in enumerate(zip(pieces.begin, pieces.end)):
    is_start = not index or line[begin:end][:1].isspace()
    yield (BLANK if is_start else "") + line[begin:end].strip()


def _sentence(
  source: ReadSource,
  translation: str,
  target: TargetUnits,
  published: Iterable[Map],
) -> Sentence:
  """Creates a `Sentence`; pools attention to words, labels modifier maps."""
  units = {
    "encoder": (source.units, source.units),
    "decoder": (target.rows, target.columns),
    "cross": (target.rows, source.units),
  }
  target_inputs = (target.columns.labels[0], *target.subwords[:-1])
  labels = {
    "encoder": (source.subwords, source.subwords),
    "decoder": (target.subwords, target_inputs),
    "cross": (target.subwords, source.subwords),
  }
  places = [*units]
  attention, weightings = [], []
  for m in sorted(published, key=lambda m: (places.index(m.place), m.layer)):
    if m.is_attention:
      attention.append(_pooled(m, *units[m.place]))
      continue
    rows, columns = labels[m.place]
    if m.kind == PARSE:  # its columns are the words that are predicted, too
      columns = rows
    weightings.append(dataclasses.replace(m, rows=rows, columns=columns))
  return Sentence(
    source,
    translation,
    attention=tuple(attention),
    weightings=tuple(weightings),
    found_head_W=_found_heads(source, weightings),
  )


def _pooled(attention: Map, rows: Units, columns: Units) -> Map:
  return dataclasses.replace(
    attention,
    value_HQM=pool(attention.value_HQM, rows, columns),
    rows=rows.labels,
    columns=columns.labels,
  )


def _found_heads(
  source: ReadSource, weightings: Sequence[Map]
) -> tuple[int, ...] | None:
  """Returns the parents predicted by the parsing head of the highest layer.

  As for the UAS of validation (`jaxsyn.training.head_losses`), the parent of a
  word is that of its last subword. A word without subwords is its own parent.
  """
  parses = [m for m in weightings if (m.place, m.kind) == ("encoder", PARSE)]
  if not parses:
    return None
  best_S = parses[-1].value_HQM[0].argmax(1)
  word_S = [source.units.words[unit] for unit in source.units.unit_S]
  head_W = list(range(len(source.words)))
  for i, word in enumerate(word_S):  # the last subword overwrites others
    if word >= 0:
      head = word_S[best_S[i]]
      head_W[word] = head if head >= 0 else word
  return tuple(head_W)
