"""Fields of manifest.json, with their types, bounds and consistency rules.

A dataset directory may come from another user, so its manifest is not trusted:
the rules ensure that numbers are within bounds and that no name leads out of
the directory. `jaxsyn.data.store.manifests` reads and writes the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.options import MAX_LABELS, DataName, Prepare
from jaxsyn.data.schema import SIDES, SPECIAL
from jaxsyn.data.sentence.parsers import PARSERS
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
_MOST_LABELS = 1 << 16

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
  sides: tuple[str, ...]
  splits: dict[DataName, SplitFacts]
  vocabulary: dict[str, VocabularyFacts]
  parser: dict[str, ParserFacts | None]
  relations: dict[str, tuple[str, ...]]
  options: Prepare
  files: dict[FileName, File]
  brackets: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  alignments: bool = False
  alternatives: tuple[str, ...] = ()
  annotations: tuple[str, ...] = ()
  labels: dict[str, dict[str, tuple[str, ...]]] = dataclasses.field(
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

  The message names the field and the value. `jaxsyn.data.store.manifests`
  checks that "files" is complete.

  Args:
    manifest: Content of the JSON document, without its checksum.
  """
  typed = from_config(
    Manifest, manifest, ConfigPath("manifest"), CHECKPOINT_MODE
  )
  for field, value, rule in _faults(typed):
    raise InputError(f"manifest.{field} must be {rule}, got {value!r}.")


Fault = tuple[str, Any, str]  # field, value, rule


def _faults(manifest: Manifest) -> Iterator[Fault]:
  """Yields a manifest's violations of rules that types do not express."""
  sides = set(manifest.sides)
  if not sides <= set(SIDES) or len(sides) < len(manifest.sides):
    yield "sides", manifest.sides, "of source and target, each once"
  if set(manifest.vocabulary) != set(SIDES):
    yield "vocabulary", sorted(manifest.vocabulary), "of source and target"
  for field in ("parser", "relations"):
    declared_sides = set(getattr(manifest, field))
    if not sides <= declared_sides <= set(SIDES):
      yield (
        field,
        sorted(declared_sides),
        f"of the sides with trees, {sorted(sides)}",
      )
  for side, parser in manifest.parser.items():
    if parser and parser.file and not parser.sha256:
      rule = "there with the file's name"
      yield f"parser.{side}.sha256", parser.sha256, rule
  if not set(manifest.alternatives) <= sides:
    rule = f"of the sides with trees, {sorted(sides)}"
    yield "alternatives", manifest.alternatives, rule
  if unknown := set(manifest.annotations) - set(ANNOTATIONS):
    rule = f"of {', '.join(ANNOTATIONS)}, of jaxsyn.data.annotations"
    yield "annotations", sorted(unknown), rule
    return
  yield from _faults_of_labels(manifest)
  if not set(manifest.brackets) <= {"source"}:
    yield "brackets", sorted(manifest.brackets), "of the source"
  for field in ("relations", "brackets"):
    for side, labels in getattr(manifest, field).items():
      rising = all(a < b for a, b in itertools.pairwise(labels))
      if not rising or len(labels) > _MOST_LABELS:
        yield f"{field}.{side}", labels, "different labels in sorted order"
  for name, split in manifest.splits.items():
    for field, value, rule in _faults_of_split(manifest, name, split):
      yield f"splits.{name}.{field}", value, rule


def _faults_of_labels(manifest: Manifest) -> Iterator[Fault]:
  wanted = [n for n in manifest.annotations if ANNOTATIONS[n].open]
  due = {side: sorted(wanted) for side in manifest.sides if wanted}
  sorted_labels = {
    side: sorted(side_labels) for side, side_labels in manifest.labels.items()
  }
  if sorted_labels != due:
    yield (
      "labels",
      sorted_labels,
      f"of the open annotations of each side, {due}",
    )
  for side, of_side in manifest.labels.items():
    for name, labels in of_side.items():
      first, twice = labels[:1] == (UNKNOWN,), len({*labels}) < len(labels)
      if not first or twice or len(labels) > MAX_LABELS + 1:
        rule = f"different labels, {UNKNOWN} first, {MAX_LABELS:,} beside it"
        yield f"labels.{side}.{name}", f"{len(labels):,} labels", rule


def _faults_of_split(
  manifest: Manifest, name: str, split: SplitFacts
) -> Iterator[Fault]:
  folder, shard_count = f"{manifest.name}/{manifest.version}", len(split.shards)
  for i, shard in enumerate(split.shards):
    due = f"{manifest.name}-{name}.tfrecord-{i:05d}-of-{shard_count:05d}"
    if shard.file != due:
      yield f"shards[{i}].file", shard.file, due
    file = manifest.files.get(f"{folder}/{shard.file}")
    if file and file.bytes != shard.bytes:
      yield f"shards[{i}].bytes", shard.bytes, f"{file.bytes}, as in files"
  due = records_sha256([shard.sha256 for shard in split.shards])
  if split.records_sha256 != due:
    yield "records_sha256", split.records_sha256, f"{due}, of its shards"
  total = sum(shard.examples for shard in split.shards)
  if total != split.examples:
    yield "examples", split.examples, f"the sum of its shards, {total}"
