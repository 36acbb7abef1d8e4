"""Sentence pairs of chosen lengths with every feature, made from nothing.

For measuring where there is no prepared data: what a step or a search costs
depends on lengths and sizes, not on which subwords they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.loader.collate import Batch, collate
from jaxsyn.data.schema import (
  EOS,
  FEATURES,
  LINKED,
  MADE,
  NO_WORD,
  SPECIAL,
  origins,
)
from jaxsyn.data.sentence import controls
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.store.rows import Example, Rows
from jaxsyn.plan import Plan

RELATIONS = 40  # labels of a treebank
LABELS = 10_000  # of an open annotation


def manifest(vocabulary: int) -> dict[str, Any]:
  """What `jaxsyn.plan.resolve` asks of the data; one joint vocabulary."""
  sides = ("source", "target")
  names = [f"relation {number}" for number in range(RELATIONS)]
  return {
    "sides": list(sides),
    "vocabulary": {s: {"size": vocabulary, "sha256": ""} for s in sides},
    "relations": {side: names for side in sides},
    "alignments": True,
    "annotations": [*ANNOTATIONS],
    "labels": {
      side: {
        name: [UNKNOWN, *(f"label {number}" for number in range(1, LABELS))]
        for name, about in ANNOTATIONS.items()
        if about.open
      }
      for side in sides
    },
  }


@dataclasses.dataclass(frozen=True)
class Text:
  """Sentences with random words, lengths and trees.

  Attributes:
    longest: subwords of a side, EOS included; the shortest has an
      eighth less.
    vocabulary: ids of a side.
    distinct: pairs; more of them are the same again.
  """

  longest: int
  vocabulary: int
  distinct: int = 256

  def examples(self) -> list[Example]:
    rng = np.random.default_rng(0)
    return [self._pair(rng) for _ in range(self.distinct)]

  def _pair(self, rng: np.random.Generator) -> Example:
    pair = {**self._side("source", rng), **self._side("target", rng)}
    words = min(
      int(pair[f"{side}_unit"].max()) for side in ("source", "target")
    )
    own = np.arange(words)
    links = np.r_[np.c_[own, own], np.c_[own + 1, own]]
    return {**pair, "links": links.ravel().astype(np.int32)}

  def _side(self, side: str, rng: np.random.Generator) -> Example:
    subwords = int(rng.integers(self.longest - self.longest // 8, self.longest))
    # Two subwords in three begin a word.
    word = np.cumsum(rng.integers(0, 3, subwords) > 0)
    word_S = np.r_[word - word[0], NO_WORD].astype(np.int32)
    words = int(word_S.max()) + 1
    head_W = controls.random_trees(
      np.array([words]), [int(rng.integers(2**31))]
    )
    ids = rng.integers(len(SPECIAL), self.vocabulary, subwords)
    made = {
      "id": np.r_[ids, EOS],
      "word": word_S,
      "unit": word_S,
      "head": head_W,
      "relation": rng.integers(1, RELATIONS + 1, words),
      "parent_mid": trees.parent_mid(word_S, head_W),
      "tree_distance": np.ravel(trees.tree_distance(head_W)),
      "parsed": np.ones((), np.uint8),
      **{
        name: rng.integers(1, (len(about.labels) or LABELS) + 1, words)
        for name, about in ANNOTATIONS.items()
      },
    }
    return {
      f"{side}_{name}": np.asarray(value, FEATURES[f"{side}_{name}"].dtype)
      for name, value in made.items()
      if f"{side}_{name}" in FEATURES
    }

  def batches(self, plan: Plan, rows: int, count: int) -> list[Batch]:
    """Batches of one shape with what the plan reads."""
    examples = self.examples()
    reads = {"source_id", "target_id", *plan.features}
    reads |= {MADE[name] for name in reads & MADE.keys()}
    names = sorted(reads, key=lambda name: (name in MADE, name))
    if "links" in names:
      names = [*(name for name in names if name not in LINKED), *LINKED]
    loaded = Rows.of(examples, origins(names))
    sizes = (rows, *(self.longest,) * 4)
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(count):
      numbers = rng.integers(self.distinct, size=rows)
      batch = collate(loaded, names, numbers, Shape(*sizes), rows=rows)
      batches.append({**batch, "weight_B": np.ones(rows, np.float32)})
    return batches
