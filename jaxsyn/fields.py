"""What a field may hold: types and bounds, said where the field is declared.

  learning_rate: Annotated[float, Range(0, 1e6, above=True)]

`from_config` makes a frozen dataclass of a section of a config and refuses, by
dotted name, what is unknown, missing, of another type or out of bounds. So a
value is checked once, wherever it came from: a file, the command line, the
config.json of a run.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from jaxsyn.errors import InputError, did_you_mean

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN = 80  # characters of a value in a message


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
class Text:
  """Strings of a form.

  Attributes:
    pattern: of the whole string.
    what: the same in words.
  """

  pattern: str
  what: str


# What a number without a Range may be: so a part's options are safe to compute
# with in 32 bits, whatever else their own check asks.
INTEGERS = Range(-(2**31) + 1, 2**31 - 1)
FLOATS = Range(-3.4e38, 3.4e38)

Name = Annotated[str, Text(r".{1,200}", "1 to 200 characters")]
Folder = Annotated[str, Text(r".+", "the name of a folder")]


def from_config(
  cls: type, section: Mapping[str, Any], where: str, bounded: bool = True
) -> Any:
  """An instance of a frozen dataclass from a section of a config.

  Fields with a default may be left out; nothing is swallowed.

  Args:
    cls: a dataclass whose annotations say the types, and in Annotated a Range
      or a Text.
    section: field name -> value.
    where: dotted name of the section, for messages.
    bounded: numbers without a Range are finite and fit in 32 bits. False for
      what was measured, not chosen.

  Raises:
    InputError: unknown, missing or mistyped field, or a value out of bounds.
  """
  if not isinstance(section, Mapping):
    raise InputError(f"{where} must be a section, got {_shown(section)}.")
  fields = {f.name: f for f in dataclasses.fields(cls)}
  hints = typing.get_type_hints(cls, include_extras=True)
  for name in section:
    if name not in fields:
      guess = did_you_mean(str(name), fields)
      raise InputError(f"{where} has no option {_shown(name)}. {guess}")
  values = {}
  for name, field in fields.items():
    if name in section:
      here = f"{where}.{name}"
      values[name] = _typed(hints[name], section[name], here, bounded)
    elif field.default is field.default_factory is dataclasses.MISSING:
      told = "; see configs/base.py" if where.startswith("config") else ""
      raise InputError(f"{where}.{name} is missing{told}.")
  return cls(**values)


def range_of(cls: type, field: str) -> Range:
  """The bounds that a dataclass declares for a field."""
  hint = typing.get_type_hints(cls, include_extras=True)[field]
  return next(m for m in hint.__metadata__ if isinstance(m, Range))


def _typed(hint: Any, value: Any, where: str, bounded: bool) -> Any:
  """The value in the hinted type, or an InputError that names the field."""
  form = None
  if typing.get_origin(hint) is Annotated:
    hint, form = hint.__origin__, hint.__metadata__[0]
  if dataclasses.is_dataclass(hint):
    return from_config(hint, value, where, bounded)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Literal:
    if isinstance(value, str) and value in arguments:
      return value
    known = ", ".join(map(repr, arguments))
    raise InputError(f"{where} must be one of {known}, got {_shown(value)}.")
  if origin is tuple and isinstance(value, (tuple, list)):
    return tuple(
      _typed(arguments[0], item, f"{where}[{i}]", bounded)
      for i, item in enumerate(value)
    )
  if origin is dict and isinstance(value, Mapping):
    return {
      _typed(str, key, f"a name in {where}", bounded): _typed(
        arguments[1], item, f"{where}.{key}", bounded
      )
      for key, item in value.items()
    }
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in arguments:
      return None
    return _typed(arguments[0], value, where, bounded)
  if hint is Any:
    return value
  if hint is float and type(value) in (int, float):
    return float(_in_range(form or (FLOATS if bounded else None), value, where))
  if hint is int and type(value) is int:
    return _in_range(form or (INTEGERS if bounded else None), value, where)
  if hint is str and type(value) is str:
    return _text(form, value, where) if bounded else value
  if isinstance(hint, type) and type(value) is hint:
    return value
  name = getattr(origin or hint, "__name__", str(hint))
  raise InputError(
    f"{where} must be of type {name}, got {_shown(value)} "
    f"({type(value).__name__})."
  )


def _in_range(form: Range | None, value: float, where: str) -> float:
  if form is None or value in form:
    return value
  if form is FLOATS and not (isinstance(value, int) or math.isfinite(value)):
    raise InputError(f"{where} must be a finite number, got {value}.")
  raise InputError(f"{where} must be {form}, got {_shown(value)}.")


def _text(form: Text | None, value: str, where: str) -> str:
  if found := _CONTROL.search(value):
    raise InputError(
      f"{where} has the control character {found[0]!r} in it, got "
      f"{_shown(value)}."
    )
  try:
    value.encode()
  except UnicodeEncodeError:  # bytes of the command line, say
    raise InputError(f"{where} is not UTF-8, got {_shown(value)}.") from None
  if form and not re.fullmatch(form.pattern, value):
    raise InputError(f"{where} must be {form.what}, got {_shown(value)}.")
  return value


def _shown(value: Any) -> str:
  """A value as Python writes it, cut where it is long."""
  if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
    return (
      f"an integer of {value.bit_length()} bits"  # repr refuses the largest
    )
  text = repr(value)
  return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
