"""Optional features of examples, and the table OPTIONAL that lists them.

To add one, write a subclass of `OptionalFeature` and list it in OPTIONAL.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS, most_frequent
from jaxsyn.data.options import Prepare
from jaxsyn.data.sentence import alignments, tree
from jaxsyn.data.sentence.align import MismatchError, spans
from jaxsyn.data.sentence.alignments import Links
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.errors import InputError
from jaxsyn.preprocess.job import Chunk, PrepareJob
from jaxsyn.preprocess.optional import (
  NO_LINKS,
  NO_TREE,
  OTHER_WORDS,
  USED,
  Examples,
  Features,
  OptionalFeature,
  Pair,
  feature,
  range_error,
)
from jaxsyn.preprocess.outputs import Counts, Result, TaskOutput
from jaxsyn.preprocess.penn import Brackets

_LABELS = 20_000  # of an annotation without a fixed set of labels, per side


class Alternatives(OptionalFeature):
  """Optional feature: alternative parses of each line, besides the best.

  They must have the same words as the best parse.
  """

  name = "alternatives"

  options: Mapping[str, str] = {
    f"parse.{side}_alternatives": f"alternatives.{side}"
    for side in schema.SIDES
  }

  def scan(self, examples: Examples, out: TaskOutput) -> Result:
    """Collects relation labels of alternative parses with matching words."""
    relations = {}
    for side in self._sides(examples.chunk.job.config.prepare):
      parses, _ = _matching_parses(examples, side)
      labels = set[str]()
      for parse in itertools.chain.from_iterable(parses):
        labels.update(parse.relation_W)
      relations[side] = sorted(labels)
    return relations

  def manifest(self, job: PrepareJob, results: Sequence[Result]) -> Result:
    sides = self._sides(job.config.prepare)
    return {"alternatives": sides} if sides else {}

  def _sides(self, prepare: Prepare) -> list[str]:
    return [
      side
      for side in prepare.parse.sides
      if getattr(prepare.parse, f"{side}_alternatives")
    ]

  def encode(
    self, examples: Examples, out: TaskOutput
  ) -> tuple[list[Features], Counts]:
    manifest, counts = examples.chunk.job.manifest, Counts()
    encoded: list[Features] = [{} for _ in examples.rows]
    for side in manifest["alternatives"]:
      ids = schema.relation_ids(manifest["relations"][side])
      parses, uses = _matching_parses(examples, side)
      if uses:
        counts[f"alternatives.{side}"] = uses
      for features, of_row in zip(encoded, parses, strict=True):
        heads, relations = list[int](), list[int]()
        for parse in of_row:
          heads += parse.head_W
          relations += [
            ids.get(x, schema.NO_RELATION) for x in parse.relation_W
          ]
        features |= feature(f"{side}_other_head", heads)
        features |= feature(f"{side}_other_relation", relations)
    return encoded, counts

  def error(self, example: Features, manifest: Mapping[str, Any]) -> str:
    for side in manifest["alternatives"]:
      head, relation = f"{side}_other_head", f"{side}_other_relation"
      heads, words = example[head], len(example[f"{side}_head"])
      if len(heads) and (not words or len(heads) % words):
        return f"{head} has a part of a parse"
      if len(example[relation]) != len(heads):
        return f"{relation} has another number of values"
      parses = len(heads) // max(1, words)
      try:
        tree.depth(heads, np.full(parses, words))
      except ValueError as error:
        return f"{head}: {error}"
      labels = len(manifest["relations"][side])
      if message := range_error(relation, example[relation], 0, labels):
        return message
    return ""


def _matching_parses(
  examples: Examples, side: str
) -> tuple[list[list[Parse]], dict[str, int]]:
  """Returns the parses with the same words as the best parse, and their number.

  Returns:
    Parses of each example; and the number of parses by use, {} if the split was
    given no alternative parses.
  """
  chunk, rows, best = examples.chunk, examples.rows, examples.parses[side]
  alternatives: list[list[Parse]] = [[] for _ in rows]
  prefix = f"alternatives.{side}."
  streams = [name for name in chunk.split.streams if name.startswith(prefix)]
  if not streams:
    return alternatives, {}
  counts = dict.fromkeys((USED, OTHER_WORDS, NO_TREE), 0)
  lines = [pair[schema.SIDES.index(side)] for pair in examples.pairs]
  for stream in streams:
    parses = chunk.parses(stream, lines)
    for i, row in enumerate(rows):
      parse, words = parses[row], (best[i].start_W, best[i].end_W)
      if not lines[row].strip():
        continue
      if not (parse.parsed and best[i].parsed):
        counts[NO_TREE] += 1
      elif words != (parse.start_W, parse.end_W):
        counts[OTHER_WORDS] += 1
      else:
        counts[USED] += 1
        alternatives[i].append(parse)
  return alternatives, counts


class Alignments(OptionalFeature):
  """Optional feature: word alignments between source and target.

  Its files are the links and, if words other than the whitespace-separated ones
  were aligned, the source words and the target words.
  """

  name = "alignments"

  options: Mapping[str, str] = {"alignments": "alignments"}

  def scan(self, examples: Examples, out: TaskOutput) -> Result:
    """Checks the alignment links, so that errors are found before encoding."""
    if "alignments.0" in examples.chunk.split.streams:
      _links(examples.chunk, examples.pairs)
    return {}

  def manifest(self, job: PrepareJob, results: Sequence[Result]) -> Result:
    return {"alignments": True} if job.config.prepare.alignments else {}

  def encode(
    self, examples: Examples, out: TaskOutput
  ) -> tuple[list[Features], Counts]:
    chunk, pairs = examples.chunk, examples.pairs
    uses = dict.fromkeys((USED, NO_LINKS), 0)
    is_given = "alignments.0" in chunk.split.streams
    links = _links(chunk, pairs) if is_given else [()] * len(pairs)
    encoded = []
    for row in examples.rows:
      uses[USED if links[row] else NO_LINKS] += 1
      features = feature("links", [*itertools.chain(*links[row])])
      for side, text in zip(schema.SIDES, pairs[row]):
        pieces = chunk.job.vocabularies[side].encode(text)
        features |= feature(
          f"{side}_unit", alignments.units_of_pieces(text, pieces)
        )
      encoded.append(features)
    return encoded, {"alignments": uses} if is_given else {}

  def error(self, example: Features, manifest: Mapping[str, Any]) -> str:
    links, highest = example["links"], np.iinfo(np.int32).max
    if len(links) % 2:
      return "links has half a link"
    errors = [range_error("links", links, 0, highest)]
    for side in schema.SIDES:
      last, unit = len(example[f"{side}_id"]) - 1, f"{side}_unit"
      errors.append(range_error(unit, example[unit], -1, last))
    return next(filter(None, errors), "")


def _links(chunk: Chunk, pairs: Sequence[Pair]) -> list[Links]:
  """Returns each line pair's alignment: links of whitespace-separated words.

  Raises:
    InputError: A line is malformed, a word does not exist, or the aligned words
      differ from the words of the text.
  """
  words = [_linked_words(chunk, side, pairs) for side in schema.SIDES]
  links_of_rows = []
  for row, line in enumerate(chunk.texts("alignments.0")):
    where = chunk.place("alignments.0", row)
    _, links = alignments.parse_links(line, where, possible=False)
    source, target = words[0][row], words[1][row]
    for link in links:
      for side, index, count in zip(
        schema.SIDES, link, (len(source), len(target))
      ):
        if index >= count:
          raise InputError(
            f"{where}: the link {link[0]}-{link[1]} has word {index} of the"
            f" {side}, whose line {chunk.lines[row] + 1} has {count}"
            " space-separated words, from 0. Alignments are of the words of the raw"
            " files; if other words were aligned, give their files too:"
            " config.prepare.alignments."
          )
    # Several aligned words may belong to one whitespace-separated word.
    links_of_rows.append(
      tuple(dict.fromkeys((source[i], target[j]) for i, j in links))
    )
  return links_of_rows


def _linked_words(
  chunk: Chunk, side: str, pairs: Sequence[Pair]
) -> list[Sequence[int]]:
  """Maps each line's aligned words to indices of whitespace-separated words."""
  column = schema.SIDES.index(side)
  stream, lines = f"alignments.{column + 1}", [pair[column] for pair in pairs]
  if stream not in chunk.split.streams:
    return [range(len(alignments.spans(line)[0])) for line in lines]
  words_of_rows: list[Sequence[int]] = []
  for row, tokens in enumerate(chunk.texts(stream)):
    try:
      start_W, end_W = spans([(word,) for word in tokens.split()], lines[row])
    except MismatchError as error:
      raise InputError(
        f"{chunk.place(stream, row)}: {error}. Words that were aligned must be"
        " those of the raw text, apart from spaces."
      ) from None
    words_of_rows.append(alignments.units_of_words(start_W, end_W, lines[row]))
  return words_of_rows


