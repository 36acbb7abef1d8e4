"""Command-line flags that name a run, or the runs of an ensemble.

Neither this module nor what it imports loads JAX, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Any

from absl import flags

from jaxsyn.errors import InputError
from jaxsyn.options import Range
from jaxsyn.options.flags import list_flag, number_flag

flags.disclaim_key_flags()  # the help shows them with the command's own flags

NAMES = ("ensemble", "weights", "checkpoint")


def define() -> None:
  """Defines the flags that select a run or ensemble, checkpoint and parser."""
  define_run()
  define_parser()
  list_flag(
    "ensemble",
    [],
    "More runs for an ensemble, FOLDER or FOLDER@CHECKPOINT, of any systems with "
    "the same target vocabulary.",
  )
  list_flag(
    "weights",
    [],
    "Weights of the --workdir and --ensemble runs; default: equal.",
  )


def define_run() -> None:
  """Defines --workdir and --checkpoint, which select parameters of one run."""
  flags.DEFINE_string("workdir", None, "Run directory of a trained run.")
  flags.DEFINE_string(
    "checkpoint", "", 'Checkpoint of the run: "best", "last" or a step.'
  )


def define_parser() -> None:
  """Defines --parser, the path of the run's parser if its file was moved."""
  flags.DEFINE_string(
    "parser",
    "",
    "Location of the run's parser, if it has moved: a UDPipe file, or the "
    "folder of a spaCy pipeline or of Stanza's models.",
  )


def define_alignments() -> None:
  """Defines the flags that add word alignments to the output."""
  flags.DEFINE_bool(
    "alignments",
    False,
    "Whether to append cross-attention word alignments, such as 0-0 1-2: "
    "indices of space-separated words of source and translation, from 0.",
  )
  number_flag(
    "alignment_layer",
    None,
    Range(-1000, 999),
    "Decoder layer whose cross-attention, averaged over heads, gives the "
    "alignments, from 0, or from the end if negative. Default: the layer and "
    "head of guided alignment, or else the last layer but one.",
  )


def check(values: flags.FlagValues) -> None:
  """Raises InputError if --workdir is missing."""
  if not values.workdir:
    raise InputError("--workdir is missing: name the folder of a trained run.")


def session_arguments(values: flags.FlagValues) -> dict[str, Any]:
  """Returns the arguments of `jaxsyn.session.Session` from parsed flags.

  Raises:
    InputError: No run is named, or a weight is not a number.
  """
  check(values)
  try:
    weights = [float(weight) for weight in values.weights]
  except ValueError:
    raise InputError(
      f"--weights={','.join(values.weights)}: numbers, as in 0.7,0.3."
    ) from None
  return {
    "folder": [values.workdir, *values.ensemble],
    "checkpoint": values.checkpoint,
    "parser": values.parser,
    "weights": weights,
  }
