"""Paths of the files in a dataset directory.

  manifest.json
  vocabulary.model                    or source.model and target.model
  parser.source.udpipe                copy of the parser, if it is a file
  conllu/SPLIT.SIDE.conllu.gz         trees; tree N belongs to text line N
  text/SPLIT.SIDE.gz                  raw text; line N belongs to record N
  NAME/VERSION/                       the TFDS dataset and its indexes
  report.txt, report.png

Text and trees of several shards are SPLIT.SIDE-00000-of-00002.gz. The manifest
(`jaxsyn.data.store.manifests`) has the number of shards.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxsyn.data import schema
from jaxsyn.storage import files

PathLike = os.PathLike[str] | str
Manifest = Mapping[str, Any]


def names(manifest: Manifest) -> list[str]:
  """Returns the paths of all files that a dataset with a given manifest has.

  Paths are relative to the dataset directory.
  """
  folder = tfds_folder("", manifest)
  paths: list[pathlib.Path] = []
  for name, split in manifest["splits"].items():
    paths += [folder / shard["file"] for shard in split["shards"]]
    paths.append(index_file("", manifest, name))
    for side in schema.SIDES:
      paths += sentence_files("", manifest, "text", name, side)
    for side in manifest["sides"]:
      paths += sentence_files("", manifest, "conllu", name, side)
  return [*models(manifest), *(path.as_posix() for path in paths)]


def models(manifest: Manifest) -> dict[str, str]:
  """Returns the SHA-256 of each vocabulary and parser file in a manifest.

  Training runs copy these files. The keys are the names of the files.
  """
  entries = [*manifest["vocabulary"].values(), *manifest["parser"].values()]
  return {
    entry["file"]: entry["sha256"]
    for entry in entries
    if entry and entry["file"]
  }


def tfds_folder(directory: PathLike, manifest: Manifest) -> pathlib.Path:
  """Returns the path of the folder with the TFDS dataset, NAME/VERSION."""
  return files.path_of(directory) / manifest["name"] / manifest["version"]


def index_file(
  directory: PathLike, manifest: Manifest, split: str
) -> pathlib.Path:
  """Returns the path of a split's record index (`jaxsyn.data.store.index`)."""
  return tfds_folder(directory, manifest) / f"index-{split}.npy"


def shard_file(name: str, split: str, shard: int, shards: int) -> str:
  """Returns the name of a file of records in the folder of the TFDS dataset."""
  return f"{name}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"


def sentence_file(
  directory: PathLike,
  kind: str,
  split: str,
  side: str,
  *,
  shard: int = 0,
  shards: int = 1,
) -> pathlib.Path:
  """Returns the path of a side's raw text or trees in a shard of a split.

  Args:
    directory: Dataset directory.
    kind: Content of the file, "text" or "conllu".
    split, side: Names of the split and the side.
    shard: Index of the shard.
    shards: Number of shards of the split.
  """
  part = f"-{shard:05d}-of-{shards:05d}" if shards > 1 else ""
  suffix = ".conllu.gz" if kind == "conllu" else ".gz"
  return files.path_of(directory) / kind / f"{split}.{side}{part}{suffix}"


def sentence_files(
  directory: PathLike, manifest: Manifest, kind: str, split: str, side: str
) -> list[pathlib.Path]:
  """Returns the paths of a side's raw text or trees in a split, one per shard."""
  shards = len(manifest["splits"][split]["shards"])
  return [
    sentence_file(directory, kind, split, side, shard=shard, shards=shards)
    for shard in range(shards)
  ]


def parser_file(
  directory: PathLike, manifest: Manifest, side: str
) -> pathlib.Path | None:
  """Returns the path of the copied parser for a side; None if there is none."""
  parser = manifest["parser"].get(side)
  if not parser or not parser["file"]:
    return None
  return files.path_of(directory) / parser["file"]
