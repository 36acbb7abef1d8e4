"""Conversion of config sections to validated dataclasses."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from jaxsyn.errors import did_you_mean
from jaxsyn.options.bounds import FLOATS, INTEGERS, Range, TextPattern
from jaxsyn.options.fields import (
  USER_MODE,
  ConfigPath,
  NamedSpecs,
  RegistryKey,
  T,
  ValidationMode,
  fields_of,
  metadata,
  siblings,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_SHOWN = 80  # characters of a value in a message


def from_config(
  cls: type[T],
  config: Mapping[str, Any],
  path: ConfigPath,
  mode: ValidationMode = USER_MODE,
) -> T:
  """Converts a config section to a validated instance of a dataclass.

  Args:
    cls: Dataclass whose annotations have types and bounds.
    config: Values by field name; missing ones have their defaults.
    path: Location of the section.
    mode: Origin of the values.

  Raises:
    InputError: An option is unknown, of another type or out of bounds, or has
      no default and is missing.
  """
  if not isinstance(config, Mapping):
    raise path.error(f" must be a section, got {_shortened(config)}.")
  fields = fields_of(cls)
  known = [*fields]
  for field, _ in fields.values():
    known += siblings(metadata(field))
  for name in config:
    if name not in known:
      guess = did_you_mean(str(name), known)
      raise path.error(f" has no option {_shortened(name)}. {guess}")
  values: dict[str, Any] = {}
  for name, (field, hint) in fields.items():
    details = metadata(field)
    if details.multiple:
      values[name] = _read_choices(field, config, path / name, mode)
    elif details.registry:
      values[name] = _read_choice(field, config, path, mode)
    elif name in config:
      values[name] = _read_value(hint, config[name], path / name, mode)
    elif field.default is field.default_factory is dataclasses.MISSING:
      raise (path / name).error(" is missing.")
    elif dataclasses.is_dataclass(hint):  # whose choices are not names
      values[name] = _read_value(hint, {}, path / name, mode)
  return cls(**values)


def _read_choice(
  field: dataclasses.Field[Any],
  config: Mapping[str, Any],
  path: ConfigPath,
  mode: ValidationMode,
) -> Any:
  """Returns an instance of the class that a `choice` field selects.

  The sections of all other classes are validated too.
  """
  details, specs = metadata(field), dict[str, Any]()
  assert details.registry is not None
  name = config.get(field.name, field.default)
  selected = details.registry.check_name(name, path / field.name)
  sections = siblings(details)
  for one, cls in details.registry.items():
    # If a choice has no options, a key with its name is another option.
    options = config.get(one, {}) if one in sections else {}
    specs[one] = from_config(cls, options, path / one, mode)
  return specs[selected]


def _read_choices(
  field: dataclasses.Field[Any],
  config: Mapping[str, Any],
  path: ConfigPath,
  mode: ValidationMode,
) -> NamedSpecs[Any]:
  """Returns (name, instance) of each class that a `choices` field selects."""
  registry, default = metadata(field).registry, typing.cast(Any, field.default)
  assert registry is not None
  selected = config.get(field.name, {one: {} for one in default})
  if not isinstance(selected, Mapping):
    raise path.error(f" must be a section, got {_shortened(selected)}.")
  for name in selected:
    registry.check_name(name, path)
  return tuple(
    (name, from_config(cls, selected[name], path / name, mode))
    for name, cls in registry.items()
    if name in selected
  )


def _read_value(
  hint: Any, value: Any, path: ConfigPath, mode: ValidationMode
) -> Any:
  """Returns a config value in its annotated type, or raises InputError."""
  form = None
  if typing.get_origin(hint) is Annotated:
    hint, form = hint.__origin__, hint.__metadata__[0]
  if isinstance(hint, type) and dataclasses.is_dataclass(hint):
    return from_config(hint, value, path, mode)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Literal:
    if isinstance(value, str) and value in arguments:
      return value
    known = ", ".join(map(repr, arguments))
    raise path.error(f" must be one of {known}, got {_shortened(value)}.")
  if origin in (tuple, list) and isinstance(value, (tuple, list)):
    return origin(
      _read_value(arguments[0], item, ConfigPath(f"{path}[{i}]"), mode)
      for i, item in enumerate(value)
    )
  if origin is dict and isinstance(value, Mapping):
    key_path, items = ConfigPath(f"a name in {path}"), {}
    for key, item in value.items():
      key = _read_value(arguments[0], key, key_path, mode)
      items[key] = _read_value(arguments[1], item, path / key, mode)
    return items
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in arguments:
      return None
    return _read_value(arguments[0], value, path, mode)
  if hint is Any:
    return value
  if hint in (int, float) and type(value) in (int, hint):
    usual = INTEGERS if hint is int else FLOATS
    default_bounds = usual if mode is USER_MODE else None
    _check_number(form or default_bounds, value, path)
    return hint(value)
  if isinstance(form, RegistryKey):
    return form.registry.check_name(value, path)
  if hint is str and type(value) is str:
    if form or mode is USER_MODE:
      _check_text(form, value, path)
    return value
  if isinstance(hint, type) and type(value) is hint:
    return value
  name = getattr(origin or hint, "__name__", str(hint))
  raise path.error(
    f" must be of type {name}, got {_shortened(value)} ({type(value).__name__})."
  )


def _check_number(bounds: Range | None, value: float, path: ConfigPath) -> None:
  if bounds is None or value in bounds:
    return
  if bounds is FLOATS and not math.isfinite(value):
    raise path.error(f" must be a finite number, got {value}.")
  raise path.error(f" must be {bounds}, got {_shortened(value)}.")


def _check_text(form: TextPattern | None, value: str, path: ConfigPath) -> None:
  if control := _CONTROL.search(value):
    raise path.error(
      f" has the control character {control[0]!r} in it, got {_shortened(value)}."
    )
  if value.encode(errors="ignore").decode() != value:  # raw bytes of argv
    raise path.error(f" is not UTF-8, got {_shortened(value)}.")
  if form and not re.fullmatch(form.pattern, value):
    raise path.error(f" must be {form.what}, got {_shortened(value)}.")


def _shortened(value: Any) -> str:
  """Returns the repr of a value, truncated for messages if it is long."""
  text = repr(value)
  return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
