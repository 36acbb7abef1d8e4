"""Option fields: their metadata, and conversion of sections to dataclasses."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import itertools
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import ml_collections
from ml_collections.config_dict import placeholder

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options.bounds import FLOATS, INTEGERS, Range, TextPattern

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_SHOWN = 80  # characters of a value in a message
MISSING = " is missing; --helpconfig says what it is."
_KEY = "jaxsyn"  # key of OptionMetadata in the metadata of a field


class ConfigPath:
  """Location of a value in a config, for messages.

  >>> print(ConfigPath("config") / "train" / "steps")
  config.train.steps
  """

  def __init__(self, *names: str):
    self.names = names

  def __truediv__(self, name: str) -> ConfigPath:
    return ConfigPath(*self.names, name)

  @property
  def above(self) -> ConfigPath:
    """Path of the enclosing section."""
    return ConfigPath(*self.names[:-1])

  def __str__(self) -> str:
    return ".".join(self.names)

  def error(self, message: str) -> InputError:
    """Returns an InputError whose message begins with the dotted name."""
    return InputError(f"{self}{message}")


ROOT = ConfigPath("config")


class ValidationMode(enum.Enum):
  """Validation mode of a config: for values from a user or from a checkpoint.

  Attributes:
    USER: Values that a user has chosen: numbers without a Range are finite and
      fit in 32 bits, strings have one line.
    CHECKPOINT: Values that jaxsyn or an older version of it has recorded, and
      measured results, which may be infinite.
  """

  USER = "user"
  CHECKPOINT = "checkpoint"


USER_MODE, CHECKPOINT_MODE = ValidationMode.USER, ValidationMode.CHECKPOINT


class Choice:
  """Base of registered classes: frozen dataclasses that options can select."""

  @classmethod
  def fits(cls, field: str) -> bool:
    """Returns whether the config field with this name may select the class."""
    return True


S = TypeVar("S", bound=Choice)
NamedSpecs = tuple[tuple[str, S], ...]


class Registry(Mapping[str, type[S]], Generic[S]):
  """Mapping of names to the classes that an option can select.

  The order is that in which the classes are applied.
  """

  def __init__(self, kind: str, specs: Mapping[str, type[S]] | None = None):
    """Creates a registry of classes.

    Args:
      kind: Noun for messages, as in "no schedule 'x'".
      specs: Classes by name. Classes that need the registry are added later with
        `add`.
    """
    self.kind, self._specs = kind, dict(specs or {})

  def add(self, specs: Mapping[str, type[S]]) -> None:
    """Adds classes to the registry, by name."""
    self._specs |= specs

  def __getitem__(self, name: str) -> type[S]:
    return self._specs[name]

  def __iter__(self) -> Iterator[str]:
    return iter(self._specs)

  def __len__(self) -> int:
    return len(self._specs)

  def check_name(self, name: Any, path: ConfigPath) -> str:
    """Returns the given name after checking that it is registered.

    Raises:
      InputError: The name is not registered; the message has a similar one.
    """
    if not isinstance(name, str) or name not in self._specs:
      raise path.error(
        f" has no {self.kind} {name!r}. {did_you_mean(str(name), self)}"
      )
    return name

  def name_of(self, spec: S) -> str:
    """Returns the registered name of an instance's class."""
    return next(n for n, cls in self.items() if cls is type(spec))

  def section(self, name: str, **options: Any) -> ml_collections.ConfigDict:
    """Returns the ConfigDict of a registered class, with changed defaults."""
    known = self.check_name(name, ConfigPath(f"the table of {self.kind}s"))
    config = config_dict(self[known])
    for option_name, value in options.items():
      if value is None and config[option_name] is not None:
        # A plain None has no type, so that no command line could change it.
        value = placeholder(type(config[option_name]))
      config[option_name] = value
    return config


@dataclasses.dataclass(frozen=True)
class RegistryKey:
  """Type annotation of strings that must be names in a registry."""

  registry: Registry[Any]

  def __str__(self) -> str:
    return "one of " + ", ".join(map(repr, self.registry))


class ChoiceField(Protocol):
  """Metadata of a config field that selects registered choices of an option.

  `siblings` are the choices with a section next to the field, `sections` all
  sections and their locations. `read` takes the section of the field, `config`
  and `as_dict` return its entries. See `options.choices`.
  """

  @property
  def kind(self) -> str: ...
  def siblings(self) -> Mapping[str, type]: ...
  def sections(
    self, name: str, path: ConfigPath
  ) -> Iterator[tuple[ConfigPath, type]]: ...
  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    path: ConfigPath,
    reader: ConfigReader,
  ) -> Any: ...
  def config(self, name: str, value: Any) -> dict[str, Any]: ...
  def as_dict(self, name: str, value: Any) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class OptionMetadata:
  """Metadata of an option, in addition to its type and default.

  Attributes:
    meaning: Help text.
    unit: Unit of a number.
    resume: Whether a resumed run may have another value.
    neutral: Whether the option has no effect on results: runs with different
      values are comparable, and a resumed run may have another value.
    common: Whether the help lists the option first.
    choice_field: Registered choices of a `choice` or `choices` field; None for
      all other fields.
  """

  meaning: str = ""
  unit: str = ""
  resume: bool = False
  neutral: bool = False
  common: bool = False
  choice_field: ChoiceField | None = None


