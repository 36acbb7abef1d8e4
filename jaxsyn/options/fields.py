"""Option fields, registries of choices, and the ConfigDict of a dataclass."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import ml_collections
from ml_collections.config_dict import placeholder

from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options.bounds import Range

T = TypeVar("T")

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
    CHECKPOINT: Values that jaxsyn has recorded, and measured results, which
      may be infinite.
  """

  USER = "user"
  CHECKPOINT = "checkpoint"


USER_MODE, CHECKPOINT_MODE = ValidationMode.USER, ValidationMode.CHECKPOINT


class Choice:
  """Base class of option dataclasses that a config field selects by name."""

  @classmethod
  def fits(cls, field: str) -> bool:
    """Returns whether the config field named `field` may select this class."""
    return True


S = TypeVar("S", bound=Choice)
NamedSpecs = tuple[tuple[str, S], ...]


class Registry(dict[str, type[S]]):
  """Dict from names to the classes that an option can select.

  The order is that in which the classes are applied. Classes that need the
  registry are added to it later.

  Attributes:
    kind: Noun for messages, as in "no schedule 'x'".
  """

  def __init__(self, kind: str, specs: Mapping[str, type[S]] | None = None):
    super().__init__(specs or {})
    self.kind = kind

  def check_name(self, name: Any, path: ConfigPath) -> str:
    """Returns the given name if it is registered, else raises InputError."""
    if not isinstance(name, str) or name not in self:
      raise path.error(
        f" has no {self.kind} {name!r}. {did_you_mean(str(name), self)}"
      )
    return name

  def name_of(self, spec: S) -> str:
    """Returns the registered name of an instance's class."""
    return next(n for n, cls in self.items() if cls is type(spec))

  def section(self, name: str, **options: Any) -> ml_collections.ConfigDict:
    """Returns a registered class's ConfigDict, with the given option values."""
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
  """Annotation for str options whose value must be a name in a registry."""

  registry: Registry[Any]

  def __str__(self) -> str:
    return "one of " + ", ".join(map(repr, self.registry))


@dataclasses.dataclass(frozen=True)
class OptionMetadata:
  """Help text, unit and other metadata of an option, except its default.

  Attributes:
    meaning: Help text.
    unit: Unit of a number.
    resume: Whether a resumed run may have another value.
    neutral: Whether the option has no effect on results: runs with different
      values are comparable, and a resumed run may have another value.
    common: Whether the help lists the option first.
    registry: Classes that a `choice` or `choices` field selects from; None for
      all other fields.
    multiple: Whether the field is a `choices` field.
  """

  meaning: str = ""
  unit: str = ""
  resume: bool = False
  neutral: bool = False
  common: bool = False
  registry: Registry[Any] | None = None
  multiple: bool = False


NO_METADATA = OptionMetadata()


def option(default: Any, meaning: str, **rest: Any) -> Any:
  """Returns a dataclass field for an option, with its default and help text.

  Further arguments are attributes of `OptionMetadata`.
  """
  return _field(OptionMetadata(meaning, **rest), default)


def choice(
  registry: Registry[Any], default: str, meaning: str, **rest: Any
) -> Any:
  """Returns a dataclass field that selects one class of a registry by name."""
  return option(default, meaning, registry=registry, **rest)


def choices(
  registry: Registry[Any], meaning: str, default: Sequence[str] = ()
) -> Any:
  """Returns a dataclass field that selects any number of registered classes."""
  return option(tuple(default), meaning, registry=registry, multiple=True)


def with_default(cls: Any, name: str, default: Any) -> Any:
  """Copies an option field of another dataclass, with a new default value."""
  return _field(metadata(cls.__dataclass_fields__[name]), default)


def section(cls: Any, **rest: Any) -> Any:
  """Returns a dataclass field for a nested section of the config.

  Args:
    cls: Dataclass of the section.
    **rest: Metadata of every option in the section; see `OptionMetadata`.
  """
  details = OptionMetadata(summary_of(cls), **rest)
  return dataclasses.field(default_factory=cls, metadata={_KEY: details})


def _field(details: OptionMetadata, default: Any) -> Any:
  if isinstance(default, dict):
    return dataclasses.field(
      default_factory=default.copy, metadata={_KEY: details}
    )
  return dataclasses.field(default=default, metadata={_KEY: details})


