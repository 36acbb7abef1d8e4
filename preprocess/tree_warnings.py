"""Warnings about suspicious trees, as from a parser for another language.

A parser returns trees for any text. If it parses Czech as English, no error
occurs, but the trees are wrong and do not help a translation system.
`count` counts properties of trees, and `find_warnings` returns a message for
each percentage out of bounds. A corpus may be unusual, so these are only
warnings.

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
  foreign letters    5.3          0.0

Gold trees and trees of a model for the language cause no warnings; 40 of the 43
other pairs do. The other three are English texts parsed by the German and the
Czech model. None of these parsers marks words as unparsed or unlabelled.
"""

from __future__ import annotations

import collections
import functools
import operator
import unicodedata
from collections.abc import Mapping
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
_FUNCTION = frozenset(["aux", "case", "cc", "clf", "cop", "det", "mark"])
_UNLABELLED = frozenset(["dep", "_", ""])

# Scripts (first word in the Unicode names of their letters) -> language codes.
_LANGUAGES = {
  "CJK IDEOGRAPHIC BOPOMOFO": "zh lzh yue",
  "CJK IDEOGRAPHIC HIRAGANA KATAKANA HALFWIDTH KATAKANA-HIRAGANA": "ja",
  "HANGUL CJK": "ko",
  "CYRILLIC": "ru uk bg be mk kk orv cu",
  "CYRILLIC LATIN": "sr",
  "GREEK": "el grc",
  "ARABIC": "ar fa ur ug",
  "HEBREW": "he yi",
  "DEVANAGARI": "hi mr sa ne",
  "TAMIL": "ta",
  "TELUGU": "te",
  "BENGALI": "bn",
  "THAI": "th",
  "ARMENIAN": "hy",
  "GEORGIAN": "ka",
  "ETHIOPIC": "am",
  "LATIN": """af br ca cs cy da de en es et eu fi fr ga gl hr hu id is it la lt
    lv mt nb nl nn no pl pt ro sk sl sv tr vi""",
}
_SCRIPT_TAGS = {"latn": "LATIN", "cyrl": "CYRILLIC"}

Stats = collections.Counter[str]
_RELATION = "relation "  # and a relation: the name of its number of words


def count(parse: Parse, language: str) -> Stats:
  """Returns statistics of one parsed line; those of several may be added.

  Args:
    parse: parse of the line.
    language: language code of the line.

  Returns:
    Number of

    - lines: lines with visible characters;
    - unparsed: these lines without a tree;
    - trees: trees of at least 8 words;
    - flat: these trees in which all words depend on one word;
    - chains: these trees in which each word depends on a neighbor;
    - relation NAME: words with this relation, without its subtype;
    - characters: characters in all words;
    - uncut: characters in words of more than 20 characters;
    - letters: letters in all lines;
    - foreign: letters in no script of the language.
  """
  stats = Stats()
  if not visible(parse.text):
    return stats
  stats["lines"] = 1
  for letter, times in collections.Counter(parse.text).items():
    if script := _script(letter):
      stats["letters"] += times
      stats["foreign"] += 0 if _is_of(language, script) else times
  if not parse.parsed:
    stats["unparsed"] = 1
    return stats
  lengths = [*map(operator.sub, parse.end_W, parse.start_W)]
  stats["characters"] = sum(lengths)
  stats["uncut"] = sum(length for length in lengths if length > _LONG)
  stats.update(map(_counted_as, parse.relation_W))
  if len(parse.head_W) >= _MIN_WORDS:
    edges = [(i, head) for i, head in enumerate(parse.head_W) if i != head]
    stats["trees"] = 1
    stats["flat"] = int(len({head for _, head in edges}) <= 1)
    stats["chains"] = int(all(-1 <= head - i <= 1 for i, head in edges))
  return stats


class Share(NamedTuple):
  """A percentage, and its limit for trees of a suitable parser.

  Attributes:
    part: name of a statistic.
    whole: name of the statistic of which it is a part.
    needs: name of the statistic that must be at least 20.
    limit: limit in per cent.
    meaning: description of the percentage, for messages.
    is_minimum: whether the limit is a lower bound.
  """

  part: str
  whole: str
  needs: str
  limit: float
  meaning: str
  is_minimum: bool = False


_FOREIGN = "letters are of no script of its language"
_UNCUT = "characters are of words of more than 20"
_SHARES = (
  Share("unparsed", "lines", "lines", 5, "lines have no tree"),
  Share("foreign", "letters", "lines", 20, _FOREIGN),
  Share("uncut", "characters", "lines", 10, _UNCUT),
  Share("flat", "trees", "trees", 10, "trees have all words on one"),
  Share("chains", "trees", "trees", 2, "trees have each word on a neighbour"),
  Share("none", "words", "trees", 10, "words have no relation but dep or _"),
  Share("same", "words", "trees", 28, "words have the same relation"),
  Share("function", "words", "trees", 12, "words are function words", True),
)


def find_warnings(stats: Mapping[str, int]) -> list[str]:
  """Returns a message for each percentage that is out of bounds.

  Args:
    stats: sum of statistics from `count`.
  """
  relations = Stats()
  for name, times in stats.items():
    if name.startswith(_RELATION):
      relations[name.removeprefix(_RELATION)] = times
  numbers = Stats(stats)
  numbers["words"] = relations.total()
  numbers["same"] = max(relations.values(), default=0)
  for name, group in (
    ("none", _UNLABELLED),
    ("function", _FUNCTION),
    ("universal", _UNIVERSAL),
  ):
    numbers[name] = sum(relations[relation] for relation in group)
  if _per_cent(numbers, "universal", "words") <= 90:
    numbers["function"] = numbers["words"]  # it has relations of its own
  warnings = []
  for share in _SHARES:
    value = _per_cent(numbers, share.part, share.whole)
    is_out = value < share.limit if share.is_minimum else value > share.limit
    if is_out and numbers[share.needs] >= _MIN_COUNT:
      bound = "at least" if share.is_minimum else "at most"
      warnings.append(
        f"{value:.1f} % of the {share.meaning} (usual: {bound}"
        f" {share.limit:g} %)"
      )
  return warnings


def _per_cent(numbers: Stats, part: str, whole: str) -> float:
  return 100 * numbers[part] / max(1, numbers[whole])


@functools.cache
def _counted_as(relation: str) -> str:
  return _RELATION + relation.partition(":")[0]


@functools.cache
def _script(letter: str) -> str:
  """Returns the script of a letter by its Unicode name; "" for non-letters."""
  if not letter.isalpha():
    return ""
  words = unicodedata.name(letter, "").split(" ")
  return words[1] if words[0] == "FULLWIDTH" else words[0]


@functools.cache
def _is_of(language: str, script: str) -> bool:
  """Returns whether a language, such as "sr_Latn", is written in a script."""
  base, *tags = language.lower().replace("_", "-").split("-")
  known = [
    scripts.split()
    for scripts, codes in _LANGUAGES.items()
    if base in codes.split()
  ]
  tagged = [_SCRIPT_TAGS[tag] for tag in tags if tag in _SCRIPT_TAGS]
  return not known or script in known[0] or script in tagged
