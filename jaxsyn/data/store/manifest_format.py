"""Fields of manifest.json, with their types, bounds and consistency rules.

A dataset directory may come from another user, so its manifest is not trusted:
the rules ensure that numbers are within bounds and that no name leads out of
the directory. `jaxsyn.data.store.manifests` reads and writes the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.options import DataName, Prepare
from jaxsyn.data.schema import SIDES, SPECIAL
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.data.store import layout
from jaxsyn.errors import InputError
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ConfigPath,
  Range,
  RegistryKey,
  from_config,
)
from jaxsyn.options.bounds import TextPattern

FORMAT = 5

_PLAIN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"
_SHA256 = r"[0-9a-f]{64}"

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
Sha256 = Annotated[str, TextPattern(_SHA256, "a SHA-256 of 64 hex digits")]
Sha256OrNone = Annotated[
  str, TextPattern(f"({_SHA256})?", "a SHA-256 of 64 hex digits")
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
class SplitFacts:
  examples: Number
  shards: tuple[Shard, ...]
  records_sha256: Sha256
  # For readers only.
  lines: Number = 0
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  unparsed: Number = 0
  blank: dict[str, int] = dataclasses.field(default_factory=dict)
  doubts: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  files: tuple[str, ...] = ()
  raw_sha256: Sha256OrNone = ""
  brackets: dict[str, Any] = dataclasses.field(default_factory=dict)
  linked: Number = 0
  alternatives: dict[str, Any] = dataclasses.field(default_factory=dict)
  subset: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class VocabularyFacts:
  file: ModelFile
  sha256: Sha256
  size: Annotated[int, Range(len(SPECIAL), 1 << 24)]


@dataclasses.dataclass(frozen=True)
class ParserFacts:
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
class Manifest:
  format: int
  name: DataName
  version: Version
  sides: tuple[Side, ...]
  splits: dict[DataName, SplitFacts]
  vocabulary: dict[Side, VocabularyFacts]
  parser: dict[Side, ParserFacts | None]
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
  # For readers and `preprocess.build` only.
  source_language: str = ""
  target_language: str = ""
  versions: dict[str, str] = dataclasses.field(default_factory=dict)
  key: str = ""
  downloads: dict[str, str] = dataclasses.field(default_factory=dict)
  left_out: dict[DataName, str] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0


def records_sha256(shards: Sequence[str]) -> str:
  """Returns the SHA-256 of a split from the SHA-256 sums of its shards."""
  return hashlib.sha256("".join(shards).encode()).hexdigest()


def check(manifest: Mapping[str, Any]) -> None:
  """Raises InputError for an invalid manifest field.

  The message names the field and the value.

  Args:
    manifest: Content of the JSON document, without its checksum.
  """
  typed = from_config(
    Manifest, manifest, ConfigPath("manifest"), CHECKPOINT_MODE
  )
  for field, value, rule in _faults(typed):
    raise InputError(f"manifest.{field} must be {rule}, got {value!r}.")
  if lacking := sorted(set(layout.names(manifest)) - set(manifest["files"])):
    raise InputError(f"manifest.files lacks {lacking[0]}.")


def _faults(manifest: Manifest) -> Iterator[tuple[str, Any, str]]:
  """Yields field, value and rule where a rule that is no type is violated."""
  sides = list(manifest.sides)
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
    rule = f"of the open annotations of each side, {expected}"
    yield "labels", labels_of, rule
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
      file = layout.shard_file(manifest.name, name, i, len(split.shards))
      if shard.file != file:
        yield f"splits.{name}.shards[{i}].file", shard.file, file
    total = sum(shard.examples for shard in split.shards)
    if total != split.examples:
      rule = f"the sum of its shards, {total}"
      yield f"splits.{name}.examples", split.examples, rule