def summary_of(cls: type) -> str:
  """Returns the first line of a class's docstring."""
  return (cls.__doc__ or "").partition("\n")[0]


def metadata(field: dataclasses.Field[Any]) -> OptionMetadata:
  """Returns the option metadata of a dataclass field."""
  return field.metadata.get(_KEY, NO_METADATA)


# Name -> field, and its type with its bounds (None for a choice).
Fields = dict[str, tuple[dataclasses.Field[Any], Any]]


def _fields_of(cls: Any) -> Fields:
  """Maps each option name of a dataclass to its field and annotated type."""
  hints = typing.get_type_hints(cls, include_extras=True)
  return {
    field.name: (field, None if metadata(field).registry else hints[field.name])
    for field in dataclasses.fields(cls)
  }


# To mypy a cached function takes hashable arguments, which classes are not.
fields_of: Callable[[Any], Fields] = functools.cache(_fields_of)


def range_of(cls: type, field: str) -> Range:
  """Returns the bounds of a numeric option, from its type annotation."""
  hint = fields_of(cls)[field][1]
  return next(m for m in hint.__metadata__ if isinstance(m, Range))


def siblings(details: OptionMetadata) -> dict[str, type]:
  """Returns the classes that a `choice` field can select and that have options.

  Choices without options have no section.
  """
  if details.registry is None or details.multiple:
    return {}
  return {name: c for name, c in details.registry.items() if fields_of(c)}


def inherits(cls: type, base: type, name: str) -> bool:
  """Returns whether a class inherits an option unchanged from a base class."""
  if name not in fields_of(base) or not issubclass(cls, base):
    return False
  field, hint = fields_of(base)[name]
  is_section = metadata(field).registry or dataclasses.is_dataclass(hint)
  return fields_of(cls)[name][0] is field and not is_section


def config_dict(cls: type) -> ml_collections.ConfigDict:
  """Converts an options dataclass to an ml_collections ConfigDict of defaults.

  Next to a field that selects a registered choice are the sections of all
  choices, so that a command line can set any of their options.
  """
  config, defaults = ml_collections.ConfigDict(), cls()
  for name, (field, hint) in fields_of(cls).items():
    value, details = getattr(defaults, name), metadata(field)
    if details.registry and details.multiple:
      specs = {one: config_dict(details.registry[one]) for one in value}
      config[name] = ml_collections.ConfigDict(specs)
    elif dataclasses.is_dataclass(value):
      config[name] = config_dict(type(value))
    elif isinstance(value, dict):
      config[name] = ml_collections.ConfigDict(value)
    elif value is None:  # typed, so that it can be overridden
      inner = next(a for a in typing.get_args(hint) if a is not type(None))
      config[name] = placeholder(typing.get_origin(inner) or inner)
    else:
      config[name] = value
    _add_siblings(config, siblings(details))
  return config


def _add_siblings(
  config: ml_collections.ConfigDict, specs: Mapping[str, type]
) -> None:
  """Adds a config section for each class that a `choice` field can select.

  The options that a choice inherits from another one are linked to those of the
  other, so that a dataset config that sizes the Transformer also sizes an
  architecture derived from it.
  """
  for name, cls in specs.items():
    config[name] = config_dict(cls)
  names = {cls: name for name, cls in specs.items()}
  for name, cls in specs.items():
    base = next((c for c in cls.__mro__[1:] if c in names), None)
    for inherited in fields_of(base) if base else ():
      if base and inherits(cls, base, inherited):
        reference = config[names[base]].get_oneway_ref(inherited)
        config[name][inherited] = reference


def as_dict(settings: Any) -> dict[str, Any]:
  """Converts a config to a nested dict; omits options of unselected classes.

  The values can be written as JSON.
  """
  plain: dict[str, Any] = {}
  for name, (field, _) in fields_of(type(settings)).items():
    value, details = getattr(settings, name), metadata(field)
    if details.multiple:
      plain[name] = {one: as_dict(spec) for one, spec in value}
    elif details.registry:
      plain[name] = details.registry.name_of(value)
      if options := as_dict(value):
        plain[plain[name]] = options
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
