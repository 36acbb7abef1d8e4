"""Flags that name a run, or the runs of an ensemble; without loading JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import flags

from jaxsyn.errors import InputError
from jaxsyn.options.flags import list_flag

if TYPE_CHECKING:
  from jaxsyn.session import Session

flags.disclaim_key_flags()  # they show in the help of the command

NAMES = ("ensemble", "weights", "checkpoint")


def define() -> None:
  """Defines --workdir and those beside it."""
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  list_flag(
    "ensemble",
    [],
    "More runs, FOLDER or FOLDER@CHECKPOINT, that choose each subword with it; "
    "of any systems, with the same target vocabulary.",
  )
  list_flag("weights", [], "Of --workdir and of each of --ensemble; all equal.")
  flags.DEFINE_string("checkpoint", "", '"best", "last" or a step.')
  define_parser()


def define_parser() -> None:
  """Defines --parser alone."""
  flags.DEFINE_string(
    "parser",
    "",
    "Location of the run's parser, if it has moved: a UDPipe file, or the "
    "folder of a spaCy pipeline or of Stanza's models.",
  )


def check(values: flags.FlagValues) -> None:
  """Raises InputError where no run is named."""
  if not values.workdir:
    raise InputError("--workdir is missing: name the folder of a trained run.")


def session_of(values: flags.FlagValues, **decode: Any) -> Session:
  """The session of the runs that are named.

  Args:
    values: of these flags.
    **decode: as of `Session`.

  Raises:
    InputError: no run, or as `Session`.
  """
  from jaxsyn.session import Session

  check(values)
  try:
    weights = [float(weight) for weight in values.weights]
  except ValueError:
    raise InputError(
      f"--weights={','.join(values.weights)}: numbers, as in 0.7,0.3."
    ) from None
  return Session(
    [values.workdir, *values.ensemble] if values.ensemble else values.workdir,
    checkpoint=values.checkpoint,
    parser=values.parser,
    weights=weights,
    **decode,
  )
