"""A small synchronous dependency grammar: English and an invented language.

One random dependency tree is read out twice. The English order follows the
productions below; in the target the verb ends its clause, articles and
prepositions follow their noun, and the form of almost every word depends on
the word it hangs on, however far away that is:

  noun       case by its role and by the class of its VERB (three classes, a
             property of the verb alone, to be learnt), or, hanging on a noun,
             by the gender of that NOUN
  adverb     one of three unrelated words, by the class of its VERB
  auxiliary  ending by the class of its VERB
  article    ending by gender and number of its NOUN
  adjective  the same; half of them are another word for animate nouns
  relative   a verb in a relative clause is a participle that agrees with the
  verb       NOUN it describes
  main verb  agrees with its subject in gender and number, the one word here
             that depends on a child and not on its parent
  relative pronouns and commas have no translation

So the parent is what a translator must know, and the words between (relative
clauses with verbs of their own, attributes) are there to mislead it. Who hangs
on whom can be told from the English words alone: a tool belongs to the verb
("fed the dog with the spoon"), a part to the noun ("with the collar").

Every relation is one of Universal Dependencies. The target's tree is the same
one, of the words that have a translation. `preprocess.quickstart` writes the
corpus with both trees and trains a parser on those of the English side.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator, Sequence

from preprocess.lexicon import (
  ANIMATE,
  NOUNS,
  VERBS,
  Word,
  lexicon,
  past,
  pick,
  plural,
)

# Where dependents stand in the target, from first to last; "" is the head.
TARGET_ORDER = (
  *("advmod", "obl", "nsubj", "obj", "amod", ""),
  *("aux", "case", "det", "nmod", "acl:relcl", "cc", "conj", "punct"),
)
# Endings by the class of the verb a word hangs on.
CASES = {
  "nsubj": ("ak", "ost", "em"),
  "obj": ("un", "il", "ard"),
  "obl": ("eva", "oru", "ita"),
}
AUXILIARY = ("is", "ur", "ol")
# Endings by gender: of a noun hanging on a noun, and of what agrees with one.
ATTRIBUTE = {"nmod": "no", "conj": "ka"}
GENDERS = "aeou"
# UPOS by kind; the rest are nouns.
UPOS = {
  **dict.fromkeys(VERBS, "VERB"),
  **{"adjective": "ADJ", "adverb": "ADV", "auxiliary": "AUX"},
  **{"near": "ADP", "with": "ADP", "of": "ADP", "and": "CCONJ"},
  **{"article": "DET", "pronoun": "PRON", "mark": "PUNCT"},
}


@dataclasses.dataclass
class Node:
  """A word in a tree, with its dependents left and right of it in English."""

  word: Word
  relation: str
  form: str = ""
  plural: bool = False
  left: list[Node] = dataclasses.field(default_factory=list)
  right: list[Node] = dataclasses.field(default_factory=list)

  def __post_init__(self) -> None:
    self.form = self.form or self.word.lemma

  def child(self, relation: str) -> Node | None:
    """The first dependent of a relation, if there is one."""
    found = (n for n in self.left + self.right if n.relation == relation)
    return next(found, None)


@dataclasses.dataclass(frozen=True)
class Pair:
  """A sentence pair with its tree.

  Attributes:
    source, target: plain text.
    tokens: English words and marks, in order.
    lemmas, upos, plurals, relations: one a token.
    classes: what a token's dependents agree with: kind, gender or class of
      verb, number.
    heads: index of the parent token; the root has its own.
    translations: the target word of each token, "" if it has none.
    order: which token each target word translates, in target order; the full
      stop is the last word of both.
  """

  source: str
  target: str
  tokens: tuple[str, ...]
  lemmas: tuple[str, ...]
  upos: tuple[str, ...]
  plurals: tuple[bool, ...]
  classes: tuple[str, ...]
  heads: tuple[int, ...]
  relations: tuple[str, ...]
  translations: tuple[str, ...]
  order: tuple[int, ...]

  def conllu(self, sentence_id: str) -> str:
    """The gold tree of the source: a CoNLL-U block, blank line included."""
    return self._block(
      sentence_id, self.source, self.tokens, self.lemmas, range(len(self.heads))
    )

  def target_conllu(self, sentence_id: str) -> str:
    """The gold tree of the target, the same way.

    A word hangs on the translation of the word above it; where that has none,
    of the nearest one above that has. The full stop hangs on the root, as in
    Universal Dependencies.
    """
    forms = [self.translations[i] or self.tokens[i] for i in self.order]
    lemmas = ["_"] * len(forms)
    return self._block(sentence_id, self.target, forms, lemmas, self.order)

  def _block(
    self,
    sentence_id: str,
    text: str,
    forms: Sequence[str],
    lemmas: Sequence[str],
    order: Sequence[int],
  ) -> str:
    """The tree over some of the tokens, in any order and under any forms."""
    place = {token: i for i, token in enumerate(order)}
    lines = [f"# sent_id = {sentence_id}", f"# text = {text}"]
    for i, token in enumerate(order):
      feats = "_"
      if self.upos[token] == "NOUN":
        feats = f"Number={'Plur' if self.plurals[token] else 'Sing'}"
      head = self.heads[token]
      while head not in place:
        head = self.heads[head]
      above = 0 if head == token else place[head] + 1
      glued = i + 1 < len(forms) and forms[i + 1] in ",."
      space = "SpaceAfter=No" if glued else "_"
      lines.append(
        f"{i + 1}\t{forms[i]}\t{lemmas[i]}\t{self.upos[token]}\t_\t{feats}"
        f"\t{above}\t{self.relations[token]}\t_\t{space}"
      )
    return "\n".join(lines) + "\n\n"


def pairs(
  count: int, seed: int, words: tuple[int, int] = (5, 25)
) -> list[Pair]:
  """Random sentence pairs, all different in their English.

  Args:
    count: how many.
    seed: the same seed gives the same pairs, on every machine.
    words: least and greatest number of English words and marks.
  """
  writer, found = Writer(seed), {}
  while len(found) < count:
    pair = read_out(writer.sentence())
    if words[0] <= len(pair.tokens) <= words[1]:
      found.setdefault(pair.source, pair)
  return list(found.values())


class Writer:
  """The productions: draws random trees."""

  def __init__(self, seed: int):
    self.rng = random.Random(seed)

  def sentence(self) -> Node:
    """A main clause: [adverb or place,] subject verb [object] [adjuncts]."""
    verb = self.verb("root")
    front = []
    if self.chance(0.45):
      at_place = self.chance(0.35)
      front = [self.place() if at_place else self.word("adverb", "advmod")]
      front.append(self.word("mark", "punct", ","))
    subject = self.noun("nsubj", ANIMATE, depth=0)
    verb.left = [*front, subject, *verb.left]
    self.finish(verb, depth=0)
    verb.right.append(self.word("mark", "punct", "."))
    return verb

  def verb(self, relation: str, transitive: bool | None = None) -> Node:
    """A verb in the past, or an auxiliary, perhaps an adverb, and the verb."""
    if transitive is None:
      transitive = self.chance(0.8)
    node = self.word(VERBS[not transitive], relation)
    if self.chance(0.3):
      node.left.append(self.word("auxiliary", "aux"))
      if self.chance(0.3):
        node.left.append(self.word("adverb", "advmod"))
    else:
      node.form = past(node.word.lemma)
    return node

  def finish(self, verb: Node, depth: int, gap: bool = False) -> None:
    """What follows the verb; `gap`: its object stands before the clause."""
    if verb.word.kind == "transitive" and not gap:
      kinds = ANIMATE if self.chance(0.5) else ("thing",)
      verb.right.append(self.noun("obj", kinds, depth))
      # What followed a relative clause would seem to belong to its verb.
      if verb.right[-1].child("acl:relcl"):
        return
    if self.chance(0.25):
      verb.right.append(self.place())
    if self.chance(0.15):
      verb.right.append(self.noun("obl", ("tool",), 2, "with"))
    if not verb.child("advmod") and self.chance(0.2):
      verb.right.append(self.word("adverb", "advmod"))

  def place(self) -> Node:
    """Where it happens: "near the river"."""
    return self.noun("obl", ("place",), 2, "near")

  def noun(
    self, relation: str, kinds: tuple[str, ...], depth: int, case: str = ""
  ) -> Node:
    """Article, adjectives, noun, then an attribute, a clause or a partner.

    Args:
      depth: 0 in the main clause, 1 in a relative clause, 2 for the simplest.
      case: kind of the preposition before it.
    """
    node = self.word(pick(self.rng, kinds), relation)
    node.plural = self.chance(0.35)
    if node.plural:
      node.form = plural(node.word.lemma)
    node.left = [self.word(case, "case")] if case else []
    node.left.append(self.article(node.plural))
    while self.chance(0.3) and len(node.left) < 4:
      node.left.append(self.word("adjective", "amod"))
    if depth == 2:
      return node
    kind = node.word.kind
    of = self.chance(0.4)
    if self.chance(0.35):
      kinds = ("person",) if of else ("part",)
      node.right.append(self.noun("nmod", kinds, 2, "of" if of else "with"))
    # "the friend of the king who ...": who? Not said by this grammar.
    if not (node.right and of and kind == "person") and self.chance(
      (0.4, 0.12)[depth]
    ):
      node.right.append(self.relative(kind == "person", depth + 1))
    elif not node.right and relation == "nsubj" and self.chance(0.15):
      partner = self.noun("conj", ANIMATE, 2)
      partner.left.insert(0, self.word("and", "cc"))
      node.right.append(partner)
    return node

  def article(self, many: bool) -> Node:
    """An article that can stand before one, or many."""
    node = self.word("article", "det")
    other = {"a": "some", "every": "the"} if many else {"some": "a"}
    if node.word.lemma in other:
      node = self.word("article", "det", other[node.word.lemma])
    if many and node.word.lemma == "this":
      node.form = "these"
    return node

  def relative(self, person: bool, depth: int) -> Node:
    """A relative clause with its subject or its object left out."""
    gap = self.chance(0.5)
    verb = self.verb("acl:relcl", transitive=gap or None)
    pronoun = ("who", "whom")[gap] if person else "that"
    start = [self.word("pronoun", "obj" if gap else "nsubj", pronoun)]
    if gap:
      start.append(self.noun("nsubj", ANIMATE, depth))
    verb.left = start + verb.left
    self.finish(verb, depth, gap)
    return verb

  def chance(self, probability: float) -> bool:
    """True with this probability."""
    return self.rng.random() < probability

  def word(self, kind: str, relation: str, lemma: str = "") -> Node:
    """A word of a kind: the one asked for, or a random one by Zipf's law."""
    words = lexicon()[kind]
    if lemma:
      found = next(w for w in words if w.lemma == lemma)
    else:
      sums = _zipf(len(words))
      found = words[bisect.bisect(sums, self.rng.random() * sums[-1])]
    return Node(found, relation)