NO_METADATA = OptionMetadata()


def declare(details: OptionMetadata, **default: Any) -> Any:
  """Returns a dataclass field with the given option metadata and default."""
  return dataclasses.field(**default, metadata={_KEY: details})


def option(default: Any, meaning: str, **rest: Any) -> Any:
  """Returns a dataclass field for an option, with its default and help text.

  Further arguments are attributes of `OptionMetadata`.
  """
  details = OptionMetadata(meaning, **rest)
  if isinstance(default, dict):
    return declare(details, default_factory=functools.partial(dict, default))
  return declare(details, default=default)


def with_default(cls: Any, name: str, default: Any) -> Any:
  """Returns a copy of an inherited option's field with another default."""
  return declare(metadata(cls.__dataclass_fields__[name]), default=default)


def section(cls: Any, **rest: Any) -> Any:
  """Returns a dataclass field for a config section, described by its docstring.

  Args:
    cls: Dataclass of the section.
    **rest: Metadata of every option in the section; see `OptionMetadata`.
  """
  return declare(OptionMetadata(summary_of(cls), **rest), default_factory=cls)


def summary_of(cls: type) -> str:
  """Returns the first line of a class's docstring."""
  return (cls.__doc__ or "").partition("\n")[0]


def metadata(field: dataclasses.Field[Any]) -> OptionMetadata:
  """Returns the option metadata of a dataclass field."""
  return field.metadata.get(_KEY, NO_METADATA)


# Name -> field, and its type with its bounds (None for a choice).
Fields = dict[str, tuple[dataclasses.Field[Any], Any]]


def _fields_of(cls: Any) -> Fields:
  """Returns the fields and types of a section's dataclass by name, in order."""
  fields = {f.name: f for f in dataclasses.fields(cls)}
  hints: dict[str, Any] = {}
  for base in reversed(cls.__mro__):
    for name, hint in inspect.get_annotations(base).items():
      if name in fields and not metadata(fields[name]).choice_field:
        module = vars(sys.modules[base.__module__])
        hints[name] = eval(hint, module) if isinstance(hint, str) else hint
  return {name: (field, hints.get(name)) for name, field in fields.items()}


# To mypy a cached function takes hashable arguments, which classes are not.
fields_of: Callable[[Any], Fields] = functools.cache(_fields_of)


def range_of(cls: type, field: str) -> Range:
  """Returns the bounds of a numeric option, from its type annotation."""
  hint = fields_of(cls)[field][1]
  return next(m for m in hint.__metadata__ if isinstance(m, Range))


@dataclasses.dataclass(frozen=True)
class ConfigReader:
  """Reader of config sections that validates values in a given mode.

  Attributes:
    mode: Origin of the values.
    complete: Whether every option must be present, except in sections of
      unselected choices and of `choices`.
  """

  mode: ValidationMode
  complete: bool = False

  @property
  def partial(self) -> ConfigReader:
    """Returns a reader that accepts missing options, with the same mode."""
    return ConfigReader(self.mode)

  def section(
    self, cls: type[T], config: Mapping[str, Any], path: ConfigPath
  ) -> T:
    """Returns a dataclass instance with the validated options of a section.

    See `from_config`.
    """
    if not isinstance(config, Mapping):
      raise path.error(f" must be a section, got {_shortened(config)}.")
    fields = fields_of(cls)
    selecting = [
      c for f, _ in fields.values() if (c := metadata(f).choice_field)
    ]
    siblings = itertools.chain(*(c.siblings() for c in selecting))
    known = [*fields, *siblings]
    for name in config:
      if name not in known:
        guess = did_you_mean(str(name), known)
        raise path.error(f" has no option {_shortened(name)}. {guess}")
    values: dict[str, Any] = {}
    for name, (field, hint) in fields.items():
      if name not in config:
        required = field.default is field.default_factory is dataclasses.MISSING
        if required or (self.complete and _KEY in field.metadata):
          raise (path / name).error(
            MISSING if self.complete else " is missing."
          )
      elif selected := metadata(field).choice_field:
        values[name] = selected.read(name, config, path, self)
      else:
        values[name] = self.value(hint, config[name], path / name)
    return cls(**values)

  def value(self, hint: Any, value: Any, path: ConfigPath) -> Any:
    """Returns a config value in its annotated type, or raises InputError."""
    form = None
    if typing.get_origin(hint) is Annotated:
      hint, form = hint.__origin__, hint.__metadata__[0]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
      return self.section(hint, value, path)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
      if isinstance(value, str) and value in arguments:
        return value
      known = ", ".join(map(repr, arguments))
      raise path.error(f" must be one of {known}, got {_shortened(value)}.")
    if origin in (tuple, list) and isinstance(value, (tuple, list)):
      return origin(
        self.value(arguments[0], item, ConfigPath(f"{path}[{i}]"))
        for i, item in enumerate(value)
      )
    if origin is dict and isinstance(value, Mapping):
      key_path = ConfigPath(f"a name in {path}")
      return {
        self.value(arguments[0], key, key_path): self.value(
          arguments[1], item, path / key
        )
        for key, item in value.items()
      }
    if origin in (typing.Union, types.UnionType):
      if value is None and type(None) in arguments:
        return None
      return self.value(arguments[0], value, path)
    if hint is Any:
      return value
    bounded = self.mode is USER_MODE
    if hint is float and type(value) in (int, float):
      return float(
        _in_range(form or (FLOATS if bounded else None), value, path)
      )
    if hint is int and type(value) is int:
      return _in_range(form or (INTEGERS if bounded else None), value, path)
    if isinstance(form, RegistryKey):
      return form.registry.check_name(value, path)
    if hint is str and type(value) is str:
      return _checked_text(form, value, path) if bounded or form else value
    if isinstance(hint, type) and type(value) is hint:
      return value
    name = getattr(origin or hint, "__name__", str(hint))
    raise path.error(
      f" must be of type {name}, got {_shortened(value)} ({type(value).__name__})."
    )


