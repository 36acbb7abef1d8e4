"""Manifest of a dataset directory: its files, their origin and their checksums.

  manifest.json
  vocabulary.model                    or source.model and target.model
  parser.source.udpipe                copy of the parser, if it is a file
  conllu/SPLIT.SIDE.conllu.gz         trees; tree N belongs to text line N
  text/SPLIT.SIDE.gz                  raw text; line N belongs to record N
  NAME/VERSION/                       the TFDS dataset and its indexes
  report.txt                          statistics of the dataset

Text and trees of several shards are SPLIT.SIDE-00000-of-00002.gz. The manifest is
written last, so a directory with a manifest is complete. It may come from another
user, so it is not trusted: numbers are bounded, and no name leads out of the directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.options import DataName, Prepare
from jaxsyn.data.schema import SIDES, SPECIAL
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ConfigPath,
  Range,
  RegistryKey,
  from_config,
)
from jaxsyn.options.bounds import TextPattern
from jaxsyn.storage import checksums, files, lock, remote

FILE = "manifest.json"
FORMAT = 6

PathLike = os.PathLike[str] | str
Manifest = Mapping[str, Any]

_PLAIN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
_HEX = r"[0-9a-f]{64}"

Number = Annotated[int, Range(0, 1 << 53)]  # exact in JSON
Version = Annotated[
  str, TextPattern(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}", "like 1.0.0")
]
FileName = Annotated[
  str, TextPattern(f"{_PLAIN}(/{_PLAIN})*", "names of files, / between folders")
]
# The suffix prevents a copy from replacing another file of a run.
ModelFile = Annotated[
  str, TextPattern(rf"{_PLAIN}\.model", "the name of a .model file")
]
ParserFile = Annotated[
  str, TextPattern(rf"({_PLAIN}\.udpipe)?", "the name of a .udpipe file")
]
Sha256 = Annotated[str, TextPattern(_HEX, "a SHA-256 of 64 hex digits")]
Sha256OrNone = Annotated[
  str, TextPattern(f"({_HEX})?", "a SHA-256 of 64 hex digits")
]
Crc32c = Annotated[str, TextPattern(r"[0-9a-f]{8}", "8 hex digits")]
Side = Literal["source", "target"]
Labels = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Shard:
  file: str
  examples: Number
  bytes: Number
  sha256: Sha256


@dataclasses.dataclass(frozen=True)
class SplitFields:
  examples: Number
  shards: tuple[Shard, ...]
  records_sha256: Sha256
  # For information only.
  lines: Number = 0
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  unparsed: Number = 0
  unknown: dict[str, int] = dataclasses.field(default_factory=dict)
  blank: dict[str, int] = dataclasses.field(default_factory=dict)
  tree_warnings: dict[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  files: tuple[str, ...] = ()
  raw_sha256: Sha256OrNone = ""
  optional: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
  subset: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class VocabularyFields:
  file: ModelFile
  sha256: Sha256
  size: Annotated[int, Range(len(SPECIAL), 1 << 24)]


@dataclasses.dataclass(frozen=True)
class ParserFields:
  file: ParserFile  # "": there is no copy, or the trees came as CoNLL-U
  sha256: Sha256OrNone
  kind: Annotated[str, RegistryKey(PARSERS)] = "udpipe"
  name: str = ""
  version: str = ""
  options: dict[str, str] = dataclasses.field(default_factory=dict)
  trees: Literal["", "CoNLL-U", "parser"] = ""


@dataclasses.dataclass(frozen=True)
class File:
  bytes: Number
  crc32c: Crc32c


@dataclasses.dataclass(frozen=True)
class ManifestFields:
  format: int
  name: DataName
  version: Version
  sides: tuple[Side, ...]
  splits: dict[DataName, SplitFields]
  vocabulary: dict[Side, VocabularyFields]
  parser: dict[Side, ParserFields | None]
  relations: dict[Side, Labels]
  options: Prepare
  files: dict[FileName, File]
  brackets: dict[Literal["source"], Labels] = dataclasses.field(
    default_factory=dict
  )
  alignments: bool = False
  alternatives: tuple[Side, ...] = ()
  annotations: tuple[Annotated[str, RegistryKey(ANNOTATIONS)], ...] = ()
  labels: dict[Side, dict[str, Labels]] = dataclasses.field(
    default_factory=dict
  )
  # For information and `preprocess.build` only.
  source_language: str = ""
  target_language: str = ""
  versions: dict[str, str] = dataclasses.field(default_factory=dict)
  key: str = ""
  downloads: dict[str, str] = dataclasses.field(default_factory=dict)
  left_out: dict[DataName, str] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0


def read(directory: PathLike) -> dict[str, Any]:
  """Returns the verified manifest of a dataset directory or run directory.

  Raises:
    InputError: There is no manifest, or it is corrupt, has another format, or has
      an invalid field, which the message names.
  """
  path = files.path_of(directory) / FILE
  prepare = "Run jaxsyn prepare --config FILE"
  try:
    document = files.read_json(path)
    version = document.get("format") if isinstance(document, dict) else None
    if version == FORMAT:
      manifest = checksums.verify_checksum(document)
      _check(manifest)
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


def write(directory: PathLike, manifest: Manifest) -> None:
  """Writes the manifest of a dataset directory atomically, with a checksum.

  Raises:
    InputError: The manifest has an invalid field.
  """
  document = checksums.add_checksum({**manifest, "format": FORMAT})
  _check(checksums.verify_checksum(document))
  files.write_json(files.path_of(directory) / FILE, document)


def _check(manifest: Manifest) -> None:
  """Raises InputError if a manifest has an invalid field or lacks a file."""
  typed = from_config(
    ManifestFields, manifest, ConfigPath("manifest"), CHECKPOINT_MODE
  )
  for field, value, rule in _violations(typed):
    raise InputError(f"manifest.{field} must be {rule}, got {value!r}.")
  if lacking := sorted(set(file_names(manifest)) - set(manifest["files"])):
    raise InputError(f"manifest.files lacks {lacking[0]}.")


def _violations(manifest: ManifestFields) -> Iterator[tuple[str, Any, str]]:
  """Yields each invalid field with its value and the violated rule.

  Types are not checked.
  """
  sides = [*manifest.sides]
  if set(manifest.vocabulary) != set(SIDES):
    yield "vocabulary", sorted(manifest.vocabulary), "of source and target"
  for field in ("parser", "relations"):
    declared = sorted(getattr(manifest, field))
    if not set(sides) <= set(declared):
      yield field, declared, f"of the sides with trees, {sides}"
  for side, parser in manifest.parser.items():
    if parser and parser.file and not parser.sha256:
      yield f"parser.{side}.sha256", "", "there with the file's name"
  names = sorted(n for n in manifest.annotations if ANNOTATIONS[n].open)
  expected = dict.fromkeys(sides, names) if names else {}
  labels_of = {side: sorted(labels) for side, labels in manifest.labels.items()}
  if labels_of != expected:
    yield "labels", labels_of, f"of the open annotations, {expected}"
  for side, of_side in manifest.labels.items():
    for name, labels in of_side.items():
      if labels[:1] != (UNKNOWN,) or len(set(labels)) < len(labels):
        rule = f"different labels, {UNKNOWN} first"
        yield f"labels.{side}.{name}", labels, rule
  for field in ("relations", "brackets"):
    for side, labels in getattr(manifest, field).items():
      if list(labels) != sorted(set(labels)):
        yield f"{field}.{side}", labels, "different labels in sorted order"
  for name, split in manifest.splits.items():
    for i, shard in enumerate(split.shards):
      file = shard_file(manifest.name, name, i, len(split.shards))
      if shard.file != file:
        yield f"splits.{name}.shards[{i}].file", shard.file, file
    total = sum(shard.examples for shard in split.shards)
    if total != split.examples:
      rule = f"the sum of its shards, {total}"
      yield f"splits.{name}.examples", split.examples, rule


def file_names(manifest: Manifest) -> list[str]:
  """Returns the paths of all files that a dataset must have.

  Paths are relative to the dataset directory.
  """
  folder = tfds_folder("", manifest)
  paths: list[pathlib.Path] = []
  for name, split in manifest["splits"].items():
    paths += [folder / shard["file"] for shard in split["shards"]]
    paths.append(index_file("", manifest, name))
    for kind, sides in (("text", SIDES), ("conllu", manifest["sides"])):
      for side in sides:
        paths += sentence_files("", manifest, kind, name, side)
  return [*model_hashes(manifest), *(path.as_posix() for path in paths)]


def model_hashes(manifest: Manifest) -> dict[str, str]:
  """Returns the SHA-256 of each vocabulary and parser file, by file name.

  Training runs copy these files.
  """
  entries = [*manifest["vocabulary"].values(), *manifest["parser"].values()]
  return {
    entry["file"]: entry["sha256"]
    for entry in entries
    if entry and entry["file"]
  }


def tfds_folder(directory: PathLike, manifest: Manifest) -> pathlib.Path:
  """Returns the path of the folder NAME/VERSION with the TFDS dataset."""
  return files.path_of(directory) / manifest["name"] / manifest["version"]


def index_file(
  directory: PathLike, manifest: Manifest, split: str
) -> pathlib.Path:
  """Returns the path of a split's record index (see `store.tfrecord`)."""
  return tfds_folder(directory, manifest) / f"index-{split}.npy"


