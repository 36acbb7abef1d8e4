"""How much of a word's translation each of its neighbours tells."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxsyn.preprocess.toy.translation import Pair

# Index of the other word, of (heads, own index, random number in [0, 1)).
NEIGHBOURS = {
  "the word alone": lambda heads, i, number: i,
  "and its previous word": lambda heads, i, number: max(i - 1, 0),
  "and its next word": lambda heads, i, number: min(i + 1, len(heads) - 1),
  "and a random word": lambda heads, i, number: int(number * len(heads)),
  "and its parent": lambda heads, i, number: heads[i],
}


def predictability(
  train: Sequence[Pair], test: Sequence[Pair]
) -> dict[str, float]:
  """How much of a word's translation each of its neighbours tells.

  For each word together with the class of another word of its sentence and on
  which side that one stands, a table holds the commonest translation in the
  training part (where the two were never seen together: the commonest of the
  word). The share of right answers is that of the test part's words that have
  a translation. The tree matters as far as the parent tells more than others.

  Returns:
    share of right answers by what is known.
  """
  result = {}
  for name, other in NEIGHBOURS.items():
    rng = random.Random(0)
    table: dict[Any, collections.Counter[str]] = collections.defaultdict(
      collections.Counter
    )
    for pair in train:
      for word, context, translation in _facts(pair, other, rng):
        table[word][translation] += 1
        table[word, context][translation] += 1
    best = {key: counts.most_common(1)[0][0] for key, counts in table.items()}
    hits = [
      best.get((word, context), best.get(word)) == translation
      for pair in test
      for word, context, translation in _facts(pair, other, rng)
    ]
    result[name] = sum(hits) / len(hits)
  return result


def _facts(
  pair: Pair, other: Callable, rng: random.Random
) -> Iterator[tuple[str, tuple[str, int], str]]:
  """(word, (class of the other word, its side), translation) where it has."""
  for i, translation in enumerate(pair.translations):
    if translation:
      j = other(pair.heads, i, rng.random())
      side = (j > i) - (j < i)
      yield pair.tokens[i].lower(), (pair.classes[j], side), translation
