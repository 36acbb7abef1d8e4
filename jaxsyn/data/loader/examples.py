"""The examples of a split as a run reads them: its trees, its tasks.

What is stored is one example a pair, with the parser's trees. A run
may ask for other trees (config.data.tree), and for a second task beside
translation (config.data.second), whose examples come after those of the first.

Before this file: `jaxsyn.data.store.prepared`. After it: `column_cache`.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping

from jaxsyn.data.loader import tasks
from jaxsyn.data.options import Data
from jaxsyn.data.schema import SIDES
from jaxsyn.data.sentence.controls import TREES, WrongParents
from jaxsyn.data.sentence.example import retree, tagged
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Example, Rows, together
from jaxsyn.errors import InputError

RECIPE = 1  # raise it when the same pairs give other examples

Counters = collections.Counter[str]  # what is counted while examples are made


@dataclasses.dataclass(frozen=True)
class Examples:
  """Iterates over the translations: the examples of the first task, in order.

  Attributes:
    records: the opened split.
    data: config.data, which says the trees and the second task.
    seed: config.seed, for random trees.
    both: whether `rows` has the examples of the second task too; validation
      and translation know the first one alone.
  """

  records: PreparedSplit
  data: Data
  seed: int
  both: bool = False

  def __post_init__(self) -> None:
    """Raises InputError where the data has no trees for the second task."""
    if self._two:
      tasks.check(
        self.data.second, self.records.manifest, self.records.directory
      )

  def __iter__(self) -> Iterator[Example]:
    return self._translations(collections.Counter())

  def _translations(self, counters: Counters) -> Iterator[Example]:
    """Yields the examples of the first task; counts their wrong parents."""
    tag = tasks.tag(self.data.second, self.records.manifest)
    for example in self._with_trees(counters):
      yield example if tag is None else tagged(example, tag)

  def rows(self, counters: Counters) -> Iterator[Rows]:
    """All of them, some at a time.

    Args:
      counters: counts, where there is a second task: examples of the "first"
        and the "second", and pairs that had "no tree" or were "too long" for
        it. Of
        trees with wrong parents: see `wrong_parents`.
    """
    if not self.derived:
      return self.records.rows()  # as they are stored, which is faster
    make = self.with_counters if self._two else self._translations
    return together(make(counters))

  def with_counters(self, counters: Counters) -> Iterator[Example]:
    """The examples of both tasks, counted; see `rows`."""
    for example in self._translations(counters):
      counters["first"] += 1
      yield example
    second, manifest = self.data.second, self.records.manifest
    sizes = {s: about["size"] for s, about in manifest["vocabulary"].items()}
    for example in self._with_trees(collections.Counter()):
      bracketing = second.brackets.bracketing(example)
      if not (bracketing < 0).any():
        counters["no tree"] += 1
        continue
      new = second.task.make(example, bracketing, second.brackets, sizes)
      if max(len(new["source_id"]), len(new["target_id"])) > second.longest:
        counters["too long"] += 1
        continue
      counters["second"] += 1
      yield new

  @property
  def about(self) -> list[str | int | None]:
    """What decides the examples beside the records: part of a cache's name."""
    second, tree = self.data.second, self.data.tree
    return [
      *(RECIPE, TREES.name_of(tree), self.seed if tree.seeded else None),
      *(dataclasses.astuple(tree) if tree.replaces else ()),
      tasks.tag(second, self.records.manifest),
      *((*tasks.names(second), second.longest) if self._two else ()),
    ]

  @property
  def derived(self) -> bool:
    """Whether they are others than those that are stored."""
    tag = tasks.tag(self.data.second, self.records.manifest)
    return tag is not None or self.data.tree.replaces or self._two

  def auxiliary(self, counters: Mapping[str, int]) -> tuple[int, float] | None:
    """The number of the first example of a second task, and what it counts.

    Args:
      counters: of `rows`.

    Raises:
      InputError: no example of the second task is left.
    """
    if not self._two:
      return None
    second, made = self.data.second, counters.get("second", 0)
    if not made:
      raise InputError(
        f"config.data.second: no example is left of {len(self.records)} pairs "
        f"({summary(counters)}). Raise config.data.second.longest, or look at the "
        f"{tasks.names(second)[1]} trees."
      )
    return counters["first"], second.weight

  @property
  def _two(self) -> bool:
    return self.both and self.data.second.task.any

  def _with_trees(self, counters: Counters) -> Iterator[Example]:
    """Yields the stored examples with the trees of config.data.tree."""
    tree = self.data.tree
    for example in self.records:
      for side in SIDES:
        head = f"{side}_head"
        if not tree.replaces or head not in example:
          continue
        parsed_W = example[head]
        example = retree(example, side, tree=tree, seed=self.seed)
        if isinstance(tree, WrongParents) and example[f"{side}_parsed"]:
          counters[f"{side} words"] += len(parsed_W)
          wrong = int((example[head] != parsed_W).sum())
          counters[f"{side} wrong parents"] += wrong
      yield example

  def wrong_parents(
    self, counters: Mapping[str, int] | None = None
  ) -> dict[str, float]:
    """Returns the share of words with a wrong parent, by side.

    Sentences without a tree do not count; roots and one-word sentences do.

    Args:
      counters: counts of `rows`; None: counts here, which takes as long as
        `rows`.
    """
    if counters is None:
      counters = collections.Counter()
      for _ in self._with_trees(counters):
        pass
    return {
      side: counters[f"{side} wrong parents"] / counters[f"{side} words"]
      for side in SIDES
      if counters.get(f"{side} words")
    }


def summary(counters: Mapping[str, int]) -> str:
  """What `counters` count, for the reader; "" where there is no second task."""
  if "first" not in counters:
    return ""
  count = {k: counters.get(k, 0) for k in ("second", "no tree", "too long")}
  return (
    f"second task: {count['second']:,} examples beside {counters['first']:,} "
    f"translations; left out: {count['no tree']:,} without a tree, "
    f"{count['too long']:,} too long"
  )
