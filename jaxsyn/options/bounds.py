"""Annotations that bound numeric options and give patterns for strings.

  learning_rate: Annotated[float, Range(0, 1e6, above=True)]

Upper bounds are far beyond useful values: they catch typing errors before
memory or arithmetic fails.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated


@dataclasses.dataclass(frozen=True)
class Range:
  """Interval of the values that a numeric option may have.

  NaN is never in it.

  Attributes:
    low, high: Bounds, both included by default.
    above: Whether `low` itself is excluded.
    below: Whether `high` itself is excluded.
    also: Further allowed value with a special meaning.

  >>> print(Range(0, 1, below=True))
  at least 0 and below 1
  """

  low: float
  high: float
  above: bool = False
  below: bool = False
  also: float | None = None

  def __contains__(self, value: float) -> bool:
    if value == self.also:
      return True
    over = value > self.low if self.above else value >= self.low
    return over and (value < self.high if self.below else value <= self.high)

  def __str__(self) -> str:
    low, high = f"{self.low:,}", f"{self.high:,}"
    also = "" if self.also is None else f", or {self.also}"
    if self.above:
      return (
        f"above {low} and {'below' if self.below else 'up to'} {high}{also}"
      )
    if self.below:
      return f"at least {low} and below {high}{also}"
    return f"from {low} to {high}{also}"


@dataclasses.dataclass(frozen=True)
class TextPattern:
  """Regular expression that a string option must match.

  Attributes:
    pattern: Regular expression for the complete string.
    what: Description of the pattern in words, for messages.
  """

  pattern: str
  what: str

  def __str__(self) -> str:
    return self.what


# Numbers without a Range are limited to what is safe in 32-bit arithmetic.
INTEGERS = Range(-(2**31) + 1, 2**31 - 1)
FLOATS = Range(-3.4e38, 3.4e38)
MAX_COUNT = 2**31 - 1  # counters on the device have 32 bits

Count = Annotated[int, Range(1, MAX_COUNT)]
# Zero means off, unlimited or automatic.
CountOrOff = Annotated[int, Range(0, MAX_COUNT)]
Layers = Annotated[int, Range(1, 1000)]
Layer = Annotated[int, Range(-1000, 999)]  # from 0, or negative from the end
Units = Annotated[int, Range(1, 2**20)]
Seed = Annotated[int, Range(0, 2**32 - 1)]  # JAX takes seeds modulo 2**32
Axis = Annotated[int, Range(1, 2**16, also=-1)]
Rate = Annotated[float, Range(0, 1, below=True)]  # a dropout or decay rate
Probability = Annotated[float, Range(0, 1)]
Amount = Annotated[float, Range(0, 1_000_000)]
Positive = Annotated[float, Range(0, 1_000_000, above=True)]
Epsilon = Annotated[float, Range(1e-30, 1)]  # with 0 the first update is 0 / 0

Name = Annotated[str, TextPattern(r".{1,200}", "text of 1 to 200 characters")]
Folder = Annotated[str, TextPattern(r".+", "the name of a folder")]
Language = Annotated[
  str,
  TextPattern(
    r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*",
    "a language's code, as in en, de or zh_Hant",
  ),
]
