"""Flags that change the decoding options of a run.

Each option of a decoding strategy (`jaxsyn.decode.strategies`) is a flag with its
name, bounds and help, so that a new strategy gets its flags automatically.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from absl import flags

from jaxsyn.decode import run_flags
from jaxsyn.decode.strategies import STRATEGIES, Decode
from jaxsyn.errors import InputError
from jaxsyn.options import fields_of, metadata
from jaxsyn.options.flags import field_flag
from jaxsyn.session import Session, workdir
from jaxsyn.session.member import address

flags.disclaim_key_flags()  # they show in the help of the command


def define() -> None:
  """Defines the flags."""
  flags.DEFINE_enum(
    "search",
    None,
    list(STRATEGIES),
    "Decoding strategy, instead of the config's.",
  )
  field_flag(Decode, "beam", "Beam size, instead of the config's.")
  field_flag(
    Decode,
    "alpha",
    "Exponent of the length penalty, instead of the config's.",
    float,
  )
  for name, spec in STRATEGIES.items():
    for option, (field, hint) in fields_of(spec).items():
      kind = hint.__origin__
      field_flag(
        spec, option, f"--search {name}: {metadata(field).meaning}", kind
      )


# Flags that must be equal on all hosts.
NAMES = (
  *("search", "beam", "alpha", "nbest"),
  *(option for spec in STRATEGIES.values() for option in fields_of(spec)),
)


def session_of(values: flags.FlagValues) -> Session:
  """Opens the run or the ensemble that the flags describe.

  Raises:
    InputError: --workdir is missing, a flag belongs to another strategy, or see
      `Session`.
  """
  arguments = run_flags.session_arguments(values)
  return Session(**arguments, **decode_of(values, values.workdir))


def decode_of(values: flags.FlagValues, folder: str) -> dict[str, Any]:
  """Returns the options of config.decode that the flags change.

  Args:
    values: These flags, and --nbest and --mbr if they are defined.
    folder: Run directory, whose config has the other options.

  Raises:
    InputError: A flag belongs to another strategy, or there is no run.
  """
  names = ("search", "beam", "alpha", "nbest")
  decode: dict[str, Any] = {
    n: values[n].value
    for n in names
    if n in values and values[n].value is not None
  }
  if "mbr" in values and values.mbr is not None:
    if decode.setdefault("search", "sample") != "sample":
      raise InputError(f"--mbr needs samples: omit --search {values.search}.")
    if values.mbr < (values.nbest or 1):
      raise InputError(
        f"--nbest={values.nbest} is more than --mbr={values.mbr} samples."
      )
    decode["nbest"] = values.mbr
  flags_given = {
    name: strategy_flags
    for name, spec in STRATEGIES.items()
    if (strategy_flags := _strategy_flags(values, spec))
  }
  if not (flags_given or decode.get("nbest")):
    return decode
  config = workdir.open_run(address(folder)[0]).config.decode
  search = decode.get("search", STRATEGIES.name_of(config.search))
  for name, strategy_flags in flags_given.items():
    if name != search:
      raise InputError(
        f"--{next(iter(strategy_flags))} is for --search {name}; here it is {search}."
      )
  if "nbest" in decode and "beam" not in decode:
    decode["beam"] = max(config.beam, decode["nbest"])
  return decode | flags_given


def _strategy_flags(values: flags.FlagValues, spec: type) -> dict[str, Any]:
  """Returns the options of a strategy that are set by flags."""
  names = [field.name for field in dataclasses.fields(spec)]
  return {
    name: values[name].value
    for name in names
    if name in values and values[name].value is not None
  }
