"""Makes trees for a chunk of lines, by parsing or from CoNLL-U files.

Parsers are slow (UDPipe 1 parses about 300 sentences per second and core), so
parses are stored for later runs. Each file has the parses of several lines and
is named by a hash of the lines and the parser. A changed line costs one file.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.parsers import Parser
from jaxsyn.preprocess import clean, selection, tree_warnings, vocabulary
from jaxsyn.preprocess.features import OPTIONAL
from jaxsyn.preprocess.job import (
  PrepareJob,
  pack_parses,
  unpack_parses,
)
from jaxsyn.preprocess.optional import Examples
from jaxsyn.preprocess.outputs import Counts, Result, TaskOutput, add_counts
from jaxsyn.storage import checksums, files

_CUT = 128  # a file ends after a line whose hash is 0 modulo this ...
_MAX_CUTS = 4  # ... or after _MAX_CUTS * _CUT lines
_ID = re.compile(r"^# sent_id = $", re.MULTILINE)


def make_trees(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Selects a chunk's lines for examples, and reads or parses their trees.

  Writes "rows", the indices of the selected lines in the chunk; for each side
  "text.SIDE"; for sides with trees "conllu.SIDE" and "parses.SIDE"; and
  "sizes.text.SIDE" and "sizes.conllu.SIDE", the bytes of each row.
  """
  chunk = job.chunk(number)
  pairs, code_P = chunk.pairs(), selection.codes_of(job, number)
  counts: Counts = {"dropped": {}}
  if chunk.is_train:
    code_P = vocabulary.drop_long(job, pairs, code_P)
    counts["dropped"] = clean.count_dropped(code_P, job.config.prepare)
  result: Result = {"lines": len(pairs), "relations": {}, "counts": counts}
  rows = np.flatnonzero(code_P == 0).tolist()
  out.write_array("rows", np.array(rows, np.int64))
  options = job.config.prepare.parse
  parses: dict[str, list[Parse]] = {}
  for side, lines in zip(schema.SIDES, zip(*pairs)):
    kept = [lines[row] for row in rows]
    _write_rows(out, f"text.{side}", (f"{line}\n" for line in kept))
    if side not in options.sides:
      continue
    names = [f"{chunk.split.name}-{chunk.lines[row] + 1}" for row in rows]
    with_rows = bool(options.annotations)
    if f"trees.{side}" in chunk.split.streams:
      given = chunk.parses(f"trees.{side}", list(lines))
      parses[side] = [given[row] for row in rows]
      texts = [
        conllu.to_text(parse, name, with_rows)
        for parse, name in zip(parses[side], names)
      ]
    else:
      parses[side], texts = _parsed(job, side, kept, out)
      texts = [
        _ID.sub(f"# sent_id = {name}", text) for name, text in zip(names, texts)
      ]
    _write_rows(out, f"conllu.{side}", texts)
    out.write_json(f"parses.{side}", pack_parses(parses[side], with_rows))
    relations = (parse.relation_W for parse in parses[side])
    result["relations"][side] = _union(relations)
    counts[side] = tree_warnings.count(parses[side])
  examples = Examples(chunk, rows, parses)
  return result | {f.name: f.scan(examples, out) for f in OPTIONAL}


def _write_rows(out: TaskOutput, part: str, texts: Iterable[str]) -> None:
  """Writes the text or tree of each selected line, and its size in bytes."""
  data = [text.encode() for text in texts]
  out.write(part, b"".join(data))
  sizes = np.fromiter(map(len, data), np.int64, len(data))
  out.write_array(f"sizes.{part}", sizes)


def examples_of(
  job: PrepareJob, number: int
) -> tuple[Examples, dict[str, list[str]]]:
  """Reads the examples of a chunk, with their texts by side."""
  task, parses = f"trees/{number}", dict[str, list[Parse]]()
  texts = {}
  for side in schema.SIDES:
    data = job.outputs.read(task, f"text.{side}").decode("utf-8")
    texts[side] = data.split("\n")[:-1]
    if side in job.config.prepare.parse.sides:
      stored = job.outputs.read_json(task, f"parses.{side}")
      parses[side] = unpack_parses(stored, texts[side])
  rows = job.outputs.read_array(task, "rows").tolist()
  return Examples(job.chunk(number), rows, parses), texts


