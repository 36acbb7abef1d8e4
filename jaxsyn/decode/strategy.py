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
  """Base of the decoding strategies."""

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
  """Decoding: the strategy, the length penalty and outputs."""

  search: DecodingStrategy = choice(
    STRATEGIES,
    "beam",
    'Decoding strategy: "beam" search, random "sample", or "diverse" beam '
    "search.",
    common=True,
  )
  beam: Annotated[int, Range(1, 1000)] = option(
    5, "Beam size; 1: greedy decoding.", common=True
  )
  stop: Literal["first", "bound"] = option(
    "first",
    'End of the search of a sentence: "first", when `beam` hypotheses '
    'have ended; "bound", when no open hypothesis can still win.',
  )
  max_length_factor: Annotated[float, Range(0, 1000)] = option(
    1.5,
    "Factor f of the maximum output length of a sentence, f * source "
    "subwords, rounded up, + max_length_offset. EOS and tags count.",
  )
  max_length_offset: Annotated[int, Range(0, 100_000)] = option(
    10,
    "Offset of the maximum output length; see max_length_factor.",
    unit="subwords",
  )
  checkpoint: Literal["best", "last"] = option(
    "best", 'Checkpoint for translation: "best" or "last".'
  )
  sentences: Annotated[int, Range(1, 2**16)] = option(
    64, "Number of sentences decoded together.", unit="sentences"
  )
  nbest: Annotated[int, Range(1, 1000)] = option(
    1, "Number of translations returned for each sentence."
  )
