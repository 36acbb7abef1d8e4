"""--format safetensors: a folder for a hub of models, and for `Session`.

Before this file: `model`, `card`, `jaxsyn.trained.exported`.
"""

from __future__ import annotations

import pathlib

from jaxsyn.config import as_dict
from jaxsyn.data.store import layout, manifests
from jaxsyn.errors import InputError
from jaxsyn.exporting import card
from jaxsyn.exporting.model import ExportedModel
from jaxsyn.storage import checksums, files
from jaxsyn.trained import exported, workdir


def write(model: ExportedModel, folder: pathlib.Path) -> list[str]:
  """Fills the folder; see `jaxsyn.trained.exported` for what is in it.

  Args:
    model: what is exported.
    folder: new and empty.

  Raises:
    InputError: a file of the run is missing or damaged.
  """
  run = model.run
  parser_file = layout.parser_file(run.workdir, run.manifest, "source")
  reads_trees = len(model.features) > 1
  for name, digest in layout.models(run.manifest).items():
    is_parser = name not in {
      entry["file"] for entry in run.manifest["vocabulary"].values()
    }
    # Trees of targets are of training alone.
    is_source = parser_file is not None and parser_file.name == name
    if is_parser and not (is_source and reads_trees and model.parser):
      continue
    source = run.workdir / name
    if not files.is_file(source) or checksums.sha256_of(source) != digest:
      raise InputError(
        f"{source} is missing or not what {manifests.FILE} says of it. Training "
        f"called again makes it anew from {run.config.data.directory}."
      )
    files.copy(source, folder / name)
  digest = exported.write(folder, model.parameters, model.title)
  manifests.write(folder, run.manifest)
  document = checksums.add_checksum(as_dict(run.config))
  files.write_json(folder / workdir.CONFIG, document)
  files.write_text(folder / card.FILE, card.text(model, digest))
  messages = [f"{model.title}; SHA-256 of {exported.ARRAYS}: {digest}"]
  if not model.licence:
    messages.append(
      f"{card.FILE} says no licence yet: fill it in, or give --license, before "
      "you publish it. Data and parser have theirs."
    )
  if reads_trees and not (parser_file and model.parser):
    messages.append(
      "the parser is not in it: who translates raw text names one (--parser)."
    )
  return messages
