"""What the fields say, as rows: for --help, the reference, and resumes."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import ml_collections

from jaxsyn.options.fields import (
  CONFIG,
  UNSAID,
  At,
  Said,
  fields_of,
  first_line,
  said,
)


@dataclasses.dataclass(frozen=True)
class Described:
  """One option, or one section.

  Attributes:
    name: dotted, as on the command line.
    type: what it may be, in words; "" of a section.
    default: as Python writes it; "" of a section.
    unit: of a number, where it has one.
    meaning: in words.
    resume, neutral: see `Said`.
  """

  name: str
  type: str
  default: str
  unit: str
  meaning: str
  resume: bool
  neutral: bool

  @property
  def is_section(self) -> bool:
    return not self.type


def describe(
  cls: type, at: At = CONFIG, within: Said = UNSAID
) -> Iterator[Described]:
  """Every option of a section, and of those in it, in order.

  Args:
    cls: a dataclass.
    at: where it stands.
    within: what is said of all that is in it.
  """
  defaults = cls()
  for name, (field, hint) in fields_of(cls).items():
    own = said(field)
    neutral = within.neutral or own.neutral
    resume = within.resume or own.resume or neutral
    own = dataclasses.replace(own, resume=resume, neutral=neutral)
    kind = own.chooser.kind if own.chooser else _type(hint)
    default = repr(getattr(defaults, name)) if kind else ""
    yield _row(at / name, own, kind, default)
    if own.chooser:
      for there, spec in own.chooser.sections(name, at):
        of_spec = dataclasses.replace(own, meaning=first_line(spec), unit="")
        yield _row(there, of_spec)
        yield from describe(spec, there, own)
    elif not kind:
      yield from describe(hint, at / name, own)


def _row(at: At, own: Said, kind: str = "", default: str = "") -> Described:
  name, meaning, unit = str(at), own.meaning, own.unit
  return Described(name, kind, default, unit, meaning, own.resume, own.neutral)


def text(
  cls: type,
  begins: str = "config",
  config: ml_collections.ConfigDict | None = None,
) -> str:
  """The options whose dotted name begins so, for a terminal.

  Those of a section stand together, before the sections in it.

  Args:
    cls: a dataclass.
    begins: a dotted name.
    config: whose values are shown; None: the defaults.
  """
  sections: dict[str, list[str]] = {"config": []}
  for row in describe(cls):
    if not f"{row.name}.".startswith(f"{begins}."):
      continue
    if row.is_section:
      sections.setdefault(row.name, []).append(f"\n{row.name}: {row.meaning}")
      continue
    unit = f" {row.unit}" if row.unit else ""
    value = row.default if config is None else _value_in(config, row)
    other = "" if value == row.default else f"; by default {row.default}"
    other += "; may change when a run goes on" if row.resume else ""
    sections.setdefault(row.name.rpartition(".")[0], []).extend(
      [
        f"  --{row.name}={value}{unit}  ({row.type}{other})",
        textwrap.indent(textwrap.fill(row.meaning, 72), " " * 4),
      ]
    )
  return "\n".join(
    line for lines in sections.values() for line in lines
  ).strip()


def _value_in(config: ml_collections.ConfigDict, row: Described) -> str:
  """As Python writes it; the default where the config has no such section."""
  value: Any = config
  for name in row.name.split(".")[1:]:
    if name not in value:
      return row.default
    value = value[name]
  is_section = isinstance(value, ml_collections.ConfigDict)
  return repr(value.to_dict() if is_section else value)


@functools.cache
def changeable(cls: type) -> frozenset[str]:
  """Dotted names, from "config" on, of what may change on a resume."""
  return frozenset(row.name for row in describe(cls) if row.resume)


@functools.cache
def neutral(cls: type) -> frozenset[str]:
  """The same of what changes no figure."""
  return frozenset(row.name for row in describe(cls) if row.neutral)


def _type(hint: Any) -> str:
  """A type with its bounds in words; "" of a section."""
  if dataclasses.is_dataclass(hint):
    return ""
  if typing.get_origin(hint) is Annotated:
    inner, form = hint.__origin__, hint.__metadata__[0]
    return f"{inner.__name__} {form}" if inner is not str else str(form)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Literal:
    return "one of " + ", ".join(map(repr, arguments))
  if origin is tuple:
    return f"tuple of {_type(arguments[0])}"
  if origin is dict:
    return f"section of {_type(arguments[1])} by name"
  if origin in (typing.Union, types.UnionType):
    return " or ".join(_type(a) for a in arguments)
  if hint is type(None):
    return "None"
  return hint.__name__
