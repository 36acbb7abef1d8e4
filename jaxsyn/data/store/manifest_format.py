"""What manifest.json may say: types, bounds, and what must fit together.

A prepared folder may come from somebody else, so nothing in its manifest is
taken on trust: no number is out of bounds, and no name leads out of the folder.
`jaxsyn.data.store.manifest` reads and writes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from jaxsyn.config import Prepare
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.schema import SIDES, SPECIAL
from jaxsyn.errors import InputError
from jaxsyn.options import At, Range, Strictness, from_config

FORMAT = 2

# Of a data set and of a split; TFDS wants it so.
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CRC = re.compile(r"[0-9a-f]{8}")
_MOST = 1 << 53  # of anything that is counted: what JSON can say exactly
_MOST_PIECES = 1 << 24  # ids of a vocabulary
_MOST_LABELS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Shard:
  file: str
  examples: int
  bytes: int
  sha256: str


@dataclasses.dataclass(frozen=True)
class Split:
  examples: int
  shards: tuple[Shard, ...]
  records_sha256: str
  # For people alone.
  lines: int = 0
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  unparsed: int = 0
  blank: dict[str, int] = dataclasses.field(default_factory=dict)
  files: tuple[str, ...] = ()
  raw_sha256: str = ""
  brackets: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  file: str
  sha256: str
  size: int


@dataclasses.dataclass(frozen=True)
class Parser:
  file: str
  sha256: str
  name: str = ""
  trees: str = ""


@dataclasses.dataclass(frozen=True)
class File:
  bytes: Annotated[int, Range(0, 2**63 - 1)]
  crc32c: str


@dataclasses.dataclass(frozen=True)
class Manifest:
  format: int
  name: str
  version: str
  sides: tuple[str, ...]
  splits: dict[str, Split]
  vocabulary: dict[str, Vocabulary]
  parser: dict[str, Parser | None]
  relations: dict[str, tuple[str, ...]]
  options: Prepare
  files: dict[str, File]
  brackets: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  annotations: tuple[str, ...] = ()
  # For people alone, and `preprocess.build`.
  source_language: str = ""
  target_language: str = ""
  versions: dict[str, str] = dataclasses.field(default_factory=dict)
  key: str = ""
  downloads: dict[str, str] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0


def records_sha256(shards: Sequence[str]) -> str:
  """The hash of a split's records, from those of its files in order."""
  return hashlib.sha256("".join(shards).encode()).hexdigest()


def check(manifest: Mapping[str, Any]) -> None:
  """Raises InputError for what is no manifest; names the field and the value.

  That "files" has all files is for `jaxsyn.data.store.manifest` to check, which knows
  where they lie.

  Args:
    manifest: as JSON has it, without its checksum.
  """
  how = Strictness(bounded=False, whole=True)
  typed = from_config(Manifest, manifest, At("manifest"), how)
  for field, value, rule in _faults(typed):
    raise InputError(f"manifest.{field} must be {rule}, got {value!r}.")


Fault = tuple[str, Any, str]  # field, its value, what it must be


def _faults(manifest: Manifest) -> Iterator[Fault]:
  """All rules that the types do not say, broken."""
  yield from _text("name", manifest.name, NAME, "lower case a-z, 0-9 and _")
  yield from _text("version", manifest.version, _VERSION, "like 1.0.0")
  sides = manifest.sides
  if not set(sides) <= set(SIDES) or len(set(sides)) < len(sides):
    yield "sides", sides, "of source and target, each once"
  yield from _parts(manifest)
  for name, split in manifest.splits.items():
    yield from _text("splits", name, NAME, "names of a-z, 0-9 and _")
    yield from _split(manifest, f"splits.{name}", name, split)
  for name, file in manifest.files.items():
    if not all(map(_PLAIN.fullmatch, name.split("/"))):
      yield "files", name, "names of files in the folder"
    yield from _number(f"files.{name}.bytes", file.bytes)
    yield from _text(f"files.{name}.crc32c", file.crc32c, _CRC, "8 hex digits")


