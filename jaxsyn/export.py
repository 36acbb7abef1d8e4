"""Exports the model of a trained run, see docs/exporting.md.

jaxsyn export --workdir runs/pascal --format safetensors --output pascal
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from absl import flags, logging

from jaxsyn import cli
from jaxsyn.decode import run_flags
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.exporting import ExportedModel, ctranslate2, hub_folder
from jaxsyn.session import parameters, workdir
from jaxsyn.storage import files, hub
from jaxsyn.storage.remote import PathLike
from jaxsyn.utils import exits


class Format(NamedTuple):
  """Export format: its writer function, and the file written last.

  Attributes:
    write: Function that fills a new folder and returns messages for the user.
    last_file: File that marks a folder on an object store as complete.
  """

  write: Callable[[ExportedModel, pathlib.Path], list[str]]
  last_file: str


FORMATS = {
  "safetensors": Format(hub_folder.write, workdir.CONFIG),
  "ctranslate2": Format(ctranslate2.write, ctranslate2.RECORD_FILE),
}


def run(
  folder: PathLike,
  output: PathLike,
  format: str = "safetensors",
  *,
  checkpoint: str = "",
  license: str = "",
  parser: bool = True,
) -> list[str]:
  """Exports the model of a run; returns messages for the user.

  Args:
    folder: Run directory.
    output: Output folder, which must be new or empty.
    format: Name in `FORMATS`.
    checkpoint: "best", "last" or a step; "": the default of `translate`.
    license: License of the model, for its card; "": the card says that it must
      be filled in.
    parser: Whether to also export the parser's file.

  Raises:
    InputError: There is no run, format or checkpoint of that name, the format
      does not support the model, or the output is not empty.
  """
  if format not in FORMATS:
    raise InputError(f"no format {format!r}. {did_you_mean(format, FORMATS)}")
  hub.refuse(output, "--output")
  if files.names(output):
    raise InputError(
      f"--output {os.fspath(output)} is not empty; name a new folder."
    )
  opened = workdir.open_run(folder)
  chosen = parameters.read(opened, checkpoint)
  model = ExportedModel(opened, chosen, license, parser)
  with files.publish_folder(output, FORMATS[format].last_file) as new:
    return FORMATS[format].write(model, new)


def _main(values: flags.FlagValues) -> None:
  run_flags.check(values)
  if not values.output:
    raise InputError("--output is missing: name the folder to be made.")
  exits.check_target(values.output, "--output", folder=True, store=True)
  logging.set_verbosity(logging.ERROR)
  messages = run(
    values.workdir,
    values.output,
    values.format,
    checkpoint=values.checkpoint,
    license=values.license,
    parser=values.with_parser,
  )
  print(f"{values.output}: {values.format}")
  print("\n".join(messages))


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn export`."""
  run_flags.define_run()
  flags.DEFINE_string(
    "output", None, "Output folder, which must be new or empty."
  )
  flags.DEFINE_enum(
    "format",
    "safetensors",
    list(FORMATS),
    "safetensors: for the Hugging Face Hub and for jaxsyn. ctranslate2: "
    "CTranslate2 format, only for Transformers without attention modifiers.",
  )
  flags.DEFINE_string(
    "license",
    "",
    "License of the model for its card, such as cc-by-4.0; without it, the card "
    "marks the license as missing.",
  )
  flags.DEFINE_bool(
    "with_parser",
    True,
    "Whether to export the parser file too if the model reads trees.",
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
