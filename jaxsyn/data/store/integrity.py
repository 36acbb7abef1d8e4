"""Verification of a dataset directory, and readers of its text and trees.

The manifest has the size and the CRC-32C of every file under "files", and a
checksum of its own content, so flipped bits, truncated files and partial copies
are detected. Each record also has a CRC (`jaxsyn.data.store.dataset`).
"""

from __future__ import annotations

import gzip
import os
import pathlib
import zlib
from collections.abc import Iterator

from jaxsyn.data.sentence import conllu
from jaxsyn.data.store import layout, manifests
from jaxsyn.data.store.layout import Manifest, PathLike
from jaxsyn.data.store.records import CorruptDatasetError
from jaxsyn.storage import checksums, files


def corrupt_files(
  directory: PathLike, manifest: Manifest, deep: bool = True
) -> dict[str, str]:
  """Returns an error text for each file that differs from its manifest entry.

  Args:
    directory: Dataset directory.
    manifest: Manifest of the directory.
    deep: Whether to read all files; otherwise only their sizes are compared.

  Returns: error text by name of the file.
  """
  errors: dict[str, str] = {}
  for name, entry in manifest["files"].items():
    error = checksums.corrupt_files(directory, {name: entry}, lambda _: deep)
    if error:
      errors[name] = error
  return errors


def check(
  directory: PathLike, manifest: Manifest, path: PathLike, deep: bool = True
) -> None:
  """Raises an error if one dataset file differs from its manifest entry.

  Args:
    directory: Dataset directory.
    manifest: Manifest of the directory.
    path: Path of the file, relative to the directory.
    deep: Whether to read the file; otherwise only its size is compared.

  Raises:
    CorruptDatasetError: The file is missing or differs.
  """
  name = pathlib.PurePath(path).as_posix()
  entry = manifest["files"][name]
  error = checksums.corrupt_files(directory, {name: entry}, lambda _: deep)
  if error:
    raise CorruptDatasetError(error)


def read_text(
  directory: PathLike, manifest: Manifest, split: str, side: str
) -> list[str]:
  """Returns the raw text lines on one side of a split, one for each record.

  Raises:
    CorruptDatasetError: A file differs from the manifest, or has another number of
      lines than the split has records.
  """
  shards = manifests.split(manifest, split)["shards"]
  of = "split" if len(shards) == 1 else "shard"
  texts: list[str] = []
  for shard, name in zip(shards, layout.text_files("", manifest, split, side)):
    check(directory, manifest, name)
    path = files.path_of(directory) / name
    try:
      text = gzip.decompress(files.read_bytes(path)).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
      raise CorruptDatasetError(f"{path} cannot be read ({error})") from None
    *lines, end = text.split("\n")
    if len(lines) != shard["examples"] or end:
      raise CorruptDatasetError(
        f"{path} has {len(lines)} lines, but the {of} has "
        f"{shard['examples']} records"
      )
    texts += lines
  return texts


def sentences(
  directory: PathLike, manifest: Manifest, split: str, side: str
) -> Iterator[str | conllu.Parse]:
  """Returns an iterator over a side's sentences in a split, parsed or as text.

  If the side has trees, parsed sentences are `conllu.Parse`.

  Raises:
    CorruptDatasetError: A file with text or trees differs from the manifest.
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
  directory: PathLike, manifest: Manifest, split: str, side: str
) -> list[conllu.Parse] | None:
  """Returns the parse trees on a side of a split; None if the side has none."""
  if side not in manifest["sides"]:
    return None
  trees = sentences(directory, manifest, split, side)
  return [parse for parse in trees if isinstance(parse, conllu.Parse)]
