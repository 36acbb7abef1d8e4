"""Descriptions of all options, for --helpconfig and the reference."""

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
  """Description of one option or section of a config, for help texts.

  Attributes:
    name: Dotted name, as on the command line.
    type: Type and bounds in words; "" for a section.
    default: Repr of the default; "" for a section.
    metadata: Metadata, combined with that of the enclosing sections.
    declared: Identity of the declaration, equal for the copies of an option that
      several registered choices inherit or several stacks have.
  """

  name: str
  type: str
  default: str
  metadata: OptionMetadata
  declared: int

  @property
  def meaning(self) -> str:
    """Help text of the option or section."""
    return self.metadata.meaning

  @property
  def unit(self) -> str:
    """Unit of a numeric option, or ""."""
    return self.metadata.unit

  @property
  def resume(self) -> bool:
    """Whether a resumed run may have another value of the option."""
    return self.metadata.resume

  @property
  def neutral(self) -> bool:
    """Whether the option has no effect on results."""
    return self.metadata.neutral

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
    declared = metadata(field)
    neutral = within.neutral or declared.neutral
    resume = within.resume or declared.resume or neutral
    details = dataclasses.replace(declared, resume=resume, neutral=neutral)
    selected = details.choice_field
    kind = selected.kind if selected else _type(hint)
    default = repr(getattr(defaults, name)) if kind else ""
    yield OptionDescription(
      str(path / name), kind, default, details, id(declared)
    )
    if selected:
      for section_path, spec in selected.sections(name, path):
        of_spec = dataclasses.replace(
          details, meaning=summary_of(spec), unit=""
        )
        yield OptionDescription(str(section_path), "", "", of_spec, id(spec))
        yield from describe(spec, section_path, details)
    elif not kind:
      yield from describe(hint, path / name, details)


def text(
  cls: type,
  prefix: str = "config",
  config: ml_collections.ConfigDict | None = None,
) -> str:
  """Returns the help text for all options whose dotted name has a prefix.

  The complete help begins with the options that most users need. An option
  that several choices inherit is explained once.

  Args:
    cls: Dataclass of the config.
    prefix: Dotted name of an option or a section.
    config: Config whose values are shown; None: the defaults.
  """
  rows = [r for r in describe(cls) if f"{r.name}.".startswith(f"{prefix}.")]
  common = [r for r in rows if r.metadata.common] if prefix == "config" else []
  sections: dict[str, list[str]] = {}
  if common:
    sections["common"] = ["The options that matter most:\n"]
    sections["common"] += [_entry(row, config) for row in common]
    sections["common"].append("\nAll other options, by section:\n")
  sections["config"] = []
  explained: dict[int, str] = {}
  for row in rows:
    if row in common:
      continue
    if row.is_section:
      sections.setdefault(row.name, []).append(f"\n{row.name}: {row.meaning}")
      continue
    same = explained.setdefault(row.declared, row.name)
    section = sections.setdefault(row.name.rpartition(".")[0], [])
    section.append(_entry(row, config, "" if same == row.name else same))
  return "\n".join(
    line for lines in sections.values() for line in lines
  ).strip()


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
  other += "; may change when a run is resumed" if row.resume else ""
  meaning = textwrap.indent(textwrap.fill(row.meaning, 72), " " * 4)
  return f"  --{row.name}={value}{unit}  ({row.type}{other})\n{meaning}"


def _value_in(config: ml_collections.ConfigDict, row: OptionDescription) -> str:
  """Returns the repr of an option's value in a config, or of its default."""
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
  """Returns a type annotation and its bounds in words; "" for a section."""
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
