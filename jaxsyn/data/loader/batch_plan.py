"""Which pairs form which batch, in which static shape: from lengths alone.

Every host computes the same plan from (seed, epoch) and the lengths of all
examples, so a position in the data is a pair of integers, and resuming is
exact and immediate. Batches come in a small declared set of shapes, so that
the number of compilations is bounded.

Before this file: `columns`, which knows the lengths. After it: `split`.

Letters: C cell of equal lengths; 2 source and target.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxsyn.data.store.prepared import Lengths
from jaxsyn.errors import InputError


@dataclasses.dataclass(frozen=True)
class Shape:
  """A batch's static sizes: rows, subwords and words of source and target.

  Words have a size of their own, since they may outnumber the subwords.
  """

  rows: int
  source: int
  target: int
  source_words: int = 1
  target_words: int = 1

  @property
  def positions(self) -> int:
    return self.rows * (self.source + self.target)


@dataclasses.dataclass(frozen=True)
class Planned:
  """One batch to come: its shape and the record numbers in its rows."""

  shape: Shape
  ids: np.ndarray  # at most shape.rows; the rest of the rows is padding


@dataclasses.dataclass(frozen=True)
class Position:
  """Where a run stands in the data: the next batch to be read."""

  epoch: int = 0
  batch: int = 0


# A shape costs a program, seven to ten processor seconds of a Transformer-Tiny,
# in which it trains on some 60,000 positions; one that does not save as many in
# ten epochs is not worth it.
WORTH = 6_000
MOST = 12  # of shapes, where their number is chosen


def choose_lengths(
  source: np.ndarray, target: np.ndarray, count: int, *, multiple: int = 1
) -> list[tuple[int, int]]:
  """Few (source, target) lengths that waste little padding on the data.

  Args:
    source, target: lengths of each pair in subwords, the end sign included.
    count: how many lengths to choose at most.
    multiple: lengths are multiples of this.

  Returns: lengths, from the smallest to the largest area.
  """
  return _sorted(_Cells.of(source, target, multiple).greedy(count))


def choose_few(
  source: np.ndarray,
  target: np.ndarray,
  rows: Callable[[int, int], int],
  *,
  multiple: int = 1,
) -> list[tuple[int, int]]:
  """As many of those as are worth their programs: few pairs fill few shapes.

  It minimises the positions of an epoch + WORTH · the number of shapes, up to
  MOST of them. Neither seeds nor the length of a run change it.

  Args:
    source, target, multiple: of `choose_lengths`.
    rows: of a batch, by its two lengths.
  """
  cells = _Cells.of(source, target, multiple)
  chosen = cells.greedy(MOST)
  few = [_sorted(chosen[:count]) for count in range(1, len(chosen) + 1)]
  cost = [cells.positions(some, rows) + WORTH * len(some) for some in few]
  return few[int(np.argmin(cost))]


def _sorted(lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
  return sorted(lengths, key=lambda p: (p[0] + p[1], p))


class _Cells(NamedTuple):
  """How many pairs have which two lengths, those rounded up to a grid."""

  length_C2: np.ndarray
  number_C: np.ndarray

  @classmethod
  def of(cls, source: np.ndarray, target: np.ndarray, multiple: int) -> _Cells:
    up = np.stack([source, target], 1).astype(np.int64)
    # At most 64 steps a side, so that long corpora stay cheap to plan for.
    step = _up(np.maximum(multiple, -(-up.max(0) // 64)), multiple)
    return cls(*np.unique(_up(up, step), axis=0, return_counts=True))

  def greedy(self, count: int) -> list[tuple[int, int]]:
    """Lengths as they are chosen: the one that holds every pair, then, one at
    a time, those that save most padded positions."""
    up_C2 = self.length_C2
    sides = [np.unique(up_C2[:, 0]), np.unique(up_C2[:, 1])]
    s, t = (side.ravel() for side in np.meshgrid(*sides, indexing="ij"))
    fits = (up_C2[:, :1] <= s) & (up_C2[:, 1:] <= t)  # cell, candidate
    area = np.where(fits, (s + t)[None, :], np.iinfo(np.int64).max)
    chosen = [int(np.argmax(s + t))]
    paid = area[:, chosen[0]]
    while len(chosen) < count:
      spared = np.maximum(paid[:, None] - area, 0) * self.number_C[:, None]
      saved = spared.sum(0)
      best = int(np.argmax(saved))
      if saved[best] == 0:
        break
      chosen.append(best)
      paid = np.minimum(paid, area[:, best])
    return [(int(s[i]), int(t[i])) for i in chosen]

  def positions(
    self, lengths: list[tuple[int, int]], rows: Callable[[int, int], int]
  ) -> int:
    """Of an epoch of `BatchPlan`, on average: a shape's last, unfilled batch
    moves on to larger ones, which is what many shapes cost few pairs."""
    left_C, total = self.number_C.astype(np.float64), 0
    for s, t in lengths:
      here_C = np.where((self.length_C2 <= (s, t)).all(1), left_C, 0.0)
      count, size = round(here_C.sum()), rows(s, t)
      last = (s, t) == lengths[-1]
      batches = -(-count // size) if last else count // size
      total += batches * size * (s + t)
      left_C -= here_C * min(1.0, batches * size / max(count, 1))
    return total


def _up(length: Any, multiple: Any) -> Any:
  """The next multiple."""
  return -(-length // multiple) * multiple


def doubled(length: int, least: int) -> int:
  """The first of least, 2 · least, 4 · least, ... that holds a length.

  So that what comes in any length is padded to few.
  """
  while least < length:
    least *= 2
  return least


class BatchPlan:
  """The batches of every epoch.

  Attributes:
    shapes: the declared shapes, smallest first.
  """

  def __init__(
    self,
    lengths: Lengths,
    *,
    tokens: int,
    shapes: int,
    seed: int,
    row_multiple: int,
    length_multiple: int,
  ):
    """Makes the plan of a split.

    Args:
      lengths: of all pairs. Shapes are as wide in words as what fits them
        needs.
      tokens: budget of a batch: rows times the longer padded length.
      shapes: largest number of shapes; 0: as many as `choose_few` finds worth
        their programs.
      seed: of the order; epoch e is shuffled by (seed, e).
      row_multiple: rows of every shape are a multiple of this.
      length_multiple: padded lengths are multiples of this.

    Raises:
      InputError: no pairs, or a pair that is longer than the budget allows.
    """
    source, target, *words = lengths
    if len(source) == 0:
      raise InputError("the split has no examples; nothing to plan.")
    every = np.arange(len(source))
    self._lengths = np.stack([source, target], 1).astype(np.int64)
    self._seed = seed
    longest = int(self._lengths.max())
    if longest * row_multiple > tokens:
      raise InputError(
        f"config.batch.tokens={tokens} cannot hold {row_multiple} rows of the "
        f"longest side of {longest} subwords; raise it to "
        f"{longest * row_multiple}, or lower config.batch.row_multiple, "
        "config.prepare.max_subwords or config.data.second.longest."
      )

    def rows(s: int, t: int) -> int:
      return max(1, tokens // max(s, t) // row_multiple) * row_multiple

    if shapes:
      chosen = choose_lengths(source, target, shapes, multiple=length_multiple)
    else:
      chosen = choose_few(source, target, rows, multiple=length_multiple)
    self.shapes = []
    for s, t in chosen:
      shape = Shape(rows(s, t), s, t)
      # Of all that fit, not of those whose cheapest shape it is: what fills no
      # batch of its own shape moves on to larger ones.
      fits = self._fits(every, shape)
      widest = [
        _up(int(side[fits].max(initial=1)), length_multiple) for side in words
      ]
      self.shapes.append(Shape(shape.rows, s, t, *widest))
    # The cheapest shape of each pair: shapes are sorted by s + t.
    self._shape = np.full(len(source), -1)
    for number, shape in reversed(list(enumerate(self.shapes))):
      self._shape[self._fits(every, shape)] = number

  def _fits(self, ids: np.ndarray, shape: Shape) -> np.ndarray:
    limits = np.array([shape.source, shape.target])
    return (self._lengths[ids] <= limits).all(1)

  def epoch(self, number: int) -> list[Planned]:
    """The batches of one epoch in order; every pair is in exactly one.

    What does not fill a batch of its own shape moves on to a larger shape, so
    an epoch has few short batches, usually one.
    """
    rng = np.random.default_rng([self._seed, number])
    batches: list[Planned] = []
    carried = np.empty(0, np.int64)
    for position, shape in enumerate(self.shapes):
      last = position == len(self.shapes) - 1
      fits = self._fits(carried, shape)
      own = rng.permutation(np.flatnonzero(self._shape == position))
      ids = np.concatenate([carried[fits], own])
      carried = carried[~fits]
      full = len(ids) if last else len(ids) // shape.rows * shape.rows
      batches += [
        Planned(shape, ids[i : i + shape.rows])
        for i in range(0, full, shape.rows)
      ]
      carried = np.concatenate([carried, ids[full:]])
    return [batches[i] for i in rng.permutation(len(batches))]

  def walk(self, start: Position) -> Iterator[tuple[Position, Planned]]:
    """The batches from a position on, without end, epoch after epoch.

    Yields: the position after the batch (what a checkpoint keeps), the batch.
    """
    for number in itertools.count(start.epoch):
      batches = self.epoch(number)
      first = start.batch if number == start.epoch else 0
      for i in range(first, len(batches)):
        last = i + 1 == len(batches)
        after = Position(number + 1) if last else Position(number, i + 1)
        yield after, batches[i]

  def first_used(self, start: Position, batches: int) -> dict[Shape, int]:
    """When each shape comes first, in so many batches from a position on.

    Returns: batches before it, in order. Of those that neither this epoch nor
      the next has, but a later one may, `batches`.
    """
    known = len(self.epoch(start.epoch)) - start.batch
    known += len(self.epoch(start.epoch + 1))
    used: dict[Shape, int] = {}
    for n, (_, planned) in enumerate(
      itertools.islice(self.walk(start), min(batches, known))
    ):
      used.setdefault(planned.shape, n)
    later = self.shapes if batches > known else []
    return used | {shape: batches for shape in later if shape not in used}

  def subwords(self, ids: np.ndarray) -> tuple[int, int]:
    """Of some examples, without padding: of the source, of the target."""
    source, target = self._lengths[ids].sum(0)
    return int(source), int(target)

  def padding(self, number: int = 0) -> float:
    """Share of an epoch's positions, both sides, that hold no subword."""
    positions = sum(p.shape.positions for p in self.epoch(number))
    return 1.0 - self._lengths.sum() / positions

  def in_order(self) -> list[Planned]:
    """All pairs once, similar lengths together, longest first: to evaluate."""
    order = np.lexsort((self._lengths[:, 1], self._lengths[:, 0], self._shape))
    batches = []
    for number in range(len(self.shapes) - 1, -1, -1):
      ids = order[self._shape[order] == number]
      shape = self.shapes[number]
      batches += [
        Planned(shape, ids[i : i + shape.rows])
        for i in range(0, len(ids), shape.rows)
      ]
    return batches
