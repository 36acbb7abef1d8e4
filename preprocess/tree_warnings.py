"""Warnings about suspicious trees, as from a parser for another language.

A parser returns trees for any text. If it parses Czech as English, no error
occurs, but the trees are wrong and do not help a translation system.
`TreeStats` counts properties of such trees, and `find_warnings` returns a
message for each value out of bounds. A corpus may be unusual, so these are only
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
import dataclasses
import functools
import operator
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.conllu import Parse

_MIN_WORDS = 8  # a smaller tree has no informative shape
_LONG = 20  # characters of a word
_MIN_COUNT = 20  # shares of fewer sentences or trees are not informative

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
  ("CJK", "IDEOGRAPHIC", "BOPOMOFO"): "zh lzh yue",
  (
    "CJK",
    "IDEOGRAPHIC",
    "HIRAGANA",
    "KATAKANA",
    "HALFWIDTH",
    "KATAKANA-HIRAGANA",
  ): "ja",
  ("HANGUL", "CJK"): "ko",
  ("CYRILLIC",): "ru uk bg be mk kk orv cu",
  ("CYRILLIC", "LATIN"): "sr",
  ("GREEK",): "el grc",
  ("ARABIC",): "ar fa ur ug",
  ("HEBREW",): "he yi",
  ("DEVANAGARI",): "hi mr sa ne",
  ("TAMIL",): "ta",
  ("TELUGU",): "te",
  ("BENGALI",): "bn",
  ("THAI",): "th",
  ("ARMENIAN",): "hy",
  ("GEORGIAN",): "ka",
  ("ETHIOPIC",): "am",
  (
    "LATIN",
  ): """af br ca cs cy da de en es et eu fi fr ga gl hr hu id is it la lt
    lv mt nb nl nn no pl pt ro sk sl sv tr vi""",
}
_SCRIPTS = {
  code: scripts
  for scripts, codes in _LANGUAGES.items()
  for code in codes.split()
}


@dataclasses.dataclass
class TreeStats:
  """Statistics of a side's lines and trees, which reveal unsuitable parsers.

  Attributes:
    lines: number of lines with visible characters.
    unparsed: number of these lines without a tree.
    trees: number of trees of at least 8 words.
    flat: number of these trees in which all words depend on one word.
    chains: number of these trees in which each word depends on a neighbor.
    relations: relation without its subtype -> number of words.
    characters: number of characters in all words.
    uncut: number of characters in words of more than 20 characters.
    letters: number of letters in all lines.
    foreign: number of letters in no script of the side's language.
  """

  lines: int = 0
  unparsed: int = 0
  trees: int = 0
  flat: int = 0
  chains: int = 0
  relations: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  characters: int = 0
  uncut: int = 0
  letters: int = 0
  foreign: int = 0

  def add(self, parse: Parse, language: str) -> None:
    """Adds one parsed line to the statistics.

    Args:
      parse: parse of the line.
      language: language code of the side.
    """
    if not visible(parse.text):
      return
    self.lines += 1
    for letter, times in collections.Counter(parse.text).items():
      if script := _script(letter):
        self.letters += times
        self.foreign += 0 if _is_of(language, script) else times
    if not parse.parsed:
      self.unparsed += 1
      return
    lengths = [*map(operator.sub, parse.end_W, parse.start_W)]
    self.characters += sum(lengths)
    if max(lengths) > _LONG:
      self.uncut += sum(length for length in lengths if length > _LONG)
    self.relations.update(map(_base, parse.relation_W))
    if len(parse.head_W) >= _MIN_WORDS:
      self.trees += 1
      edges = [(i, head) for i, head in enumerate(parse.head_W) if i != head]
      self.flat += len({head for _, head in edges}) <= 1
      self.chains += all(-1 <= head - i <= 1 for i, head in edges)

  def as_dict(self) -> dict[str, Any]:
    """Returns the tree statistics as a JSON object."""
    return {**vars(self), "relations": dict(sorted(self.relations.items()))}

  @classmethod
  def sum(cls, parts: Iterable[Mapping[str, Any]]) -> TreeStats:
    """Returns the sum of tree statistics that `as_dict` returned."""
    total = cls()
    for counts in parts:
      for name, value in counts.items():
        if name == "relations":
          total.relations.update(value)
        else:
          setattr(total, name, getattr(total, name) + value)
    return total


def rates(stats: TreeStats) -> dict[str, float]:
  """Returns tree statistics in percent, without those of too little text."""
  rates_found = {}
  if stats.lines >= _MIN_COUNT:
    rates_found["unparsed"] = _share(stats.unparsed, stats.lines)
    rates_found["foreign"] = _share(stats.foreign, stats.letters)
    rates_found["uncut"] = _share(stats.uncut, stats.characters)
  if stats.trees >= _MIN_COUNT:
    words = stats.relations
    rates_found["flat"] = _share(stats.flat, stats.trees)
    rates_found["chains"] = _share(stats.chains, stats.trees)
    rates_found["unlabelled"] = _sum_of(words, _UNLABELLED)
    rates_found["one relation"] = _share(max(words.values()), words.total())
    if _sum_of(words, _UNIVERSAL) > 90:
      rates_found["function words"] = _sum_of(words, _FUNCTION)
  return rates_found


@dataclasses.dataclass(frozen=True)
class Limit:
  """Upper or lower limit of a percentage for trees of a suitable parser.

  Attributes:
    per_cent: limit in per cent.
    meaning: description of the percentage, for messages.
    below: whether the limit is a lower bound.
  """

  per_cent: float
  meaning: str
  below: bool = False

  def passed(self, share: float) -> bool:
    return share < self.per_cent if self.below else share > self.per_cent


LIMITS: dict[str, Limit] = {
  "unparsed": Limit(5, "lines have no tree"),
  "foreign": Limit(20, "letters are of no script of its language"),
  "uncut": Limit(10, "characters are of words of more than 20"),
  "flat": Limit(10, "trees have all words on one"),
  "chains": Limit(2, "trees have each word on a neighbour"),
  "unlabelled": Limit(10, "words have no relation but dep or _"),
  "one relation": Limit(28, "words have the same relation"),
  "function words": Limit(12, "words are function words", below=True),
}


def find_warnings(stats: TreeStats) -> list[str]:
  """Returns a warning message for each tree statistic that is out of bounds."""
  return [
    f"{share:.1f} % of the {LIMITS[name].meaning} (usual: "
    f"{'at least' if LIMITS[name].below else 'at most'} {LIMITS[name].per_cent:g} %)"
    for name, share in rates(stats).items()
    if LIMITS[name].passed(share)
  ]


def _share(part: float, total: float) -> float:
  return 100 * part / max(1, total)


def _sum_of(words: collections.Counter[str], kinds: frozenset[str]) -> float:
  return _share(sum(words[kind] for kind in kinds), words.total())


@functools.cache
def _base(relation: str) -> str:
  """Returns a dependency relation without its subtype (after the colon)."""
  return relation.partition(":")[0]


@functools.cache
def _script(letter: str) -> str:
  """Returns the script of a letter by its Unicode name; "" for non-letters."""
  if not letter.isalpha():
    return ""
  words = unicodedata.name(letter, "").split(" ")
  return words[1] if words[0] == "FULLWIDTH" else words[0]


@functools.cache
def _is_of(language: str, script: str) -> bool:
  base, *rest = language.replace("_", "-").split("-")
  known = _SCRIPTS.get(base.lower(), ())
  written = {"latn": "LATIN", "cyrl": "CYRILLIC"}
  known_scripts = {
    written[tag.lower()] for tag in rest if tag.lower() in written
  }
  return not known or script in known or script in known_scripts
