"""Predictability of a word's translation from other words of the sentence."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxsyn.preprocess.toy.translation import Pair

# Known words -> function that returns the index of the other word, given the
# parents of all words, the word's index, and a random number in [0, 1).
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
  """Returns how often a word and another word predict the word's translation.

  The prediction is the most frequent translation of a word in training, given
  the class and side of another word in its sentence (or of the word alone, if
  the two never occur together). Trees are useful if the parent predicts
  more translations than other words do.

  Returns:
    Known words -> share of test words with a correct prediction.
  """
  result = {}
  for name, other in NEIGHBOURS.items():
    rng = random.Random(0)
    table: dict[Any, collections.Counter[str]] = collections.defaultdict(
      collections.Counter
    )
    for pair in train:
      for word, context, translation in _translated_words(pair, other, rng):
        table[word][translation] += 1
        table[word, context][translation] += 1
    best = {key: counts.most_common(1)[0][0] for key, counts in table.items()}
    hits = [
      best.get((word, context), best.get(word)) == translation
      for pair in test
      for word, context, translation in _translated_words(pair, other, rng)
    ]
    result[name] = sum(hits) / len(hits)
  return result


def _translated_words(
  pair: Pair, other: Callable, rng: random.Random
) -> Iterator[tuple[str, tuple[str, int], str]]:
  """Yields a word, the class and side of another word, and a translation."""
  for i, translation in enumerate(pair.translations):
    if translation:
      j = other(pair.heads, i, rng.random())
      side = (j > i) - (j < i)
      yield pair.tokens[i].lower(), (pair.classes[j], side), translation
