"""The pieces of all chunks, put together in files of about the same size.

`preprocess.records` comes before. Shard k of records, columns, text and trees of a
split hold the same examples; a shard ends with the first example that fills it,
so nothing depends on the chunks.
"""

from __future__ import annotations

import gzip
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.store import layout, manifests, tfrecord
from jaxsyn.data.store.blocks import write_blocks
from jaxsyn.data.store.index import Index
from jaxsyn.data.store.lengths import Block, Column, Lengths, write_lengths
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.records import RECORDS, rows_of
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import checksums, files

_COLUMNS = "columns"
_MIB = 1 << 20

Part = tuple[
  int, int, int
]  # number of a chunk; its rows, first and behind last


def plan(tools: Tools, facts: Sequence[Facts]) -> list[list[list[Part]]]:
  """Which rows of which chunks each shard of each split has.

  Args:
    tools: of the job.
    facts: of `records.encode`, of all chunks.
  """
  size = round(tools.config.prepare.shard_mib * _MIB)
  plans = []
  for split in tools.job.splits:
    shards: list[list[Part]] = [[]]
    room = size
    for chunk in tools.chunks(split.name):
      examples, total = facts[chunk]["examples"], facts[chunk]["bytes"]
      begin = done = 0  # rows, and bytes, that are in a shard
      if total >= room:
        ends = np.cumsum(_sizes(tools, chunk, RECORDS))
        while total - done >= room:
          # The first row that fills it is the last in it.
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


def _sizes(tools: Tools, chunk: int, kind: str) -> np.ndarray:
  """Bytes of each row of a chunk in a piece."""
  stage = "encode" if kind == RECORDS else "trees"
  return tools.work.read_arrays(f"{stage}/{chunk}.sizes")[kind]


def tasks(tools: Tools) -> list[tuple[int, int, str]]:
  """The files to write: number of a split, of a shard, and what of it."""
  kinds = [RECORDS, _COLUMNS, *(f"text.{side}" for side in schema.SIDES)]
  kinds += [f"conllu.{side}" for side in tools.known["sides"]]
  return [
    (split, shard, kind)
    for split, shards in enumerate(tools.shards)
    for shard in range(len(shards))
    for kind in kinds
  ]


def write(tools: Tools, index: int, out: Output) -> Facts:
  """Writes one file.

  Returns: its "file", relative to the folder, "bytes" and "crc32c"; of records
  "sha256" and "examples", of columns what a `Block` says of each.
  """
  split, shard, kind = tasks(tools)[index]
  parts = tools.shards[split][shard]
  name = _name(tools, split, shard, kind)
  facts: Facts = {"lines": 0}
  with files.publish(tools.job.new / name) as file:
    if kind == _COLUMNS:
      examples = (
        rows_of(tools.work.read_arrays(f"encode/{chunk}.columns")).part(*part)
        for chunk, *part in parts
      )
      blocks = write_blocks(file, manifests.features(tools.known), examples)
      facts["columns"] = [block.columns for block in blocks]
      lengths = {
        str(i): np.stack(block.lengths) for i, block in enumerate(blocks)
      }
      out.write_arrays("lengths", lengths)
    elif kind == RECORDS:
      facts["examples"] = sum(end - begin for _, begin, end in parts)
      facts["lines"] = facts["examples"]
      for data in _bytes(tools, parts, kind):
        file.write(data)
    else:
      _pack(file, _bytes(tools, parts, kind))
    file.flush()
    # Before it has its name: on a store it would come back to be read.
    if kind == RECORDS:
      facts["sha256"] = checksums.sha256_of(file.name)
    facts |= checksums.file_checksums("", [file.name])[file.name]
  out.add(tools.job.new / name)
  return {"file": name, **facts}


def _bytes(tools: Tools, parts: Sequence[Part], kind: str) -> Iterator[bytes]:
  """The pieces of a shard."""
  stage = "encode" if kind == RECORDS else "trees"
  for chunk, begin, end in parts:
    ends = np.append(0, np.cumsum(_sizes(tools, chunk, kind)))
    data = tools.work.read(f"{stage}/{chunk}.{kind}")
    yield data[int(ends[begin]) : int(ends[end])]


def _pack(file: IO[bytes], pieces: Iterator[bytes]) -> None:
  """Writes gzip, the same bytes always."""
  with (
    # Level 6 packs as well as 9 for text, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
    io.BufferedWriter(packed, _MIB) as buffer,
  ):
    for piece in pieces:
      buffer.write(piece)


def _name(tools: Tools, split: int, shard: int, kind: str) -> str:
  """The name of a file in the prepared folder."""
  name, count = tools.job.splits[split].name, len(tools.shards[split])
  if kind == RECORDS:
    folder = layout.tfds_folder("", tools.known)
    return (folder / record_file(tools, name, shard, count)).as_posix()
  if kind == _COLUMNS:
    path = layout.columns_file("", name, shard, count)
  else:
    what, _, side = kind.partition(".")
    place = layout.text_file if what == "text" else layout.conllu_file
    path = place("", name, side, shard=shard, shards=count)
  return path.as_posix()


def record_file(tools: Tools, split: str, shard: int, shards: int) -> str:
  name = tools.config.data.name
  return f"{name}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"


def write_tables(tools: Tools, task_index: int, out: Output) -> Facts:
  """Writes the index and the lengths of a split.

  Returns: "files", name -> "bytes" and "crc32c"; and what the manifest says of
  the split's records.
  """
  name, new = tools.job.splits[task_index].name, tools.job.new
  shards = tools.shards[task_index]
  tables: dict[str, list[tuple[int, Any]]] = {RECORDS: [], _COLUMNS: []}
  for task, (split, _, kind) in enumerate(tasks(tools)):
    if split == task_index and kind in tables:
      result = tools.work.facts(f"shards/{task}")
      assert result, "all shards are written"
      tables[kind].append((task, result["facts"]))
  written = [
    {
      "file": pathlib.PurePath(facts["file"]).name,
      "examples": facts["examples"],
      "bytes": facts["bytes"],
      "sha256": facts["sha256"],
    }
    for _, facts in tables[RECORDS]
  ]
  digest = records_sha256([shard["sha256"] for shard in written])
  index = layout.index_file(new, tools.known, name)
  Index.of((_payloads(tools, parts) for parts in shards), digest).save(index)
  lengths = layout.lengths_file(new, name)
  with files.publish(lengths) as file:
    blocks = (
      _blocks(tools, t, facts["columns"]) for t, facts in tables[_COLUMNS]
    )
    write_lengths(file, blocks)
  names = [path.relative_to(new).as_posix() for path in (index, lengths)]
  for path in (index, lengths):
    out.add(path)
  return {
    "files": checksums.file_checksums(new, names),
    "examples": sum(shard["examples"] for shard in written),
    "shards": written,
    "records_sha256": digest,
  }


def _payloads(tools: Tools, parts: Sequence[Part]) -> Iterator[int]:
  """Bytes of each payload of a shard."""
  frame = tfrecord.HEADER + tfrecord.FOOTER
  for chunk, begin, end in parts:
    yield from (_sizes(tools, chunk, RECORDS)[begin:end] - frame).tolist()


def _blocks(
  tools: Tools, task: int, columns: Sequence[Mapping[str, Any]]
) -> Iterator[Block]:
  """The blocks of a shard that a task has written."""
  lengths = tools.work.read_arrays(f"shards/{task}.lengths")
  for i, of_block in enumerate(columns):
    places = {name: Column(*place) for name, place in of_block.items()}
    yield Block(Lengths(*lengths[str(i)]), places)