def read_out(root: Node) -> Pair:
  """Both texts and the tree."""
  nodes = list(_english(root, root))
  place = {id(node): i for i, (node, _) in enumerate(nodes)}
  tokens = [node.form for node, _ in nodes]
  for i, form in enumerate(tokens):
    if form == "a" and tokens[i + 1][0] in "aeiou":
      tokens[i] = "an"
  tokens[0] = tokens[0].capitalize()
  source = " ".join(tokens).replace(" ,", ",").replace(" .", ".")
  translations = tuple(translate(*arc) for arc in nodes)
  order = [place[id(node)] for node, _ in _target(root, root)]
  order = [i for i in order if translations[i]]
  return Pair(
    source=source,
    target=" ".join(translations[i] for i in order) + ".",
    tokens=tuple(tokens),
    lemmas=tuple(node.word.lemma for node, _ in nodes),
    upos=tuple(UPOS.get(node.word.kind, "NOUN") for node, _ in nodes),
    plurals=tuple(node.plural for node, _ in nodes),
    classes=tuple(
      f"{n.word.kind} {n.word.group}{'+' * n.plural}" for n, _ in nodes
    ),
    heads=tuple(place[id(parent)] for _, parent in nodes),
    relations=tuple(node.relation for node, _ in nodes),
    translations=translations,
    order=(*order, len(tokens) - 1),
  )


