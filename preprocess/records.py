"""From the kept lines of a chunk and their trees to examples.

`preprocess.parse` comes before; `preprocess.shards` puts the pieces of all
chunks together.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import example
from jaxsyn.data.store import manifests, tfrecord
from jaxsyn.data.store.encoding import serializer
from jaxsyn.data.store.rows import TOGETHER, Rows
from jaxsyn.preprocess import alternatives, constituents, links, parse, report
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.work import Facts, Output

RECORDS = "records"


def encode(tools: Tools, number: int, out: Output) -> Facts:
  """The examples of a chunk.

  Pieces: "records", their frames; "columns", the same as `Rows`; "sizes", the
  bytes of each frame.
  """
  chunk, known = tools.chunk(number), tools.known
  kept = tools.work.read_arrays(f"trees/{number}.rows")["rows"]
  texts, sentences = _sentences(tools, number)
  facts: Facts = {}
  given: list[dict[str, np.ndarray]] = [{} for _ in kept]
  if labels := known.get("brackets"):
    ids = schema.relation_ids(labels["source"])
    brackets, facts = constituents.features(
      chunk, kept.tolist(), tools.vocabularies["source"], ids
    )
    given = [{"source_brackets": one} for one in brackets]
  if known.get("alignments"):
    linked, own = links.features(chunk, kept.tolist(), tools.vocabularies)
    given, facts = [a | b for a, b in zip(given, linked)], facts | own
  if known.get("alternatives"):
    more = alternatives.features(tools, number, len(kept))
    given = [a | b for a, b in zip(given, more)]
  how = manifests.encoding(known)
  how["vocabularies"] = tuple(tools.vocabularies[s] for s in schema.SIDES)
  features = tuple(manifests.features(known))
  beside = [
    name
    for name in features
    if name in (*schema.GIVEN, *schema.LINKED, *schema.ALTERNATIVES)
  ]
  serialize = serializer(features)
  counts = report.Counts(known["sides"])
  parts, frames = [Rows.of([], features)], list[bytes]()
  for begin in range(0, len(kept), TOGETHER):
    some = slice(begin, begin + TOGETHER)
    source, target = (own[some] for own in sentences)
    lines = chunk.lines.start + kept[some] + 1
    rows = example.encode_all(source, target, lines=lines, **how)
    if beside:
      put = Rows.of(given[some], beside)
      rows = Rows({**rows.flat, **put.flat}, {**rows.start, **put.start})
    counts.add_all(rows)
    payloads = serialize(rows, {name: texts[name][some] for name in texts})
    frames += map(tfrecord.frame, payloads)
    parts.append(rows)
  sizes = np.fromiter(map(len, frames), np.int64, len(frames))
  out.write(RECORDS, b"".join(frames))
  out.write_arrays("sizes", {RECORDS: sizes})
  out.write_arrays("columns", arrays_of(Rows.joined(parts)))
  total = {"examples": len(frames), "bytes": int(sizes.sum())}
  return {**facts, **total, "lines": len(chunk.lines), "counts": counts.page()}


def _sentences(
  tools: Tools, number: int
) -> tuple[dict[str, list[str]], list[Sequence[Any]]]:
  """What `preprocess.parse` has left of a chunk.

  Returns: the texts, by their names in `schema.TEXTS`; and of both sides these,
  or their parses where it has trees.
  """
  texts: dict[str, list[str]] = {}
  sentences: list[Sequence[Any]] = []
  for side in schema.SIDES:
    piece = tools.work.read(f"trees/{number}.text.{side}")
    lines = texts[f"{side}_text"] = piece.decode("utf-8").split("\n")[:-1]
    if side in tools.known["sides"]:
      sentences.append(parse.parses_of(tools, number, side, lines))
    else:
      sentences.append(lines)
  return texts, sentences


def check(tools: Tools, facts: Sequence[Facts]) -> None:
  """Says which constituency trees were left out.

  Raises:
    InputError: all of a split were.
  """
  for split in tools.job.splits:
    own = [facts[number] for number in tools.chunks(split.name)]
    if split.brackets:
      left_out = next((f["left_out"] for f in own if f["left_out"]), "")
      names = [
        ", ".join(tools.job.files[file].file for file in some)
        for some in (split.brackets, split.texts["source"])
      ]
      constituents.tell(brackets(own), left_out, names)


def brackets(facts: Sequence[Facts]) -> dict[str, int]:
  """How many rows of all chunks have which kind of constituency tree."""
  total: collections.Counter[str] = collections.Counter()
  for fact in facts:
    total.update(fact["brackets"])
  return dict(total)


def arrays_of(rows: Rows) -> dict[str, np.ndarray]:
  """Rows as arrays with names."""
  arrays = {f"flat {name}": flat for name, flat in rows.flat.items()}
  return arrays | {f"start {name}": own for name, own in rows.start.items()}


def rows_of(arrays: Mapping[str, np.ndarray]) -> Rows:
  """The inverse of `arrays_of`."""
  parts: dict[str, dict[str, np.ndarray]] = {"flat": {}, "start": {}}
  for name, array in arrays.items():
    kind, feature = name.split(" ")
    parts[kind][feature] = array
  return Rows(parts["flat"], parts["start"])
