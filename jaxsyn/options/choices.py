"""Config fields that select one or several registered choices of an option."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic

import ml_collections

from jaxsyn.options.fields import (
  MISSING,
  ROOT,
  Choice,
  ConfigPath,
  ConfigReader,
  NamedSpecs,
  OptionMetadata,
  Registry,
  S,
  as_dict,
  config_dict,
  declare,
  fields_of,
  metadata,
)


def choice(
  registry: Registry[Any], default: str, meaning: str, **rest: Any
) -> Any:
  """Returns a dataclass field that selects one class of a registry by name.

  Args:
    registry: Registry of the classes.
    default: Name of the default class.
    meaning, **rest: Metadata; see `OptionMetadata`.
  """
  details = OptionMetadata(meaning, choice_field=SingleChoice(registry), **rest)
  return declare(details, default=default)


def choices(
  registry: Registry[Any], meaning: str, default: Sequence[str] = ()
) -> Any:
  """Returns a dataclass field that selects any number of classes of a registry.

  Its arguments are those of `choice`.
  """
  details = OptionMetadata(meaning, choice_field=MultipleChoice(registry))
  return declare(details, default=tuple(default))


@dataclasses.dataclass(frozen=True)
class SingleChoice(Generic[S]):
  """Metadata of a config field that selects one registered choice."""

  registry: Registry[S]

  @property
  def kind(self) -> str:
    """Description of the field's type: the names of all registered choices."""
    return "one of " + ", ".join(map(repr, self.registry))

  def siblings(self) -> dict[str, type[S]]:
    """Returns the registered choices whose sections are next to the field."""
    return {name: cls for name, cls in self.registry.items() if fields_of(cls)}

  def sections(
    self, name: str, path: ConfigPath
  ) -> Iterator[tuple[ConfigPath, type[S]]]:
    """Returns the path and the class of each registered choice's section."""
    return ((path / one, cls) for one, cls in self.siblings().items())

  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    path: ConfigPath,
    reader: ConfigReader,
  ) -> S:
    """Returns an instance of the selected class, read from a config section."""
    chosen = self.registry.check_name(section[name], path / name)
    siblings = self.siblings()
    if reader.complete and chosen in siblings and chosen not in section:
      raise (path / chosen).error(MISSING)
    specs = {}
    for one, cls in self.registry.items():
      # If a choice has no options, a key with its name is another option.
      options = section.get(one, {}) if one in siblings else {}
      reader_ = reader if one == chosen else reader.partial
      specs[one] = reader_.section(cls, options, path / one)
    return specs[chosen]

  def config(self, name: str, value: Any) -> dict[str, Any]:
    """Returns the ConfigDict entries of a field: its value and all sections."""
    sections: dict[str, Any] = dict(self.siblings())
    if not isinstance(value, str):
      name_of_value = self.registry.name_of(value)
      sections |= {name_of_value: value} if name_of_value in sections else {}
      value = name_of_value
    made = {one: config_dict(spec) for one, spec in sections.items()}
    for one, spec in sections.items():
      if isinstance(spec, type):  # defaults
        self._inherit_options(one, made)
    return {name: value} | made

  def _inherit_options(
    self, one: str, made: Mapping[str, ml_collections.ConfigDict]
  ) -> None:
    """Links the options that a registered choice inherits to its base's values.

    So a dataset config that sizes the Transformer also sizes an architecture
    derived from it.
    """
    cls = self.registry[one]
    names = {other: name for name, other in self.siblings().items()}
    for base in [other for other in cls.__mro__[1:] if other in names][:1]:
      for name in fields_of(base):
        if _inherits(cls, base, name):
          made[one][name] = made[names[base]].get_oneway_ref(name)

  def as_dict(self, name: str, value: S) -> dict[str, Any]:
    """Returns the dict entries of a field: its value and selected section."""
    chosen = self.registry.name_of(value)
    return {name: chosen} | (
      {chosen: options} if (options := as_dict(value)) else {}
    )


@dataclasses.dataclass(frozen=True)
class MultipleChoice(Generic[S]):
  """Metadata of a config field that selects several registered choices.

  For the methods see `SingleChoice`.
  """

  registry: Registry[S]
  kind = ""  # a section

  def siblings(self) -> dict[str, type[S]]:
    return {}

  def sections(
    self, name: str, path: ConfigPath
  ) -> Iterator[tuple[ConfigPath, type[S]]]:
    specs = self.registry.items()
    return ((path / name / one, cls) for one, cls in specs if cls.fits(name))

  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    path: ConfigPath,
    reader: ConfigReader,
  ) -> NamedSpecs[S]:
    selected, path = section[name], path / name
    if not isinstance(selected, Mapping):
      raise path.error(f" must be a section, got {selected!r}.")
    for one in selected:
      self.registry.check_name(one, path)
    # The options of a named choice may be missing in any mode.
    return tuple(
      (one, reader.partial.section(cls, selected[one], path / one))
      for one, cls in self.registry.items()
      if one in selected
    )

  def config(self, name: str, value: Any) -> dict[str, Any]:
    specs = [(v, self.registry[v]) if isinstance(v, str) else v for v in value]
    sections = {one: config_dict(spec) for one, spec in specs}
    return {name: ml_collections.ConfigDict(sections)}

  def as_dict(self, name: str, value: NamedSpecs[S]) -> dict[str, Any]:
    return {name: {one: as_dict(spec) for one, spec in value}}


def _inherits(cls: type, base: type, name: str) -> bool:
  """Returns whether a registered choice inherits an option of a base unchanged.

  Sections do not count as options.
  """
  if name not in fields_of(base) or not issubclass(cls, base):
    return False
  field, hint = fields_of(base)[name]
  is_section = metadata(field).choice_field or dataclasses.is_dataclass(hint)
  return fields_of(cls)[name][0] is field and not is_section


def unused_option_error(cls: type, config: Mapping[str, Any], name: str) -> str:
  """Returns the error message for an option whose choice is not selected.

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
      selected = metadata(field).choice_field
      if selected and part in (siblings := selected.siblings()):
        within, now = siblings[part], config[selecting]
        chosen = siblings.get(now, Choice)
        if now != part and not _inherits(chosen, within, inside):
          return (
            f"config.{name} counts only where {path / selecting} is {part!r}; "
            f"here it is {now!r}. Set that too, or leave the option out."
          )
      elif part == selecting and dataclasses.is_dataclass(hint):
        within = hint
    if within is None:
      return ""
    cls, config, path = within, config[part], path / part
  return ""
