"""What a search is: options, and a step of it.

A search is a spec of `jaxsyn.decode.strategies.STRATEGIES`, in a file of its
own. What sentences, models and hypotheses are to it stands in
`jaxsyn.decode.search`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from jaxsyn.options import Choice, ConfigPath

if TYPE_CHECKING:
  from jaxsyn.config import Decode
  from jaxsyn.decode.search import DecodeRequest, Decoding, Search


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
