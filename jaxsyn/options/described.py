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
  NO_METADATA,
  ROOT,
  ConfigPath,
  OptionMetadata,
  fields_of,
  metadata,
  summary_of,
)


@dataclasses.dataclass(frozen=True)
class OptionDescription:
  """One option, or one section.

  Attributes:
    name: dotted, as on the command line.
    type: what it may be, in words; "" of a section.
    default: as Python writes it; "" of a section.
    unit: of a number, where it has one.
    meaning: in words.
    resume, neutral: see `OptionMetadata`.
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
  cls: type, at: ConfigPath = ROOT, within: OptionMetadata = NO_METADATA
) -> Iterator[OptionDescription]:
  """Every option of a section, and of those in it, in order.

  Args:
    cls: a dataclass.
    at: where it stands.
    within: what is said of all that is in it.
  """
  defaults = cls()
  for name, (field, hint) in fields_of(cls).items():
    details = metadata(field)
    neutral = within.neutral or details.neutral
    resume = within.resume or details.resume or neutral
    details = dataclasses.replace(details, resume=resume, neutral=neutral)
    kind = details.choice_field.kind if details.choice_field else _type(hint)
    default = repr(getattr(defaults, name)) if kind else ""
    yield _row(at / name, details, kind, default)
    if details.choice_field:
      for section_path, spec in details.choice_field.sections(name, at):
        of_spec = dataclasses.replace(
          details, meaning=summary_of(spec), unit=""
        )
        yield _row(section_path, of_spec)
        yield from describe(spec, section_path, details)
    elif not kind:
      yield from describe(hint, at / name, details)


def _row(
  at: ConfigPath, details: OptionMetadata, kind: str = "", default: str = ""
) -> OptionDescription:
  name, meaning, unit = str(at), details.meaning, details.unit
  return OptionDescription(
    name, kind, default, unit, meaning, details.resume, details.neutral
  )


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


def _value_in(config: ml_collections.ConfigDict, row: OptionDescription) -> str:
  """As Python writes it; the default where the config has no such section."""
  value: Any = config
  for name in row.name.split(".")[1:]:
    if name not in value:
      return row.default
    value = value[name]
  is_section = isinstance(value, ml_collections.ConfigDict)
  return repr(value.to_dict() if is_section else value)


@functools.cache
def resumable_options(cls: type) -> frozenset[str]:
  """Dotted names, from "config" on, of what may change on a resume."""
  return frozenset(row.name for row in describe(cls) if row.resume)


@functools.cache
def neutral_options(cls: type) -> frozenset[str]:
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
