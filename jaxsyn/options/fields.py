"""One option is one field of a frozen dataclass; sections are made from them.

  @dataclasses.dataclass(frozen=True)
  class InverseSquareRoot(Schedule):
    warmup: Count = option(1000, "Until the peak.", unit="updates")

`from_config` makes such an instance of what a config says and refuses, by dotted
name, what is unknown, missing, of another type or out of bounds; `config_dict`
is the way back. So a value is checked once, wherever it came from: a file, the
command line, the config.json of a run.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol, TypeVar

import ml_collections
from ml_collections.config_dict import placeholder

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options.bounds import (
  FLOATS,
  INTEGERS,
  Range,
  RegistryKey,
  TextPattern,
)

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_SHOWN = 80  # characters of a value in a message
MISSING = " is missing; --helpconfig says what it is."
_KEY = "jaxsyn"  # of what `option` says, among a field's metadata


class ConfigPath:
  """Where in a config something stands, for messages.

  >>> print(At("config") / "train" / "steps")
  config.train.steps
  """

  def __init__(self, *names: str):
    self.names = names

  def __truediv__(self, name: str) -> ConfigPath:
    return ConfigPath(*self.names, name)

  @property
  def above(self) -> ConfigPath:
    """The section that it stands in."""
    return ConfigPath(*self.names[:-1])

  def __str__(self) -> str:
    return ".".join(self.names)

  def error(self, what: str) -> InputError:
    """For what stands here: its dotted name, and what is wrong with it."""
    return InputError(f"{self}{what}")


ROOT = ConfigPath("config")


@dataclasses.dataclass(frozen=True)
class ValidationMode:
  """How a config is read.

  Attributes:
    bounded: numbers without a Range are finite and fit in 32 bits, strings
      without a Text are of one line. False for what was measured, not chosen.
    whole: no field may be left out, but those of the choices that were not
      made, and of `choices`. Else those with a default may.
    earlier: it was written, perhaps before there were options that
      `OptionMetadata` calls later; these may be left out.
  """

  bounded: bool = True
  complete: bool = False
  from_older_version: bool = False


DEFAULT_MODE, COMPLETE_MODE = ValidationMode(), ValidationMode(complete=True)
CHECKPOINT_MODE = ValidationMode(complete=True, from_older_version=True)
RESULT_MODE = ValidationMode(bounded=False)


class ChoiceField(Protocol):
  """A field that names choices of a table; see `jaxsyn.options.registry`.

  `siblings` are the choices with sections next to the field, `sections` all
  there are with their places. `read` is the way in from the section that the
  field is in, `config` and `plain` are the ways back to entries of one.
  """

  @property
  def kind(self) -> str: ...
  def siblings(self) -> Mapping[str, type]: ...
  def sections(
    self, name: str, at: ConfigPath
  ) -> Iterator[tuple[ConfigPath, type]]: ...
  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    at: ConfigPath,
    how: ValidationMode,
  ) -> Any: ...
  def config(self, name: str, value: Any) -> dict[str, Any]: ...
  def as_dict(self, name: str, value: Any) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class OptionMetadata:
  """What a field says of itself beside type and default.

  Attributes:
    meaning: in one or a few sentences.
    unit: of a number, where it has one.
    resume: whether a run that is gone on with may have another value.
    neutral: whether it changes no figure: runs with other values compare, and
      one that is gone on with may have another.
    later: whether what was written before it was there is read, as if it had
      the default.
    chooser: of a field that names choices.
  """

  meaning: str = ""
  unit: str = ""
  resume: bool = False
  neutral: bool = False
  added_later: bool = False
  choice_field: ChoiceField | None = None


NO_METADATA = OptionMetadata()

# Name -> field, and its type with its bounds.
Fields = dict[str, tuple[dataclasses.Field[Any], Any]]


def declare(details: OptionMetadata, **default: Any) -> Any:
  """A field of a dataclass that says this of itself."""
  return dataclasses.field(**default, metadata={_KEY: details})


def option(default: Any, meaning: str, **rest: Any) -> Any:
  """A field: its default, and what `OptionMetadata` holds."""
  details = OptionMetadata(meaning, **rest)
  if isinstance(default, dict):
    return declare(details, default_factory=functools.partial(dict, default))
  return declare(details, default=default)


def with_default(cls: Any, name: str, default: Any) -> Any:
  """A field that a base has, with another default; the rest is said there."""
  return declare(metadata(cls.__dataclass_fields__[name]), default=default)


def section(cls: Any, **rest: Any) -> Any:
  """A field that is a section; its meaning is the first line of the class.

  What else `OptionMetadata` holds is said of all that is in it.
  """
  return declare(OptionMetadata(summary_of(cls), **rest), default_factory=cls)


def summary_of(cls: type) -> str:
  """What a section or a choice is, in a sentence."""
  return (cls.__doc__ or "").partition("\n")[0]


def metadata(field: dataclasses.Field[Any]) -> OptionMetadata:
  """What a field says of itself."""
  return field.metadata.get(_KEY, NO_METADATA)


def _fields_of(cls: Any) -> Fields:
  """Fields of a section in order: name -> field, type with its bounds.

  The type of a choice is not looked at: it may be of a room above.
  """
  fields = {f.name: f for f in dataclasses.fields(cls)}
  hints: dict[str, Any] = {}
  for base in reversed(cls.__mro__):
    for name, hint in inspect.get_annotations(base).items():
      if name in fields and not metadata(fields[name]).choice_field:
        module = vars(sys.modules[base.__module__])
        hints[name] = eval(hint, module) if isinstance(hint, str) else hint
  return {name: (field, hints.get(name)) for name, field in fields.items()}


# To mypy a cached function takes what is hashable, which classes are not.
fields_of: Callable[[Any], Fields] = functools.cache(_fields_of)


def from_config(
  cls: type[T],
  config: Mapping[str, Any],
  at: ConfigPath,
  how: ValidationMode = DEFAULT_MODE,
) -> T:
  """An instance of a frozen dataclass from a section of a config.

  Args:
    cls: a dataclass whose annotations say types, Ranges and Texts.
    config: field name -> value.
    at: where the section stands.
    how: how strictly it is read.

  Raises:
    InputError: unknown, missing or mistyped field, or a value out of bounds.
  """
  if not isinstance(config, Mapping):
    raise at.error(f" must be a section, got {_shortened(config)}.")
  fields = fields_of(cls)
  choosers = [
    chooser for f, _ in fields.values() if (chooser := metadata(f).choice_field)
  ]
  known = [*fields, *itertools.chain(*(c.siblings() for c in choosers))]
  for name in config:
    if name not in known:
      guess = did_you_mean(str(name), known)
      raise at.error(f" has no option {_shortened(name)}. {guess}")
  values = {}
  for name, (field, hint) in fields.items():
    if name not in config:
      bare = field.default is field.default_factory is dataclasses.MISSING
      due = how.complete and not (
        how.from_older_version and metadata(field).added_later
      )
      if bare or (due and _KEY in field.metadata):
        raise (at / name).error(MISSING if how.complete else " is missing.")
    elif chooser := metadata(field).choice_field:
      values[name] = chooser.read(name, config, at, how)
    else:
      values[name] = _convert(hint, config[name], at / name, how)
  return cls(**values)


def config_dict(settings: Any) -> ml_collections.ConfigDict:
  """The section of a config that says what an instance (or a class) holds.

  Beside a field that names a choice stand the sections of all choices, each
  with its defaults, so that a command line can set any.
  """
  if isinstance(settings, type):
    settings = settings()
  config = ml_collections.ConfigDict()
  for name, (field, hint) in fields_of(type(settings)).items():
    value = getattr(settings, name)
    if chooser := metadata(field).choice_field:
      config.update(chooser.config(name, value))
    elif dataclasses.is_dataclass(value):
      config[name] = config_dict(value)
    elif isinstance(value, dict):
      config[name] = ml_collections.ConfigDict(value)
    elif value is None:  # typed, so that it can be overridden
      config[name] = placeholder(_type_without_none(hint))
    else:
      config[name] = value
  return config


def as_dict(settings: Any) -> dict[str, Any]:
  """The plain nested dict that `from_config` takes back: for JSON and checkpoints.

  Of choices, those that were chosen.
  """
  plain: dict[str, Any] = {}
  for name, (field, _) in fields_of(type(settings)).items():
    value = getattr(settings, name)
    if chooser := metadata(field).choice_field:
      plain |= chooser.as_dict(name, value)
    else:
      plain[name] = as_dict(value) if dataclasses.is_dataclass(value) else value
  return plain


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """A nested dict, or a ConfigDict, as one of dotted names."""
  flattened: dict[str, Any] = {}
  for name, value in tree.items():
    if isinstance(value, (Mapping, ml_collections.ConfigDict)):
      flattened |= flat(value, f"{prefix}{name}.")
    else:
      flattened[prefix + name] = value
  return flattened


def range_of(cls: type, field: str) -> Range:
  """The bounds that a dataclass declares for a field."""
  hint = fields_of(cls)[field][1]
  return next(m for m in hint.__metadata__ if isinstance(m, Range))


def _type_without_none(hint: Any) -> type:
  hint = next(a for a in typing.get_args(hint) if a is not type(None))
  return typing.get_origin(hint) or hint


def _convert(hint: Any, value: Any, at: ConfigPath, how: ValidationMode) -> Any:
  """The value in the hinted type, or an InputError that names the field."""
  form = None
  if typing.get_origin(hint) is Annotated:
    hint, form = hint.__origin__, hint.__metadata__[0]
  if isinstance(hint, type) and dataclasses.is_dataclass(hint):
    return from_config(hint, value, at, how)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Literal:
    if isinstance(value, str) and value in arguments:
      return value
    known = ", ".join(map(repr, arguments))
    raise at.error(f" must be one of {known}, got {_shortened(value)}.")
  if origin in (tuple, list) and isinstance(value, (tuple, list)):
    return origin(
      _convert(arguments[0], item, ConfigPath(f"{at}[{i}]"), how)
      for i, item in enumerate(value)
    )
  if origin is dict and isinstance(value, Mapping):
    of_name = ConfigPath(f"a name in {at}")
    return {
      _convert(arguments[0], key, of_name, how): _convert(
        arguments[1], item, at / key, how
      )
      for key, item in value.items()
    }
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in arguments:
      return None
    return _convert(arguments[0], value, at, how)
  if hint is Any:
    return value
  if hint is float and type(value) in (int, float):
    return float(
      _check_range(form or (FLOATS if how.bounded else None), value, at)
    )
  if hint is int and type(value) is int:
    return _check_range(form or (INTEGERS if how.bounded else None), value, at)
  if isinstance(form, RegistryKey):
    return form.table.check_name(value, at)
  if hint is str and type(value) is str:
    return _check_text(form, value, at) if how.bounded or form else value
  if isinstance(hint, type) and type(value) is hint:
    return value
  name = getattr(origin or hint, "__name__", str(hint))
  raise at.error(
    f" must be of type {name}, got {_shortened(value)} ({type(value).__name__})."
  )


def _check_range(form: Range | None, value: float, at: ConfigPath) -> float:
  if form is None or value in form:
    return value
  if form is FLOATS and not (isinstance(value, int) or math.isfinite(value)):
    raise at.error(f" must be a finite number, got {value}.")
  raise at.error(f" must be {form}, got {_shortened(value)}.")


def _check_text(form: TextPattern | None, value: str, at: ConfigPath) -> str:
  if control := _CONTROL.search(value):
    raise at.error(
      f" has the control character {control[0]!r} in it, got {_shortened(value)}."
    )
  try:
    value.encode()
  except UnicodeEncodeError:  # bytes of the command line, say
    raise at.error(f" is not UTF-8, got {_shortened(value)}.") from None
  if form and not re.fullmatch(form.pattern, value):
    raise at.error(f" must be {form.what}, got {_shortened(value)}.")
  return value


def _shortened(value: Any) -> str:
  """A value as Python writes it, cut where it is long."""
  if isinstance(value, int) and value.bit_length() > 4 * _MAX_SHOWN:
    bits = value.bit_length()  # repr refuses the largest
    return f"an integer of {bits} bits"
  try:
    text = repr(value)
  except RecursionError:
    return "a value that is nested too deeply"
  return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
