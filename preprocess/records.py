"""From the kept lines of a chunk and their trees to examples.

`preprocess.parse` comes before; `preprocess.shards` puts the pieces of all
chunks together.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import example
from jaxsyn.data.store import index, manifests, tfrecord
from jaxsyn.data.store.encoding import serializer
from jaxsyn.data.store.lengths import lengths_of
from jaxsyn.data.store.rows import TOGETHER, Rows
from jaxsyn.preprocess import alternatives, constituents, links, parse, report
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.work import Facts, Output

RECORDS = "records"


def encode(tools: Tools, number: int, out: Output) -> Facts:
  """The examples of a chunk.

  Pieces: "records", their frames; "sizes", the bytes of each frame; "index", their
  entries in the index.
  """
  chunk, known = tools.chunk(number), tools.known
  rows_kept = tools.work.read_arrays(f"trees/{number}.rows")["rows"]
  texts, sentences = _sentences(tools, number)
  facts: Facts = {}
  bracket_features: list[dict[str, np.ndarray]] = [{} for _ in rows_kept]
  if labels := known.get("brackets"):
    ids = schema.relation_ids(labels["source"])
    brackets, facts = constituents.features(
      chunk, rows_kept.tolist(), tools.vocabularies["source"], ids
    )
    bracket_features = [{"source_brackets": one} for one in brackets]
  if known.get("alignments"):
    linked, link_features = links.features(
      chunk, rows_kept.tolist(), tools.vocabularies
    )
    bracket_features, facts = (
      [a | b for a, b in zip(bracket_features, linked)],
      facts | link_features,
    )
  if known.get("alternatives"):
    more = alternatives.features(tools, number, len(rows_kept))
    bracket_features = [a | b for a, b in zip(bracket_features, more)]
  how = manifests.encoding(known)
  how["vocabularies"] = tuple(tools.vocabularies[s] for s in schema.SIDES)
  features = tuple(manifests.features(known))
  extra = [
    name
    for name in features
    if name in (*schema.GIVEN, *schema.LINKED, *schema.ALTERNATIVES)
  ]
  serialize = serializer(features)
  counts = report.ReportCounts(known["sides"])
  entries, frames = [np.empty(0, index.ENTRY)], list[bytes]()
  for begin in range(0, len(rows_kept), TOGETHER):
    some = slice(begin, begin + TOGETHER)
    source, target = (link_features[some] for link_features in sentences)
    lines = chunk.lines.start + rows_kept[some] + 1
    rows = example.encode_all(source, target, lines=lines, **how)
    if extra:
      put = Rows.of(bracket_features[some], extra)
      rows = Rows({**rows.flat, **put.flat}, {**rows.start, **put.start})
    counts.add_all(rows)
    payloads = serialize(rows, {name: texts[name][some] for name in texts})
    frames += map(tfrecord.frame, payloads)
    entries.append(index.entries(payloads, lengths_of(rows)))
  sizes = np.fromiter(map(len, frames), np.int64, len(frames))
  out.write(RECORDS, b"".join(frames))
  out.write_arrays("sizes", {RECORDS: sizes})
  out.write_arrays("index", {"entries": np.concatenate(entries)})
  total = {"examples": len(frames), "bytes": int(sizes.sum())}
  return {
    **facts,
    **total,
    "lines": len(chunk.lines),
    "counts": counts.as_dict(),
  }


def _sentences(
  tools: Tools, index: int
) -> tuple[dict[str, list[str]], list[Sequence[Any]]]:
  """What `preprocess.parse` has left of a chunk.

  Returns: the texts, by their names in `schema.TEXTS`; and of both sides these,
  or their parses where it has trees.
  """
  texts: dict[str, list[str]] = {}
  sentences: list[Sequence[Any]] = []
  for side in schema.SIDES:
    piece = tools.work.read(f"trees/{index}.text.{side}")
    lines = texts[f"{side}_text"] = piece.decode("utf-8").split("\n")[:-1]
    if side in tools.known["sides"]:
      sentences.append(parse.parses_of(tools, index, side, lines))
    else:
      sentences.append(lines)
  return texts, sentences


def check(tools: Tools, facts: Sequence[Facts]) -> None:
  """Says which constituency trees were left out.

  Raises:
    InputError: all of a split were.
  """
  for split in tools.job.splits:
    split_facts = [facts[index] for index in tools.chunks(split.name)]
    if split.brackets:
      left_out = next((f["left_out"] for f in split_facts if f["left_out"]), "")
      names = [
        ", ".join(tools.job.files[file].file for file in some)
        for some in (split.brackets, split.texts["source"])
      ]
      constituents.report_labels(brackets(split_facts), left_out, names)


def brackets(facts: Sequence[Facts]) -> dict[str, int]:
  """How many rows of all chunks have which kind of constituency tree."""
  total: collections.Counter[str] = collections.Counter()
  for fact in facts:
    total.update(fact["brackets"])
  return dict(total)
