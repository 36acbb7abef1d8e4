"""A session, and the model that tells what it looks at.

Before this file: `jaxsyn.session` (lines to examples, and translations), `maps`
(what is published), `pooling` and `sentence` (what is made of it). After it:
`run`, over the lines of a file, and notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jaxsyn.data.schema import EOS, NO_WORD
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.linearise import TRANSLATE, symbols
from jaxsyn.data.sentence.segmentation import BLANK
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import Pieces
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.inspection.maps import Map, MapReader
from jaxsyn.inspection.pooling import END, source_units, target_units
from jaxsyn.inspection.sentence import ReadSource, Sentence, gather, pooled
from jaxsyn.session import Session
from jaxsyn.trained.sources import SourceReader

TAG = symbols([])[TRANSLATE]  # pooled with EOS, where there are tags


class SentenceTooLongError(InputError):
  """A line has more subwords than can be inspected."""


class Inspector:
  """Reads sentences with a session, and tells what was seen.

  Attributes:
    session: as given.
    maps: what its model publishes.
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
    """Parses a line and makes its arrays; None for a line without words.

    Args:
      source: a raw line, or its parse.

    Raises:
      SentenceTooLongError: it has more subwords than the session reads.
      InputError: the run has no parser and the line no parse.
    """
    return read_source(self.session.sources, self.session.plan.tag, source)

  def see(
    self,
    sources: Sequence[ReadSource],
    nbests: Sequence[Sequence[Translation]] | None = None,
  ) -> Iterator[tuple[int, Sentence]]:
    """Translates and looks; yields numbers and sentences, as they come.

    Args:
      sources: of `read`.
      nbests: the translations of each, where they are known already.
    """
    examples = [source.example for source in sources]
    if nbests is None:
      nbests = self.session.search(examples)
    best = [nbest[0] for nbest in nbests]
    targets = [(*translation.ids, EOS) for translation in best]
    decode = self.session.sources.vocabularies[1].decode
    for i, published in self.maps(self.session.params, examples, targets):
      units = target_units(best[i].ids, decode)
      yield i, gather(sources[i], best[i].text, units, published=published)

  def see_encoder(
    self, sources: Sequence[ReadSource]
  ) -> Iterator[tuple[int, list[Map]]]:
    """Its pooled attention alone, which needs no translation: a map a layer."""
    return seen_by_encoder(self.maps, self.session.params, sources)


def read_source(
  sources: SourceReader, tag: int | None, source: Source
) -> ReadSource | None:
  """As `Inspector.read`, without a session.

  Args:
    sources: reads as the run does.
    tag: of the run's plan.
    source: a raw line, or its parse.
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
  # Also for a system without trees, whose pictures have words.
  parse = sources.parse(line) if isinstance(source, str) else source
  word_S = words_of_pieces(
    line, pieces.begin, pieces.end, parse.start_W, parse.end_W
  )
  if not any(word >= 0 for word in word_S):
    return None
  words = tuple(line[a:b] for a, b in zip(parse.start_W, parse.end_W))
  # What stands around the subwords: EOS, and the task's tags.
  tags = [] if tag is None else [TAG]
  no_word = [NO_WORD] * len(tags)
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
    units=source_units(words, [*no_word, *word_S, *no_word, NO_WORD]),
    example=example,
  )


def seen_by_encoder(
  reader: MapReader, params: Any, sources: Sequence[ReadSource]
) -> Iterator[tuple[int, list[Map]]]:
  """The encoder's pooled attention in sentences: a map a layer."""
  examples = [source.example for source in sources]
  for i, published in reader(params, examples):
    units = sources[i].units
    yield i, [pooled(m, units, units) for m in published if m.is_attention]


def attention_of(session: Session, sources: Iterable[Source]) -> list[Sentence]:
  """Everything about some sentences, for notebooks and programs.

  Args:
    session: an opened run.
    sources: raw lines or parses.

  Raises:
    InputError: a line is empty or too long, or there is no parser.
  """
  inspector = Inspector(session)
  read = []
  for index, source in enumerate(sources, start=1):
    if (one := inspector.read(source)) is None:
      raise InputError(f"sentence {index} has no words.")
    read.append(one)
  return [seen for _, seen in sorted(inspector.see(read), key=lambda x: x[0])]


def _subwords(line: str, pieces: Pieces) -> Iterator[str]:
  """The text of each subword, "▁" where a blank or the beginning was."""
  for index, (begin, end) in enumerate(zip(pieces.begin, pieces.end)):
    opens = not index or line[begin:end][:1].isspace()
    yield (BLANK if opens else "") + line[begin:end].strip()
