"""Encodes examples, and writes shards of records, text and trees.

Shard k of the records, the text and the trees of a split has the same examples.
A shard ends with the first example that reaches its size, so shards do not
depend on chunks of lines.
"""

from __future__ import annotations

import gzip
import io
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import example
from jaxsyn.data.store import manifests, records, tfrecord
from jaxsyn.data.store.rows import ENCODED_TOGETHER, Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import optional, report, trees
from jaxsyn.preprocess.features import OPTIONAL
from jaxsyn.preprocess.job import PrepareJob
from jaxsyn.preprocess.optional import Features
from jaxsyn.preprocess.outputs import Counts, Result, TaskOutput, add_counts
from jaxsyn.storage import checksums, files

_RECORDS = "records"
_MIB = 1 << 20

Part = tuple[int, int, int]  # chunk index, first row, row after the last


def encode(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Encodes the examples in a chunk of lines and writes their records.

  Writes "records", framed for TFRecord; "sizes.records", the bytes of each; and
  "index", the index entry of each.
  """
  manifest = job.manifest
  examples, texts = trees.examples_of(job, number)
  added: list[Features] = [{} for _ in examples.rows]
  counts: list[Counts] = []
  for feature in OPTIONAL:
    if feature.name in manifest:
      encoded, uses = feature.encode(examples, out)
      counts.append(uses)
      for features, of_feature in zip(added, encoded, strict=True):
        features.update(of_feature)
  source, target = (
    examples.parses.get(side, texts[side]) for side in schema.SIDES
  )
  lines = np.array(examples.rows, np.int64) + examples.chunk.lines.start + 1
  vocabularies = tuple(job.vocabularies[side] for side in schema.SIDES)
  options = schema.encoding(manifest) | {"vocabularies": vocabularies}
  entries, frames = [np.empty(0, tfrecord.ENTRY)], list[bytes]()
  for begin in range(0, len(lines), ENCODED_TOGETHER):
    part = slice(begin, begin + ENCODED_TOGETHER)
    rows = example.encode_all(
      source[part], target[part], lines=lines[part], **options
    )
    if added[begin]:
      names = [name for name in schema.FEATURES if name in added[begin]]
      more = Rows.of(added[part], names)
      rows = Rows({**rows.flat, **more.flat}, {**rows.start, **more.start})
    counts.append(report.count(rows, manifest["sides"]))
    part_texts = {f"{side}_text": texts[side][part] for side in schema.SIDES}
    payloads = records.encode(rows, part_texts)
    frames += map(tfrecord.frame, payloads)
    entries.append(tfrecord.index_entries(payloads, rows))
  sizes = np.fromiter(map(len, frames), np.int64, len(frames))
  out.write(_RECORDS, b"".join(frames))
  out.write_array(f"sizes.{_RECORDS}", sizes)
  out.write_array("index", np.concatenate(entries))
  return {
    "examples": len(frames),
    "bytes": int(sizes.sum()),
    "lines": len(examples.chunk.lines),
    "counts": add_counts(counts),
  }


def combine(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  """Plans the shards, and adds up the counts of the chunks of each split.

  Returns:
    "shards", the rows of chunks in each shard of each split; and "counts", the
    counts of `report.count` and of optional features by split.

  Raises:
    InputError: A stream of an optional feature does not match the text at all.
  """
  shards: list[list[list[Part]]] = []
  counts: dict[str, Counts] = {}
  for split in job.splits:
    chunks = job.chunks(split.name)
    of_split = add_counts(results[n]["counts"] for n in chunks)
    for stream, uses in of_split.items():
      if uses.get(optional.OTHER_WORDS) and not uses[optional.USED]:
        side = stream.partition(".")[2] or "source"
        raise InputError(
          f"{split.file_names(f'{stream}.0')}: no tree has the words of its line"
          f" of {split.file_names(side)} ({uses}). Give trees of the same text,"
          " tokenized in the same way."
        )
    counts[split.name] = of_split
    shards.append(_shards(job, chunks, results))
  return {"shards": shards, "counts": counts}


def _shards(
  job: PrepareJob, chunks: Sequence[int], results: Sequence[Result]
) -> list[list[Part]]:
  """Assigns the examples in a split's chunks to shards."""
  size = round(job.config.prepare.shard_mib * _MIB)
  shards: list[list[Part]] = [[]]
  room = size
  for chunk in chunks:
    examples, total = results[chunk]["examples"], results[chunk]["bytes"]
    begin = done = 0  # rows, and bytes, that are in a shard
    if total >= room:
      task, sizes = f"encode/{chunk}", f"sizes.{_RECORDS}"
      ends = np.cumsum(job.outputs.read_array(task, sizes))
      while total - done >= room:
        # The first row that fills a shard is the last in it.
        end = int(np.searchsorted(ends, done + room)) + 1
        shards[-1].append((chunk, begin, end))
        shards.append([])
        begin, done, room = end, int(ends[end - 1]), size
    if begin < examples:
      shards[-1].append((chunk, begin, examples))
      room -= total - done
  if len(shards) > 1 and not shards[-1]:
    shards.pop()
  return shards


def _shard_files(job: PrepareJob) -> list[tuple[int, int, str]]:
  """Returns split, shard and kind of content for each shard file to write."""
  kinds = [_RECORDS, *(f"text.{side}" for side in schema.SIDES)]
  kinds += [f"conllu.{side}" for side in job.manifest["sides"]]
  shard_files: list[tuple[int, int, str]] = []
  for split, shards in enumerate(job.summary("encode")["shards"]):
    shard_files += itertools.product([split], range(len(shards)), kinds)
  return shard_files


def shard_count(job: PrepareJob) -> int:
  return len(_shard_files(job))


def write_shard(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Writes one shard file of records, text or trees.

  Returns:
    Name, checksums, size and number of examples of the file.
  """
  split, shard, kind = _shard_files(job)[number]
  shards = job.summary("encode")["shards"][split]
  name = _file_name(job, split, shard, kind, len(shards))
  count = sum(end - begin for _, begin, end in shards[shard])
  result: Result = {"file": name, "examples": count, "lines": count}
  with files.publish(job.new / name) as file:
    content = _content(job, shards[shard], kind)
    if kind == _RECORDS:
      file.writelines(content)
    else:
      _compress(file, content)
    file.flush()
    # While the file is local: an object store would have to send it back.
    if kind == _RECORDS:
      result["sha256"] = checksums.sha256_of(file.name)
    result |= checksums.file_checksums("", [file.name])[file.name]
  out.add_file(job.new / name, result["crc32c"])
  return result


def _content(
  job: PrepareJob, parts: Sequence[Part], kind: str
) -> Iterator[bytes]:
  outputs, stage = job.outputs, "encode" if kind == _RECORDS else "trees"
  for chunk, begin, end in parts:
    sizes = outputs.read_array(f"{stage}/{chunk}", f"sizes.{kind}")
    first = int(sizes[:begin].sum())
    last = first + int(sizes[begin:end].sum())
    yield outputs.read(f"{stage}/{chunk}", kind)[first:last]


def _compress(file: IO[bytes], content: Iterator[bytes]) -> None:
  """Compresses content with gzip; equal content always gives equal bytes."""
  with (
    # Level 6 compresses text as well as 9, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
    io.BufferedWriter(compressed, _MIB) as buffer,
  ):
    buffer.writelines(content)


def _file_name(
  job: PrepareJob, split: int, shard: int, kind: str, shards: int
) -> str:
  """Returns the path of a shard file, relative to the dataset directory."""
  name = job.splits[split].name
  if kind == _RECORDS:
    folder = manifests.tfds_folder("", job.manifest)
    dataset = job.config.data.name
    file = manifests.shard_file(dataset, name, shard, shards)
    return (folder / file).as_posix()
  what, _, side = kind.partition(".")
  path = manifests.sentence_file(
    "", what, name, side, shard=shard, shards=shards
  )
  return path.as_posix()


def write_index(
  job: PrepareJob, split: int, results: Sequence[Result]
) -> tuple[Result, np.ndarray]:
  """Writes the index of a split's records.

  Args:
    job: Preparation job, whose stages are finished.
    split: Index of the split.
    results: Results of `write_shard` for all shard files.

  Returns:
    Manifest entry of the records; and the index.
  """
  shards = []
  for (of_split, _, kind), result in zip(_shard_files(job), results):
    if of_split == split and kind == _RECORDS:
      shard = {key: result[key] for key in ("examples", "bytes", "sha256")}
      shard["file"] = pathlib.PurePath(result["file"]).name
      shards.append(shard)
  entries = [np.empty(0, tfrecord.ENTRY)]
  for parts in job.summary("encode")["shards"][split]:
    for chunk, begin, end in parts:
      of_chunk = job.outputs.read_array(f"encode/{chunk}", "index")
      entries.append(of_chunk[begin:end])
  name = job.splits[split].name
  path = manifests.index_file(job.new, job.manifest, name)
  tfrecord.save_index(path, entries)
  entry = {
    "examples": sum(shard["examples"] for shard in shards),
    "shards": shards,
    "records_sha256": tfrecord.records_sha256(
      [shard["sha256"] for shard in shards]
    ),
  }
  return entry, np.concatenate(entries)
