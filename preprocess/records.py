"""Encoding of examples, and their files: shards of records, text and trees.

Shard k of the records, the text and the trees of a split has the same examples.
A shard ends with the first example that reaches its size, so shards do not
depend on chunks of lines.
"""

from __future__ import annotations

import gzip
import io
import pathlib
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import example
from jaxsyn.data.store import manifests, records, tfrecord
from jaxsyn.data.store.rows import ENCODED_TOGETHER, Rows
from jaxsyn.data.store.tfrecord import records_sha256
from jaxsyn.preprocess import extras, report, trees
from jaxsyn.preprocess.corpus import JobContext
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.storage import checksums, files

_RECORDS = "records"
_MIB = 1 << 20

Part = tuple[int, int, int]  # chunk index, first row, row after the last


def encode(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Encodes the examples of a chunk of lines and writes their records.

  Writes "records", framed for TFRecord; "sizes.records", the bytes of each; and
  "index", the index entry of each.
  """
  chunk, manifest = context.chunk(number), context.manifest
  rows = context.outputs.read_array(f"trees/{number}", "rows")
  texts = {side: _texts(context, number, side) for side in schema.SIDES}
  source, target = (
    trees.parses_of(context, number, side, lines)
    if side in manifest["sides"]
    else lines
    for side, lines in texts.items()
  )
  given, result = _optional_features(context, number, rows.tolist())
  options = schema.encoding(manifest)
  options["vocabularies"] = tuple(context.vocabularies[s] for s in schema.SIDES)
  features = tuple(schema.features(manifest))
  optional = {name for o in schema.OPTIONAL.values() for name in o.features}
  names = [name for name in features if name in optional]
  counts: list[report.Counts] = []
  entries, frames = [np.empty(0, tfrecord.ENTRY)], list[bytes]()
  for begin in range(0, len(rows), ENCODED_TOGETHER):
    part = slice(begin, begin + ENCODED_TOGETHER)
    lines = chunk.lines.start + rows[part] + 1
    made = example.encode_all(
      source[part], target[part], lines=lines, **options
    )
    if names:
      added = Rows.of(given[part], names)
      made = Rows({**made.flat, **added.flat}, {**made.start, **added.start})
    counts.append(report.count(made, manifest["sides"]))
    of_part = {f"{side}_text": lines[part] for side, lines in texts.items()}
    payloads = records.encode(made, of_part)
    frames += map(tfrecord.frame, payloads)
    entries.append(tfrecord.index_entries(payloads, made))
  sizes = np.fromiter(map(len, frames), np.int64, len(frames))
  out.write(_RECORDS, b"".join(frames))
  out.write_array(f"sizes.{_RECORDS}", sizes)
  out.write_array("index", np.concatenate(entries))
  return {
    **result,
    "examples": len(frames),
    "bytes": int(sizes.sum()),
    "lines": len(chunk.lines),
    "counts": report.as_json(report.total(counts)),
  }


def _texts(context: JobContext, number: int, side: str) -> list[str]:
  data = context.outputs.read(f"trees/{number}", f"text.{side}")
  return data.decode("utf-8").split("\n")[:-1]


def _optional_features(
  context: JobContext, number: int, rows: Sequence[int]
) -> tuple[list[extras.Features], Result]:
  """Returns the optional features of a chunk's examples, and input counts."""
  chunk, manifest = context.chunk(number), context.manifest
  merged: list[extras.Features] = [{} for _ in rows]
  result: Result = {}

  def add(values: list[extras.Features], counts: Result | None = None) -> None:
    result.update(counts or {})
    for features, more in zip(merged, values, strict=True):
      features.update(more)

  if labels := manifest.get("brackets"):
    ids = schema.relation_ids(labels["source"])
    vocabulary = context.vocabularies["source"]
    add(*extras.bracket_features(chunk, rows, vocabulary, ids))
  if manifest.get("alignments"):
    add(*extras.link_features(chunk, rows, context.vocabularies))
  if manifest.get("alternatives"):
    add(extras.alternative_features(context, number, len(rows)))
  return merged, result


def combine(context: JobContext, results: Sequence[Result]) -> Result:
  """Prints which constituency trees were left out; returns the plan of shards.

  Raises:
    InputError: all constituency trees of a split were left out.
  """
  for split in context.job.splits:
    if "brackets" in split.streams:
      of_split = [results[n] for n in context.chunks(split.name)]
      left_out = next((r["left_out"] for r in of_split if r["left_out"]), "")
      names = [split.file_names(name) for name in ("brackets", "source")]
      extras.report_brackets(extras.bracket_counts(of_split), left_out, names)
  shards = [
    _shards(context, context.chunks(split.name), results)
    for split in context.job.splits
  ]
  return {"shards": shards}


def _shards(
  context: JobContext, chunks: Sequence[int], results: Sequence[Result]
) -> list[list[Part]]:
  """Returns the rows of chunks that each shard of a split contains."""
  size = round(context.config.prepare.shard_mib * _MIB)
  shards: list[list[Part]] = [[]]
  room = size
  for chunk in chunks:
    examples, total = results[chunk]["examples"], results[chunk]["bytes"]
    begin = done = 0  # rows, and bytes, that are in a shard
    if total >= room:
      task, sizes = f"encode/{chunk}", f"sizes.{_RECORDS}"
      ends = np.cumsum(context.outputs.read_array(task, sizes))
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


def _shard_files(context: JobContext) -> list[tuple[int, int, str]]:
  """Returns the shard files to write, as (split, shard, kind of content)."""
  kinds = [_RECORDS, *(f"text.{side}" for side in schema.SIDES)]
  kinds += [f"conllu.{side}" for side in context.manifest["sides"]]
  found = []
  for split, shards in enumerate(context.shards):
    for shard in range(len(shards)):
      found += [(split, shard, kind) for kind in kinds]
  return found


def shard_count(context: JobContext) -> int:
  return len(_shard_files(context))


def write_shard(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Writes one shard file of records, text or trees.

  Returns:
    Name, checksums, size and number of examples of the file.
  """
  split, shard, kind = _shard_files(context)[number]
  parts = context.shards[split][shard]
  name = _file_name(context, split, shard, kind)
  result: Result = {"examples": sum(end - begin for _, begin, end in parts)}
  with files.publish(context.job.new / name) as file:
    content = _content(context, parts, kind)
    if kind == _RECORDS:
      file.writelines(content)
    else:
      _compress(file, content)
    file.flush()
    # While the file is local: an object store would have to send it back.
    if kind == _RECORDS:
      result["sha256"] = checksums.sha256_of(file.name)
    result |= checksums.file_checksums("", [file.name])[file.name]
  out.add_file(context.job.new / name, result["crc32c"])
  return {"file": name, "lines": result["examples"], **result}


def _content(
  context: JobContext, parts: Sequence[Part], kind: str
) -> Iterator[bytes]:
  outputs, stage = context.outputs, "encode" if kind == _RECORDS else "trees"
  for chunk, begin, end in parts:
    sizes = outputs.read_array(f"{stage}/{chunk}", f"sizes.{kind}")
    first = int(sizes[:begin].sum())
    last = first + int(sizes[begin:end].sum())
    yield outputs.read(f"{stage}/{chunk}", kind)[first:last]


def _compress(file: IO[bytes], content: Iterator[bytes]) -> None:
  """Writes content as gzip without a time; equal content gives equal bytes."""
  with (
    # Level 6 compresses text as well as 9, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
    io.BufferedWriter(compressed, _MIB) as buffer,
  ):
    buffer.writelines(content)


def _file_name(context: JobContext, split: int, shard: int, kind: str) -> str:
  """Returns the path of a shard file, relative to the dataset directory."""
  name, shards = context.job.splits[split].name, len(context.shards[split])
  if kind == _RECORDS:
    folder = manifests.tfds_folder("", context.manifest)
    dataset = context.config.data.name
    file = manifests.shard_file(dataset, name, shard, shards)
    return (folder / file).as_posix()
  what, _, side = kind.partition(".")
  return manifests.sentence_file(
    "", what, name, side, shard=shard, shards=shards
  ).as_posix()


def write_index(context: JobContext, split: int) -> Result:
  """Writes the index of a split's records; returns its part of the manifest."""
  shards = []
  for task, (of_split, _, kind) in enumerate(_shard_files(context)):
    if of_split == split and kind == _RECORDS:
      result = context.outputs.result(f"shards/{task}")
      shard = {key: result[key] for key in ("examples", "bytes", "sha256")}
      shard["file"] = pathlib.PurePath(result["file"]).name
      shards.append(shard)
  name = context.job.splits[split].name
  path = manifests.index_file(context.job.new, context.manifest, name)
  tfrecord.save_index(path, _index_entries(context, split))
  return {
    "examples": sum(shard["examples"] for shard in shards),
    "shards": shards,
    "records_sha256": records_sha256([shard["sha256"] for shard in shards]),
  }


def _index_entries(context: JobContext, split: int) -> Iterator[np.ndarray]:
  for parts in context.shards[split]:
    for chunk, begin, end in parts:
      yield context.outputs.read_array(f"encode/{chunk}", "index")[begin:end]