def _parts(manifest: Manifest) -> Iterator[Fault]:
  """Of vocabularies, parsers and labels."""
  if set(manifest.vocabulary) != set(SIDES):
    yield "vocabulary", sorted(manifest.vocabulary), "of source and target"
  for side, entry in manifest.vocabulary.items():
    where = f"vocabulary.{side}"
    yield from _file(where, entry, ".model")
    yield from _number(f"{where}.size", entry.size, len(SPECIAL), _MOST_PIECES)
  sides = set(manifest.sides)
  for field in ("parser", "relations"):
    there = set(getattr(manifest, field))
    if not sides <= there <= set(SIDES):
      yield field, sorted(there), f"of the sides with trees, {sorted(sides)}"
  for side, parser in manifest.parser.items():
    if parser and (parser.file or parser.sha256):  # else CoNLL-U was given
      yield from _file(f"parser.{side}", parser, ".udpipe")
  if unknown := set(manifest.annotations) - set(ANNOTATIONS):
    known = ", ".join(ANNOTATIONS)
    yield (
      "annotations",
      sorted(unknown),
      f"of {known}, of jaxsyn.data.annotations",
    )
  if not set(manifest.brackets) <= {"source"}:
    yield "brackets", sorted(manifest.brackets), "of the source"
  for field in ("relations", "brackets"):
    for side, labels in getattr(manifest, field).items():
      rising = all(a < b for a, b in itertools.pairwise(labels))
      if not rising or len(labels) > _MOST_LABELS:
        yield f"{field}.{side}", labels, "different labels in sorted order"


def _split(
  manifest: Manifest, where: str, name: str, split: Split
) -> Iterator[Fault]:
  yield from _number(f"{where}.examples", split.examples)
  yield from _number(f"{where}.lines", split.lines)
  yield from _number(f"{where}.unparsed", split.unparsed)
  yield from _sha256(f"{where}.records_sha256", split.records_sha256)
  folder, number = f"{manifest.name}/{manifest.version}", len(split.shards)
  for i, shard in enumerate(split.shards):
    here = f"{where}.shards[{i}]"
    due = f"{manifest.name}-{name}.tfrecord-{i:05d}-of-{number:05d}"
    if shard.file != due:
      yield f"{here}.file", shard.file, due
    yield from _number(f"{here}.examples", shard.examples)
    yield from _number(f"{here}.bytes", shard.bytes)
    yield from _sha256(f"{here}.sha256", shard.sha256)
    file = manifest.files.get(f"{folder}/{shard.file}")
    if file and file.bytes != shard.bytes:
      yield f"{here}.bytes", shard.bytes, f"{file.bytes}, as in files"
  due = records_sha256([shard.sha256 for shard in split.shards])
  if split.records_sha256 != due:
    yield (
      f"{where}.records_sha256",
      split.records_sha256,
      f"{due}, of its shards",
    )
  total = sum(shard.examples for shard in split.shards)
  if total != split.examples:
    yield f"{where}.examples", split.examples, f"the sum of its shards, {total}"


def _file(
  where: str, entry: Vocabulary | Parser, suffix: str
) -> Iterator[Fault]:
  # The suffix also keeps a copy from taking the place of another file of a run.
  if not _PLAIN.fullmatch(entry.file) or not entry.file.endswith(suffix):
    yield f"{where}.file", entry.file, f"the name of a {suffix} file"
  yield from _sha256(f"{where}.sha256", entry.sha256)


def _text(
  where: str, value: str, pattern: re.Pattern[str], rule: str
) -> Iterator[Fault]:
  if not pattern.fullmatch(value):
    yield where, value, rule


def _sha256(where: str, value: str) -> Iterator[Fault]:
  yield from _text(where, value, _SHA256, "a SHA-256 of 64 hex digits")


def _number(
  where: str, value: int, least: int = 0, most: int = _MOST
) -> Iterator[Fault]:
  if not least <= value <= most:
    yield where, value, f"from {least} to {most}"
