"""The examples of a split as a run reads them: with its trees, tags and tasks.

Records hold one example a pair, with the parser's trees. A run may ask for other trees
(config.data.tree) and for an auxiliary task (config.data.second), whose examples come
after the translations. Nothing that is derived is stored: trees and tags are made when
a block is read, examples of an auxiliary task once, in memory, when a split is opened.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from jaxsyn.data.loader import tasks
from jaxsyn.data.options import Data
from jaxsyn.data.schema import OF_HEADS, SIDES
from jaxsyn.data.sentence.controls import TreeControl, WrongParents
from jaxsyn.data.sentence.example import retree, tagged, tagged_rows
from jaxsyn.data.store.lengths import Lengths, lengths_of
from jaxsyn.data.store.prepared import PreparedSplit, RecordFiles, block_starts
from jaxsyn.data.store.rows import Example, Rows, together
from jaxsyn.errors import InputError

Counts = collections.Counter[str]


class Blocks(Protocol):
  """Examples that are read in blocks: records, or what is derived from them.

  Attributes:
    lengths: Lengths of all examples.
    start: First example of each block, and the number of examples at the end.
  """

  @property
  def lengths(self) -> Lengths: ...
  @property
  def start(self) -> np.ndarray: ...
  def __len__(self) -> int: ...
  def read(
    self, numbers: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    """Reads some blocks, in the given order."""
    ...


@dataclasses.dataclass(frozen=True)
class DerivedBlocks:
  """Records with other trees, or with tags around the source.

  Attributes:
    records: The records.
    tree: Kind of the trees.
    seed: Seed of the run, for random trees.
    tag: Symbol around each source; None: none.
  """

  records: RecordFiles
  tree: TreeControl
  seed: int
  tag: int | None = None

  def __len__(self) -> int:
    return len(self.records)

  @property
  def start(self) -> np.ndarray:
    return self.records.start

  @functools.cached_property
  def lengths(self) -> Lengths:
    stored = self.records.lengths
    if self.tag is None:
      return stored
    longer = stored.source.astype(np.int32) + 2 * (stored.source > 1)
    return stored._replace(
      source=longer.astype(np.min_scalar_type(longer.max(initial=0)))
    )

  def read(
    self, numbers: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    read = dict.fromkeys(features)
    sides = []
    if self.tree.replaces:
      sides = [
        side
        for side in SIDES
        if any(f"{side}_{name}" in read for name in OF_HEADS)
      ]
    for side in sides:
      read |= dict.fromkeys(f"{side}_{n}" for n in ("id", "word", "head"))
    for rows in self.records.read(numbers, tuple(read)):
      for side in sides:
        rows = retree(rows, side, tree=self.tree, seed=self.seed)
      if self.tag is not None:
        rows = tagged_rows(rows, self.tag)
      yield rows.of_features(features)


@dataclasses.dataclass(frozen=True)
class BlocksInMemory:
  """Examples that were made when the split was opened.

  Attributes:
    rows: The examples.
  """

  rows: Rows

  def __len__(self) -> int:
    return len(self.rows)

  @functools.cached_property
  def lengths(self) -> Lengths:
    return lengths_of(self.rows)

  @functools.cached_property
  def start(self) -> np.ndarray:
    return block_starts(np.array([0, len(self)]))

  def read(
    self, numbers: Iterable[int], features: Sequence[str]
  ) -> Iterator[Rows]:
    rows = self.rows.of_features(features)
    for number in numbers:
      yield rows.part(*self.start[number : number + 2].tolist())


@dataclasses.dataclass(frozen=True)
class Examples:
  """The examples of a split; iteration yields the translations in order.

  Attributes:
    records: The opened split.
    data: config.data, with the kind of trees and the auxiliary task.
    seed: config.seed, for random trees.
    both: Whether to read the examples of the auxiliary task too, as training does.
  """

  records: PreparedSplit
  data: Data
  seed: int
  both: bool = False

  def __post_init__(self) -> None:
    """Raises InputError where the data has no trees for the auxiliary task."""
    if self._two:
      tasks.check(
        self.data.second, self.records.manifest, self.records.directory
      )

  def __iter__(self) -> Iterator[Example]:
    for example in self._with_trees():
      yield example if self._tag is None else tagged(example, self._tag)

  def open(self, features: Sequence[str]) -> tuple[Blocks, Counts]:
    """Returns the examples, and what was counted while they were made.

    Args:
      features: Names of those that will be read.

    Returns:
      The examples; and, with an auxiliary task, the number of "translations" and of
      examples of the task ("second"), and of pairs with "no tree" or "too long".
    """
    counts: Counts = collections.Counter()
    if self._two:
      parts = [
        rows.of_features(features)
        for rows in together(self._of_both_tasks(counts))
      ]
      made = Rows.joined([Rows.of([], features), *parts])
      return BlocksInMemory(made), counts
    records, tree = self.records.records, self.data.tree
    if self._tag is None and not tree.replaces:
      return records, counts
    return DerivedBlocks(records, tree, self.seed, self._tag), counts

  def _of_both_tasks(self, counts: Counts) -> Iterator[Example]:
    for example in self:
      counts["translations"] += 1
      yield example
    second, manifest = self.data.second, self.records.manifest
    sizes = {s: about["size"] for s, about in manifest["vocabulary"].items()}
    for example in self._with_trees():
      bracketing = second.brackets.bracketing(example)
      if not (bracketing < 0).any():
        counts["no tree"] += 1
        continue
      new = second.task.make(example, bracketing, second.brackets, sizes)
      if max(len(new["source_id"]), len(new["target_id"])) > second.longest:
        counts["too long"] += 1
        continue
      counts["second"] += 1
      yield new

  def auxiliary(self, counts: Mapping[str, int]) -> tuple[int, float] | None:
    """Returns the first example of the auxiliary task, and its weight in the loss.

    Args:
      counts: Counts of `open`.

    Raises:
      InputError: The auxiliary task has no example.
    """
    if not self._two:
      return None
    second = self.data.second
    if not counts.get("second", 0):
      raise InputError(
        f"config.data.second: no example is left of {len(self.records)} pairs "
        f"({summary(counts)}). Raise config.data.second.longest, or look at the "
        f"{tasks.names(second)[1]} trees."
      )
    return counts["translations"], second.weight

  @property
  def _two(self) -> bool:
    return self.both and self.data.second.task.any

  @functools.cached_property
  def _tag(self) -> int | None:
    return tasks.tag(self.data.second, self.records.manifest)

  def _with_trees(self) -> Iterator[Example]:
    """Yields the stored examples with the trees of config.data.tree."""
    source = DerivedBlocks(self.records.records, self.data.tree, self.seed)
    blocks = range(len(source.start) - 1)
    for rows in source.read(blocks, self.records.features):
      yield from rows.examples()

  def wrong_parents(self) -> dict[str, float]:
    """Returns the share of words with a wrong parent, by side; it reads all trees.

    Sentences without a tree do not count; roots and one-word sentences do. Empty
    unless config.data.tree is "wrong_parents".
    """
    if not isinstance(self.data.tree, WrongParents):
      return {}
    words: Counts = collections.Counter()
    wrong: Counts = collections.Counter()
    sides = [s for s in SIDES if f"{s}_head" in self.records.features]
    names = [
      f"{side}_{n}" for side in sides for n in ("id", "word", "head", "parsed")
    ]
    for rows in self.records.rows(names):
      for side in sides:
        head = f"{side}_head"
        new = retree(rows, side, tree=self.data.tree, seed=self.seed)
        parsed = rows.flat[f"{side}_parsed"] > 0
        counts_W = np.repeat(parsed, rows.sizes(head))
        words[side] += int(counts_W.sum())
        differs_W = new.flat[head] != rows.flat[head]
        wrong[side] += int((differs_W & counts_W).sum())
    return {side: wrong[side] / words[side] for side in sides if words[side]}


def summary(counts: Mapping[str, int]) -> str:
  """Returns the counts of an auxiliary task in words; "" where there is none."""
  if "translations" not in counts:
    return ""
  count = {k: counts.get(k, 0) for k in ("second", "no tree", "too long")}
  return (
    f"second task: {count['second']:,} examples beside {counts['translations']:,} "
    f"translations; left out: {count['no tree']:,} without a tree, "
    f"{count['too long']:,} too long"
  )
