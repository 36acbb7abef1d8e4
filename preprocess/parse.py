"""Trees for the lines of a chunk: by a parser, or from CoNLL-U files.

`preprocess.subwords` comes before, `preprocess.records` makes examples of what
is left here. Parsers are slow (UDPipe 1 has some 300 sentences a second and
core), so what one has parsed is kept from one call to the next: some lines together in a file under
the hash of these lines and of the parser. An interrupted run goes on where it
was, and a changed line costs one such file.
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
from jaxsyn.data.store import manifests
from jaxsyn.preprocess import (
  alternatives,
  clean,
  constituents,
  labels,
  subwords,
  tree_warnings,
)
from jaxsyn.preprocess.corpus import Chunk, Tools
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import files

_CUT = 128  # a file ends where the hash of its line is 0 modulo this ...
_LONGEST = 512  # ... or after so many lines; of large chunks more
_ID = re.compile(r"^# sent_id = (\d+)$", re.MULTILINE)

Tree = tuple[conllu.Parse, str]  # and its CoNLL-U


def trees(tools: Tools, index: int, out: Output) -> Facts:
  """Which lines of a chunk become examples, and their trees.

  Pieces: "rows", their numbers in the chunk; of each side their text ("text.SIDE",
  a line a row), and, where it has trees, "conllu.SIDE" and "parses.SIDE", and,
  where more of them were given, "alternatives.SIDE"; "sizes", the bytes that each
  row has in texts and CoNLL-U.
  """
  chunk = tools.chunk(index)
  pairs, rows = chunk.pairs(), clean.kept_rows(tools, index)
  facts: Facts = {"lines": len(pairs)}
  if tools.is_train(chunk.split):
    rows, facts["dropped"] = subwords.fitting(tools, pairs, rows)
  facts |= {"kept": len(rows), "relations": {}, "trees": {}}
  sizes = {}
  for side, all_lines in zip(schema.SIDES, zip(*pairs)):
    lines = [all_lines[row] for row in rows]
    texts = [f"{line}\n".encode() for line in lines]
    out.write(f"text.{side}", b"".join(texts))
    sizes[f"text.{side}"] = np.fromiter(map(len, texts), np.int64)
    if side not in tools.config.prepare.parse.sides:
      continue
    names = [f"{chunk.split.name}-{chunk.lines[row] + 1}" for row in rows]
    if side in chunk.split.trees:
      parses = _read_trees(chunk, side, all_lines, rows=rows, names=names)
    else:
      parses = _parsed(tools, side, lines, names=names, out=out)
    relations: set[str] = set()
    language = getattr(tools.config.data, f"{side}_language")
    stats = tree_warnings.TreeStats()
    pages, blocks = [], []
    labelled = labels.LabelCounts(tools.config.prepare.parse.annotations)
    for parse, text in parses:
      relations.update(parse.relation_W)
      stats.add(parse, language)
      labelled.add(parse)
      pages.append(
        _parse_record(parse, bool(tools.config.prepare.parse.annotations))
      )
      blocks.append(text.encode())
    out.write(f"conllu.{side}", b"".join(blocks))
    out.write_json(f"parses.{side}", pages)
    if tools.is_train(chunk.split):
      out.write_json(f"labels.{side}", labelled.as_dict())
    sizes[f"conllu.{side}"] = np.fromiter(map(len, blocks), np.int64)
    if side in chunk.split.alternatives:
      words = [(record[0], record[1], record[4]) for record in pages]
      alternatives_kept, alternative_facts = alternatives.deduplicated(
        chunk, side, all_lines, rows=rows, words=words
      )
      out.write_json(f"alternatives.{side}", alternatives_kept)
      facts.setdefault("alternatives", {})[side] = alternative_facts
      relations.update(
        x for some in alternatives_kept for _, names in some for x in names
      )
    facts["relations"][side] = sorted(relations)
    facts["trees"][side] = stats.as_dict()
  if chunk.split.brackets:
    sources = [source for source, _ in pairs]
    facts["brackets"] = sorted(constituents.labels(chunk, sources, rows))
  out.write_arrays("rows", {"rows": np.array(rows, np.int64)})
  out.write_arrays("sizes", sizes)
  return facts


def after(tools: Tools, facts: Sequence[Facts]) -> None:
  """Writes down what examples are: sides, relations and so on.

  Raises:
    InputError: no training pair is left, or no given tree has a label.
  """
  # Here, not above: TFDS takes a second to load, and bad input is told first.
  from jaxsyn.data.store.tfds_builder import VERSION

  data, options = tools.config.data, tools.config.prepare
  dropped = tools.work.read_json("dropped.page")
  train = [facts[index] for index in tools.chunks(data.train)]
  gone = {
    reason: sum(fact["dropped"][reason] for fact in train)
    for reason in ("empty", "max_subwords")
  }
  pair_count = sum(fact["kept"] for fact in train)
  subwords.check_left(options.max_subwords, gone, pair_count)
  train_dropped = dropped[data.train]
  if gone["empty"]:
    train_dropped["empty"] += gone["empty"]
  train_dropped["max_subwords"] = gone["max_subwords"]
  tools.work.write_json("all_dropped.page", dropped)
  sides, annotations = options.parse.sides, options.parse.annotations
  relations = {
    side: sorted({label for fact in train for label in fact["relations"][side]})
    for side in sides
  }
  has_brackets = any(split.brackets for split in tools.job.splits)
  brackets = sorted({x for fact in facts for x in fact.get("brackets", ())})
  constituents.check(brackets, has_brackets)
  for split in tools.job.splits:
    own_facts = [facts[index] for index in tools.chunks(split.name)]
    alternatives.check(split.name, alternatives.counted(own_facts))
  of_words = {side: labels.most_frequent(tools, side) for side in sides}
  known = {
    "name": data.name,
    "version": VERSION,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "sides": list(sides),
    "relations": relations,
    **({"brackets": {"source": brackets}} if brackets else {}),
    **({"alignments": True} if options.alignments else {}),
    **alternatives.sides_with_alternatives(tools),
    **({"annotations": list(annotations)} if annotations and sides else {}),
    **({"labels": of_words} if any(of_words.values()) else {}),
  }
  tools.work.write_json("known.page", known)
  recorded = {
    split.name: _tree_warnings(tools, split.name, facts)
    for split in tools.job.splits
  }
  tools.work.write_json("doubts.page", recorded)


def _tree_warnings(
  tools: Tools, split: str, facts: Sequence[Facts]
) -> dict[str, list[str]]:
  """What looks wrong about the trees of a split; most have nothing."""
  warnings: dict[str, list[str]] = {}
  for side in tools.config.prepare.parse.sides:
    pages = [facts[index]["trees"][side] for index in tools.chunks(split)]
    if messages := tree_warnings.find_warnings(
      tree_warnings.TreeStats.sum(pages)
    ):
      warnings[side] = messages
      for doubt in messages:
        print(f"warning: {split}, {side} trees: {doubt}", flush=True)
  return warnings


def _parse_record(parse: conllu.Parse, is_complete: bool) -> list[object]:
  """A parse for `parses_of`; its text stands elsewhere."""
  words = (parse.start_W, parse.end_W, parse.head_W, parse.relation_W)
  return [*words, parse.parsed, parse.line_W if is_complete else ()]


def parses_of(
  tools: Tools, index: int, side: str, lines: Sequence[str]
) -> list[conllu.Parse]:
  """What `trees` has found of the lines of a chunk that become examples."""
  pages = tools.work.read_json(f"trees/{index}.parses.{side}")
  return [
    conllu.Parse(
      *(text, tuple(start), tuple(end), tuple(head), tuple(relation)),
      parsed=parsed,
      line_W=tuple(rows),
    )
    for text, (start, end, head, relation, parsed, rows) in zip(
      lines, pages, strict=True
    )
  ]


def _read_trees(
  chunk: Chunk,
  side: str,
  lines: Sequence[str],
  *,
  rows: Sequence[int],
  names: Iterable[str],
) -> Iterator[Tree]:
  """The trees of rows of a chunk, from CoNLL-U of all lines.

  It is by another parser, of the raw file before cleaning.
  """
  is_complete = bool(chunk.tools.config.prepare.parse.annotations)
  named = dict(zip(rows, names))
  # All are read, so that what is malformed or of another text is told.
  files = chunk.split.trees[side]
  for row, parse in enumerate(chunk.trees(side, lines, files)):
    if row in named:
      yield parse, conllu.to_text(parse, named[row], is_complete)


def chunks(lines: Sequence[str], cut: int = _CUT) -> list[range]:
  """Cuts lines into parts whose borders depend on the lines around only.

  So most parts stay the same when a line comes or goes.

  Args:
    lines: of a chunk.
    cut: lines of a part, about.
  """
  ranges, start, longest = [], 0, cut * (_LONGEST // _CUT)
  for i, line in enumerate(lines):
    hit = zlib.crc32(line.encode("utf-8")) % cut == 0
    if hit or i + 1 - start == longest or i + 1 == len(lines):
      ranges.append(range(start, i + 1))
      start = i + 1
  return ranges


def _parsed(
  tools: Tools,
  side: str,
  lines: Sequence[str],
  *,
  names: Sequence[str],
  out: Output,
) -> Iterator[Tree]:
  """The trees that a parser gives to lines."""
  parser, folder = tools.parsers[side], tools.job.retained / "parse"
  # Of the largest chunks 16 files, else the disk would be full of small ones.
  cut = max(_CUT, tools.largest // 16)
  for part in chunks(lines, cut):
    chunk_lines = lines[part.start : part.stop]
    text = parse(chunk_lines, parser, folder, out)
    blocks = iter(conllu.blocks_of_text(text, f"trees of the {side}"))
    written = [""] * len(chunk_lines)
    for block in text.split("\n\n")[:-1]:
      named = _ID.search(block)
      assert named, "each block was written with its number"
      row = int(named[1])
      name = f"# sent_id = {names[part.start + row]}"
      written[row] += f"{_ID.sub(name, block, count=1)}\n\n"
    where = f"kept lines of the {side}"
    yield from zip(conllu.match(blocks, chunk_lines, where), written)


def parse(
  lines: Sequence[str], parser: Parser, folder: pathlib.Path, out: Output
) -> str:
  """CoNLL-U of lines: of an earlier call, or made now.

  Args:
    lines: one sentence a line; stays one whatever it holds.
    parser: that makes it.
    folder: where it is kept: a file (gzip), under a line with its own name.
    out: is told of a file that is damaged.

  Returns:
    the trees; sentence ids are line numbers, from 0.
  """
  key = manifests.sha256_texts([parser.key, *lines])[:32]
  path = folder / f"{key}.conllu.gz"
  try:
    stored = _read(path)
  except ValueError:
    out.said.append(f"damaged: {path} is parsed again")
    stored = None
  if stored is None:
    stored = "".join(parser.conllu_all(lines, [*map(str, range(len(lines)))]))
    write_text(path, [f"{_first(path)}\n", stored])
  return stored


def write_text(path: pathlib.Path, texts: Iterable[str]) -> None:
  """Writes texts one after the other, gzip, the same bytes always."""
  with (
    files.publish(path) as file,
    # Level 6 packs as well as 9 for text, three times as fast.
    gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
  ):
    for text in texts:
      packed.write(text.encode("utf-8"))


def _read(path: pathlib.Path) -> str | None:
  """The trees of a file; None where it is not made yet.

  Raises:
    ValueError: it is damaged.
  """
  try:
    text = gzip.decompress(files.read_bytes(path)).decode("utf-8")
  except FileNotFoundError:
    return None
  except (gzip.BadGzipFile, EOFError, zlib.error) as error:
    raise ValueError(str(error)) from None
  # gzip has a checksum, but an empty file is one too, and a whole one may be
  # another: each begins with its own name.
  first, _, trees = text.partition("\n")
  if first != _first(path):
    raise ValueError("it is another file")
  return trees


def _first(path: pathlib.Path) -> str:
  return f"# chunk = {path.name}"
