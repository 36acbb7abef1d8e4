"""Grammar that generates random English sentences as dependency trees.

Words between a word and its parent (relative clauses, attributes) are
distractors. The English words alone determine the tree: a tool depends on the
verb ("fed the dog with the spoon"), a part on the noun ("with the collar").
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import random

from jaxsyn.preprocess.toy.lexicon import (
  ANIMATE,
  VERBS,
  Word,
  lexicon,
  past,
  pick,
  plural,
)


@dataclasses.dataclass
class Node:
  """A word of a dependency tree, with its left and right dependents."""

  word: Word
  relation: str
  form: str = ""
  plural: bool = False
  left: list[Node] = dataclasses.field(default_factory=list)
  right: list[Node] = dataclasses.field(default_factory=list)

  def __post_init__(self) -> None:
    self.form = self.form or self.word.lemma

  def child(self, relation: str) -> Node | None:
    """Returns the first dependent with a given relation, or None."""
    children = (n for n in self.left + self.right if n.relation == relation)
    return next(children, None)


class Grammar:
  """Generator of random dependency trees, with a method for each production.

  The depth of a phrase is 0 in the main clause, 1 in a relative clause, and 2
  for a noun phrase with only article and adjectives.
  """

  def __init__(self, seed: int):
    self.rng = random.Random(seed)

  def chance(self, probability: float) -> bool:
    return self.rng.random() < probability

  def sentence(self) -> Node:
    """Returns the dependency tree of a random sentence.

    Order: [adverb or place,] subject verb [object] [adjuncts].
    """
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
    """Returns a random verb in the past tense or with an auxiliary."""
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
    """Adds a random object and adjuncts to the right of a verb.

    Args:
      verb: Verb of the clause; modified in place.
      depth: Depth of the clause.
      gap: Whether a relative pronoun is the object of the verb.
    """
    if verb.word.kind == "transitive" and not gap:
      kinds = ANIMATE if self.chance(0.5) else ("thing",)
      verb.right.append(self.noun("obj", kinds, depth))
      # What followed a relative clause would seem to belong to its verb.
      if verb.right[-1].child("acl:relcl"):
        return
    if self.chance(0.25):
      verb.right.append(self.place())
    if self.chance(0.15):
      verb.right.append(self.noun("obl", ("tool",), 2, case="with"))
    if not verb.child("advmod") and self.chance(0.2):
      verb.right.append(self.word("adverb", "advmod"))

  def place(self) -> Node:
    return self.noun("obl", ("place",), 2, case="near")

  def noun(
    self, relation: str, kinds: tuple[str, ...], depth: int, case: str = ""
  ) -> Node:
    """Returns a random noun phrase with a noun from the given word classes.

    A preposition of the class `case` comes before it, if given.
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
      kinds, case = (("person",), "of") if of else (("part",), "with")
      node.right.append(self.noun("nmod", kinds, 2, case))
    # "the friend of the king who ..." would be ambiguous.
    is_ambiguous = node.right and of and kind == "person"
    if not is_ambiguous and self.chance((0.4, 0.12)[depth]):
      node.right.append(self.relative(kind == "person", depth + 1))
    elif not node.right and relation == "nsubj" and self.chance(0.15):
      partner = self.noun("conj", ANIMATE, 2)
      partner.left.insert(0, self.word("and", "cc"))
      node.right.append(partner)
    return node

  def article(self, many: bool) -> Node:
    """Returns a random article for a singular or a plural noun."""
    node = self.word("article", "det")
    other = {"a": "some", "every": "the"} if many else {"some": "a"}
    if node.word.lemma in other:
      node = self.word("article", "det", other[node.word.lemma])
    if many and node.word.lemma == "this":
      node.form = "these"
    return node

  def relative(self, person: bool, depth: int) -> Node:
    """Returns the tree of a random relative clause; its root is the verb."""
    gap = self.chance(0.5)
    verb = self.verb("acl:relcl", transitive=gap or None)
    pronoun = ("who", "whom")[gap] if person else "that"
    start = [self.word("pronoun", "obj" if gap else "nsubj", pronoun)]
    if gap:
      start.append(self.noun("nsubj", ANIMATE, depth))
    verb.left = start + verb.left
    self.finish(verb, depth, gap)
    return verb

  def word(self, kind: str, relation: str, lemma: str = "") -> Node:
    """Returns a tree node for a given word or for one sampled by Zipf's law."""
    words = lexicon()[kind]
    if lemma:
      chosen = next(w for w in words if w.lemma == lemma)
    else:
      shares = (1 / (rank + 3) for rank in range(len(words)))
      sums = [*itertools.accumulate(shares)]
      chosen = words[bisect.bisect(sums, self.rng.random() * sums[-1])]
    return Node(chosen, relation)
