"""Whether the files of a prepared folder are as they were written.

The manifest holds the size and the CRC-32C of every file under "files", and a
checksum of itself, so that nothing that is flipped, cut, or copied in part is
taken for data.
"""

from __future__ import annotations

import gzip
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from jaxsyn.data.sentence import conllu
from jaxsyn.data.store import layout, manifests
from jaxsyn.data.store.tfrecord import REMEDY
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files


def corrupt_files(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  deep: bool = True,
) -> dict[str, str]:
  """The files that are not as the manifest has them -> what is wrong.

  Args:
    directory: the prepared folder.
    manifest: of `jaxsyn.data.store.manifests.read`.
    deep: read all files; else only their sizes are looked at.
  """
  return {
    name: wrong
    for name, facts in manifest["files"].items()
    if (
      wrong := checksums.corrupt_files(directory, {name: facts}, lambda _: deep)
    )
  }


def check(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  name: os.PathLike[str] | str,
  deep: bool = True,
) -> None:
  """Raises InputError unless one file is as the manifest has it.

  Args:
    directory: the prepared folder.
    manifest: of `jaxsyn.data.store.manifests.read`.
    name: of the file, relative to the directory.
    deep: read it; else only its size is looked at.
  """
  name = pathlib.PurePath(name).as_posix()
  facts = {name: manifest["files"][name]}
  if wrong := checksums.corrupt_files(directory, facts, lambda _: deep):
    raise InputError(f"{wrong}. {REMEDY}")


def read_text(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  split: str,
  side: str,
) -> list[str]:
  """The raw lines of a side of a split, as its records number them.

  Raises:
    InputError: the file is not as it was written, or has not a line a record.
  """
  shards = manifests.split(manifest, split)["shards"]
  paths = layout.text_files("", manifest, split, side)
  of = "split" if len(shards) == 1 else "shard"
  texts: list[str] = []
  for shard, name in zip(shards, paths):
    check(directory, manifest, name)
    path = files.path_of(directory) / name
    try:
      lines = (
        gzip.decompress(files.read_bytes(path)).decode("utf-8").split("\n")
      )
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
      raise InputError(f"{path} cannot be read ({error}). {REMEDY}") from None
    if len(lines) - 1 != shard["examples"] or lines[-1]:
      raise InputError(
        f"{path} has {len(lines) - 1} lines, but the {of} has"
        f" {shard['examples']} records. {REMEDY}"
      )
    texts += lines[:-1]
  return texts


def sentences(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  split: str,
  side: str,
) -> Iterator[str | conllu.Parse]:
  """The lines of a side of a split; with their trees, where the side has some.

  Raises:
    InputError: text or trees are not as they were written.
  """
  lines = read_text(directory, manifest, split, side)
  if side not in manifest["sides"]:
    return iter(lines)
  for name in layout.conllu_files("", manifest, split, side):
    check(directory, manifest, name)
  paths = layout.conllu_files(directory, manifest, split, side)
  blocks = (block for path in paths for block in conllu.read(path))
  texts = layout.text_files(directory, manifest, split, side)
  return conllu.match(blocks, lines, ", ".join(map(os.fspath, texts)))


def read_trees(
  directory: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  split: str,
  side: str,
) -> list[conllu.Parse] | None:
  """The trees of `sentences`; None where the side has none."""
  if side not in manifest["sides"]:
    return None
  trees = sentences(directory, manifest, split, side)
  return [parse for parse in trees if isinstance(parse, conllu.Parse)]
