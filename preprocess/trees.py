"""Creation of trees for a chunk of lines, by a parser or from CoNLL-U files.

Parsers are slow (UDPipe 1 parses about 300 sentences per second and core), so
parses are stored for later runs. Each file has the parses of several lines and
is named by a hash of these lines and the parser. A changed line costs one file.
"""

from __future__ import annotations

import gzip
import pathlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers import Parser
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean, extras, tree_warnings, vocabulary
from jaxsyn.preprocess.corpus import Chunk, JobContext
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.storage import checksums, files

_CUT = 128  # a file ends after a line whose hash is 0 modulo this ...
_MAX_CUTS = 4  # ... or after _MAX_CUTS * _CUT lines
_ID = re.compile(r"^# sent_id = (\d+)$", re.MULTILINE)

Tree = tuple[conllu.Parse, str]  # parse and its CoNLL-U


def make_trees(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Selects the lines of a chunk that become examples, and makes their trees.

  Writes "rows", the indices of these lines in the chunk; for each side
  "text.SIDE"; for sides with trees "conllu.SIDE", "parses.SIDE", and
  "alternatives.SIDE" if further parses were given; and "sizes.text.SIDE" and
  "sizes.conllu.SIDE", the bytes of each row.
  """
  chunk = context.chunk(number)
  pairs, rows = chunk.pairs(), clean.kept_rows(context, number)
  result: Result = {"lines": len(pairs)}
  if context.is_train(chunk.split):
    rows, result["dropped"] = vocabulary.rows_that_fit(context, pairs, rows)
  result |= {"kept": len(rows), "relations": {}, "trees": {}}
  written: dict[str, list[bytes]] = {}
  for side, lines_of_side in zip(schema.SIDES, zip(*pairs)):
    lines = list(lines_of_side)
    written[f"text.{side}"] = [f"{lines[row]}\n".encode() for row in rows]
    if side in context.config.prepare.parse.sides:
      blocks, found = _make_side(chunk, side, lines, rows, out)
      written[f"conllu.{side}"] = blocks
      for name, value in found.items():
        result.setdefault(name, {})[side] = value
  for name, data in written.items():
    out.write(name, b"".join(data))
    sizes = np.fromiter(map(len, data), np.int64, len(data))
    out.write_array(f"sizes.{name}", sizes)
  out.write_array("rows", np.array(rows, np.int64))
  if "brackets" in chunk.split.streams:
    sources = [source for source, _ in pairs]
    result["brackets"] = sorted(extras.bracket_labels(chunk, sources, rows))
  return result


def parses_of(
  context: JobContext, number: int, side: str, lines: Sequence[str]
) -> list[conllu.Parse]:
  """Returns the stored parses of the lines of a chunk that become examples."""
  stored = context.outputs.read_json(f"trees/{number}", f"parses.{side}")
  parses = []
  for text, (*words, parsed, line_W) in zip(lines, stored, strict=True):
    start_W, end_W, head_W, relation_W = map(tuple, words)
    parses.append(
      conllu.Parse(
        text, start_W, end_W, head_W, relation_W, parsed, tuple(line_W)
      )
    )
  return parses


def _make_side(
  chunk: Chunk,
  side: str,
  lines: list[str],
  rows: Sequence[int],
  out: TaskOutput,
) -> tuple[list[bytes], Result]:
  """Makes the trees of a side for the given rows of a chunk.

  Returns:
    CoNLL-U of each row; and the side's relations, statistics of its trees, and
    counts of further parses.
  """
  data, options = chunk.context.config.data, chunk.context.config.prepare.parse
  trees = _trees_of(chunk, side, lines, rows, out)
  parses = [parse for parse, _ in trees]
  relations = [parse.relation_W for parse in parses]
  stats, labels = tree_warnings.Stats(), extras.LabelCounts(options.annotations)
  stored = []  # faster to read than CoNLL-U
  for parse in parses:
    words = (parse.start_W, parse.end_W, parse.head_W, parse.relation_W)
    line_W = parse.line_W if options.annotations else ()
    stored.append((*words, parse.parsed, line_W))
    stats.update(tree_warnings.count(parse, getattr(data, f"{side}_language")))
    labels.add(parse)
  out.write_json(f"parses.{side}", stored)
  result: Result = {"trees": stats}
  if chunk.context.is_train(chunk.split):
    out.write_json(f"labels.{side}", labels.as_dict())
  if chunk.split.alternatives(side):
    best = [(parse.start_W, parse.end_W, parse.parsed) for parse in parses]
    further, result["alternatives"] = extras.matching_alternatives(
      chunk, side, lines, rows=rows, words=best
    )
    out.write_json(f"alternatives.{side}", further)
    for alternatives in further:
      relations += [tuple(relation_W) for _, relation_W in alternatives]
  result["relations"] = _union(relations)
  return [block.encode() for _, block in trees], result


def combine(context: JobContext, results: Sequence[Result]) -> Result:
  """Returns manifest entries for examples and trees, drop counts and warnings.

  Raises:
    InputError: no training pair is left, or no constituency tree has a label.
  """
  # Imported here, since TFDS takes a second to load and input errors should be
  # reported first.
  from jaxsyn.data.store.tfds_metadata import VERSION

  data, options = context.config.data, context.config.prepare
  train = [results[n] for n in context.train_chunks]
  gone = {
    reason: sum(result["dropped"][reason] for result in train)
    for reason in ("empty", "max_subwords")
  }
  if not any(result["kept"] for result in train):
    none = gone["empty"]
    raise InputError(
      f"config.prepare.max_subwords={options.max_subwords} drops all training"
      f" pairs{f', but {none} that have no subwords' if none else ''}."
    )
  dropped = {name: dict(counts) for name, counts in context.dropped.items()}
  if gone["empty"]:
    dropped[data.train]["empty"] += gone["empty"]
  dropped[data.train]["max_subwords"] = gone["max_subwords"]
  sides, annotations = options.parse.sides, options.parse.annotations
  relations = {
    side: _union(result["relations"][side] for result in train)
    for side in sides
  }
  brackets = _union(result.get("brackets", ()) for result in results)
  has_brackets = any("brackets" in s.streams for s in context.job.splits)
  extras.check_brackets(brackets, has_brackets)
  for split in context.job.splits:
    of_split = [results[n] for n in context.chunks(split.name)]
    extras.check_alternatives(split.name, extras.alternative_counts(of_split))
  labels = {side: extras.frequent_labels(context, side) for side in sides}
  manifest = {
    "name": data.name,
    "version": VERSION,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "sides": list(sides),
    "relations": relations,
    **({"brackets": {"source": brackets}} if brackets else {}),
    **({"alignments": True} if options.alignments else {}),
    **extras.sides_with_alternatives(context),
    **({"annotations": list(annotations)} if annotations and sides else {}),
    **({"labels": labels} if any(labels.values()) else {}),
  }
  warnings = {
    split.name: _report_warnings(context, split.name, results)
    for split in context.job.splits
  }
  return {"manifest": manifest, "dropped": dropped, "warnings": warnings}


def _union(groups: Iterable[Iterable[str]]) -> list[str]:
  return sorted(set[str]().union(*groups))


def _report_warnings(
  context: JobContext, split: str, results: Sequence[Result]
) -> dict[str, list[str]]:
  """Prints and returns warnings about the trees of a split, by side."""
  found: dict[str, list[str]] = {}
  for side in context.config.prepare.parse.sides:
    stats = tree_warnings.Stats()
    for number in context.chunks(split):
      stats.update(results[number]["trees"][side])
    if messages := tree_warnings.find_warnings(stats):
      found[side] = messages
      for message in messages:
        print(f"warning: {split}, {side} trees: {message}", flush=True)
  return found


def _trees_of(
  chunk: Chunk,
  side: str,
  lines: list[str],
  rows: Sequence[int],
  out: TaskOutput,
) -> list[Tree]:
  """Returns the trees of the given rows of a chunk, as given or parsed."""
  names = {row: f"{chunk.split.name}-{chunk.lines[row] + 1}" for row in rows}
  stream = f"trees.{side}"
  if stream not in chunk.split.streams:
    kept = [lines[row] for row in rows]
    return list(_parsed(chunk.context, side, kept, [*names.values()], out))
  with_rows = bool(chunk.context.config.prepare.parse.annotations)
  # All trees are read, to detect malformed trees and trees of another text.
  return [
    (parse, conllu.to_text(parse, names[row], with_rows))
    for row, parse in enumerate(chunk.trees(stream, side, lines))
    if row in names
  ]


def _parsed(
  context: JobContext,
  side: str,
  lines: Sequence[str],
  names: Sequence[str],
  out: TaskOutput,
) -> Iterator[Tree]:
  """Yields the tree of each line from the parser of its side, or as stored."""
  parser, folder = context.parsers[side], context.job.retained / "parse"
  # At most about 16 files per chunk, or large corpora would fill the disk with
  # small files.
  largest = max(split.chunk_lines for split in context.job.splits)
  for run in runs_of_lines(lines, max(_CUT, largest // 16)):
    part = lines[run.start : run.stop]
    text = parse_lines(part, parser, folder, out)
    blocks = iter(conllu.blocks_of_text(text, f"trees of the {side}"))
    written = [""] * len(part)
    for block in text.split("\n\n")[:-1]:
      match = _ID.search(block)
      assert match, "each block has the number of its line"
      row = int(match[1])
      name = f"# sent_id = {names[run.start + row]}"
      written[row] += f"{_ID.sub(name, block, count=1)}\n\n"
    where = f"kept lines of the {side}"
    yield from zip(conllu.match(blocks, part, where), written)


def runs_of_lines(lines: Sequence[str], cut: int = _CUT) -> list[range]:
  """Cuts lines into runs of about `cut` lines.

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
) -> str:
  """Returns the parses of lines as CoNLL-U, stored by an earlier run or new.

  Sentence ids are indices of lines.

  Args:
    lines: sentences.
    parser: parser of the lines.
    folder: folder of stored parses, gzip files that begin with their own name.
    out: output that gets a message if a file is corrupt.
  """
  key = checksums.sha256_texts([parser.key, *lines])[:32]
  path = folder / f"{key}.conllu.gz"
  # gzip has a checksum, but an empty file is valid, and so is a file that was
  # renamed or appended to itself.
  first_line = f"# chunk = {path.name}\n"
  if files.is_file(path):
    try:
      text = gzip.decompress(files.read_bytes(path)).decode("utf-8")
      before, trees = text.split(first_line)
      if not before:
        return trees
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError):
      pass
    out.messages.append(f"corrupt: {path} is parsed again")
  ids = [str(i) for i in range(len(lines))]
  trees = "".join(parser.conllu_all(lines, ids))
  with (
    files.publish(path) as file,
    # Level 6 compresses text as well as 9, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
  ):
    compressed.write(f"{first_line}{trees}".encode())
  return trees