class Annotations(OptionalFeature):
  """Optional feature: annotations of words, such as parts of speech.

  `jaxsyn.data.sentence.example` encodes them together with the trees.
  """

  name = "annotations"

  def scan(self, examples: Examples, out: TaskOutput) -> Result:
    """Counts, by side, the labels of annotations without a fixed label set."""
    names = examples.chunk.job.config.prepare.parse.annotations
    counts: dict[str, dict[str, collections.Counter[str]]] = {}
    for side, parses in examples.parses.items():
      counts[side] = {}
      for name in names:
        if ANNOTATIONS[name].open:
          counts[side][name] = collections.Counter()
          for parse in parses:
            if parse.line_W:
              counts[side][name].update(
                map(str, ANNOTATIONS[name]().read(parse))
              )
    if examples.chunk.is_train:
      out.write_json("labels", counts)
    return {}

  def manifest(self, job: PrepareJob, results: Sequence[Result]) -> Result:
    options = job.config.prepare.parse
    if not options.annotations or not options.sides:
      return {}
    # All different labels of the training split are in memory at once.
    total: dict[tuple[str, str], collections.Counter[str]] = {}
    for number in job.train_chunks:
      labels = job.outputs.read_json(f"trees/{number}", "labels")
      for side, of_side in labels.items():
        for name, counts in of_side.items():
          key = side, name
          total.setdefault(key, collections.Counter()).update(counts)
    by_side: dict[str, dict[str, list[str]]] = {}
    for (side, name), counts in total.items():
      by_side.setdefault(side, {})[name] = most_frequent(counts, _LABELS)
    manifest: Result = {"annotations": list(options.annotations)}
    return manifest | ({"labels": by_side} if by_side else {})


OPTIONAL: tuple[OptionalFeature, ...] = (
  Alternatives(),
  Brackets(),
  Alignments(),
  Annotations(),
)
