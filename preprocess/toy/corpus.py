"""Random sentence pairs of the quickstart, all distinct, for each split."""

from __future__ import annotations

import dataclasses
import itertools

from jaxsyn.preprocess.toy.grammar import Grammar
from jaxsyn.preprocess.toy.translation import Pair, read_out


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Number of sentence pairs per split, and of gold trees for the parser."""

  train: int = 8000
  validation: int = 500
  test: int = 500
  parser: int = 1500


def make_splits(seed: int, sizes: Sizes) -> dict[str, list[Pair]]:
  """Returns the sentence pairs of each split, without repeated sentences."""
  counts = {s: getattr(sizes, s) for s in ("train", "validation", "test")}
  generated = iter(pairs(sum(counts.values()), seed))
  return {
    split: list(itertools.islice(generated, count))
    for split, count in counts.items()
  }


def pairs(count: int, seed: int) -> list[Pair]:
  """Returns random sentence pairs with distinct English sentences.

  Equal seeds give equal pairs on every machine.
  """
  grammar = Grammar(seed)
  found: dict[str, Pair] = {}
  while len(found) < count:
    pair = read_out(grammar.sentence())
    if 5 <= len(pair.tokens) <= 25:
      found.setdefault(pair.source, pair)
  return list(found.values())