def translate(node: Node, parent: Node) -> str:
  """The target word of a node; "" for those that have none."""
  word, above = node.word, parent.word
  if word.kind in ("pronoun", "mark"):
    return ""
  if word.kind in NOUNS:
    number = "ir" if node.plural else ""
    if node.relation in CASES:
      return word.stems[0] + number + CASES[node.relation][above.group]
    ending = GENDERS[above.group] + ATTRIBUTE[node.relation]
    return word.stems[0] + number + ending
  if word.kind == "adverb":
    return word.stems[above.group]
  if word.kind == "auxiliary":
    return word.stems[0] + AUXILIARY[above.group]
  if word.kind in VERBS:
    # The participle agrees with the noun above, the main verb with its subject.
    agree, mark = parent, "l"
    if node.relation == "root":
      agree, mark = node.child("nsubj"), "t"
    many = agree.plural or agree.child("conj") is not None
    return word.stems[0] + GENDERS[agree.word.group] + mark + "in" * many
  sense = 0
  if word.kind == "adjective":
    sense = above.kind in ANIMATE
  elif word.kind == "with":
    sense = above.kind == "tool"
  stem = word.stems[sense % len(word.stems)]
  return stem + GENDERS[above.group] + "n" * parent.plural


def _english(node: Node, parent: Node) -> Iterator[tuple[Node, Node]]:
  """(word, its parent) in English order."""
  for child in node.left:
    yield from _english(child, node)
  yield node, parent
  for child in node.right:
    yield from _english(child, node)


def _target(node: Node, parent: Node) -> Iterator[tuple[Node, Node]]:
  """(word, its parent) in target order."""
  children = node.left + node.right
  for relation in TARGET_ORDER:
    if not relation:
      yield node, parent
    for child in children:
      if child.relation == relation:
        yield from _target(child, node)


@functools.cache
def _zipf(count: int) -> tuple[float, ...]:
  """Running sums of 1/(rank + 3), so that some words are rare."""
  return tuple(itertools.accumulate(1 / (rank + 3) for rank in range(count)))
