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
from typing import IO, Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import example
from jaxsyn.data.store import index, layout, manifests, records
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.data.store.rows import TOGETHER, Rows
from jaxsyn.preprocess import extras, report, trees
from jaxsyn.preprocess.corpus import JobContext
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.storage import checksums, files

_RECORDS = "records"
_MIB = 1 << 20

Part = tuple[int, int, int]  # chunk index, first row, row after the last


def encode(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Encodes the examples of a chunk of lines and writes their records.

  Writes "records", framed for TFRecord; "sizes", the bytes of each record; and
  "index", the index entry of each record.
  """
  chunk, manifest = context.chunk(number), context.manifest
  rows = context.outputs.read_arrays(f"trees/{number}", "rows")["rows"]
  texts, sentences = _sentences(context, number)
  given, result = _optional_features(context, number, rows.tolist())
  options = manifests.encoding(manifest)
  options["vocabularies"] = tuple(context.vocabularies[s] for s in schema.SIDES)
  features = tuple(manifests.features(manifest))
  optional = (*schema.GIVEN, *schema.LINKED, *schema.ALTERNATIVES)
  names = [name for name in features if name in optional]
  counts = report.ReportCounts(manifest["sides"])
  entries, frames = [np.empty(0, index.ENTRY)], list[bytes]()
  for begin in range(0, len(rows), TOGETHER):
    part = slice(begin, begin + TOGETHER)
    source, target = (of_side[part] for of_side in sentences)
    lines = chunk.lines.start + rows[part] + 1
    made = example.encode_all(source, target, lines=lines, **options)
    if names:
      added = Rows.of(given[part], names)
      made = Rows({**made.flat, **added.flat}, {**made.start, **added.start})
    counts.add_all(made)
    payloads = records.encode(made, {name: texts[name][part] for name in texts})
    frames += map(records.frame, payloads)
    entries.append(index.entries(payloads, made))
  sizes = np.fromiter(map(len, frames), np.int64, len(frames))
  out.write(_RECORDS, b"".join(frames))
  out.write_arrays("sizes", {_RECORDS: sizes})
  out.write_arrays("index", {"entries": np.concatenate(entries)})
  return {
    **result,
    "examples": len(frames),
    "bytes": int(sizes.sum()),
    "lines": len(chunk.lines),
    "counts": counts.as_dict(),
  }


def _optional_features(
  context: JobContext, number: int, rows: Sequence[int]
) -> tuple[list[extras.Features], Result]:
  """Returns the optional features of a chunk's examples, and input counts."""
  chunk, manifest = context.chunk(number), context.manifest
  found: list[list[extras.Features]] = []
  result: Result = {}
  if labels := manifest.get("brackets"):
    ids = schema.relation_ids(labels["source"])
    values, counts = extras.bracket_features(
      chunk, rows, context.vocabularies["source"], ids
    )
    found.append(values)
    result |= counts
  if manifest.get("alignments"):
    values, counts = extras.link_features(chunk, rows, context.vocabularies)
    found.append(values)
    result |= counts
  if manifest.get("alternatives"):
    found.append(extras.alternative_features(context, number, len(rows)))
  merged: list[extras.Features] = [{} for _ in rows]
  for values in found:
    for features, more in zip(merged, values, strict=True):
      features |= more
  return merged, result


def _sentences(
  context: JobContext, number: int
) -> tuple[dict[str, list[str]], list[Sequence[Any]]]:
  """Returns the text of a chunk of lines, and its texts or trees to encode.

  Returns:
    Name of the text feature -> lines; and for each side its parses, or lines if
    the side has no trees.
  """
  texts: dict[str, list[str]] = {}
  sentences: list[Sequence[Any]] = []
  for side in schema.SIDES:
    data = context.outputs.read(f"trees/{number}", f"text.{side}")
    lines = texts[f"{side}_text"] = data.decode("utf-8").split("\n")[:-1]
    if side in context.manifest["sides"]:
      sentences.append(trees.parses_of(context, number, side, lines))
    else:
      sentences.append(lines)
  return texts, sentences


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
  return {"shards": plan(context, results)}


def plan(
  context: JobContext, results: Sequence[Result]
) -> list[list[list[Part]]]:
  """Returns, for each shard of each split, the rows of chunks that it contains.

  Args:
    context: preparation job and its loaded data.
    results: results of `encode` for all chunks.
  """
  size = round(context.config.prepare.shard_mib * _MIB)
  plans = []
  for split in context.job.splits:
    shards: list[list[Part]] = [[]]
    room = size
    for chunk in context.chunks(split.name):
      examples, total = results[chunk]["examples"], results[chunk]["bytes"]
      begin = done = 0  # rows, and bytes, that are in a shard
      if total >= room:
        ends = np.cumsum(_sizes(context, chunk, _RECORDS))
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
    plans.append(shards)
  return plans


def _sizes(context: JobContext, chunk: int, kind: str) -> np.ndarray:
  """Returns the size in bytes of each row of a chunk in one type of file.

  Args:
    context: preparation job and its loaded data.
    chunk: index of the chunk.
    kind: content of the file, "records", "text.SIDE" or "conllu.SIDE".
  """
  stage = "encode" if kind == _RECORDS else "trees"
  return context.outputs.read_arrays(f"{stage}/{chunk}", "sizes")[kind]


def _shard_files(context: JobContext) -> list[tuple[int, int, str]]:
  """Returns the shard files to write, as (split, shard, type of content)."""
  kinds = [_RECORDS, *(f"text.{side}" for side in schema.SIDES)]
  kinds += [f"conllu.{side}" for side in context.manifest["sides"]]
  return [
    (split, shard, kind)
    for split, shards in enumerate(context.shards)
    for shard in range(len(shards))
    for kind in kinds
  ]


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
      for data in content:
        file.write(data)
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
  stage = "encode" if kind == _RECORDS else "trees"
  for chunk, begin, end in parts:
    ends = np.append(0, np.cumsum(_sizes(context, chunk, kind)))
    data = context.outputs.read(f"{stage}/{chunk}", kind)
    yield data[int(ends[begin]) : int(ends[end])]


def _compress(file: IO[bytes], content: Iterator[bytes]) -> None:
  """Writes content as gzip without a time; equal content gives equal bytes."""
  with (
    # Level 6 compresses text as well as 9, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
    io.BufferedWriter(compressed, _MIB) as buffer,
  ):
    for data in content:
      buffer.write(data)


def _file_name(context: JobContext, split: int, shard: int, kind: str) -> str:
  """Returns the path of a shard file, relative to the dataset directory."""
  name, shards = context.job.splits[split].name, len(context.shards[split])
  if kind == _RECORDS:
    folder = layout.tfds_folder("", context.manifest)
    dataset = context.config.data.name
    file = f"{dataset}-{name}.tfrecord-{shard:05d}-of-{shards:05d}"
    return (folder / file).as_posix()
  what, _, side = kind.partition(".")
  return layout.sentence_file(
    "", what, name, side, shard=shard, shards=shards
  ).as_posix()


def write_index(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Writes the index of a split's records and returns its metadata.

  Returns:
    "files": name -> size and CRC-32C; and the manifest entry of the records.
  """
  name, new = context.job.splits[number].name, context.job.new
  shards = []
  for task, (split, _, kind) in enumerate(_shard_files(context)):
    if split == number and kind == _RECORDS:
      result = context.outputs.result(f"shards/{task}")
      shard = {key: result[key] for key in ("examples", "bytes", "sha256")}
      shard["file"] = pathlib.PurePath(result["file"]).name
      shards.append(shard)
  path = layout.index_file(new, context.manifest, name)
  index.save(path, _index_entries(context, number))
  relative = path.relative_to(new).as_posix()
  sums = checksums.file_checksums(new, [relative])
  out.add_file(path, sums[relative]["crc32c"])
  return {
    "files": sums,
    "examples": sum(shard["examples"] for shard in shards),
    "shards": shards,
    "records_sha256": records_sha256([shard["sha256"] for shard in shards]),
  }


def _index_entries(context: JobContext, split: int) -> Iterator[np.ndarray]:
  for parts in context.shards[split]:
    for chunk, begin, end in parts:
      arrays = context.outputs.read_arrays(f"encode/{chunk}", "index")
      yield arrays["entries"][begin:end]
