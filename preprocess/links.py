"""Word alignments on their way from files into the examples.

`jaxsyn.data.sentence.alignments` reads a line and ties it to subwords; here are
those of a chunk, for the stages of `preprocess.clean` (which tells what is wrong
before anything is parsed) and `preprocess.records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.align import MismatchError, spans
from jaxsyn.data.sentence.alignments import Links
from jaxsyn.data.sentence.text import normal
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess.corpus import Chunk
from jaxsyn.preprocess.work import Facts


def read_links(chunk: Chunk, pairs: Sequence[tuple[str, str]]) -> list[Links]:
  """The links of all lines of a chunk, between words of the raw text.

  Args:
    chunk: of a split that has some.
    pairs: its lines.

  Raises:
    InputError: what stands in a line is no link, or of a word that is not
      there; or the words that were aligned are not those of the text.
  """
  words = [_words(chunk, side, lines) for side, lines in _sides(pairs)]
  links_found = []
  for row, (where, line) in enumerate(chunk.alignments()):
    _, links = alignments.parsed(line, where, possible=False)
    for link in links:
      for side, index, side_words in zip(schema.SIDES, link, words):
        if index >= len(side_words[row]):
          word_count = f"{len(side_words[row])} words between blanks"
          raise InputError(
            f"{where}: the link {link[0]}-{link[1]} has word {index} of the"
            f" {side}, whose line {chunk.lines[row] + 1} has {word_count}, from 0."
            " Alignments are of the words of the raw files; where other words"
            " were aligned, give their files too: config.prepare.alignments."
          )
    side_W, other_W = (side_words[row] for side_words in words)
    # Several words that were aligned may be one between blanks.
    links_found.append(tuple({(side_W[i], other_W[j]): None for i, j in links}))
  return links_found


def _sides(
  pairs: Sequence[tuple[str, str]],
) -> list[tuple[str, list[str]]]:
  return [
    (side, [pair[i] for pair in pairs]) for i, side in enumerate(schema.SIDES)
  ]


def _words(
  chunk: Chunk, side: str, lines: Sequence[str]
) -> list[Sequence[int]]:
  """Of each line the words that were aligned: which between blanks each is."""
  if side not in chunk.split.aligned:
    return [range(len(alignments.spans(line)[0])) for line in lines]
  sentences: list[Sequence[int]] = []
  for line, (where, sentence_words) in zip(
    lines, chunk.aligned(side), strict=True
  ):
    words = (
      normal(sentence_words) if chunk.normalised(side) else sentence_words
    ).split()
    try:
      start_W, end_W = spans([(word,) for word in words], line)
    except MismatchError as error:
      raise InputError(
        f"{where}: {error}. Words that were aligned must be those of the raw"
        " text, but for blanks."
      ) from None
    sentences.append(alignments.regrouped(start_W, end_W, line))
  return sentences


def features(
  chunk: Chunk,
  rows: Sequence[int],
  vocabularies: Mapping[str, Vocabulary],
) -> tuple[list[dict[str, np.ndarray]], Facts]:
  """The features `schema.LINKED` of rows of a chunk.

  Returns: them; and "linked", how many rows have links.
  """
  pairs = chunk.pairs()
  given_links = (
    read_links(chunk, pairs) if chunk.split.alignments else [()] * len(pairs)
  )
  values = []
  for row in rows:
    made: dict[str, list[int]] = {}
    for side, text in zip(schema.SIDES, pairs[row]):
      pieces = vocabularies[side].encode(text)
      made[f"{side}_unit"] = alignments.units(text, pieces)
    made["links"] = [word for link in given_links[row] for word in link]
    values.append(
      {n: np.array(v, schema.FEATURES[n].dtype) for n, v in made.items()}
    )
  return values, {"linked": sum(bool(given_links[row]) for row in rows)}
