"""Exports a trained run for other programs and people: docs/exporting.md.

python -m jaxsyn.export --workdir runs/pascal --format safetensors --output pascal
"""

from __future__ import annotations

import os

from absl import flags, logging

from jaxsyn import cli, exits
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.exporting import FORMATS, PAGES
from jaxsyn.exporting.model import open_model
from jaxsyn.storage import files, hub

Path = str | os.PathLike[str]


def run(
  folder: Path,
  output: Path,
  format: str = "safetensors",
  *,
  checkpoint: str = "",
  licence: str = "",
  parser: bool = True,
) -> list[str]:
  """Exports a run.

  Args:
    folder: of the run.
    output: the folder that is made.
    format: a name of `FORMATS`.
    checkpoint: "best", "last" or a step; "": as `translate` chooses.
    licence: of the model, for its card; "": it is marked to be filled in.
    parser: whether the parser's file goes with it.

  Returns: what there is to know about it, in sentences.

  Raises:
    InputError: no run, no such format or checkpoint, the format cannot hold the
      model, or something stands in the output's place.
  """
  if format not in FORMATS:
    raise InputError(f"no format {format!r}. {did_you_mean(format, FORMATS)}")
  hub.refuse(output, "--output")
  if files.names(output):
    raise InputError(
      f"--output {os.fspath(output)} is there and not empty; name a new folder."
    )
  model = open_model(
    folder, checkpoint=checkpoint, licence=licence, parser=parser
  )
  with files.publish_folder(output, PAGES[format]) as new:
    return FORMATS[format](model, new)


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name the folder of a trained run.")
  if not values.output:
    raise InputError("--output is missing: name the folder to be made.")
  exits.check_target(values.output, "--output", folder=True, store=True)
  logging.set_verbosity(logging.ERROR)
  message = run(
    values.workdir,
    values.output,
    values.format,
    checkpoint=values.checkpoint,
    licence=values.license,
    parser=values.with_parser,
  )
  print(f"{values.output}: {values.format}")
  for line in message:
    print(line)


def define_flags() -> None:
  """Those of the command."""
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("output", None, "Folder to be made.")
  flags.DEFINE_enum(
    "format",
    "safetensors",
    list(FORMATS),
    "safetensors: for the Hugging Face Hub and for jaxsyn. ctranslate2: for "
    "CTranslate2, a Transformer without attention modifiers.",
  )
  flags.DEFINE_string("checkpoint", "", '"best", "last" or a step.')
  flags.DEFINE_string(
    "license", "", "Of the model, for its card, as in cc-by-4.0; else marked."
  )
  flags.DEFINE_bool(
    "with_parser", True, "Put the parser's file into it, where it reads trees."
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
