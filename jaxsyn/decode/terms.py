"""What is asked of translations, in subwords: by sentence, and as a batch.

Before this file: `prefix`, `phrases`. After it: `translator`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxsyn.data.schema import UNK
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.decode import phrases, prefix
from jaxsyn.decode.phrases import Phrase
from jaxsyn.decode.prefix import Automaton, Prefixes
from jaxsyn.decode.search import DecodeRequest
from jaxsyn.errors import InputError

Sizes = tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class Terms:
  """What is asked of one translation.

  Attributes:
    place: of the sentence in the input, from 0.
    prefix: what it begins with.
    must, avoid: phrases that must be in it, and that must not.
  """

  place: int = 0
  prefix: Automaton = ()
  must: tuple[Phrase, ...] = ()
  avoid: tuple[Phrase, ...] = ()

  @property
  def kind(self) -> tuple[bool, bool]:
    """Whether it has a prefix, and phrases: other programs search then."""
    return bool(self.prefix), bool(self.must or self.avoid)

  @property
  def least(self) -> int:
    """Subwords that its prefix and phrases need at most, EOS too."""
    return len(self.prefix) + sum(map(len, self.must)) + 1


class Wording:
  """Makes terms of texts, for one vocabulary."""

  def __init__(self, vocabulary: Vocabulary):
    self._vocabulary = vocabulary

  @functools.cached_property
  def prefixes(self) -> Prefixes:
    return Prefixes(self._vocabulary)

  def __call__(
    self,
    place: int,
    prefix: str = "",
    constraints: Sequence[str] = (),
    avoid: Sequence[str] = (),
  ) -> Terms:
    """What is asked of a translation.

    Args:
      place: of the sentence in the input, from 0.
      prefix, constraints, avoid: of `jaxsyn.decode.requests.Request`.

    Raises:
      InputError: the vocabulary cannot write it, or it contradicts itself.
    """
    automaton = self.prefixes(prefix) if prefix else ()
    must, unwanted = (
      tuple(map(self._phrase, texts)) for texts in (constraints, avoid)
    )
    for text, phrase in zip(constraints, must):
      for other, banned in zip(avoid, unwanted):
        if any(
          phrase[at : at + len(banned)] == banned for at in range(len(phrase))
        ):
          raise InputError(
            f"the constraint {text!r} has {other!r} in it, which is to be "
            "avoided."
          )
    return Terms(place, automaton, must, unwanted)

  def _phrase(self, text: str) -> Phrase:
    ids = tuple(self._vocabulary.ids(text))
    if not ids or UNK in ids:
      why = "has characters or words that it lacks" if ids else "is empty"
      raise InputError(
        f"the constraint {text[:60]!r} cannot be written with the target "
        f"vocabulary: it {why}."
      )
    return ids


def sizes_of(terms: Sequence[Terms]) -> tuple[Sizes, Sizes]:
  """Of the prefixes and the phrases of sentences of one kind; None: none."""
  has_prefix, has_phrases = terms[0].kind
  return (
    prefix.sizes_of([one.prefix for one in terms]) if has_prefix else None,
    phrases.sizes_of([one.must + one.avoid for one in terms])
    if has_phrases
    else None,
  )


def batch_constraints(
  limits: Sequence[int],
  terms: Sequence[Terms],
  *,
  rows: int,
  sizes: tuple[Sizes, Sizes],
) -> DecodeRequest:
  """What is asked of the rows of a batch.

  Args:
    limits: longest outputs of the first rows; the others are padding.
    terms: of these.
    rows: how many there are.
    sizes: of `sizes_of` these and others.
  """
  padded = [*terms, *[Terms()] * (rows - len(terms))]
  limit_B: Any = np.ones(rows, np.int32)
  limit_B[: len(limits)] = limits
  place_B: Any = np.array([one.place for one in padded], np.int32)
  of_prefix, of_phrases = sizes
  return DecodeRequest(
    limit_B,
    place_B,
    of_prefix and prefix.batch_of([one.prefix for one in padded], of_prefix),
    of_phrases
    and phrases.batch_of(
      *([one.must for one in padded], [one.avoid for one in padded]),
      of_phrases,
    ),
  )
