"""Flags that change the decoding options of a run.

Each option of a decoding strategy (`jaxsyn.decode.strategies`) is a flag with its
name, bounds and help, so that a new strategy gets its flags automatically.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from absl import flags

from jaxsyn.decode import run_flags
from jaxsyn.decode.strategies import STRATEGIES, Decode
from jaxsyn.errors import InputError
from jaxsyn.options import fields_of, metadata
from jaxsyn.options.flags import field_flag
from jaxsyn.session import workdir
from jaxsyn.session.member import address
from jaxsyn.session.session import Session

flags.disclaim_key_flags()  # they show in the help of the command

_OPTIONS = ("search", "beam", "alpha", "nbest")
# Flags that must be equal on all hosts.
NAMES = (
  *_OPTIONS,
  *itertools.chain.from_iterable(map(fields_of, STRATEGIES.values())),
)


def define() -> None:
  """Defines --search, --beam, --alpha and flags of each decoding strategy."""
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
        spec, option, f"With --search {name}: {metadata(field).meaning}", kind
      )


def session_of(values: flags.FlagValues) -> Session:
  """Opens the run or ensemble that the flags select.

  Raises:
    InputError: --workdir is missing, a flag belongs to another strategy, or see
      `Session`.
  """
  arguments = run_flags.session_arguments(values)
  return Session(**arguments, **decode_of(values, values.workdir))


def decode_of(values: flags.FlagValues, folder: str) -> dict[str, Any]:
  """Returns the config.decode options that the flags change.

  Args:
    values: These flags, and --nbest and --mbr if they are defined.
    folder: Run directory, whose config has the other options.

  Raises:
    InputError: A flag belongs to another strategy, or there is no run.
  """
  decode = _given(values, _OPTIONS)
  if "mbr" in values and values.mbr is not None:
    if decode.setdefault("search", "sample") != "sample":
      raise InputError(f"--mbr needs samples: omit --search {values.search}.")
    if values.mbr < (values.nbest or 1):
      raise InputError(
        f"--nbest={values.nbest} is more than --mbr={values.mbr} samples."
      )
    decode["nbest"] = values.mbr
  by_strategy = {
    name: _given(values, fields_of(spec)) for name, spec in STRATEGIES.items()
  }
  by_strategy = {name: given for name, given in by_strategy.items() if given}
  if not by_strategy and "nbest" not in decode:
    return decode
  config = workdir.open_run(address(folder)[0]).config.decode
  search = decode.get("search", STRATEGIES.name_of(config.search))
  for name, options in by_strategy.items():
    if name != search:
      raise InputError(
        f"--{next(iter(options))} is for --search {name}; here it is {search}."
      )
  if "nbest" in decode and "beam" not in decode:
    decode["beam"] = max(config.beam, decode["nbest"])
  return decode | by_strategy


def _given(values: flags.FlagValues, names: Iterable[str]) -> dict[str, Any]:
  """Returns the values of the decoding flags that the user has set, by name."""
  return {
    name: values[name].value
    for name in names
    if name in values and values[name].value is not None
  }
