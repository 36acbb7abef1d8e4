"""Base class of decoding strategies, and the section config.decode.

A strategy is a frozen dataclass of its options, registered in
`jaxsyn.decode.strategies`.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from jaxsyn.decode.rank import LengthPenalty
from jaxsyn.decode.search import DecodeRequest, Decoding, Search
from jaxsyn.options import Choice, ConfigPath, Range, Registry, choice, option


@dataclasses.dataclass(frozen=True)
class DecodingStrategy(Choice):
  """Base class of decoding strategies, such as beam search and sampling."""

  def hypotheses(self, decode: Decode) -> int:
    """Returns the number N of hypotheses per sentence."""
    return decode.beam

  def batch_size(self, decode: Decode) -> int:
    """Returns the number of sentences that are decoded together."""
    return decode.sentences

  def begin(self, request: DecodeRequest, decode: Decode) -> Any:
    """Returns the strategy's initial state: a pytree of arrays, or None.

    The first axis of each array is the sentence (B).
    """
    return None

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    """Extends each unfinished sentence by one subword; returns the new state.

    There is one hypothesis before the first subword, and N afterwards.
    """
    raise NotImplementedError

  def check(self, at: ConfigPath, decode: Decode) -> None:
    """Raises InputError if the options at config path `at` are inconsistent."""
    if decode.nbest > self.hypotheses(decode):
      raise at.error(
        f".nbest={decode.nbest} is more than {at}.beam={decode.beam}; a beam "
        "gives as many as it keeps."
      )


# `jaxsyn.decode.strategies` adds the strategies, which import this file.
STRATEGIES: Registry[DecodingStrategy] = Registry("search")


@dataclasses.dataclass(frozen=True)
class Decode(LengthPenalty):
  """Decoding options: strategy, length penalty and outputs."""

  search: DecodingStrategy = choice(
    STRATEGIES,
    "beam",
    'Decoding strategy: "beam", beam search; "sample", random sampling; '
    '"diverse", diverse beam search.',
    common=True,
  )
  beam: Annotated[int, Range(1, 1000)] = option(
    5, "Beam size; 1: greedy decoding.", common=True
  )
  stop: Literal["first", "bound"] = option(
    "first",
    'When the search for a sentence ends: "first", when `beam` hypotheses are '
    'finished; "bound", when no unfinished hypothesis can still win.',
  )
  max_length_factor: Annotated[float, Range(0, 1000)] = option(
    1.5,
    "Factor f of the maximum output length, which is f times the number of "
    "source subwords (including EOS and tags), rounded up, plus "
    "max_length_offset.",
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
    64,
    "Maximum number of sentences decoded together on each device.",
    unit="sentences",
  )
  nbest: Annotated[int, Range(1, 1000)] = option(
    1, "Number of translations returned for each sentence."
  )