def from_config(
  cls: type[T],
  config: Mapping[str, Any],
  path: ConfigPath,
  mode: ValidationMode = USER_MODE,
  *,
  complete: bool = False,
) -> T:
  """Returns a frozen dataclass with the validated options of a config section.

  Args:
    cls: Dataclass whose annotations have types and bounds.
    config: Values by field name.
    path: Location of the section.
    mode: Origin of the values.
    complete: Whether options with a default must be present too.

  Raises:
    InputError: An option is unknown, missing, of another type or out of bounds.
  """
  return ConfigReader(mode, complete).section(cls, config, path)


def config_dict(settings: Any) -> ml_collections.ConfigDict:
  """Returns the ConfigDict of a dataclass instance, or of a class's defaults.

  Next to a field that selects a registered choice are the sections of all
  choices, so that a command line can set any of their options.
  """
  if isinstance(settings, type):
    settings = settings()
  config = ml_collections.ConfigDict()
  for name, (field, hint) in fields_of(type(settings)).items():
    value = getattr(settings, name)
    if selected := metadata(field).choice_field:
      config.update(selected.config(name, value))
    elif dataclasses.is_dataclass(value):
      config[name] = config_dict(value)
    elif isinstance(value, dict):
      config[name] = ml_collections.ConfigDict(value)
    elif value is None:  # typed, so that it can be overridden
      inner = next(a for a in typing.get_args(hint) if a is not type(None))
      config[name] = placeholder(typing.get_origin(inner) or inner)
    else:
      config[name] = value
  return config


def as_dict(settings: Any) -> dict[str, Any]:
  """Returns a config as a nested dict, without options of unselected choices.

  The values can be written as JSON.
  """
  plain: dict[str, Any] = {}
  for name, (field, _) in fields_of(type(settings)).items():
    value = getattr(settings, name)
    if selected := metadata(field).choice_field:
      plain |= selected.as_dict(name, value)
    else:
      plain[name] = as_dict(value) if dataclasses.is_dataclass(value) else value
  return plain


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """Returns a nested dict or ConfigDict as a flat dict with dotted names."""
  flattened: dict[str, Any] = {}
  for name, value in tree.items():
    if isinstance(value, (Mapping, ml_collections.ConfigDict)):
      flattened |= flat(value, f"{prefix}{name}.")
    else:
      flattened[prefix + name] = value
  return flattened


def _in_range(bounds: Range | None, value: float, path: ConfigPath) -> float:
  if bounds is None or value in bounds:
    return value
  if bounds is FLOATS and not (isinstance(value, int) or math.isfinite(value)):
    raise path.error(f" must be a finite number, got {value}.")
  raise path.error(f" must be {bounds}, got {_shortened(value)}.")


def _checked_text(
  form: TextPattern | None, value: str, path: ConfigPath
) -> str:
  if control := _CONTROL.search(value):
    raise path.error(
      f" has the control character {control[0]!r} in it, got {_shortened(value)}."
    )
  try:
    value.encode()
  except UnicodeEncodeError:  # raw bytes of the command line
    raise path.error(f" is not UTF-8, got {_shortened(value)}.") from None
  if form and not re.fullmatch(form.pattern, value):
    raise path.error(f" must be {form.what}, got {_shortened(value)}.")
  return value


def _shortened(value: Any) -> str:
  """Returns the repr of a value for a message, truncated if it is long."""
  if isinstance(value, int) and value.bit_length() > 4 * _MAX_SHOWN:
    return (
      f"an integer of {value.bit_length()} bits"  # repr rejects the largest
    )
  try:
    text = repr(value)
  except RecursionError:
    return "a value that is nested too deeply"
  return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
