"""Export formats of trained models."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import NamedTuple

from jaxsyn.exporting import ctranslate2, hub_folder
from jaxsyn.exporting.model import ExportedModel
from jaxsyn.session import workdir


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
