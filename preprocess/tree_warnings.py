"""Warns about suspicious trees, such as those of a parser for another language.

A parser returns trees for any text. If it parses Czech as English, no error
occurs, but the trees are wrong and do not help a translation system. `count`
counts properties of trees, and `find_warnings` returns a message for each
percentage out of bounds. A corpus may be unusual, so these are only warnings.

The limits were chosen on gold trees (seven languages of UD's PUD, and English
EWT; at least 1,000 sentences each) and on texts parsed by UDPipe 1 (English,
German, Japanese, and a Czech model of 850 sentences; captions, everyday
sentences, PUD; 60 to 120 lines each): 9 pairs of a model and a text of its
language, 43 pairs of a model and a text of another language. The table has the
highest percentage (for function words the lowest), and the range for models of
another language:

                     gold         own language   another language
  uncut              3.1          0.0            0 to 86.5
  flat               0.3          0.0            0 to 91.4
  chains             0.0          0.0            0 to 86.1
  unlabelled         1.8          0.1            0 to 1.8
  one relation       23.9         24.6           13.1 to 83.8
  function words     12.5         21.3           0 to 45.9

Gold trees and trees of a model for the language cause no warnings; 40 of the 43
other pairs do. The other three are English texts parsed by the German and the
Czech model. These parsers do not mark words as unparsed or unlabelled.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.conllu import Parse

_MIN_WORDS = 8  # a smaller tree has no informative shape
_LONG = 20  # characters of a word
_MIN_COUNT = 20  # shares of fewer lines or trees are not informative

# Relations of Universal Dependencies, without their subtypes.
_RELATIONS = """acl advcl advmod amod appos aux case cc ccomp clf compound conj
  cop csubj dep det discourse dislocated expl fixed flat goeswith iobj list mark
  nmod nsubj nummod obj obl orphan parataxis punct reparandum root vocative
  xcomp"""
_UNIVERSAL = frozenset(_RELATIONS.split())
_FUNCTION = ("aux", "case", "cc", "clf", "cop", "det", "mark")
_UNLABELLED = ("dep", "_", "")

Stats = collections.Counter[str]
_RELATION = "relation "  # and a relation: the name of its number of words


def count(parses: Iterable[Parse]) -> Stats:
  """Counts properties of trees that may be suspicious, such as flatness.

  Returns:
    Number of

    - lines: lines with visible characters;
    - unparsed: these lines without a tree;
    - trees: trees of at least 8 words;
    - flat: these trees in which all words depend on one word;
    - chains: these trees in which each word depends on a neighbor;
    - relation NAME: words with this relation, without its subtype;
    - characters: characters in all words;
    - uncut: characters in words of more than 20 characters.
  """
  stats = Stats()
  for parse in parses:
    if not visible(parse.text):
      continue
    stats["lines"] += 1
    if not parse.parsed:
      stats["unparsed"] += 1
      continue
    lengths = [end - start for start, end in zip(parse.start_W, parse.end_W)]
    stats["characters"] += sum(lengths)
    stats["uncut"] += sum(length for length in lengths if length > _LONG)
    stats.update(map(_name_of_count, parse.relation_W))
    if len(parse.head_W) >= _MIN_WORDS:
      edges = [(i, head) for i, head in enumerate(parse.head_W) if i != head]
      stats["trees"] += 1
      stats["flat"] += len({head for _, head in edges}) <= 1
      stats["chains"] += all(abs(head - i) == 1 for i, head in edges)
  return stats


class Share(NamedTuple):
  """Percentage of lines, trees, words or characters, with a warning limit.

  Attributes:
    part: Name of a statistic.
    whole: Name of the statistic of which it is a part.
    limit: Limit in percent.
    meaning: Description of the percentage, for messages.
    is_minimum: Whether the limit is a lower bound.
  """

  part: str
  whole: str
  limit: float
  meaning: str
  is_minimum: bool = False


_SHARES = (
  Share("unparsed", "lines", 5, "lines have no tree"),
  Share("uncut", "characters", 10, "characters are of words of more than 20"),
  Share("flat", "trees", 10, "trees have all words on one"),
  Share("chains", "trees", 2, "trees have each word on a neighbor"),
  Share("unlabelled", "words", 10, "words have no relation but dep or _"),
  Share("same", "words", 28, "words have the same relation"),
  Share("function", "words", 12, "words are function words", is_minimum=True),
)


def find_warnings(stats: Mapping[str, int]) -> list[str]:
  """Returns a warning for each tree statistic that is outside its usual limit.

  Args:
    stats: Sum of statistics from `count`.
  """
  relations = Stats()
  for name, times in stats.items():
    if name.startswith(_RELATION):
      relations[name.removeprefix(_RELATION)] = times
  numbers = Stats(stats)
  numbers["words"] = relations.total()
  numbers["same"] = max(relations.values(), default=0)
  numbers["unlabelled"] = sum(relations[name] for name in _UNLABELLED)
  numbers["function"] = sum(relations[name] for name in _FUNCTION)
  if sum(relations[name] for name in _UNIVERSAL) <= 0.9 * numbers["words"]:
    numbers["function"] = numbers["words"]  # it has relations of its own
  warnings = []
  for share in _SHARES:
    needed = "trees" if share.whole in ("trees", "words") else "lines"
    value = 100 * numbers[share.part] / max(1, numbers[share.whole])
    is_out = value < share.limit if share.is_minimum else value > share.limit
    if is_out and numbers[needed] >= _MIN_COUNT:
      bound = "at least" if share.is_minimum else "at most"
      warnings.append(
        f"{value:.1f} % of the {share.meaning} (usual: {bound}"
        f" {share.limit:g} %)"
      )
  return warnings


@functools.cache
def _name_of_count(relation: str) -> str:
  return _RELATION + relation.partition(":")[0]
