"""Where the files of a prepared folder are, which looks like this:

  manifest.json
  vocabulary.model                    or source.model and target.model
  parser.source.udpipe                a copy, where the parser is such a file
  conllu/SPLIT.SIDE.conllu.gz         the trees; line N of the text is tree N
  text/SPLIT.SIDE.gz                  the raw text; line N is record N
  NAME/VERSION/                       the TFDS dataset and its indexes
  report.txt, report.png

Text and trees of several shards are SPLIT.SIDE-00000-of-00002.gz. A manifest (of
`jaxsyn.data.store.manifests`) says how many there are.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from jaxsyn.data import schema
from jaxsyn.storage import files


def names(manifest: Mapping[str, Any]) -> list[str]:
  """The files that follow from a manifest, relative to its folder."""
  files = list(models(manifest))
  folder = tfds_folder("", manifest)
  for name, facts in manifest["splits"].items():
    paths = [folder / shard["file"] for shard in facts["shards"]]
    paths.append(index_file("", manifest, name))
    for side in schema.SIDES:
      paths += text_files("", manifest, name, side)
    for side in manifest["sides"]:
      paths += conllu_files("", manifest, name, side)
    files += [path.as_posix() for path in paths]
  return files


def models(manifest: Mapping[str, Any]) -> dict[str, str]:
  """Files of vocabularies and parsers, which runs have copies of -> SHA-256."""
  entries = [*manifest["vocabulary"].values(), *manifest["parser"].values()]
  return {
    entry["file"]: entry["sha256"]
    for entry in entries
    if entry and entry["file"]
  }


def tfds_folder(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any]
) -> pathlib.Path:
  """Where the records are: NAME/VERSION in the prepared folder."""
  return files.path_of(directory) / manifest["name"] / manifest["version"]


def index_file(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  split_name: str,
) -> pathlib.Path:
  """Returns the path of the index of a split (`jaxsyn.data.store.index`)."""
  return tfds_folder(directory, manifest) / f"index-{split_name}.npy"


def text_file(
  directory: os.PathLike[str] | str,
  split_name: str,
  side: str,
  *,
  shard: int = 0,
  shards: int = 1,
) -> pathlib.Path:
  """The raw text of a side, a line a record, gzip; of a shard, of so many."""
  file = f"{split_name}.{side}{_shard(shard, shards)}.gz"
  return files.path_of(directory) / "text" / file


def text_files(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  split_name: str,
  side: str,
) -> list[pathlib.Path]:
  """The raw text of a side: a file a shard."""
  return _each_shard(
    text_file, directory, manifest, split=split_name, side=side
  )


def conllu_file(
  directory: os.PathLike[str] | str,
  split_name: str,
  side: str,
  *,
  shard: int = 0,
  shards: int = 1,
) -> pathlib.Path:
  """The trees of a side, gzip; of a shard, of so many."""
  file = f"{split_name}.{side}{_shard(shard, shards)}.conllu.gz"
  return files.path_of(directory) / "conllu" / file


def conllu_files(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  split_name: str,
  side: str,
) -> list[pathlib.Path]:
  """The trees of a side: a file a shard."""
  return _each_shard(
    conllu_file, directory, manifest, split=split_name, side=side
  )


def _each_shard(
  file_of: Callable[..., pathlib.Path],
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  *,
  split: str,
  side: str,
) -> list[pathlib.Path]:
  count = len(manifest["splits"][split]["shards"])
  return [
    file_of(directory, split, side, shard=shard, shards=count)
    for shard in range(count)
  ]


def _shard(shard: int, shards: int) -> str:
  return f"-{shard:05d}-of-{shards:05d}" if shards > 1 else ""


def vocabulary_file(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any], side: str
) -> pathlib.Path:
  """The SentencePiece model of a side; both sides may share it."""
  return files.path_of(directory) / manifest["vocabulary"][side]["file"]


def parser_file(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any], side: str
) -> pathlib.Path | None:
  """The copy of the parser of a side; None where there is none."""
  parser = manifest["parser"].get(side)
  if not parser or not parser["file"]:
    return None
  return files.path_of(directory) / parser["file"]
