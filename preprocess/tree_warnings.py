"""What looks wrong about trees: a model of another language, no tree at all.

A parser answers whatever it is asked; that Czech was parsed as English shows in
no error, but in the trees, and later in a system that seems to gain nothing from
them. `TreeStats` counts what tells them apart while the trees are made, and
`doubts` says in a sentence what is out of bounds. It is a warning: a corpus of
headlines may be as it is.

The limits were chosen on gold trees (seven languages of UD's PUD, and English
EWT; 1,000 sentences and more) and on texts parsed by UDPipe 1 (English, German,
Japanese, and a Czech model of 850 sentences; captions, everyday sentences, PUD;
60 to 120 lines each): 9 pairs of a model and a text of its language, 43 of
another. In per cent, the most (of function words: the least) and what others have:

                     gold         own language   another language
  uncut              3.1          0.0            0 to 86.5
  flat               0.3          0.0            0 to 91.4
  chains             0.0          0.0            0 to 86.1
  unlabelled         1.8          0.1            0 to 1.8
  one relation       23.9         24.6           13.1 to 83.8
  function words     12.5         21.3           0 to 45.9
  letters elsewhere  5.3          0.0

No gold trees and none of a model of the language are warned of; of the 43
others, 40 are. The three are English text by the German and the Czech model,
which knows their names and, of captions, their order of words. "unparsed" and
"unlabelled" are of parsers that say so, as none of these did.
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

_LEAST_WORDS = 8  # of a tree whose shape says something
_LONG = 20  # characters of a word
_MIN_COUNT = 20  # sentences, or trees of so many words, that say something

# Relations of Universal Dependencies, without their subtypes.
_UNIVERSAL = frozenset(
  [
    "acl",
    "advcl",
    "advmod",
    "amod",
    "appos",
    "aux",
    "case",
    "cc",
    "ccomp",
    "clf",
    "compound",
    "conj",
    "cop",
    "csubj",
    "dep",
    "det",
    "discourse",
    "dislocated",
    "expl",
    "fixed",
    "flat",
    "goeswith",
    "iobj",
    "list",
    "mark",
    "nmod",
    "nsubj",
    "nummod",
    "obj",
    "obl",
    "orphan",
    "parataxis",
    "punct",
    "reparandum",
    "root",
    "vocative",
    "xcomp",
  ]
)
_FUNCTION = frozenset(["aux", "case", "cc", "clf", "cop", "det", "mark"])
_UNLABELLED = frozenset(["dep", "_", ""])

_CHINESE = ("CJK", "IDEOGRAPHIC", "BOPOMOFO")
_JAPANESE = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH")
_SCRIPTS: dict[str, tuple[str, ...]] = {
  **dict.fromkeys(("zh", "lzh", "yue"), _CHINESE),
  "ja": (*_JAPANESE, "KATAKANA-HIRAGANA"),
  "ko": ("HANGUL", "CJK"),
  **dict.fromkeys(
    ("ru", "uk", "bg", "be", "mk", "kk", "orv", "cu"), ("CYRILLIC",)
  ),
  "sr": ("CYRILLIC", "LATIN"),
  **dict.fromkeys(("el", "grc"), ("GREEK",)),
  **dict.fromkeys(("ar", "fa", "ur", "ug"), ("ARABIC",)),
  **dict.fromkeys(("he", "yi"), ("HEBREW",)),
  **dict.fromkeys(("hi", "mr", "sa", "ne"), ("DEVANAGARI",)),
  "ta": ("TAMIL",),
  "te": ("TELUGU",),
  "bn": ("BENGALI",),
  "th": ("THAI",),
  "hy": ("ARMENIAN",),
  "ka": ("GEORGIAN",),
  "am": ("ETHIOPIC",),
  **dict.fromkeys(
    [
      "af",
      "br",
      "ca",
      "cs",
      "cy",
      "da",
      "de",
      "en",
      "es",
      "et",
      "eu",
      "fi",
      "fr",
      "ga",
      "gl",
      "hr",
      "hu",
      "id",
      "is",
      "it",
      "la",
      "lt",
      "lv",
      "mt",
      "nb",
      "nl",
      "nn",
      "no",
      "pl",
      "pt",
      "ro",
      "sk",
      "sl",
      "sv",
      "tr",
      "vi",
    ],
    ("LATIN",),
  ),
}


@dataclasses.dataclass
class TreeStats:
  """Sums over lines of a side; all are zero at first.

  Attributes:
    lines: that have something to see.
    unparsed: of them, without a tree.
    trees: of at least 8 words.
    flat: of them, those where all words depend on one.
    chains: of them, those where each word depends on a neighbour.
    relations: label, without its subtype -> words that have it.
    characters: of all words.
    uncut: of them, those of words of more than 20.
    letters: of all lines.
    foreign: of them, of no script of the side's language.
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
    """Counts a line.

    Args:
      parse: of it.
      language: code of the side's.
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
    if len(parse.head_W) >= _LEAST_WORDS:
      self.trees += 1
      hangs = [(i, head) for i, head in enumerate(parse.head_W) if i != head]
      self.flat += len({head for _, head in hangs}) <= 1
      self.chains += all(-1 <= head - i <= 1 for i, head in hangs)

  def as_dict(self) -> dict[str, Any]:
    """The same for JSON."""
    return {**vars(self), "relations": dict(sorted(self.relations.items()))}

  @classmethod
  def sum(cls, pages: Iterable[Mapping[str, Any]]) -> TreeStats:
    """Of what `counts` has given of each."""
    total = cls()
    for counts in pages:
      for name, value in counts.items():
        if name == "relations":
          total.relations.update(value)
        else:
          setattr(total, name, getattr(total, name) + value)
    return total


def rates(stats: TreeStats) -> dict[str, float]:
  """Per cent of each kind; only of those that there is enough to say of."""
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
  """A share that trees of the right model stay on one side of.

  Attributes:
    per_cent: the limit.
    meaning: of what it is beyond.
    below: whether it is a lower limit.
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
  """What is out of bounds, each in a line; mostly nothing is."""
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
  """Without its subtype."""
  return relation.partition(":")[0]


@functools.cache
def _script(letter: str) -> str:
  """As its name in Unicode begins; "" of what is no letter."""
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
