"""One mechanism for every kind of choice: a table of specs, and two fields.

A spec is a frozen dataclass: its fields are the options of the choice, its
methods what the choice does. A table names the specs of one kind.

  schedule: Schedule = choice("jaxsyn.training.schedules:SCHEDULES",
                              "inverse_sqrt", "How the learning rate goes.")

is in a config `schedule="inverse_sqrt"` and, beside it, a section for each
choice with its own options: `inverse_sqrt.warmup`, `noam.warmup`. Read, it is
the spec of the one chosen.

  losses: NamedSpecs[Loss] = choices("jaxsyn.training.losses:LOSSES", "...", ["nll"])

is in a config a section with a section for each that is wanted,
`losses.nll.smoothing`. Read, it is (name, spec) of each, in the table's order,
whatever the config's.

Tables are named by their address, since they stand in rooms above that of the
options: so a section can be declared without loading what it chooses from.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import ml_collections
from ml_collections.config_dict import placeholder

from jaxsyn.errors import did_you_mean
from jaxsyn.options.bounds import RegistryKey
from jaxsyn.options.fields import (
  MISSING,
  ROOT,
  ConfigPath,
  OptionMetadata,
  ValidationMode,
  as_dict,
  config_dict,
  declare,
  fields_of,
  from_config,
  metadata,
)


class Choice:
  """Base of specs, frozen dataclasses with a default for each field."""

  @classmethod
  def fits(cls, field: str) -> bool:
    """Whether it is one of what a field (by its name) is about at all."""
    return True


S = TypeVar("S", bound=Choice)
NamedSpecs = tuple[tuple[str, S], ...]


class Registry(Mapping[str, type[S]], Generic[S]):
  """The specs of one kind by name, in the order in which they are applied."""

  def __init__(self, kind: str, specs: Mapping[str, type[S]]):
    """Makes a table.

    Args:
      kind: as in "no part 'x'".
      specs: name -> class of the spec.
    """
    self.kind, self._specs = kind, dict(specs)

  def __getitem__(self, name: str) -> type[S]:
    return self._specs[name]

  def __iter__(self) -> Iterator[str]:
    return iter(self._specs)

  def __len__(self) -> int:
    return len(self._specs)

  def check_name(self, name: Any, at: ConfigPath) -> str:
    """The name, if there is such a choice.

    Raises:
      InputError: there is none; the message guesses which was meant.
    """
    if not isinstance(name, str) or name not in self._specs:
      raise at.error(
        f" has no {self.kind} {name!r}. {did_you_mean(str(name), self)}"
      )
    return name

  def name_of(self, spec: S) -> str:
    """The name of a spec."""
    return next(n for n, cls in self.items() if cls is type(spec))

  def section(self, name: str, **options: Any) -> ml_collections.ConfigDict:
    """The section of one choice: its defaults, and what differs from them."""
    known = self.check_name(name, ConfigPath(f"the table of {self.kind}s"))
    config = config_dict(self[known])
    for option, value in options.items():
      if value is None and config[option] is not None:
        # A plain None has no type, so that no command line could change it.
        value = placeholder(type(config[option]))
      config[option] = value
    return config


class _RegistryField(Generic[S]):
  def __init__(self, address: str):
    self._names = RegistryKey(address)

  @functools.cached_property
  def table(self) -> Registry[S]:
    return self._names.table


class _SingleChoice(_RegistryField[S]):
  """One choice; all have their sections beside it."""

  @property
  def kind(self) -> str:
    return str(self._names)

  def siblings(self) -> dict[str, type[S]]:
    return {name: cls for name, cls in self.table.items() if fields_of(cls)}

  def sections(
    self, name: str, at: ConfigPath
  ) -> Iterator[tuple[ConfigPath, type[S]]]:
    return ((at / one, cls) for one, cls in self.siblings().items())

  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    at: ConfigPath,
    how: ValidationMode,
  ) -> S:
    chosen = self.table.check_name(section[name], at / name)
    if how.complete and chosen in self.siblings() and chosen not in section:
      raise (at / chosen).error(MISSING)
    lenient = dataclasses.replace(how, complete=False)
    # What stands under the name of a choice without options is something else.
    given_sections = {one: section.get(one, {}) for one in self.siblings()}
    specs = {
      one: from_config(
        cls,
        given_sections.get(one, {}),
        at / one,
        how if one == chosen else lenient,
      )
      for one, cls in self.table.items()
    }
    return specs[chosen]

  def config(self, name: str, value: Any) -> dict[str, Any]:
    sections: dict[str, Any] = dict(self.siblings())
    if not isinstance(value, str):
      name_of_value = self.table.name_of(value)
      sections |= {name_of_value: value} if name_of_value in sections else {}
      value = name_of_value
    made = {one: config_dict(spec) for one, spec in sections.items()}
    for one, spec in sections.items():
      if isinstance(spec, type):  # nobody gave its options
        self._inherit_options(one, made)
    return {name: value} | made

  def _inherit_options(
    self, one: str, made: Mapping[str, ml_collections.ConfigDict]
  ) -> None:
    """What a choice inherits from another is as it is there, unless set.

    So a data set that sizes the Transformer sizes a family made from it.
    """
    cls = self.table[one]
    names = {other: name for name, other in self.siblings().items()}
    for base in [other for other in cls.__mro__[1:] if other in names][:1]:
      for option in fields_of(base):
        if _inherits(cls, base, option):
          made[one][option] = made[names[base]].get_oneway_ref(option)

  def as_dict(self, name: str, value: S) -> dict[str, Any]:
    chosen = self.table.name_of(value)
    return {name: chosen} | (
      {chosen: options} if (options := as_dict(value)) else {}
    )


def _inherits(cls: type, base: type, option: str) -> bool:
  """Whether a choice has an option, no section, of another as it is there."""
  if option not in fields_of(base) or not issubclass(cls, base):
    return False
  field, hint = fields_of(base)[option]
  section = metadata(field).choice_field or dataclasses.is_dataclass(hint)
  return fields_of(cls)[option][0] is field and not section


class _MultipleChoice(_RegistryField[S]):
  """As many choices as there are sections."""

  kind = ""  # a section

  def siblings(self) -> dict[str, type[S]]:
    return {}

  def sections(
    self, name: str, at: ConfigPath
  ) -> Iterator[tuple[ConfigPath, type[S]]]:
    specs = self.table.items()
    return ((at / name / one, cls) for one, cls in specs if cls.fits(name))

  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    at: ConfigPath,
    how: ValidationMode,
  ) -> NamedSpecs[S]:
    # Who names a choice need not say its options.
    how = dataclasses.replace(how, complete=False)
    wanted, at = section[name], at / name
    if not isinstance(wanted, Mapping):
      raise at.error(f" must be a section, got {wanted!r}.")
    for one in wanted:
      self.table.check_name(one, at)
    return tuple(
      (one, from_config(cls, wanted[one], at / one, how))
      for one, cls in self.table.items()
      if one in wanted
    )

  def config(self, name: str, value: Any) -> dict[str, Any]:
    specs = [(v, self.table[v]) if isinstance(v, str) else v for v in value]
    sections = {one: config_dict(spec) for one, spec in specs}
    return {name: ml_collections.ConfigDict(sections)}

  def as_dict(self, name: str, value: NamedSpecs[S]) -> dict[str, Any]:
    return {name: {one: as_dict(spec) for one, spec in value}}


def unused_option_error(
  cls: type, config: Mapping[str, Any], option: str
) -> str:
  """Why an option does nothing: it is one of a choice that was not made.

  Args:
    cls: a dataclass.
    config: a section that says what an instance holds.
    option: its dotted name there.

  Returns: a message; "" where the option counts, or is none.
  """
  at, names = ROOT, option.split(".")
  for name, inside in zip(names, [*names[1:], ""]):
    within: Any = None
    for chosen_by, (field, hint) in fields_of(cls).items():
      chooser = metadata(field).choice_field
      if chooser and name in (siblings := chooser.siblings()):
        within, now = siblings[name], config[chosen_by]
        chosen = siblings.get(now, Choice)
        if now != name and not _inherits(chosen, within, inside):
          return (
            f"config.{option} counts only where {at / chosen_by} is {name!r}; "
            f"here it is {now!r}. Set that too, or leave the option out."
          )
      elif name == chosen_by and dataclasses.is_dataclass(hint):
        within = hint
    if within is None:
      return ""
    cls, config, at = within, config[name], at / name
  return ""


def choice(
  table: str, default: str, meaning: str, *, resume: bool = False
) -> Any:
  """A field that is one choice.

  Args:
    table: its address, "module:NAME".
    default: name of a choice; made into its spec when it is read.
    meaning, resume: see `OptionMetadata`.
  """
  metadata_ = OptionMetadata(
    meaning, resume=resume, choice_field=_SingleChoice(table)
  )
  return declare(metadata_, default=default)


def choices(table: str, meaning: str, default: Sequence[str] = ()) -> Any:
  """A field that is any number of choices; see `choice`."""
  return declare(
    OptionMetadata(meaning, choice_field=_MultipleChoice(table)),
    default=tuple(default),
  )
