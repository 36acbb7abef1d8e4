"""Command-line flags for bounded numbers, option overrides and lists."""

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
  """Defines a command-line flag for a number within bounds."""
  flags.DEFINE(
    _Number(bounds, kind), name, default, meaning, flags.FLAGS,
    flags.ArgumentSerializer(),
  )  # fmt: skip


def field_flag(
  section: type, name: str, meaning: str, kind: type = int
) -> None:
  """Defines a numeric command-line flag with the bounds of a config option."""
  number_flag(name, None, range_of(section, name), meaning, kind)


def list_flag(name: str, default: Sequence[str], meaning: str) -> None:
  """Defines a command-line flag for several values.

  Values are separated by commas, or the flag is repeated, or both.
  """
  parser, serializer = flags.ListParser(), flags.CsvListSerializer(",")
  flags.DEFINE_flag(_List(parser, serializer, name, list(default), meaning))


class _List(flags.Flag[Any]):
  """Flag whose repeated uses extend one list; absl keeps only the last use."""

  def parse(self, argument: Any) -> None:
    before: list[str] = list(self.value or ()) if self.present else []
    super().parse(argument)
    self.value = before + list(self.value or ())


class _Number(flags.ArgumentParser[Any]):
  """Flag parser for a number within given bounds.

  absl's has no exclusive bounds and accepts NaN.
  """

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
