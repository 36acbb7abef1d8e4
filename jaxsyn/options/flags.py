"""Flags of numbers within a Range, those of an option, and of lists."""

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


def list_flag(name: str, default: Sequence[str], meaning: str) -> None:
  """Defines a flag of several values: with commas, repeated, or both.

  Args:
    name, default: of the flag.
    meaning: for --help.
  """
  flags.DEFINE_flag(_List(
    flags.ListParser(), flags.CsvListSerializer(","), name, list(default), meaning,
  ))  # fmt: skip


class _List(flags.Flag[Any]):
  """Adds to what stood before it: absl's own keeps only the last, silently."""

  def parse(self, argument: Any) -> None:
    before: list[str] = list(self.value or ()) if self.present else []
    super().parse(argument)
    self.value = before + list(self.value or ())


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
      kind_prefix = "a whole number " if self._kind is int else ""
      raise ValueError(f"it must be {kind_prefix}{self._bounds}.")
    return value
