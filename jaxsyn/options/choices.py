"""One mechanism for every kind of choice: a table of specs, and two fields.

A spec is a frozen dataclass: its fields are the options of the choice, its
methods what the choice does. A table names the specs of one kind.

  schedule: Schedule = one_of("jaxsyn.training.schedules:SCHEDULES",
                              "inverse_sqrt", "How the learning rate goes.")

is in a config `schedule="inverse_sqrt"` and, beside it, a section for each
choice with its own options: `inverse_sqrt.warmup`, `noam.warmup`. Read, it is
the spec of the one chosen.

  losses: Named[Loss] = any_of("jaxsyn.training.losses:LOSSES", "...", ["nll"])

is in a config a section with a section for each that is wanted,
`losses.nll.smoothing`. Read, it is (name, spec) of each, in the table's order,
whatever the config's.

Tables are named by their address, since they stand in rooms above that of the
options: so a section can be declared without loading what it chooses from.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import ml_collections

from jaxsyn.errors import did_you_mean
from jaxsyn.options.fields import (
  _KEY,
  MISSING,
  At,
  Said,
  as_dict,
  config_dict,
  fields_of,
  from_config,
  said,
)


class Choice:
  """Base of specs, frozen dataclasses with a default for each field."""

  @classmethod
  def fits(cls, field: str) -> bool:
    """Whether it is one of what a field (by its name) is about at all."""
    return True


S = TypeVar("S")
Named = tuple[tuple[str, S], ...]


class Table(Mapping[str, type[S]], Generic[S]):
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

  def known(self, name: Any, at: At) -> str:
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
    config = config_dict(self[name])
    config.update(options)
    return config


class _Chooser(Generic[S]):
  def __init__(self, address: str):
    self._address = address

  @functools.cached_property
  def table(self) -> Table[S]:
    module, _, name = self._address.partition(":")
    return getattr(importlib.import_module(module), name)


class _OneOf(_Chooser[S]):
  """One choice; all have their sections beside it."""

  def beside(self) -> dict[str, type[S]]:
    return {name: cls for name, cls in self.table.items() if fields_of(cls)}

  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    at: At,
    *,
    bounded: bool,
    whole: bool,
  ) -> S:
    chosen = self.table.known(section[name], at / name)
    if whole and chosen in self.beside() and chosen not in section:
      raise (at / chosen).error(MISSING)
    specs = {
      other: from_config(
        cls,
        section.get(other, {}),
        at / other,
        bounded=bounded,
        whole=whole and other == chosen,
      )
      for other, cls in self.table.items()
    }
    return specs[chosen]

  def config(self, name: str, value: Any) -> dict[str, Any]:
    chosen = value if isinstance(value, str) else self.table.name_of(value)
    sections = {n: config_dict(cls) for n, cls in self.beside().items()}
    if chosen in sections and not isinstance(value, str):
      sections[chosen] = config_dict(value)
    return {name: chosen, **sections}

  def plain(self, name: str, value: S) -> dict[str, Any]:
    chosen = self.table.name_of(value)
    return {name: chosen} | ({chosen: own} if (own := as_dict(value)) else {})


class _AnyOf(_Chooser[S]):
  """As many choices as there are sections."""

  def beside(self) -> dict[str, type[S]]:
    return {}

  def read(
    self,
    name: str,
    section: Mapping[str, Any],
    at: At,
    *,
    bounded: bool,
    whole: bool,
  ) -> Named[S]:
    del whole  # who names a choice need not say its options
    wanted = section[name]
    if not isinstance(wanted, Mapping):
      raise (at / name).error(f" must be a section, got {wanted!r}.")
    for one in wanted:
      self.table.known(one, at / name)
    return tuple(
      (one, from_config(cls, wanted[one], at / name / one, bounded=bounded))
      for one, cls in self.table.items()
      if one in wanted
    )

  def config(self, name: str, value: Any) -> dict[str, Any]:
    return {
      name: ml_collections.ConfigDict(
        {
          one if isinstance(one, str) else one[0]: config_dict(
            self.table[one] if isinstance(one, str) else one[1]
          )
          for one in value
        }
      )
    }

  def plain(self, name: str, value: Named[S]) -> dict[str, Any]:
    return {name: {one: as_dict(spec) for one, spec in value}}


def unchosen(cls: type, config: Mapping[str, Any], option: str) -> str:
  """Why an option does nothing: it is one of a choice that was not made.

  Args:
    cls: a dataclass.
    config: a section that says what an instance holds.
    option: its dotted name there.

  Returns: a message; "" where the option counts, or is none.
  """
  at = At("config")
  for name in option.split("."):
    within: Any = None
    for field, (own, hint) in fields_of(cls).items():
      chooser = said(own).chooser
      if chooser and name in chooser.beside():
        within = chooser.beside()[name]
        if config[field] != name:
          return (
            f"config.{option} is an option of {at / field}={name!r}, which is "
            f"{config[field]!r}. Set that too, or leave the option out."
          )
      elif name == field and dataclasses.is_dataclass(hint):
        within = hint
    if within is None:
      return ""
    cls, config, at = within, config[name], at / name
  return ""


def one_of(
  table: str, default: str, meaning: str, *, resume: bool = False
) -> Any:
  """A field that is one choice.

  Args:
    table: its address, "module:NAME".
    default: name of a choice; made into its spec when it is read.
    meaning, resume: see `Said`.
  """
  said = Said(meaning, resume=resume, chooser=_OneOf(table))
  return dataclasses.field(default=default, metadata={_KEY: said})


def any_of(table: str, meaning: str, default: Sequence[str] = ()) -> Any:
  """A field that is any number of choices; see `one_of`."""
  said = Said(meaning, chooser=_AnyOf(table))
  return dataclasses.field(default=tuple(default), metadata={_KEY: said})
