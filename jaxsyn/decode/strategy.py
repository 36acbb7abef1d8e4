"""What a search is: options, and a step of it.

A search is a spec of `jaxsyn.decode.strategies.STRATEGIES`, in a file of its
own. What sentences, models and hypotheses are to it stands in
`jaxsyn.decode.search`.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from jaxsyn.decode.rank import LengthPenalty
from jaxsyn.decode.search import DecodeRequest, Decoding, Search
from jaxsyn.options import Choice, ConfigPath, Range, Registry, choice, option


@dataclasses.dataclass(frozen=True)
class DecodingStrategy(Choice):
  """Base of the searches."""

  constrains: ClassVar[bool] = False  # it sees to words that must be there

  def hypotheses(self, decode: Decode) -> int:
    """N, hypotheses kept of a sentence."""
    return decode.beam

  def together(self, decode: Decode) -> int:
    """Sentences that are searched together."""
    return decode.sentences

  def begin(self, request: DecodeRequest, decode: Decode) -> Any:
    """What it remembers itself of sentences, `Search.own`: arrays, B first.

    Args:
      request: of their translations.
      decode: the other options.
    """
    return None

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    """The search after one subword more of every open sentence.

    Before the first subword there is one hypothesis, after it there are N.

    Args:
      decoding: what translates.
      search: so far.
      decode: the other options.
    """
    raise NotImplementedError

  def check(self, at: ConfigPath, decode: Decode) -> None:
    """Raises InputError where options do not fit each other.

    Args:
      at: where config.decode stands.
      decode: all of it.
    """
    if decode.nbest > self.hypotheses(decode):
      raise at.error(
        f".nbest={decode.nbest} is more than {at}.beam={decode.beam}; a beam "
        "gives as many as it keeps."
      )


# Filled by `jaxsyn.decode.strategies`: a strategy reads the section below.
STRATEGIES: Registry[DecodingStrategy] = Registry("search")


@dataclasses.dataclass(frozen=True)
class Decode(LengthPenalty):
  """How translations are searched for."""

  search: DecodingStrategy = choice(
    STRATEGIES,
    "beam",
    "The best by a beam, samples, or a beam of groups that avoid each other.",
  )
  beam: Annotated[int, Range(1, 1000)] = option(
    5, "Hypotheses kept of a sentence; 1: greedy."
  )
  stop: Literal["first", "bound"] = option(
    "first",
    'End when the "first" `beam` hypotheses ended, or when none that goes on '
    'can win: "bound".',
  )
  max_length_factor: Annotated[float, Range(0, 1000)] = option(
    1.5,
    "Longest output of a sentence, EOS included: factor * own source subwords, "
    "rounded up, + offset. The source's EOS and tags count too.",
  )
  max_length_offset: Annotated[int, Range(0, 100_000)] = option(
    10, "See max_length_factor.", unit="subwords"
  )
  checkpoint: Literal["best", "last"] = option(
    "best", 'Parameters to translate with: "best" or "last".'
  )
  sentences: Annotated[int, Range(1, 2**16)] = option(
    64, "Decoded together.", unit="sentences"
  )
  nbest: Annotated[int, Range(1, 1000)] = option(
    1, "Translations of a sentence that are given."
  )
