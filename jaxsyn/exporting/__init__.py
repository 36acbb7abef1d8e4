"""Trained models for other programs and people: the formats of `jaxsyn.export`.

Each is a function of a `Model` and a new, empty folder, which it fills; it
returns lines for who asked. Before this package: `jaxsyn.session`. After it:
`jaxsyn.export`, which has the table.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from jaxsyn.exporting import ctranslate2, hub_folder
from jaxsyn.exporting.model import ExportedModel
from jaxsyn.trained import workdir

# Name -> what fills a new folder.
FORMATS: dict[str, Callable[[ExportedModel, pathlib.Path], list[str]]] = {
  "safetensors": hub_folder.write,
  "ctranslate2": ctranslate2.write,
}
# The file of each without which a folder on a store does not count.
PAGES = {
  "safetensors": workdir.CONFIG,
  "ctranslate2": ctranslate2.RECORD_FILE,
}
