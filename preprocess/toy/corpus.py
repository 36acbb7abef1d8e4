"""Generates sentence pairs in English and an invented language from trees.

The tree (`preprocess.toy.grammar`) has the English word order. In the target
language the verb ends its clause, articles and prepositions follow their noun,
and the form of almost every word depends on its parent, however distant:

  noun       case by its role and by the class of its VERB (three classes, to
             be learned for each verb), or, if its parent is a noun, by the
             gender of that NOUN
  adverb     one of three unrelated words, by the class of its VERB
  auxiliary  ending by the class of its VERB
  article    ending by gender and number of its NOUN
  adjective  ending as an article; half have another stem for animate nouns
  relative   a verb in a relative clause is a participle that agrees with the
  verb       NOUN it describes
  main verb  agrees with its subject in gender and number; the only word whose
             form depends on a child and not on its parent
  relative pronouns and commas have no translation

So a translation system needs to know the parent of each word.

All relations are those of Universal Dependencies. The target tree is the
English tree without the words that have no translation.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from jaxsyn.preprocess.toy.grammar import Grammar, Node
from jaxsyn.preprocess.toy.lexicon import ANIMATE, NOUNS, VERBS, Word

# Order of dependents in the target; "" is the parent.
TARGET_ORDER = (
  "advmod",
  "obl",
  "nsubj",
  "obj",
  "amod",
  "",
  "aux",
  "case",
  "det",
  "nmod",
  "acl:relcl",
  "cc",
  "conj",
  "punct",
)
# Endings by the class of the verb that is the parent.
CASES = {
  "nsubj": ("ak", "ost", "em"),
  "obj": ("un", "il", "ard"),
  "obl": ("eva", "oru", "ita"),
}
AUXILIARY = ("is", "ur", "ol")
# Endings of a noun whose parent is a noun, and endings by gender.
ATTRIBUTE = {"nmod": "no", "conj": "ka"}
GENDERS = "aeou"
# Word class -> UPOS; other classes are nouns.
UPOS = {
  **dict.fromkeys(VERBS, "VERB"),
  **{"adjective": "ADJ", "adverb": "ADV", "auxiliary": "AUX"},
  **{"near": "ADP", "with": "ADP", "of": "ADP", "and": "CCONJ"},
  **{"article": "DET", "pronoun": "PRON", "mark": "PUNCT"},
}


@dataclasses.dataclass(frozen=True)
class Pair:
  """A sentence pair of the quickstart, with its gold tree and word alignment.

  Attributes:
    source: English text.
    target: Text in the invented language.
    tokens: English words and punctuation marks, in order.
    words: Word of each token.
    plurals: Whether each token is a plural.
    heads: Index of the parent of each token; a root is its own parent.
    relations: Dependency relation of each token.
    translations: Target word of each token, "" if it has no target.
    order: Index of the token that each target word translates; the full stop is
      the last word of both sides.
  """

  source: str
  target: str
  tokens: tuple[str, ...]
  words: tuple[Word, ...]
  plurals: tuple[bool, ...]
  heads: tuple[int, ...]
  relations: tuple[str, ...]
  translations: tuple[str, ...]
  order: tuple[int, ...]

  def conllu(self, sentence_id: str, side: str = "source") -> str:
    """Returns the gold tree of a side as CoNLL-U, ending in a blank line.

    In the target a word depends on the translation of its nearest ancestor that
    has one. The full stop depends on the root, as in Universal Dependencies.
    """
    text, forms, order = self.source, self.tokens, tuple(range(len(self.heads)))
    if side == "target":
      text, order = self.target, self.order
      forms = tuple(self.translations[i] or self.tokens[i] for i in order)
    place = {token: i for i, token in enumerate(order)}
    lines = [f"# sent_id = {sentence_id}", f"# text = {text}"]
    for i, token in enumerate(order):
      word, feats = self.words[token], "_"
      upos = UPOS.get(word.kind, "NOUN")
      if upos == "NOUN":
        feats = f"Number={'Plur' if self.plurals[token] else 'Sing'}"
      head = self.heads[token]
      while head not in place:
        head = self.heads[head]
      above = 0 if head == token else place[head] + 1
      glued = i + 1 < len(forms) and forms[i + 1] in ",."
      space = "SpaceAfter=No" if glued else "_"
      lemma = word.lemma if side == "source" else "_"
      lines.append(
        f"{i + 1}\t{forms[i]}\t{lemma}\t{upos}\t_\t{feats}"
        f"\t{above}\t{self.relations[token]}\t_\t{space}"
      )
    return "\n".join(lines) + "\n\n"

  def links(self) -> list[tuple[int, int]]:
    """Returns the gold word alignment, as pairs of source and target indices.

    Indices count whitespace-separated words; punctuation marks have no links.
    """
    words = [token not in ",." for token in self.tokens]
    *order, _ = self.order  # the last is the full stop
    return [(sum(words[:token]), i) for i, token in enumerate(order)]


def read_out(root: Node) -> Pair:
  """Converts an English dependency tree to a sentence pair."""
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
    words=tuple(node.word for node, _ in nodes),
    plurals=tuple(node.plural for node, _ in nodes),
    heads=tuple(place[id(parent)] for _, parent in nodes),
    relations=tuple(node.relation for node, _ in nodes),
    translations=translations,
    order=(*order, len(tokens) - 1),
  )


def translate(node: Node, parent: Node) -> str:
  """Translates a word, inflected to agree with its parent; "" if dropped."""
  word, above = node.word, parent.word
  if word.kind in ("pronoun", "mark"):
    return ""
  if word.kind in NOUNS:
    number_suffix = "ir" if node.plural else ""
    if node.relation in CASES:
      return word.stems[0] + number_suffix + CASES[node.relation][above.group]
    ending = GENDERS[above.group] + ATTRIBUTE[node.relation]
    return word.stems[0] + number_suffix + ending
  if word.kind == "adverb":
    return word.stems[above.group]
  if word.kind == "auxiliary":
    return word.stems[0] + AUXILIARY[above.group]
  if word.kind in VERBS:
    # The participle agrees with the noun above, the main verb with its subject.
    agree, mark = parent, "l"
    if node.relation == "root" and (subject := node.child("nsubj")):
      agree, mark = subject, "t"
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
  """Yields each word of a tree with its parent, in English word order."""
  for child in node.left:
    yield from _english(child, node)
  yield node, parent
  for child in node.right:
    yield from _english(child, node)


def _target(node: Node, parent: Node) -> Iterator[tuple[Node, Node]]:
  """Yields each word of a tree with its parent, in target word order."""
  children = node.left + node.right
  for relation in TARGET_ORDER:
    if not relation:
      yield node, parent
    for child in children:
      if child.relation == relation:
        yield from _target(child, node)


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Numbers of sentence pairs per split, and of parser training trees."""

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
  pairs: dict[str, Pair] = {}
  while len(pairs) < count:
    pair = read_out(grammar.sentence())
    if 5 <= len(pair.tokens) <= 25:
      pairs.setdefault(pair.source, pair)
  return list(pairs.values())
