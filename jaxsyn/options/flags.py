"""Flags of numbers: those of a Range, and those of an option."""

from __future__ import annotations

from typing import Any

from absl import flags

from jaxsyn.options.bounds import Range
from jaxsyn.options.fields import range_of

flags.disclaim_key_flags()  # they show in the help of the command


def number_flag(
  name: str,
  default: float | None,
  bounds: Range,
  meaning: str,
  kind: type = int,
) -> None:
  """Defines a flag that takes the numbers of a Range.

  Args:
    name, default: of the flag.
    bounds: what it may be; NaN is never.
    meaning: for --help.
    kind: int or float.
  """
  flags.DEFINE(
    _Number(bounds, kind), name, default, meaning, flags.FLAGS,
    flags.ArgumentSerializer(),
  )  # fmt: skip


def field_flag(
  section: type, name: str, meaning: str, kind: type = int
) -> None:
  """A flag instead of a field of the config, within the field's bounds."""
  number_flag(name, None, range_of(section, name), meaning, kind)


class _Number(flags.ArgumentParser[Any]):
  """Reads a flag's number."""

  def __init__(self, bounds: Range, kind: type):
    super().__init__()
    self._bounds, self._kind = bounds, kind
    self.syntactic_help = f"a number {bounds}"

  def flag_type(self) -> str:
    return self._kind.__name__

  def parse(self, argument: Any) -> float:
    try:
      value = self._kind(argument)
    except ValueError:
      value = float("nan")
    if value not in self._bounds:
      whole = "a whole number " if self._kind is int else ""
      raise ValueError(f"it must be {whole}{self._bounds}.")
    return value
