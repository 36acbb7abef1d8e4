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
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers import Parser
from jaxsyn.data.store import manifests
from jaxsyn.preprocess import clean, extras, tree_warnings, vocabulary
from jaxsyn.preprocess.corpus import Chunk, JobContext
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.storage import files

_CUT = 128  # a file ends after a line whose hash is 0 modulo this ...
_MAX_CUTS = 4  # ... or after _MAX_CUTS * _CUT lines
_ID = re.compile(r"^# sent_id = (\d+)$", re.MULTILINE)

Tree = tuple[conllu.Parse, str]  # parse and its CoNLL-U


def make_trees(context: JobContext, number: int, out: TaskOutput) -> Result:
  """Selects the lines of a chunk that become examples, and makes their trees.

  Writes "rows", the indices of these lines in the chunk; for each side
  "text.SIDE"; for sides with trees "conllu.SIDE" and "parses.SIDE", and
  "alternatives.SIDE" if further parses were given; and "sizes", the bytes of
  each row in texts and CoNLL-U.
  """
  chunk = context.chunk(number)
  config = context.config.prepare
  pairs, rows = chunk.pairs(), clean.kept_rows(context, number)
  result: Result = {"lines": len(pairs)}
  is_train = context.is_train(chunk.split)
  if is_train:
    rows, result["dropped"] = vocabulary.rows_that_fit(context, pairs, rows)
  result |= {"kept": len(rows), "relations": {}, "trees": {}}
  sizes = {}
  for side, lines_of_chunk in zip(schema.SIDES, zip(*pairs)):
    all_lines = list(lines_of_chunk)
    lines = [all_lines[row] for row in rows]
    texts = [f"{line}\n".encode() for line in lines]
    out.write(f"text.{side}", b"".join(texts))
    sizes[f"text.{side}"] = _lengths(texts)
    if side not in config.parse.sides:
      continue
    names = [f"{chunk.split.name}-{chunk.lines[row] + 1}" for row in rows]
    if f"trees.{side}" in chunk.split.streams:
      trees = _given_trees(chunk, side, all_lines, rows=rows, names=names)
    else:
      trees = _parsed_trees(context, side, lines, names=names, out=out)
    relations: set[str] = set()
    stats = tree_warnings.TreeStats()
    counts = extras.LabelCounts(config.parse.annotations)
    language = getattr(context.config.data, f"{side}_language")
    records, blocks = [], []
    for parse, block in trees:
      relations.update(parse.relation_W)
      stats.add(parse, language)
      counts.add(parse)
      records.append(_parse_record(parse, bool(config.parse.annotations)))
      blocks.append(block.encode())
    out.write(f"conllu.{side}", b"".join(blocks))
    sizes[f"conllu.{side}"] = _lengths(blocks)
    out.write_json(f"parses.{side}", records)
    if is_train:
      out.write_json(f"labels.{side}", counts.as_dict())
    if chunk.split.alternatives(side):
      words = [(record[0], record[1], record[4]) for record in records]
      kept, kinds = extras.matching_alternatives(
        chunk, side, all_lines, rows=rows, words=words
      )
      out.write_json(f"alternatives.{side}", kept)
      result.setdefault("alternatives", {})[side] = kinds
      relations.update(x for some in kept for _, names in some for x in names)
    result["relations"][side] = sorted(relations)
    result["trees"][side] = stats.as_dict()
  if "brackets" in chunk.split.streams:
    sources = [source for source, _ in pairs]
    labels = extras.bracket_labels(chunk, sources, rows)
    result["brackets"] = sorted(labels)
  out.write_arrays("rows", {"rows": np.array(rows, np.int64)})
  out.write_arrays("sizes", sizes)
  return result


def _lengths(rows: Sequence[bytes]) -> np.ndarray:
  return np.fromiter(map(len, rows), np.int64, len(rows))


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
  pairs = sum(result["kept"] for result in train)
  vocabulary.check_left(options.max_subwords, gone, pairs)
  dropped = {name: dict(counts) for name, counts in context.dropped.items()}
  if gone["empty"]:
    dropped[data.train]["empty"] += gone["empty"]
  dropped[data.train]["max_subwords"] = gone["max_subwords"]
  sides, annotations = options.parse.sides, options.parse.annotations
  relations = {
    side: sorted({x for result in train for x in result["relations"][side]})
    for side in sides
  }
  brackets = sorted({x for r in results for x in r.get("brackets", ())})
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


def _report_warnings(
  context: JobContext, split: str, results: Sequence[Result]
) -> dict[str, list[str]]:
  """Prints and returns warnings about the trees of a split, by side."""
  found: dict[str, list[str]] = {}
  for side in context.config.prepare.parse.sides:
    parts = [results[n]["trees"][side] for n in context.chunks(split)]
    stats = tree_warnings.TreeStats.sum(parts)
    if messages := tree_warnings.find_warnings(stats):
      found[side] = messages
      for message in messages:
        print(f"warning: {split}, {side} trees: {message}", flush=True)
  return found


