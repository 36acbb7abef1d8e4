"""How much a client may ask, and how often."""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import math
import time
from collections.abc import Callable
from typing import Annotated

from jaxsyn.decode.requests import MAX_CHARACTERS
from jaxsyn.options import option
from jaxsyn.options.bounds import Range

CLIENTS = 10_000  # that are remembered; who was away longest is forgotten


@dataclasses.dataclass(frozen=True)
class ServiceLimits:
  """What a server takes; each field is a flag of `jaxsyn serve`."""

  max_characters: Annotated[int, Range(1, 1_000_000)] = option(
    MAX_CHARACTERS,
    "Length of a sentence, and of a target prefix; 413 beyond.",
    unit="characters",
  )
  max_sentences: Annotated[int, Range(1, 1_000_000)] = option(
    100, "Of a request; 413 beyond.", unit="sentences"
  )
  max_bytes: Annotated[int, Range(1, 2**31)] = option(
    1_000_000, "Of a request's body; 413 beyond.", unit="bytes"
  )
  rate: Annotated[float, Range(0, 1_000_000)] = option(
    0.0,
    "Requests a second of a client's address, 429 beyond; a second's worth may "
    "come at once. 0: any number.",
  )
  queue: Annotated[int, Range(1, 10_000_000)] = option(
    1000, "Sentences that wait at most; 503 beyond.", unit="sentences"
  )
  timeout: Annotated[float, Range(0.01, 86_400)] = option(
    60.0, "For an answer; 503 beyond.", unit="seconds"
  )
  connections: Annotated[int, Range(1, 1_000_000)] = option(
    1000, "Connections open at one time; 503 beyond."
  )


class RateLimiter:
  """A bucket of tokens for each client: a request takes one.

  It holds a second's worth, at least one, and fills at the rate.
  """

  def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic):
    """Sets it up.

    Args:
      rate: tokens a second; 0: nobody is held up.
      clock: in seconds.
    """
    self._rate, self._clock = rate, clock
    self._size = max(1.0, rate)
    # Client -> tokens, and when they were counted; who came last stands last.
    self._left: collections.OrderedDict[str, tuple[float, float]]
    self._left = collections.OrderedDict()

  def take(self, client: str) -> float:
    """Takes a token; returns the seconds until there is one, 0 if it was there."""
    if not self._rate:
      return 0.0
    key, now = _key(client), self._clock()
    tokens, since = self._left.pop(key, (self._size, now))
    tokens = min(self._size, tokens + (now - since) * self._rate)
    wait = max(0.0, (1 - tokens) / self._rate)
    self._left[key] = (tokens - (not wait), now)
    if len(self._left) > CLIENTS:
      self._left.popitem(last=False)
    return wait


def _key(client: str) -> str:
  """An address; of IPv6 the network, whose owner has all addresses in it."""
  try:
    address = ipaddress.ip_address(client)
  except ValueError:
    return client
  if address.version == 4:
    return client
  return str(ipaddress.ip_network((int(address), 64), strict=False))


def seconds(wait: float) -> str:
  """A time for the header Retry-After: whole seconds, at least one."""
  return str(max(1, math.ceil(wait)))
