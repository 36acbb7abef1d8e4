"""The pieces of all chunks, put together in files of about the same size.

`preprocess.records` comes before. Shard k of records, text and trees of a split hold the same examples; a shard ends with the first example that fills it,
so nothing depends on the chunks.
"""

from __future__ import annotations

import gzip
import io
import pathlib
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.store import index, layout
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.records import RECORDS
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import checksums, files

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
  kinds = [RECORDS, *(f"text.{side}" for side in schema.SIDES)]
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
  "sha256" and "examples".
  """
  split, shard, kind = tasks(tools)[index]
  parts = tools.shards[split][shard]
  name = _name(tools, split, shard, kind)
  facts: Facts = {"lines": 0}
  with files.publish(tools.job.new / name) as file:
    if kind == RECORDS:
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
  what, _, side = kind.partition(".")
  place = layout.text_file if what == "text" else layout.conllu_file
  return place("", name, side, shard=shard, shards=count).as_posix()


def record_file(tools: Tools, split: str, shard: int, shards: int) -> str:
  name = tools.config.data.name
  return f"{name}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"


def write_index(tools: Tools, number: int, out: Output) -> Facts:
  """Writes the index of a split.

  Returns: "files", name -> "bytes" and "crc32c"; and the manifest's entry of the
  split's records.
  """
  name, new = tools.job.splits[number].name, tools.job.new
  written = []
  for task, (split, _, kind) in enumerate(tasks(tools)):
    if split == number and kind == RECORDS:
      page = tools.work.facts(f"shards/{task}")
      assert page, "all shards are written"
      shard = {n: page["facts"][n] for n in ("examples", "bytes", "sha256")}
      shard["file"] = pathlib.PurePath(page["facts"]["file"]).name
      written.append(shard)
  path = layout.index_file(new, tools.known, name)
  index.save(
    path,
    (
      tools.work.read_arrays(f"encode/{chunk}.index")["entries"][begin:end]
      for parts in tools.shards[number]
      for chunk, begin, end in parts
    ),
  )
  out.add(path)
  return {
    "files": checksums.file_checksums(new, [path.relative_to(new).as_posix()]),
    "examples": sum(shard["examples"] for shard in written),
    "shards": written,
    "records_sha256": records_sha256([shard["sha256"] for shard in written]),
  }
