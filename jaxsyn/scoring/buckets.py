"""Buckets of sentences by source length and by properties of the source tree.

Each sentence is in one bucket of each table, also an empty line and one without a
tree, so counts add up to the test set. A bucket includes its upper end: "1.5-2"
is more than 1.5, at most 2.

Properties of a tree (words are those of `jaxsyn.data.sentence.conllu`: surface tokens):

- depth: edges between the root and the deepest word.
- dependency length: mean distance of words from their parents, in words, without
  roots and punctuation (`punct`, whose parent is a convention).
- clauses: roots and words with one of the relations CLAUSES. Coordinated clauses
  (`conj`) are not included: the relation is that of coordinated nouns too.
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
# Universal Dependencies relations of clauses, with their subtypes (acl:relcl).
CLAUSES = ("csubj", "ccomp", "xcomp", "advcl", "acl", "parataxis")
NO_TREE = "no tree"
LENGTH = "source length"
FEWEST = 10  # minimum number of sentences for an interval

# Name of a fact -> its value for each sentence, None if unknown.
Facts = dict[str, list[float | None]]


@dataclasses.dataclass(frozen=True)
class Buckets:
  """Assignment of sentences to buckets by one property, such as length.

  Attributes:
    by: Name of the property.
    labels: Labels of all buckets, in order.
    bucket_B: Index into `labels` of each sentence.
  """

  by: str
  labels: tuple[str, ...]
  bucket_B: np.ndarray


def sentence_facts(
  lines: Sequence[str],
  parses: Sequence[Parse] | None = None,
  language: str = "",
) -> Facts:
  """Returns the length and the tree properties of each source sentence.

  With trees, length is counted in words of the trees. Otherwise words are
  separated by spaces, or, in languages without spaces, those of the default
  tokenizer, which is part of the fact's name.

  Args:
    lines: Source sentences; ignored if there are trees.
    parses: Trees of the sources.
    language: Language of the sources.
  """
  if parses is None:
    by = LENGTH
    cut: Callable[[str], list[str]] = str.split
    tokenizer = tokenizers.default(language)
    if tokenizer not in tokenizers.OF_BLANKS:
      by, cut = f"{by} in words of {tokenizer}", tokenizers.cutter(tokenizer)
    return {by: [len(cut(line)) for line in lines]}

  def values(fact: Callable[[Parse], float]) -> list[float | None]:
    return [fact(p) if p.parsed and p.head_W else None for p in parses]

  return {
    f"{LENGTH} in words of the trees": [len(p.head_W) for p in parses],
    "tree depth": values(lambda p: int(tree.depth(np.array(p.head_W)).max())),
    "dependency length": values(dependency_length),
    "clauses": values(clauses),
    "projectivity": values(lambda p: not tree.projective(np.array(p.head_W))),
  }


def dependency_length(parse: Parse) -> float:
  """Returns the mean distance of words to parents, excluding punctuation."""
  distances = [
    abs(word - head)
    for word, (head, relation) in enumerate(zip(parse.head_W, parse.relation_W))
    if word != head and _without_subtype(relation) != "punct"
  ]
  return sum(distances) / len(distances) if distances else 0.0


def clauses(parse: Parse) -> int:
  """Returns the number of clauses in a tree."""
  return sum(
    head == word or _without_subtype(relation) in CLAUSES
    for word, (head, relation) in enumerate(zip(parse.head_W, parse.relation_W))
  )


def _without_subtype(relation: str) -> str:
  return relation.partition(":")[0]


def check_edges(edges: Sequence[int]) -> None:
  """Raises InputError unless bucket edges are positive and ascending."""
  if not edges or any(a >= b for a, b in zip((0, *edges), edges)):
    raise InputError(
      f"edges of lengths must ascend from 1, as in 10,20,30; got {edges}."
    )


def in_buckets(facts: Facts, edges: Sequence[int] = EDGES) -> list[Buckets]:
  """Assigns sentences to buckets by each property, such as length or depth.

  Args:
    facts: Facts of `sentence_facts`.
    edges: Upper ends of the buckets by length, in words, ascending from 1.

  Raises:
    InputError: An unknown fact.
  """
  return [_table(by, values, edges) for by, values in facts.items()]


def _table(
  by: str, values: Sequence[float | None], edges: Sequence[int]
) -> Buckets:
  ends: Sequence[float]
  if by.startswith(LENGTH):
    ends, labels = edges, _integer_labels(edges, first=1)
  elif by == "tree depth":
    ends = (2, 4, 6, 8)
    labels = _integer_labels(ends, first=0)
  elif by == "dependency length":
    ends = (1.5, 2.0, 2.5, 3.0)
    spans = [f"{a:g}-{b:g}" for a, b in itertools.pairwise(ends)]
    labels = [f"<={ends[0]:g}", *spans, f">{ends[-1]:g}"]
  elif by == "clauses":
    ends = (1, 2, 3)
    labels = _integer_labels(ends, first=1)
  elif by == "projectivity":
    ends, labels = (0,), ["projective", "non-projective"]
  else:
    raise InputError(f"unknown sentence fact {by!r}.")
  # A bucket for empty lines, if there are any.
  if labels[0].startswith("1") and 0 in values:
    ends, labels = (0, *ends), ["0", *labels]
  bucket_B = [
    len(labels) if v is None else bisect.bisect_left(ends, v) for v in values
  ]
  if None in values:
    labels.append(NO_TREE)
  return Buckets(by, tuple(labels), np.array(bucket_B, np.int64))


def _integer_labels(ends: Sequence[int], first: int) -> list[str]:
  starts = [first, *(end + 1 for end in ends[:-1])]
  spans = [f"{a}-{b}" if a < b else f"{b}" for a, b in zip(starts, ends)]
  return [*spans, f">{ends[-1]}"]


def parts(table: Buckets, scored: Scored) -> Iterator[tuple[Bucket, Scored]]:
  """Yields each bucket with the metric statistics of its sentences."""
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
