"""Manifest of a dataset directory, with its contents and their origin.

`preprocess.build` writes manifest.json last, so a directory with a manifest is
complete. `jaxsyn.data.store.manifest_format` defines its fields.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS, label_ids
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.sentence.parsers.parser import sha256_texts as sha256_texts
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import fetch, manifest_format
from jaxsyn.data.store.manifest_format import FORMAT
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.storage import checksums, files, lock, remote

FILE = "manifest.json"


def read(directory: os.PathLike[str] | str) -> dict[str, Any]:
  """Returns the verified manifest of a dataset directory or run directory.

  Raises:
    InputError: The directory or its manifest does not exist, or the manifest is
      corrupt, has another format, or has an invalid field. The message names
      the field.
  """
  path = files.path_of(directory) / FILE
  prepare = "Run jaxsyn prepare --config FILE"
  try:
    document = files.read_json(path)
    version = document.get("format") if isinstance(document, dict) else None
    if version == FORMAT:
      manifest = checksums.verify_checksum(document)
      manifest_format.check(manifest)
      return manifest
  except (FileNotFoundError, NotADirectoryError):
    is_folder = os.path.isdir(path.parent)
    state = "is not a prepared folder" if is_folder else "is missing"
    raise InputError(
      f"{path.parent} {state}: there is no {path}. {prepare} (again, if it was"
      " interrupted), or set config.data.directory."
    ) from None
  except (OSError, ValueError) as error:
    reason = str(error).rstrip(".")
    raise InputError(
      f"{path} is corrupt ({reason}). {prepare} again."
    ) from None
  raise InputError(
    f"{path} has format {version!r}; this version reads {FORMAT}. {prepare} again."
  )


def write(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any]
) -> None:
  """Writes the manifest of a dataset directory atomically, with a checksum.

  Raises:
    InputError: The manifest has an invalid field.
  """
  document = checksums.add_checksum({**manifest, "format": FORMAT})
  manifest_format.check(checksums.verify_checksum(document))
  files.write_json(files.path_of(directory) / FILE, document)


@contextlib.contextmanager
def in_use(directories: Iterable[os.PathLike[str] | str]) -> Iterator[None]:
  """Locks dataset directories in a `with` block, so that they are not replaced.

  `jaxsyn prepare` fails for a locked directory. The locks end with their
  process. Directories on object stores have none.

  Raises:
    InputError: A directory is being prepared. The message names the process.
  """
  advice = "Wait until that has ended, then run the same command again."
  with contextlib.ExitStack() as stack:
    for directory in directories:
      if remote.is_remote(directory):
        continue
      if os.path.isfile(os.path.join(directory, FILE)):
        stack.enter_context(lock.shared_lock(directory, advice))
    yield


def features(manifest: Mapping[str, Any]) -> dict[str, schema.Feature]:
  """Returns the feature specifications of the dataset of a manifest, by name."""
  return schema.features(
    manifest["sides"],
    brackets=bool(manifest.get("brackets")),
    alignments=bool(manifest.get("alignments")),
    alternatives=manifest.get("alternatives", ()),
    annotations=manifest.get("annotations", ()),
  )


def features_for(
  manifest: Mapping[str, Any], required: Collection[str]
) -> tuple[str, ...]:
  """Returns the names of the features that a system's batches need, in order.

  Args:
    manifest: Manifest of the dataset.
    required: Features that modifiers and losses read, e.g. "source_parent_mid".

  Raises:
    InputError: The dataset lacks a feature. The message has the remedy.
  """
  if unknown := sorted(set(required) - set(schema.FEATURES)):
    raise ValueError(f"no feature {unknown[0]!r}; see jaxsyn.data.schema.")
  stored = features(manifest)
  lacking = [
    name
    for name in sorted(set(required))
    if schema.MADE.get(name, name) not in stored
  ]
  if lacking:
    raise InputError(_remedy_for(manifest, lacking))
  names = ["source_id", "target_id"]
  of_trees = sorted(set(required) - set(schema.LINKED))
  for name in of_trees:
    side = name.partition("_")[0]
    names += [f"{side}_word", f"{side}_parsed"]
    names += [schema.MADE.get(name, name), name]
  if len(of_trees) < len(set(required)):
    names += schema.LINKED
  return tuple(dict.fromkeys(names))


def _remedy_for(manifest: Mapping[str, Any], lacking: Sequence[str]) -> str:
  """Returns the error text for features that a dataset lacks."""
  if set(lacking) & set(schema.LINKED):
    return (
      "this system reads alignments of words, but the prepared data has none."
      " Prepare it again with config.prepare.alignments."
    )
  sides = sorted({name.partition("_")[0] for name in lacking})
  of = " and the ".join(sides)
  read = f"this system reads {', '.join(lacking)}, but the prepared data has no"
  if set(sides) - set(manifest["sides"]):
    all_sides = sorted({*manifest["sides"], *sides})
    wanted = ",".join(f"'{side}'" for side in all_sides)
    return (
      f"{read} trees of the {of} side. Prepare it again with "
      f'--config.prepare.parse.sides="({wanted},)".'
    )
  if set(lacking) & set(schema.ALTERNATIVES):
    options = [f"config.prepare.parse.{side}_alternatives" for side in sides]
    return (
      f"config.data.tree='sampled' draws among several parses of the {of}, but"
      " this data has the best alone. Prepare it again with"
      f" {' and '.join(options)}, or set config.data.sampled.alternatives=False."
    )
  fields = {name.partition("_")[2] for name in lacking}
  named = tuple(sorted(fields.union(manifest.get("annotations", ()))))
  return (
    f"{read} such annotation. Prepare it again with "
    f'--config.prepare.parse.annotations="{named}".'
  )


def encoding(manifest: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a dataset's keyword arguments for `sentence.example.encode_all`.

  Returns: dictionary with "relations", side -> relation label -> id;
    "annotations"; and "labels", side -> open annotation -> label -> id.
  """
  return {
    "relations": {
      side: schema.relation_ids(labels)
      for side, labels in manifest["relations"].items()
    },
    "annotations": tuple(manifest.get("annotations", ())),
    "labels": {
      side: {name: label_ids(labels) for name, labels in of_side.items()}
      for side, of_side in manifest.get("labels", {}).items()
    },
  }


