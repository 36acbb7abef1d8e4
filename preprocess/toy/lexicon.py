"""Words of the quickstart corpus, in English and in an invented language.

The most frequent words of each class come first. All nouns have a regular
plural, and nearly all verbs a regular past tense without a doubled consonant.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random

ANIMATE = ("person", "animal")
NOUNS = (*ANIMATE, "thing", "place", "tool", "part")
VERBS = ("transitive", "intransitive")

# Word class, as in the productions of the grammar -> lemmas.
WORDS = {
  kind: tuple(lemmas.split())
  for kind, lemmas in {
    "person": """king farmer teacher doctor sailor queen baker soldier
      painter neighbour miller singer judge hunter merchant widow student
      writer nurse prince captain gardener tailor dancer priest pilot cook
      lawyer barber fisher stranger guard banker""",
    "animal": """dog horse cat bird cow rabbit bear goat duck lion monkey
      donkey eagle tiger elephant camel frog spider turtle""",
    "thing": """letter picture table apple lamp chair boat song cake window
      coat clock basket bottle carpet ring story candle mirror drum cup
      cart""",
    "place": """garden village forest river market castle kitchen church
      bridge harbour school field tower mountain station temple street""",
    "tool": """stick hammer rope net broom spoon needle shovel whip
      torch""",
    "part": """crown hat beard scar tail feather collar bell ribbon""",
    "transitive": """watch follow help praise visit paint admire carry call
      want remember move fear wash clean push touch lift blame reward guide
      trust ignore miss rescue capture protect greet need cover chase
      describe mention""",
    "intransitive": """sleep laugh wait dance arrive smile cry work listen
      shout sneeze talk rest climb""",
    "adjective": """old young small big happy poor tall rich green quiet
      strange clever heavy proud dark lazy bright brave""",
    "adverb": """yesterday often quickly quietly never carefully gladly
      today slowly secretly soon""",
    "auxiliary": "will must may can should",
    "near": "in near behind under beside",
    "with": "with",
    "of": "of",
    "and": "and",
    "article": "the a this my every our some",
  }.items()
}

PRONOUNS = ("who", "whom", "that")
PAST = {"sleep": "slept"}  # irregular verbs


@dataclasses.dataclass(frozen=True)
class Word:
  """An English word with the stems of its translations.

  Attributes:
    lemma: English dictionary form.
    kind: Word class, a key of `WORDS`, or "pronoun" or "mark".
    group: Gender 0-3 of a noun, class 0-2 of a verb, otherwise 0.
    stems: Target stems; the parent may determine which one is used.
  """

  lemma: str
  kind: str
  group: int = 0
  stems: tuple[str, ...] = ()


@functools.cache
def lexicon() -> dict[str, tuple[Word, ...]]:
  """Returns the fixed lexicon of both languages by word class."""
  rng = random.Random("the words of the target language")
  syllables = ["".join(s) for s in itertools.product("bdfgklmnprstvz", "aeiou")]
  used: set[str] = set()

  def stem(length: int) -> str:
    while True:
      parts = [pick(rng, syllables) for _ in range(length)]
      made = "".join(parts) + pick(rng, "lmnrst")
      if made not in used:
        used.add(made)
        return made

  words = {
    "pronoun": tuple(Word(lemma, "pronoun") for lemma in PRONOUNS),
    "mark": tuple(Word(lemma, "mark") for lemma in ".,"),
  }
  for kind, lemmas in WORDS.items():
    groups = 4 if kind in NOUNS else 3 if kind in VERBS else 1
    length = 1 if len(lemmas) < 8 else 2
    made = []
    for rank, lemma in enumerate(lemmas):
      senses = {"adverb": 3, "adjective": 1 + rank % 2, "with": 2}.get(kind, 1)
      stems = tuple(stem(length) for _ in range(senses))
      made.append(Word(lemma, kind, int(rng.random() * groups), stems))
    words[kind] = tuple(made)
  return words


def plural(noun: str) -> str:
  """Returns the plural of a regular English noun.

  >>> plural("dog"), plural("church"), plural("lady"), plural("donkey")
  ('dogs', 'churches', 'ladies', 'donkeys')
  """
  if noun.endswith(("s", "x", "ch", "sh")):
    return noun + "es"
  if noun.endswith("y") and noun[-2] not in "aeiou":
    return noun[:-1] + "ies"
  return noun + "s"


def past(verb: str) -> str:
  """Returns the past tense of an English verb in `WORDS`.

  >>> past("watch"), past("chase"), past("carry"), past("obey"), past("sleep")
  ('watched', 'chased', 'carried', 'obeyed', 'slept')
  """
  if verb in PAST:
    return PAST[verb]
  if verb.endswith("e"):
    return verb + "d"
  if verb.endswith("y") and verb[-2] not in "aeiou":
    return verb[:-1] + "ied"
  return verb + "ed"


def pick(rng: random.Random, choices):
  """Picks a random element, the same one in all Python versions.

  Of the methods of a generator, only `random()` never changes.
  """
  return choices[int(rng.random() * len(choices))]