def shard_file(name: str, split: str, shard: int, shards: int) -> str:
  """Returns the file name of one TFRecord shard of a split."""
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
  """Returns the path of a shard with one side's raw text or trees.

  Args:
    directory: Dataset directory.
    kind: Content of the file, "text" or "conllu".
    split, side: Names of the split and the side.
    shard, shards: Index of the shard, and number of shards of the split.
  """
  part = f"-{shard:05d}-of-{shards:05d}" if shards > 1 else ""
  suffix = ".conllu.gz" if kind == "conllu" else ".gz"
  return files.path_of(directory) / kind / f"{split}.{side}{part}{suffix}"


def sentence_files(
  directory: PathLike, manifest: Manifest, kind: str, split: str, side: str
) -> list[pathlib.Path]:
  """Returns the paths of all shards with one side's raw text or trees."""
  shards = len(manifest["splits"][split]["shards"])
  return [
    sentence_file(directory, kind, split, side, shard=shard, shards=shards)
    for shard in range(shards)
  ]


def parser_file(
  directory: PathLike, manifest: Manifest, side: str
) -> pathlib.Path | None:
  """Returns the path of a dataset's copy of a parser model file, or None."""
  parser = manifest["parser"].get(side)
  has_file = parser and parser["file"]
  return files.path_of(directory) / parser["file"] if has_file else None