def _parse_record(parse: conllu.Parse, with_rows: bool) -> list[object]:
  """Returns a parse without its text as a JSON list for `parses_of`."""
  words = (parse.start_W, parse.end_W, parse.head_W, parse.relation_W)
  return [*words, parse.parsed, parse.line_W if with_rows else ()]


def parses_of(
  context: JobContext, number: int, side: str, lines: Sequence[str]
) -> list[conllu.Parse]:
  """Returns the stored parses of the lines of a chunk that become examples."""
  records = context.outputs.read_json(f"trees/{number}", f"parses.{side}")
  return [
    conllu.Parse(
      text,
      start_W=tuple(start),
      end_W=tuple(end),
      head_W=tuple(head),
      relation_W=tuple(relation),
      parsed=parsed,
      line_W=tuple(rows),
    )
    for text, (start, end, head, relation, parsed, rows) in zip(
      lines, records, strict=True
    )
  ]


def _given_trees(
  chunk: Chunk,
  side: str,
  lines: list[str],
  *,
  rows: Sequence[int],
  names: Iterable[str],
) -> Iterator[Tree]:
  """Yields the tree of each given row of a chunk, from CoNLL-U of all lines."""
  name_of: Mapping[int, str] = dict(zip(rows, names))
  with_rows = bool(chunk.context.config.prepare.parse.annotations)
  # All trees are read, to detect malformed trees and trees of another text.
  for row, parse in enumerate(chunk.trees(f"trees.{side}", side, lines)):
    if row in name_of:
      yield parse, conllu.to_text(parse, name_of[row], with_rows)


def runs_of_lines(lines: Sequence[str], cut: int = _CUT) -> list[range]:
  """Cuts lines into runs of lines whose borders depend only on nearby lines.

  So most runs do not change if a line is added or removed.

  Args:
    lines: lines of a chunk.
    cut: approximate number of lines in a run.
  """
  runs, start, longest = [], 0, cut * _MAX_CUTS
  for i, line in enumerate(lines):
    is_end = zlib.crc32(line.encode("utf-8")) % cut == 0
    if is_end or i + 1 - start == longest or i + 1 == len(lines):
      runs.append(range(start, i + 1))
      start = i + 1
  return runs


def _parsed_trees(
  context: JobContext,
  side: str,
  lines: Sequence[str],
  *,
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


def parse_lines(
  lines: Sequence[str], parser: Parser, folder: pathlib.Path, out: TaskOutput
) -> str:
  """Returns the parses of lines as CoNLL-U, stored by an earlier run or new.

  Args:
    lines: sentences, one per line.
    parser: parser of the lines.
    folder: folder of stored parses, gzip files that begin with their own name.
    out: output that gets a message if a file is corrupt.

  Returns:
    Trees in CoNLL-U; sentence ids are indices of lines.
  """
  key = manifests.sha256_texts([parser.key, *lines])[:32]
  path = folder / f"{key}.conllu.gz"
  try:
    stored = _read_parse(path)
  except ValueError:
    out.messages.append(f"corrupt: {path} is parsed again")
    stored = None
  if stored is None:
    ids = [str(i) for i in range(len(lines))]
    stored = "".join(parser.conllu_all(lines, ids))
    write_gzip(path, [f"{_first_line(path)}\n", stored])
  return stored


def write_gzip(path: pathlib.Path, texts: Iterable[str]) -> None:
  """Writes concatenated texts to a gzip file; equal texts give equal bytes."""
  with (
    files.publish(path) as file,
    # Level 6 compresses text as well as 9, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
  ):
    for text in texts:
      compressed.write(text.encode("utf-8"))


def _read_parse(path: pathlib.Path) -> str | None:
  """Returns the CoNLL-U in a file of stored parses, None if it does not exist.

  Raises:
    ValueError: the file is corrupt.
  """
  try:
    data = files.read_bytes(path)
  except FileNotFoundError:
    return None
  # One member, not several as `gzip.decompress` accepts: a file that was
  # appended to itself is corrupt.
  decompressor = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
  try:
    text = decompressor.decompress(data).decode("utf-8")
  except zlib.error as error:
    raise ValueError(str(error)) from None
  if not decompressor.eof or decompressor.unused_data:
    raise ValueError("the gzip data is incomplete, or has data after its end")
  # gzip has a checksum, but an empty file is valid, and a file may have been
  # renamed. So each file begins with its own name.
  first, _, trees = text.partition("\n")
  if first != _first_line(path):
    raise ValueError("it is another file")
  return trees


def _first_line(path: pathlib.Path) -> str:
  return f"# chunk = {path.name}"
