"""Which pairs form which batch, in which static shape: from lengths alone.

Every host computes the same plan from (seed, epoch) and the lengths of all
examples, so a position in the data is a pair of integers, and resuming is
exact and immediate. Batches come in a small declared set of shapes, so that
the number of compilations is bounded.

Before this file: `columns`, which knows the lengths. After it: `split`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxsyn.errors import InputError


class Lengths(NamedTuple):
  """Subwords, the end sign included, and words of each example; 0: no tree."""

  source: np.ndarray
  target: np.ndarray
  source_words: np.ndarray
  target_words: np.ndarray


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


def choose_lengths(
  source: np.ndarray, target: np.ndarray, count: int, *, multiple: int = 1
) -> list[tuple[int, int]]:
  """Few (source, target) lengths that waste little padding on the data.

  Greedy: start with the one that holds every pair, then add, one at a time,
  the lengths that save most padded positions.

  Args:
    source, target: lengths of each pair in subwords, the end sign included.
    count: how many lengths to choose at most.
    multiple: lengths are multiples of this.

  Returns: lengths, from the smallest to the largest area.
  """
  up = np.stack([source, target], 1).astype(np.int64)
  # At most 64 steps a side, so that long corpora stay cheap to plan for.
  step = np.maximum(multiple, -(-up.max(0) // 64))
  step = _up(step, multiple)
  up = _up(up, step)
  cells, number = np.unique(up, axis=0, return_counts=True)
  sides = [np.unique(cells[:, 0]), np.unique(cells[:, 1])]
  s, t = (side.ravel() for side in np.meshgrid(*sides, indexing="ij"))
  fits = (cells[:, :1] <= s) & (cells[:, 1:] <= t)  # cell, candidate
  area = np.where(fits, (s + t)[None, :], np.iinfo(np.int64).max)
  chosen = [int(np.argmax(s + t))]
  paid = area[:, chosen[0]]
  while len(chosen) < count:
    saved = (np.maximum(paid[:, None] - area, 0) * number[:, None]).sum(0)
    best = int(np.argmax(saved))
    if saved[best] == 0:
      break
    chosen.append(best)
    paid = np.minimum(paid, area[:, best])
  return sorted(
    ((int(s[i]), int(t[i])) for i in chosen), key=lambda p: (p[0] + p[1], p)
  )


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
      shapes: largest number of shapes.
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
    self.shapes = []
    for s, t in choose_lengths(
      source, target, shapes, multiple=length_multiple
    ):
      rows = max(1, tokens // max(s, t) // row_multiple) * row_multiple
      shape = Shape(rows, s, t)
      # Of all that fit, not of those whose cheapest shape it is: what fills no
      # batch of its own shape moves on to larger ones.
      fits = self._fits(every, shape)
      widest = [
        _up(int(side[fits].max(initial=1)), length_multiple) for side in words
      ]
      self.shapes.append(Shape(rows, s, t, *widest))
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
