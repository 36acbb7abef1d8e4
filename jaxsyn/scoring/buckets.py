"""Scores by the length of the source and by facts of its tree.

Each sentence is in one bucket of each table, also an empty line and one without
a tree, so counts add up to the test set, and so do the sums that scores are
made of. A bucket holds its upper end: "1.5-2" is more than 1.5, at most 2.

Facts of a tree (its words are those of `jaxsyn.data.sentence.conllu`: surface tokens):

- depth: edges between the root and the deepest word.
- dependency length: mean distance of words from their parents, in words; roots
  and punctuation (`punct`, whose parent is convention) are left out.
- clauses: each root and each word that hangs by one of CLAUSES. Coordinated
  clauses (`conj`) are not among them: the relation does not tell them from
  coordinated nouns.
- projectivity: whether edges cross, see `jaxsyn.data.sentence.tree.projective`.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.errors import InputError
from jaxsyn.scoring import tokenizers
from jaxsyn.scoring.results import Bucket
from jaxsyn.scoring.scorers import Scored

EDGES = (10, 20, 30, 40, 50)  # words; upper ends of buckets, inclusive
# Universal Dependencies' relations of clauses, with their subtypes (acl:relcl).
CLAUSES = ("csubj", "ccomp", "xcomp", "advcl", "acl", "parataxis")
NO_TREE = "no tree"
LENGTH = "source length"
FEWEST = 10  # sentences that an interval is drawn from


# Name of a fact -> its value for each sentence, None where it is unknown.
Facts = dict[str, list[float | None]]


@dataclasses.dataclass(frozen=True)
class Buckets:
  """Which bucket of one fact each sentence is in.

  Attributes:
    by: the fact.
    labels: of all buckets, in order.
    bucket_B: index into `labels` of each sentence.
  """

  by: str
  labels: tuple[str, ...]
  bucket_B: np.ndarray


def by_length(
  words_B: Sequence[int],
  edges: Sequence[int] = EDGES,
  by: str = LENGTH,
) -> Buckets:
  """Buckets of whole numbers: 0 (where there is one), 1-10, 11-20, ..., >50.

  Raises:
    InputError: edges are not ascending from 1.
  """
  if not edges or any(a >= b for a, b in zip((0, *edges), edges)):
    raise InputError(
      f"edges of lengths must ascend from 1, as in 10,20,30; got {edges}."
    )
  return _integer_table(by, words_B, edges, first=1)


def by_tree(parses: Sequence[Parse]) -> list[Buckets]:
  """Depth, dependency length, clauses and projectivity of source trees."""
  return in_buckets(_tree_facts(parses))


def in_buckets(facts: Facts, edges: Sequence[int] = EDGES) -> list[Buckets]:
  """Returns the buckets of sentence facts, in their order.

  Args:
    facts: Facts of `sentence_facts`.
    edges: Upper ends of the buckets by length, in words.

  Raises:
    InputError: an unknown fact.
  """
  buckets = []
  for by, values in facts.items():
    if by.startswith(LENGTH):
      buckets.append(by_length([int(v or 0) for v in values], edges, by))
    elif by == "tree depth":
      buckets.append(_integer_table(by, values, (2, 4, 6, 8), first=0))
    elif by == "dependency length":
      buckets.append(_real(by, values, (1.5, 2.0, 2.5, 3.0)))
    elif by == "clauses":
      buckets.append(_integer_table(by, values, (1, 2, 3), first=1))
    elif by == "projectivity":
      labels = ["projective", "non-projective"]
      buckets.append(_table(by, values, labels, ends=[0]))
    else:
      raise InputError(f"unknown sentence fact {by!r}.")
  return buckets


def sentence_facts(
  lines: Sequence[str],
  parses: Sequence[Parse] | None = None,
  language: str = "",
) -> Facts:
  """Returns what buckets are made of: values of each source sentence.

  Arguments as of `tables`.
  """
  if parses is not None:
    words: list[float | None] = [len(parse.head_W) for parse in parses]
    return {f"{LENGTH} in words of the trees": words, **_tree_facts(parses)}
  by = LENGTH
  cut: Callable[[str], list[str]] = str.split
  tokenizer = tokenizers.default(language)
  if tokenizer not in tokenizers.OF_BLANKS:
    by, cut = f"{by} in words of {tokenizer}", tokenizers.cutter(tokenizer)
  return {by: [len(cut(line)) for line in lines]}


def _tree_facts(parses: Sequence[Parse]) -> Facts:
  """Values of each parse, None where it holds no tree."""

  def each(fact: Callable[[Parse], float]) -> list[float | None]:
    return [fact(p) if p.parsed and p.head_W else None for p in parses]

  return {
    "tree depth": each(lambda p: int(tree.depth(np.array(p.head_W)).max())),
    "dependency length": each(dependency_length),
    "clauses": each(_clauses),
    "projectivity": each(lambda p: not tree.projective(np.array(p.head_W))),
  }


def tables(
  lines: Sequence[str],
  parses: Sequence[Parse] | None = None,
  *,
  edges: Sequence[int] = EDGES,
  language: str = "",
) -> list[Buckets]:
  """All tables of sources.

  With trees, words are those of the trees. Else they stand between blanks; where
  the language has none, they are those of its default tokeniser, which the table
  then names.

  Args:
    lines: the sources.
    parses: their trees, where they are known.
    edges: upper ends of the buckets by length.
    language: of the sources.
  """
  return in_buckets(sentence_facts(lines, parses, language), edges)


def parts(table: Buckets, scored: Scored) -> Iterator[tuple[Bucket, Scored]]:
  """Every bucket of a table with its part of each translation; {} if empty."""
  for index, label in enumerate(table.labels):
    chosen_B = table.bucket_B == index
    count = int(chosen_B.sum())
    part = {
      system: {
        seed: [m.part(chosen_B) for m in measured]
        for seed, measured in runs.items()
      }
      for system, runs in scored.items()
    }
    share = count / max(1, len(chosen_B))
    bucket = Bucket(table.by, label, count=count, share=share)
    yield bucket, part if count else {}


def dependency_length(parse: Parse) -> float:
  """Mean distance between word and parent; 0 where no word counts."""
  distances = [
    abs(word - head)
    for word, (head, relation) in enumerate(zip(parse.head_W, parse.relation_W))
    if word != head and _universal(relation) != "punct"
  ]
  return sum(distances) / len(distances) if distances else 0.0


def _clauses(parse: Parse) -> int:
  return sum(
    head == word or _universal(relation) in CLAUSES
    for word, (head, relation) in enumerate(zip(parse.head_W, parse.relation_W))
  )


def _universal(relation: str) -> str:
  """A relation without its subtype."""
  return relation.partition(":")[0]


def _integer_table(
  by: str, values: Sequence[float | None], edges: Sequence[int], first: int
) -> Buckets:
  """Buckets of whole numbers; one of its own for 0 below `first`, if needed."""
  starts = [first, *(edge + 1 for edge in edges[:-1])]
  spans = [f"{a}-{b}" if a < b else f"{b}" for a, b in zip(starts, edges)]
  labels, ends = [*spans, f">{edges[-1]}"], list(edges)
  if first and 0 in values:
    labels, ends = ["0", *labels], [0, *ends]
  return _table(by, values, labels, ends=ends)


def _real(
  by: str, values: Sequence[float | None], edges: Sequence[float]
) -> Buckets:
  spans = [f"{a:g}-{b:g}" for a, b in itertools.pairwise(edges)]
  labels = [f"<={edges[0]:g}", *spans, f">{edges[-1]:g}"]
  return _table(by, values, labels, ends=edges)


def _table(
  by: str,
  values: Sequence[float | None],
  labels: list[str],
  *,
  ends: Sequence[float],
) -> Buckets:
  """Buckets up to `ends`, which are in them, and one beyond.

  Another, if it is needed, is that of unknown values (None).
  """
  bucket_B = [
    len(labels) if v is None else bisect.bisect_left(ends, v) for v in values
  ]
  if None in values:
    labels = [*labels, NO_TREE]
  return Buckets(by, tuple(labels), np.array(bucket_B, np.int64))
