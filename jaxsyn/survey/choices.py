"""What a corpus is trained with, by how much there is of it.

Each choice says its rule, which goes into the config as a comment. What a rule
stands on: `docs/results.md` of the repository for Transformer-Tiny on Multi30k
(29,000 pairs), published settings (`jaxsyn/configs/papers/pascal.py`) for large
corpora. What stands on neither says so.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math

from jaxsyn.data.schema import SPECIAL
from jaxsyn.survey.pairs import CorpusStats

FEWEST = 20  # pairs, where some are held out
SMALL, LARGE, HUGE = 20_000, 200_000, 1_000_000  # pairs
# Multi30k: 29,000 pairs of 11.9 words are 259 batches of 2,048 subwords, padding
# included; it trains for 27 epochs, and was best in validation after 32.
BATCH, EPOCHS = 2048, 27
# Of a joint vocabulary of so many, padding included: 8,000 as above; 1,000 as on
# 1,600 to 2,400 captions, French and German.
_SUBWORDS_A_WORD = {8000: 1.54, 1000: 2.7}
_LETTERS_A_SUBWORD = 1.5  # where no blanks part words; a guess
_COVERAGE = 0.9995


@dataclasses.dataclass(frozen=True)
class ChosenValue:
  """A choice and its rule in a sentence or two."""

  value: int
  rule: str


@dataclasses.dataclass(frozen=True)
class ChosenTraining:
  """A model and how long it is trained.

  Attributes:
    model: in words.
    updates: at most; validation may end it before.
    dropout: of the base Transformer; None: it is Transformer-Tiny.
  """

  model: str
  updates: ChosenValue
  dropout: float | None = None


def held_out(pairs: int) -> ChosenValue:
  """Pairs of a split that is cut off."""
  limit = 2000 if pairs >= HUGE else 1000
  return ChosenValue(
    max(1, min(pairs // 10, limit)),
    f"a tenth of the pairs, {limit:,} at most",
  )


def vocabulary(pairs: int, stats: CorpusStats) -> tuple[ChosenValue, float]:
  """Size of the joint vocabulary, and the share of characters that it covers.

  Args:
    pairs: to train on.
    stats: at them.
  """
  if pairs >= HUGE:
    size, rule = 32_000, "published for a million pairs and more"
  elif pairs >= LARGE:
    size, rule = 16_000, "published for 230,000 pairs"
  elif pairs >= SMALL:
    size, rule = 8000, "4,000 were worse on 29,000 pairs of Multi30k"
  else:
    size = max(1000, pairs * 2 // 500 * 100)
    rule = "two for five pairs, 1,000 at least: a rule of thumb"
  characters = stats.source.characters + stats.target.characters
  coverage = 1.0
  if 4 * len(characters) > size:
    coverage = _COVERAGE
  needed = _covering(characters, coverage) + len(SPECIAL)
  if 2 * needed > size:
    size = -(-2 * needed // 100) * 100
    part = f"{100 * coverage:g} % of the text" if coverage < 1 else "the text"
    rule = f"twice the {needed:,} characters that make up {part}"
  return ChosenValue(size, rule), coverage


def _covering(characters: collections.Counter[str], share: float) -> int:
  """How many of the most frequent characters make such a share of a text."""
  counts = [count for _, count in characters.most_common()]
  needed = share * sum(counts)
  return 1 + sum(so_far < needed for so_far in itertools.accumulate(counts))


def training(pairs: int, stats: CorpusStats, vocabulary: int) -> ChosenTraining:
  """The model that fits so many pairs, and a vocabulary."""
  if pairs >= HUGE:
    many = ChosenValue(100_000, "published for 4.3 million pairs")
    return ChosenTraining("the base Transformer", many, dropout=0.1)
  if pairs >= LARGE:
    many = ChosenValue(20_000, "published for 230,000 pairs")
    return ChosenTraining("the base Transformer", many, dropout=0.3)
  return ChosenTraining("Transformer-Tiny", updates(pairs, stats, vocabulary))


def updates(pairs: int, stats: CorpusStats, vocabulary: int) -> ChosenValue:
  """Updates of a small corpus."""
  epoch = max(1.0, pairs * subwords(stats, vocabulary) / BATCH)  # batches
  count = min(max(round(EPOCHS * epoch, -2), 2000), 20_000)
  return ChosenValue(
    int(count),
    f"about {count / epoch:,.0f} times through the text; Multi30k was best after "
    "32; from 2,000 to 20,000 updates",
  )


def subwords(stats: CorpusStats, vocabulary: int) -> float:
  """About how many a pair has on its longer side, padding included."""
  lengths = []
  (large, few_subwords), (small, many) = _SUBWORDS_A_WORD.items()
  share = math.log(large / min(max(vocabulary, small), large), large / small)
  a_word = few_subwords + share * (many - few_subwords)
  for side in (stats.source, stats.target):
    count = side.words * a_word
    if not side.has_blanks:
      count = side.letters / _LETTERS_A_SUBWORD
    lengths.append(count / stats.examined)
  return max(lengths)
