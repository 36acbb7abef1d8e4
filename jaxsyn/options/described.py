"""Describes config options for --helpconfig, messages and reference pages."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import ml_collections

from jaxsyn.options.fields import (
  NO_METADATA,
  ROOT,
  Choice,
  ConfigPath,
  OptionMetadata,
  RegistryKey,
  fields_of,
  inherits,
  metadata,
  siblings,
  summary_of,
)


@dataclasses.dataclass(frozen=True)
class OptionDescription:
  """Description of one option or section of a config, for help texts.

  Attributes:
    name: Dotted name, as on the command line.
    type: Type and bounds in words; "" for a section.
    default: Repr of the default; "" for a section.
    declared: Identity of the declaration, equal for the copies of an option that
      several registered choices inherit or several stacks have.
    meaning, unit: Help text and unit.
    resume, neutral, common: See `OptionMetadata`.
  """

  name: str
  type: str
  default: str
  declared: int
  meaning: str
  unit: str = ""
  resume: bool = False
  neutral: bool = False
  common: bool = False

  @property
  def is_section(self) -> bool:
    """Whether the description is for a section, not for an option."""
    return not self.type


def describe(
  cls: type, path: ConfigPath = ROOT, within: OptionMetadata = NO_METADATA
) -> Iterator[OptionDescription]:
  """Yields descriptions of all options and subsections of a config section.

  Args:
    cls: Dataclass of the section.
    path: Location of the section.
    within: Metadata of the section, which its options inherit.
  """
  defaults = cls()
  for name, (field, hint) in fields_of(cls).items():
    own = metadata(field)
    neutral = within.neutral or own.neutral
    resume = within.resume or own.resume or neutral
    details = dataclasses.replace(own, neutral=neutral, resume=resume)
    kind = _type(hint)
    if own.registry and not own.multiple:
      kind = str(RegistryKey(own.registry))
    default = repr(getattr(defaults, name)) if kind else ""
    yield OptionDescription(
      str(path / name), kind, default, id(own), own.meaning, own.unit, resume,
      neutral, own.common,
    )  # fmt: skip
    inner = path / name if own.multiple else path
    sections = siblings(own)
    if own.registry and own.multiple:
      sections = {n: c for n, c in own.registry.items() if c.fits(name)}
    for one, spec in sections.items():
      summary = summary_of(spec)
      yield OptionDescription(
        str(inner / one), "", "", id(spec), summary, "", resume, neutral
      )
      yield from describe(spec, inner / one, details)
    if dataclasses.is_dataclass(hint):
      yield from describe(typing.cast(type, hint), path / name, details)


def text(
  cls: type,
  prefix: str = "config",
  config: ml_collections.ConfigDict | None = None,
) -> str:
  """Returns the help text of all options whose dotted names have a prefix.

  The complete help begins with the options that most users need. An option
  that several choices inherit is explained once.

  Args:
    cls: Dataclass of the config.
    prefix: Dotted name of an option or a section.
    config: Config whose values are shown; None: the defaults.
  """
  rows = [r for r in describe(cls) if f"{r.name}.".startswith(f"{prefix}.")]
  common = [row for row in rows if row.common and prefix == "config"]
  lines = [_entry(row, config) for row in common]
  if common:
    lines.insert(0, "The options that matter most:\n")
    lines.append("\nAll other options, by section:\n")
  # The sections of choices come between the options of their section.
  sections: dict[str, list[str]] = {"config": []}
  explained: dict[int, str] = {}
  for row in rows:
    if row.is_section:
      sections.setdefault(row.name, []).append(f"\n{row.name}: {row.meaning}")
    elif row not in common:
      same = explained.setdefault(row.declared, row.name)
      section = sections.setdefault(row.name.rpartition(".")[0], [])
      section.append(_entry(row, config, "" if same == row.name else same))
  for section in sections.values():
    lines += section
  return "\n".join(lines).strip()


def _entry(
  row: OptionDescription,
  config: ml_collections.ConfigDict | None,
  same: str = "",
) -> str:
  """Returns the help text for one option, with its value and type.

  Args:
    row: Description of the option.
    config: Config whose value is shown; None: the default.
    same: Name of an earlier option with the same help text, or "".
  """
  unit = f" {row.unit}" if row.unit else ""
  value = row.default if config is None else _value_in(config, row)
  if same:
    return f"  --{row.name}={value}{unit}  (see {same})"
  other = "" if value == row.default else f"; by default {row.default}"
  other += "; can be changed when a run is resumed" if row.resume else ""
  meaning = textwrap.indent(textwrap.fill(row.meaning, 72), " " * 4)
  return f"  --{row.name}={value}{unit}  ({row.type}{other})\n{meaning}"


def _value_in(config: ml_collections.ConfigDict, row: OptionDescription) -> str:
  """Returns the repr of an option's value in a config, or else its default."""
  value: Any = config
  for name in row.name.split(".")[1:]:
    if name not in value:
      return row.default
    value = value[name]
  is_section = isinstance(value, ml_collections.ConfigDict)
  return repr(value.to_dict() if is_section else value)


@functools.cache
def resumable_options(cls: type) -> frozenset[str]:
  """Returns the dotted names of the options that a resumed run may change."""
  return frozenset(row.name for row in describe(cls) if row.resume)


@functools.cache
def neutral_options(cls: type) -> frozenset[str]:
  """Returns the dotted names of the options that have no effect on results."""
  return frozenset(row.name for row in describe(cls) if row.neutral)


def _type(hint: Any) -> str:
  """Describes a type annotation and its bounds in words; "" for a section."""
  if hint is None or dataclasses.is_dataclass(hint):
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
    return f"mapping from names to {_type(arguments[1])}"
  if origin in (typing.Union, types.UnionType):
    return " or ".join(_type(a) for a in arguments)
  return "None" if hint is type(None) else hint.__name__


def unused_option_error(cls: type, config: Mapping[str, Any], name: str) -> str:
  """Returns an error message for an option that the config does not use.

  Args:
    cls: Dataclass of the config.
    config: Values of the config.
    name: Dotted name of the option in the config.

  Returns:
    Error message; "" if the option has an effect or does not exist.
  """
  path, names = ROOT, name.split(".")
  for part, inside in zip(names, [*names[1:], ""]):
    within: Any = None
    for selecting, (field, hint) in fields_of(cls).items():
      sections = siblings(metadata(field))
      if part in sections:
        within, selected = sections[part], config[selecting]
        chosen = sections.get(selected, Choice)
        if selected != part and not inherits(chosen, within, inside):
          return (
            f"config.{name} counts only where {path / selecting} is {part!r}; "
            f"here it is {selected!r}. Set that too, or leave the option out."
          )
      elif part == selecting and dataclasses.is_dataclass(hint):
        within = hint
    if within is None:
      return ""
    cls, config, path = within, config[part], path / part
  return ""