def label_counts(
  manifest: Mapping[str, Any], side: str
) -> tuple[tuple[str, int], ...]:
  """Returns pairs of annotation name and number of labels for a side's words.

  The number is 0 for open annotations that the dataset lacks.
  """
  known = manifest.get("labels", {})
  return tuple(
    (name, len(schema.labels_of_annotation(name, side, known)))
    for name in ANNOTATIONS
  )


def split(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
  """Returns the manifest's entry for a split.

  Raises:
    InputError: There is no such split.
  """
  if name not in manifest["splits"]:
    raise InputError(
      f"data set {manifest['name']} has no split {name!r}. "
      f"{did_you_mean(name, manifest['splits'])}"
    )
  return manifest["splits"][name]


def vocabulary(
  directory: os.PathLike[str] | str, manifest: Mapping[str, Any], side: str
) -> Vocabulary:
  """Returns the loaded vocabulary of a side, checked against the manifest.

  The directory is a dataset directory or run directory.

  Raises:
    InputError: The vocabulary is missing, or not the one in the manifest.
  """
  entry = manifest["vocabulary"][side]
  path = files.path_of(directory) / entry["file"]
  loaded = Vocabulary(fetch.local(path, entry["sha256"]))
  check_vocabulary(manifest, loaded, side)
  return loaded


def check_vocabulary(
  manifest: Mapping[str, Any], vocabulary: Any, side: str = "source"
) -> None:
  """Raises InputError unless a dataset was prepared with the given vocabulary.

  Args:
    manifest: Manifest of the dataset.
    vocabulary: Vocabulary, with `path`, `sha256` and `size`.
    side: "source" or "target".
  """
  expected = manifest["vocabulary"][side]
  for name, key in (("SHA-256", "sha256"), ("number of ids", "size")):
    if (value := getattr(vocabulary, key)) != expected[key]:
      raise InputError(
        f"{vocabulary.path} is not the {side} vocabulary of data set"
        f" {manifest['name']}: its {name} is {value}, the manifest says"
        f" {expected[key]} ({expected['file']}). Use that file, or prepare the"
        " data again."
      )


def recorded_parser(manifest: Mapping[str, Any], side: str) -> Identity | None:
  """Returns the identity of the parser that made a side's trees.

  Returns None if there are no trees, or if they were imported from CoNLL-U
  files without the name of a parser.
  """
  entry = manifest["parser"].get(side)
  known = entry and (entry.get("name") or entry["sha256"])
  return Identity.of(entry) if entry and known else None


def check_parser(
  manifest: Mapping[str, Any], parser: Identity, side: str = "source"
) -> None:
  """Raises InputError unless a side was parsed with the given parser.

  Any parser is accepted if the manifest names none.
  """
  expected = recorded_parser(manifest, side)
  if expected and expected.key != parser.key:
    raise InputError(
      f"{parser} is not the {side} parser of data set {manifest['name']}, which"
      f" is {expected}. Use that one, or prepare the data again."
    )
