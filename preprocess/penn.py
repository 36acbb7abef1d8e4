"""Reads constituency trees in Penn brackets, one per line of raw text.

  (ROOT (S (NP (DT A) (NN duck)) (VP (VBZ waits)) (. .)))

Line N of the file is the tree of line N of the source. It becomes a bracketing
(`jaxsyn.data.sentence.linearise`): constituents with the positions of subwords
between their brackets. Pre-terminals (parts of speech) are left out, as in
Bugliarello & Okazaki's code, and so are traces (-NONE-) and empty constituents.
Other labels are not changed (NP-SBJ).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence.align import (
  MismatchError,
  spans,
  visible,
  words_of_pieces,
)
from jaxsyn.data.sentence.linearise import CLOSE, of_subwords, opening
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.errors import InputError
from jaxsyn.preprocess.job import PrepareJob
from jaxsyn.preprocess.optional import (
  NO_TREE,
  OTHER_WORDS,
  USED,
  Examples,
  Features,
  OptionalFeature,
  feature,
  range_error,
)
from jaxsyn.preprocess.outputs import Counts, Result, TaskOutput

_SIGN = re.compile(r"[()]|[^()\s]+")
_TRACE = "-NONE-"

# Spellings of the Penn treebank -> spellings in text.
_SPELLINGS = {
  "-LRB-": ("(",),
  "-RRB-": (")",),
  "-LSB-": ("[",),
  "-RSB-": ("]",),
  "-LCB-": ("{",),
  "-RCB-": ("}",),
  "``": ('"', "“", "„"),
  "''": ('"', "”", "“"),
  "`": ("'", "‘"),
  "'": ("’",),
  "--": ("–", "—"),
  "...": ("…",),
}


@dataclasses.dataclass(frozen=True)
class PennTree:
  """Constituency tree of one line, as a sequence of brackets and words.

  Attributes:
    signs: Labels of opening brackets, CLOSE, and indices of words, in order.
    words: Words as spelled in the tree, without traces.
  """

  signs: tuple[str | int, ...]
  words: tuple[str, ...]

  @property
  def labels(self) -> set[str]:
    return {sign for sign in self.signs if isinstance(sign, str)}


def parse(line: str, where: str) -> PennTree | None:
  """Parses a line in Penn brackets; returns None if it has no constituents.

  A parser that failed writes empty brackets, () or (()).

  Raises:
    InputError: Brackets do not match, a word is outside brackets, or there
      is more than one tree; begins with `where`.
  """
  unclosed: list[list[str | _Signs]] = []  # contents of the open brackets
  tree: _Signs | None = None
  for sign in _SIGN.findall(line):
    if tree is not None:
      raise InputError(
        f"{where}: {sign!r} comes after the end of the tree. There must be one"
        " tree per line: parse without splitting lines into sentences."
      )
    if sign == "(":
      unclosed.append([])
    elif not unclosed and sign == ")":
      raise InputError(f"{where}: a bracket is closed that was not opened.")
    elif not unclosed:
      raise InputError(
        f"{where}: {sign!r} is outside of the brackets; a tree begins"
        " with one, as in (ROOT (S (NP (DT A) (NN duck)) ...))."
      )
    elif sign == ")":
      closed = _closed(unclosed.pop())
      if unclosed:
        unclosed[-1].append(closed)
      else:
        tree = closed
    else:
      unclosed[-1].append(sign)
  if unclosed:
    raise InputError(
      f"{where}: {len(unclosed)} brackets are not closed; each ( needs its )."
    )
  signs, words = list[str | int](), list[str]()
  for sign in tree or ():
    if isinstance(sign, _Word):
      signs.append(len(words))
      words.append(sign.text)
    else:
      signs.append(sign)
  return PennTree(tuple(signs), tuple(words)) if CLOSE in signs else None


class _Word(NamedTuple):
  text: str


_Signs = tuple[str | int | _Word, ...]  # labels, CLOSE, and words


def _closed(content: Sequence[str | _Signs]) -> _Signs:
  """Flattens a parsed bracket to a sequence of labels, words and CLOSE."""
  label = content[0] if content and isinstance(content[0], str) else ""
  children = content[1:] if label else content
  if len(children) == 1 and isinstance(children[0], str):  # a pre-terminal
    return () if label == _TRACE else (_Word(children[0]),)
  signs: list[str | int | _Word] = []
  for child in children:
    signs += [_Word(child)] if isinstance(child, str) else child
  return (label, *signs, CLOSE) if signs else ()


def spellings(word: str) -> tuple[str, ...]:
  """Returns the possible raw-text spellings of a word in a Penn tree."""
  bare = word.replace("\\", "")  # 1\/2
  return (word, *_SPELLINGS.get(word, ()), bare)


def bracketing(
  tree: PennTree, text: str, vocabulary: Vocabulary, *, ids: Mapping[str, int]
) -> np.ndarray:
  """Encodes a constituency tree as the feature `source_brackets`.

  Args:
    tree: Constituency tree of the text.
    text: Raw line.
    vocabulary: Vocabulary of the source.
    ids: Label -> id.

  Raises:
    MismatchError: The tree belongs to another text.
  """
  start_W, end_W = spans(map(spellings, tree.words), text)
  pieces = vocabulary.encode(text)
  word_S = words_of_pieces(text, pieces.begin, pieces.end, start_W, end_W)
  signs = [
    int(opening(ids[sign])) if isinstance(sign, str) else sign
    for sign in tree.signs
  ]
  return of_subwords(np.array(signs, np.int32), np.array(word_S, np.int32))


class Brackets(OptionalFeature):
  """Optional feature: constituency trees of the source, in Penn brackets."""

  name = "brackets"

  options: Mapping[str, str] = {"parse.source_brackets": "brackets"}

  def scan(self, examples: Examples, out: TaskOutput) -> Result:
    trees = _penn_trees(examples)
    labels = [tree.labels for tree in trees if tree]
    return {"labels": sorted(set[str]().union(*labels))}

  def manifest(self, job: PrepareJob, results: Sequence[Result]) -> Result:
    if not job.config.prepare.parse.source_brackets:
      return {}
    labels = set[str]().union(*(result["labels"] for result in results))
    if not labels:
      raise InputError(
        "config.prepare.parse.source_brackets: no kept line has a tree with"
        " constituents; are these the right files?"
      )
    return {"brackets": {"source": sorted(labels)}}

  def encode(
    self, examples: Examples, out: TaskOutput
  ) -> tuple[list[Features], Counts]:
    """Encodes constituency trees; omits those that do not match the text."""
    job = examples.chunk.job
    ids = schema.relation_ids(job.manifest["brackets"]["source"])
    vocabulary = job.vocabularies["source"]
    uses = dict.fromkeys((USED, OTHER_WORDS, NO_TREE), 0)
    encoded = []
    for row, tree in zip(examples.rows, _penn_trees(examples)):
      brackets: Sequence[int] | np.ndarray = ()
      use = NO_TREE
      if tree is not None:
        text, _ = examples.pairs[row]
        try:
          brackets = bracketing(tree, text, vocabulary, ids=ids)
          use = USED
        except MismatchError as error:
          use = OTHER_WORDS
          if not uses[use]:  # the first in the chunk
            where = examples.chunk.place("brackets.0", row)
            out.add_message(f"{where}: left out: {error}")
      uses[use] += 1
      encoded.append(feature("source_brackets", brackets))
    is_given = "brackets.0" in examples.chunk.split.streams
    return encoded, {"brackets": uses} if is_given else {}

  def error(self, example: Features, manifest: Mapping[str, Any]) -> str:
    name, signs = "source_brackets", example["source_brackets"]
    lowest = int(opening(len(manifest["brackets"]["source"])))
    if error := range_error(name, signs, lowest, len(example["source_id"]) - 2):
      return error
    depths = np.cumsum(np.where(signs >= 0, 0, np.where(signs == CLOSE, -1, 1)))
    if depths.min(initial=0) < 0 or (len(depths) and depths[-1]):
      return f"{name} has brackets that do not match"
    return ""


def _penn_trees(examples: Examples) -> list[PennTree | None]:
  """Parses the constituency tree of each example; None without a tree.

  Raises:
    InputError: A line of the chunk has no valid tree or several trees, or it is
      empty and that of the text is not; the message has FILE:LINE.
  """
  chunk = examples.chunk
  if "brackets.0" not in chunk.split.streams:
    return [None] * len(examples.rows)
  trees = []
  for row, line in enumerate(chunk.texts("brackets.0")):
    where = chunk.place("brackets.0", row)
    if not line.strip() and visible(examples.pairs[row][0]):
      raise InputError(
        f"{where}: the line is empty, but that of the text is not. Line N must"
        " hold the tree of line N; write () for one that has no tree."
      )
    trees.append(parse(line, where))
  return [trees[row] for row in examples.rows]