@contextlib.contextmanager
def in_use(directories: Iterable[PathLike]) -> Iterator[None]:
  """Locks local dataset directories so that no process replaces them.

  `jaxsyn prepare` fails for a locked directory. The locks end with their process.

  Raises:
    InputError: A directory is being prepared. The message names the process.
  """
  advice = "Wait until that has ended, then run the same command again."
  with contextlib.ExitStack() as stack:
    for directory in directories:
      is_local = not remote.is_remote(directory)
      if is_local and os.path.isfile(os.path.join(directory, FILE)):
        stack.enter_context(lock.shared_lock(directory, advice))
    yield


def split(manifest: Manifest, name: str) -> dict[str, Any]:
  """Returns the manifest's entry for a split.

  Raises:
    InputError: There is no such split.
  """
  if name not in manifest["splits"]:
    raise InputError(
      f"dataset {manifest['name']} has no split {name!r}. "
      f"{did_you_mean(name, manifest['splits'])}"
    )
  return manifest["splits"][name]


def vocabulary(
  directory: PathLike, manifest: Manifest, side: str
) -> Vocabulary:
  """Loads the source or target vocabulary from a dataset or run directory.

  Raises:
    InputError: The vocabulary is missing, or not the one in the manifest.
  """
  entry = manifest["vocabulary"][side]
  loaded = Vocabulary(files.path_of(directory) / entry["file"])
  for name, key in (("SHA-256", "sha256"), ("number of ids", "size")):
    if (value := getattr(loaded, key)) != entry[key]:
      raise InputError(
        f"{loaded.path} is not the {side} vocabulary of dataset"
        f" {manifest['name']}: its {name} is {value}, the manifest says"
        f" {entry[key]} ({entry['file']}). Use that file, or prepare the data"
        " again."
      )
  return loaded
