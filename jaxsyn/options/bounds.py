"""Bounds of numbers and forms of strings, for the annotation of a field.

  learning_rate: Annotated[float, Range(0, 1e6, above=True)]

Upper bounds are beyond anything that works: they tell a slip of the keyboard
before memory or arithmetic does.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
  from jaxsyn.options.registry import Registry


@dataclasses.dataclass(frozen=True)
class Range:
  """The numbers from `low` to `high`; never NaN.

  Attributes:
    low, high: both included, unless
    above: `low` itself is none of them.
    below: `high` itself is none of them.
    also: one more, which means something else.

  >>> print(Range(0, 1, below=True))
  from 0 to below 1
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
    return f"from {low} to {'below ' if self.below else ''}{high}{also}"


@dataclasses.dataclass(frozen=True)
class TextPattern:
  """Strings of a form.

  Attributes:
    pattern: of the whole string.
    what: the same in words.
  """

  pattern: str
  what: str

  def __str__(self) -> str:
    return self.what


@dataclasses.dataclass(frozen=True)
class RegistryKey:
  """Strings that name a choice of a table.

  Attributes:
    address: of the table, "module:NAME": it may stand in a room above.
  """

  address: str

  @property
  def table(self) -> Registry[Any]:
    module, _, name = self.address.partition(":")
    return getattr(importlib.import_module(module), name)

  def __str__(self) -> str:
    return "one of " + ", ".join(map(repr, self.table))


# What a number without a Range may be: so it is safe to compute with in 32
# bits, whatever else its own check asks.
INTEGERS = Range(-(2**31) + 1, 2**31 - 1)
FLOATS = Range(-3.4e38, 3.4e38)
MAX_COUNT = 2**31 - 1  # counters on the device have 32 bits

Count = Annotated[int, Range(1, MAX_COUNT)]
CountOrOff = Annotated[
  int, Range(0, MAX_COUNT)
]  # 0: off, all, or as many as fit
Layers = Annotated[int, Range(1, 1000)]
Layer = Annotated[int, Range(-1000, 999)]  # from 0, or from the end
Units = Annotated[int, Range(1, 2**20)]
Seed = Annotated[int, Range(0, 2**32 - 1)]  # JAX takes more, modulo this
Axis = Annotated[int, Range(1, 2**16, also=-1)]
Rate = Annotated[float, Range(0, 1, below=True)]  # of dropout; also a decay
Probability = Annotated[float, Range(0, 1)]
Amount = Annotated[float, Range(0, 1_000_000)]
Positive = Annotated[float, Range(0, 1_000_000, above=True)]
Epsilon = Annotated[float, Range(1e-30, 1)]  # 0: the first update is 0 / 0

Name = Annotated[str, TextPattern(r".{1,200}", "1 to 200 characters")]
Folder = Annotated[str, TextPattern(r".+", "the name of a folder")]
Language = Annotated[
  str,
  TextPattern(
    r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*",
    "a language's code, as in en, de or zh_Hant",
  ),
]