def combine(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  """Combines the results of all chunks into manifest entries and counts.

  Raises:
    InputError: No training pair is left, or no constituency tree has a label.
  """
  # Imported here, since TFDS takes a second to load and input errors should be
  # reported first.
  from jaxsyn.data.store.tfds_metadata import VERSION

  data, options = job.config.data, job.config.prepare
  train = [results[n] for n in job.train_chunks]
  dropped, warnings = {}, {}
  for split in job.splits:
    of_split = [results[n]["counts"] for n in job.chunks(split.name)]
    counts = add_counts(of_split)
    dropped[split.name] = counts.pop("dropped")
    warnings[split.name] = _warnings(split.name, counts)
  clean.check_left(dropped[data.train], len(job.line_ranges[0]))
  sides = options.parse.sides
  relations = {}
  for side in sides:
    labels = [result["relations"][side] for result in train]
    labels += [result["alternatives"].get(side, ()) for result in train]
    relations[side] = _union(labels)
  manifest = {
    "name": data.name,
    "version": VERSION,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "sides": list(sides),
    "relations": relations,
  }
  for feature in OPTIONAL:
    of_feature = [result[feature.name] for result in results]
    manifest |= feature.manifest(job, of_feature)
  return {"manifest": manifest, "dropped": dropped, "warnings": warnings}


def _union(groups: Iterable[Iterable[str]]) -> list[str]:
  return sorted(set[str]().union(*groups))


def _warnings(split: str, stats: Counts) -> dict[str, list[str]]:
  """Prints and returns warnings about a split's trees, by side."""
  warnings: dict[str, list[str]] = {}
  for side, of_side in stats.items():
    if messages := tree_warnings.find_warnings(of_side):
      warnings[side] = messages
      for message in messages:
        print(f"warning: {split}, {side} trees: {message}", flush=True)
  return warnings


def _parsed(
  job: PrepareJob, side: str, lines: Sequence[str], out: TaskOutput
) -> tuple[list[Parse], list[str]]:
  """Parses lines of one side; returns their parses and CoNLL-U texts.

  A line that the parser splits into sentences has several trees. They have no
  names: the comments `# sent_id` are empty.
  """
  # At most about 16 files per chunk, or large corpora would fill the disk with
  # small files.
  largest = max(split.chunk_lines for split in job.splits)
  parser, folder = job.parsers[side], job.work / "parse"
  texts: list[str] = []
  for run in runs_of_lines(lines, max(_CUT, largest // 16)):
    texts += parse_lines(lines[run.start : run.stop], parser, folder, out)
  blocks = conllu.blocks_of_text("".join(texts), f"trees of the {side}")
  return [*conllu.match(blocks, lines, f"kept lines of the {side}")], texts


def runs_of_lines(lines: Sequence[str], cut: int = _CUT) -> list[range]:
  """Cuts lines into consecutive ranges of about `cut` lines each.

  The borders depend only on nearby lines, so most runs do not change if a line
  is added or removed.
  """
  runs, start, longest = [], 0, cut * _MAX_CUTS
  for i, line in enumerate(lines):
    is_end = zlib.crc32(line.encode("utf-8")) % cut == 0
    if is_end or i + 1 - start == longest or i + 1 == len(lines):
      runs.append(range(start, i + 1))
      start = i + 1
  return runs


def parse_lines(
  lines: Sequence[str], parser: Parser, folder: pathlib.Path, out: TaskOutput
) -> list[str]:
  """Parses lines, or reuses the parses that an earlier run stored.

  Args:
    lines: Sentences.
    parser: Parser of the lines.
    folder: Folder of stored parses.
    out: Output that gets a message if a file is corrupt.

  Returns:
    CoNLL-U text of each line, with empty comments `# sent_id`.
  """
  key = checksums.sha256_texts([parser.key, *lines])[:32]
  path = folder / f"{key}.json.gz"
  if files.is_file(path):
    try:
      stored = json.loads(gzip.decompress(files.read_bytes(path)))
      if stored["key"] == key:  # it is false in a file that was renamed
        return stored["texts"]
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError):
      pass
    out.add_message(f"corrupt: {path}; parsing its lines again")
  texts = parser.conllu_all(lines, [""] * len(lines))
  content = json.dumps({"key": key, "texts": texts}, ensure_ascii=False)
  # Level 6 compresses text as well as 9, three times as fast.
  files.write_bytes(path, gzip.compress(content.encode(), 6, mtime=0))
  return texts
