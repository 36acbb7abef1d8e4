"""Manifests of prepared folders that `preprocess.build` did not make."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from configs import base
from jaxsyn.config import read_config
from jaxsyn.data import schema
from jaxsyn.data.store import integrity, tfds_builder
from jaxsyn.data.store import manifest as manifests

SHA256 = "5" * 64
SIDES = ("source",)


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
  options = read_config(base.get_config()).prepare
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


def example(i: int) -> dict[str, np.ndarray]:
  """Sentence i has 2 + i % 3 words of one subword each; values are arbitrary."""
  words = 2 + i % 3
  values = {
    "line": i + 1,
    "source_id": [*range(10, 10 + words), schema.EOS],
    "source_word": [*range(words), -1],
    "source_head": [0] * words,
    "source_relation": list(range(words)),
    "source_parent_mid": [0.5] * words + [words],
    "source_tree_distance": list(range(words * words)),
    "source_parsed": 1,
    "target_id": [300 + i] * (i % 4) + [schema.EOS],
  }
  features = schema.features(SIDES)
  return {k: np.asarray(v, features[k].dtype) for k, v in values.items()}


def prepare(folder: pathlib.Path) -> pathlib.Path:
  """A prepared folder of `example`: splits of 11, 1 and 0 pairs, in 3 shards."""
  examples = [example(i) for i in range(11)]
  splits = {"train": (11, examples), "test": (1, examples[:1]), "none": (0, [])}
  features = schema.tfds_features(SIDES)
  facts = tfds_builder.write(folder, "toy", "1.0.0", features, splits, shards=3)
  for name, split in facts.items():
    for side in schema.SIDES:
      path = manifests.text_file(folder, name, side)
      path.parent.mkdir(exist_ok=True)
      lines = (f"{name} {side} {i}\n" for i in range(split["examples"]))
      path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
  write(folder, {"sides": SIDES, "splits": facts})
  return folder
