"""Optional features of examples from further parses, alignments and labels.

Further parses (config.prepare.parse.source_alternatives), constituency trees
(source_brackets), word alignments (config.prepare.alignments), and the labels
of annotations (config.prepare.parse.annotations).
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS, most_frequent
from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.align import MismatchError, spans, visible
from jaxsyn.data.sentence.alignments import Links
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess import penn
from jaxsyn.preprocess.corpus import Chunk, JobContext
from jaxsyn.preprocess.outputs import Result

USED, OTHER_WORDS, OTHER_TEXT, NO_TREE = (
  "used",
  "other words",
  "another text",
  "no tree",
)

_LABELS = 20_000  # of an annotation without a fixed set of labels, per side
Alternative = tuple[Sequence[int], Sequence[str]]  # parents, relations
Words = tuple[Any, Any, Any]  # starts, ends, and whether there is a tree
Features = dict[str, np.ndarray]


# Further parses.


def matching_alternatives(
  chunk: Chunk,
  side: str,
  lines: list[str],
  *,
  rows: Sequence[int],
  words: Sequence[Words],
) -> tuple[list[list[Alternative]], dict[str, int]]:
  """Returns the further parses that have the same words as the best parse.

  Args:
    chunk: chunk of lines in a split that has further parses.
    side: side of the parses.
    lines: lines of that side in the chunk.
    rows: indices of lines that become examples.
    words: words of the best parse of each row.

  Returns:
    The parses of each row; and the number of parses that are used, have other
    words, or have no tree.
  """
  counts = dict.fromkeys((USED, OTHER_WORDS, NO_TREE), 0)
  found: list[list[Alternative]] = [[] for _ in rows]
  index_of = {row: i for i, row in enumerate(rows)}
  for stream in chunk.split.alternatives(side):
    # All trees are read, to detect malformed trees and trees of another text.
    for row, parse in enumerate(chunk.trees(stream, side, lines)):
      if row not in index_of or not lines[row].strip():
        continue
      start, end, parsed = words[index_of[row]]
      if not (parse.parsed and parsed):
        counts[NO_TREE] += 1
      elif (tuple(start), tuple(end)) != (parse.start_W, parse.end_W):
        counts[OTHER_WORDS] += 1
      else:
        counts[USED] += 1
        found[index_of[row]].append((parse.head_W, parse.relation_W))
  return found, counts


def sides_with_alternatives(context: JobContext) -> dict[str, list[str]]:
  """Returns the manifest entry that lists the sides with further parses."""
  options = context.config.prepare.parse
  sides: list[str] = list(options.sides)
  given = [side for side in sides if getattr(options, f"{side}_alternatives")]
  return {"alternatives": given} if given else {}


def alternative_features(
  context: JobContext, number: int, rows: int
) -> list[Features]:
  """Returns the features of the alternative parses of each example of a chunk."""
  values: list[Features] = [{} for _ in range(rows)]
  split = context.chunk(number).split
  for side in context.manifest.get("alternatives", ()):
    ids = schema.relation_ids(context.manifest["relations"][side])
    found: Sequence[Sequence[Alternative]] = [()] * rows
    if split.alternatives(side):
      part = f"alternatives.{side}"
      found = context.outputs.read_json(f"trees/{number}", part)
    for value, parses in zip(values, found, strict=True):
      heads, relations = list[int](), list[int]()
      for head_W, relation_W in parses:
        heads += head_W
        relations += [ids.get(x, schema.NO_RELATION) for x in relation_W]
      value |= _feature(f"{side}_other_head", heads)
      value |= _feature(f"{side}_other_relation", relations)
  return values


def _feature(name: str, values: Sequence[int] | np.ndarray) -> Features:
  return {name: np.array(values, schema.FEATURES[name].dtype)}


def alternative_counts(results: Sequence[Result]) -> dict[str, dict[str, int]]:
  """Returns the number of further parses in all results, by side and by use."""
  found = [result.get("alternatives", {}) for result in results]
  sides = dict.fromkeys(side for counts in found for side in counts)
  return {
    side: _total([counts[side] for counts in found if side in counts])
    for side in sides
  }


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
  total: collections.Counter[str] = collections.Counter()
  for some in counts:
    total.update(some)
  return dict(total)


def check_alternatives(
  split: str, counts: Mapping[str, Mapping[str, int]]
) -> None:
  """Raises InputError if no further parse has the words of the best parse."""
  for side, count in counts.items():
    if count[OTHER_WORDS] and not count[USED]:
      raise InputError(
        f"config.prepare.parse.{side}_alternatives.{split}: no parse has the"
        f" words of the best parse of its line ({dict(count)}); give those of the"
        " same tokenisation."
      )


# Constituency trees.


def _penn_trees(
  chunk: Chunk, texts: Sequence[str]
) -> list[penn.PennTree | None]:
  """Returns the constituency tree of each line in a chunk, None without one.

  Raises:
    InputError: a line has no valid tree or several trees, or it is empty and
      that of the text is not; names FILE:LINE.
  """
  trees = []
  for (where, line), text in zip(chunk.placed("brackets"), texts, strict=True):
    if not line.strip() and visible(text):
      raise InputError(
        f"{where}: the line is empty, but that of the text is not. Line N must"
        " hold the tree of line N; write () for one that has no tree."
      )
    trees.append(penn.parse(line, where))
  return trees


def bracket_labels(
  chunk: Chunk, texts: Sequence[str], rows: Sequence[int]
) -> set[str]:
  """Returns the set of constituent labels in the given rows of a chunk."""
  trees = _penn_trees(chunk, texts)
  return {x for row in rows if (tree := trees[row]) for x in tree.labels}


def check_brackets(labels: Sequence[str], is_given: bool) -> None:
  """Raises InputError if constituency trees are given but none has a label."""
  if is_given and not labels:
    raise InputError(
      "config.prepare.parse.source_brackets: no kept line has a tree with"
      " constituents; are these the right files?"
    )


def bracket_features(
  chunk: Chunk,
  rows: Sequence[int],
  vocabulary: Vocabulary,
  ids: Mapping[str, int],
) -> tuple[list[Features], Result]:
  """Returns the feature `source_brackets` for each given row of a chunk.

  A tree that does not match its line is left out and counted.

  Returns:
    Features of each row; and "brackets", the number of rows by use of their
    tree, and "left_out", a message about the first tree that was left out.
  """
  counts, left_out = dict.fromkeys((USED, OTHER_TEXT, NO_TREE), 0), ""
  texts = [source for source, _ in chunk.pairs()]
  trees: Sequence[penn.PennTree | None] = [None] * len(texts)
  if "brackets" in chunk.split.streams:
    trees = _penn_trees(chunk, texts)
  values = []
  for row in rows:
    bracketing: Sequence[int] | np.ndarray = ()
    kind, tree = NO_TREE, trees[row]
    if tree is not None:
      try:
        bracketing = penn.bracketing(tree, texts[row], vocabulary, ids=ids)
        kind = USED
      except MismatchError as error:
        kind = OTHER_TEXT
        where = chunk.place("brackets", row)
        left_out = left_out or f"{where}: left out: {error}"
    counts[kind] += 1
    values.append(_feature("source_brackets", bracketing))
  return values, {"brackets": counts, "left_out": left_out}


def bracket_counts(results: Sequence[Result]) -> dict[str, int]:
  """Returns the number of rows by use of their constituency tree."""
  return _total(result["brackets"] for result in results)


def report_brackets(
  counts: Mapping[str, int], left_out: str, files: Sequence[str]
) -> None:
  """Prints which constituency tree was left out; raises InputError if all are.

  Args:
    counts: number of rows from `bracket_counts`.
    left_out: message about the first tree that was left out, or "".
    files: names of the tree files, and of the text files.
  """
  if left_out:
    print(left_out, flush=True)
  if counts[OTHER_TEXT] and not counts[USED]:
    raise InputError(
      f"{files[0]}: no tree is of its line of {files[1]} ({dict(counts)}); are"
      " the two of the same text?"
    )


# Word alignments.


def read_links(chunk: Chunk, pairs: Sequence[tuple[str, str]]) -> list[Links]:
  """Returns the word alignment of each line pair, as indices of raw words.

  Raises:
    InputError: a line is malformed, a word does not exist, or the aligned words
      differ from the words of the text.
  """
  source_words = _linked_words(chunk, "source", [source for source, _ in pairs])
  target_words = _linked_words(chunk, "target", [target for _, target in pairs])
  found = []
  for row, (where, line) in enumerate(chunk.placed("alignments")):
    _, links = alignments.parse_links(line, where, possible=False)
    words = source_words[row], target_words[row]
    for link in links:
      for side, index, of_side in zip(schema.SIDES, link, words):
        if index >= len(of_side):
          raise InputError(
            f"{where}: the link {link[0]}-{link[1]} has word {index} of the"
            f" {side}, whose line {chunk.lines[row] + 1} has {len(of_side)} words"
            " between blanks, from 0. Alignments are of the words of the raw"
            " files; where other words were aligned, give their files too:"
            " config.prepare.alignments."
          )
    # Several aligned words may belong to one word between blanks.
    found.append(tuple({(words[0][i], words[1][j]): None for i, j in links}))
  return found


def _linked_words(
  chunk: Chunk, side: str, lines: Sequence[str]
) -> list[Sequence[int]]:
  """Returns, for each line, the blank-separated word of each aligned word."""
  stream = f"words.{side}"
  if stream not in chunk.split.streams:
    return [range(len(alignments.spans(line)[0])) for line in lines]
  found: list[Sequence[int]] = []
  for line, (where, tokens) in zip(lines, chunk.placed(stream), strict=True):
    words = tokens.split()
    try:
      start_W, end_W = spans([(word,) for word in words], line)
    except MismatchError as error:
      raise InputError(
        f"{where}: {error}. Words that were aligned must be those of the raw"
        " text, but for blanks."
      ) from None
    found.append(alignments.units_of_words(start_W, end_W, line))
  return found


def link_features(
  chunk: Chunk, rows: Sequence[int], vocabularies: Mapping[str, Vocabulary]
) -> tuple[list[Features], Result]:
  """Returns the alignment features `schema.LINKED` for given rows of a chunk.

  Returns:
    Features of each row; and "linked", the number of rows that have links.
  """
  pairs = chunk.pairs()
  links: Sequence[Links] = [()] * len(pairs)
  if "alignments" in chunk.split.streams:
    links = read_links(chunk, pairs)
  values = []
  for row in rows:
    features = _feature("links", [*itertools.chain(*links[row])])
    for side, text in zip(schema.SIDES, pairs[row]):
      pieces = vocabularies[side].encode(text)
      features |= _feature(
        f"{side}_unit", alignments.units_of_pieces(text, pieces)
      )
    values.append(features)
  return values, {"linked": sum(bool(links[row]) for row in rows)}


# Labels of annotations.


class LabelCounts:
  """Frequencies of the labels of annotations without a fixed set of labels."""

  def __init__(self, annotations: Collection[str]):
    self._counts = {
      name: collections.Counter[str]()
      for name in annotations
      if ANNOTATIONS[name].open
    }

  def add(self, parse: Parse) -> None:
    for name, counts in self._counts.items():
      if parse.line_W:
        counts.update(map(str, ANNOTATIONS[name]().read(parse)))

  def as_dict(self) -> dict[str, dict[str, int]]:
    return {name: dict(counts) for name, counts in self._counts.items()}


def frequent_labels(context: JobContext, side: str) -> dict[str, list[str]]:
  """Returns the most frequent labels of annotations without a fixed label set.

  All different labels of the training split are in memory at once.
  """
  total: dict[str, collections.Counter[str]] = {}
  for number in context.train_chunks:
    found = context.outputs.read_json(f"trees/{number}", f"labels.{side}")
    for name, counts in found.items():
      total.setdefault(name, collections.Counter()).update(counts)
  return {n: most_frequent(counts, _LABELS) for n, counts in total.items()}
