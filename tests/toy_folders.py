"""Manifests of prepared folders that `preprocess.build` did not make."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from configs import base
from jaxsyn import config as configs
from jaxsyn.data import integrity
from jaxsyn.data import manifest as manifests

SHA256 = "5" * 64


def manifest_of(
  folder: pathlib.Path | None = None, **fields: Any
) -> dict[str, Any]:
  """A manifest of a data set without splits, but for the fields given.

  Args:
    folder: where the files are; those that are missing are made, empty.
  """
  sides = fields.get("sides", ["source"])
  vocabulary = {"file": "vocabulary.model", "sha256": SHA256, "size": 1000}
  parser = {"file": "", "sha256": "", "name": "", "trees": "CoNLL-U"}
  options = configs.read(base.get_config()).prepare
  manifest = {
    "name": "toy",
    "version": "1.0.0",
    "sides": list(sides),
    "splits": {},
    "vocabulary": {"source": vocabulary, "target": vocabulary},
    "parser": dict.fromkeys(sides, parser),
    "relations": {side: list("abcdefgh") for side in sides},
    "options": dataclasses.asdict(options),
    "files": {},
    **fields,
  }
  if folder is None:
    nothing = {"bytes": 0, "crc32c": "00000000"}
    files = dict.fromkeys(manifests.names(manifest), nothing)
  else:
    for name in manifests.names(manifest):
      path = folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.touch()
    files = integrity.sums(folder, integrity.names(folder, manifest))
  # As JSON gives it back: lists, no tuples.
  return json.loads(json.dumps({**manifest, "files": files, **fields}))


def write(folder: pathlib.Path, fields: Mapping[str, Any]) -> None:
  """Writes the manifest of a folder whose records are there."""
  manifests.write(folder, manifest_of(folder, **fields))
