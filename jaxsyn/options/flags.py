"""Command-line flags of bounded numbers, of options and of lists."""

from __future__ import annotations

from collections.abc import Sequence
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
  """Defines a flag of a number with bounds.

  Args:
    name, default: Name and default of the flag.
    bounds: Bounds of its value.
    meaning: Help text.
    kind: int or float.
  """
  flags.DEFINE(
    _Number(bounds, kind), name, default, meaning, flags.FLAGS,
    flags.ArgumentSerializer(),
  )  # fmt: skip


def field_flag(
  section: type, name: str, meaning: str, kind: type = int
) -> None:
  """Defines a flag that overrides an option, with the bounds of the option."""
  number_flag(name, None, range_of(section, name), meaning, kind)


def list_flag(name: str, default: Sequence[str], meaning: str) -> None:
  """Defines a flag of several values: with commas, repeated, or both.

  Args:
    name, default: Name and default of the flag.
    meaning: Help text.
  """
  flags.DEFINE_flag(_List(
    flags.ListParser(), flags.CsvListSerializer(","), name, list(default), meaning,
  ))  # fmt: skip


class _List(flags.Flag[Any]):
  """A list flag that accumulates values; absl's keeps only the last ones."""

  def parse(self, argument: Any) -> None:
    before: list[str] = list(self.value or ()) if self.present else []
    super().parse(argument)
    self.value = before + list(self.value or ())


class _Number(flags.ArgumentParser[Any]):
  """A parser of bounded numbers."""

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
      kind_prefix = "a whole number " if self._kind is int else ""
      raise ValueError(f"it must be {kind_prefix}{self._bounds}.")
    return value
