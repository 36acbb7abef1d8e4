"""Which pairs form which batch, in which static shape: from lengths alone.

Every host computes the same plan from (seed, epoch) and the lengths of all
examples, so a position in the data is a pair of integers, and resuming is
exact and immediate. Batches come in a small declared set of shapes, so that
the number of compilations is bounded. Where a split is larger than memory, each
window of an epoch is planned like a small corpus.

Where subwords are drawn anew (`sampling`), lengths are those of the epoch.

Before this file: `batch_shapes`. After it: `split`.

Letters: I example of a window; C cell, as in `batch_shapes`; 2 source and
target.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn.data.loader.batch_shapes import (
  LengthCounts,
  Shape,
  ShapeTable,
  by_area,
  choose_shapes,
  round_up,
)
from jaxsyn.data.loader.sampling import Sampler
from jaxsyn.data.loader.windows import Windows
from jaxsyn.data.store.lengths import Lengths
from jaxsyn.errors import InputError


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
  """One batch to come.

  Attributes:
    shape: of the batch.
    ids: numbers of the examples in its rows, at most shape.rows; the rest of
      the rows is padding.
    window: epoch, and which of its windows the examples are of.
  """

  shape: Shape
  ids: np.ndarray
  window: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class Position:
  """Where a run stands in the data: the next batch to be read."""

  epoch: int = 0
  batch: int = 0


class BatchPlan:
  """The batches of every epoch.

  Attributes:
    shapes: the declared shapes, smallest first.
  """

  def __init__(
    self,
    lengths: Lengths,
    windows: Windows | None = None,
    sampler: Sampler | None = None,
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
      windows: what is in memory together; None: everything.
      sampler: how long examples of an epoch are, where that differs.
      tokens: budget of a batch: rows times the longer padded length.
      shapes: largest number of shapes; 0: as many as are found worth their
        programs.
      seed: of the order; epoch e is shuffled by (seed, e).
      row_multiple: rows of every shape are a multiple of this.
      length_multiple: padded lengths are multiples of this.

    Raises:
      InputError: no pairs, or a pair that is longer than the budget allows.
    """
    if len(lengths.source) == 0:
      raise InputError("the split has no examples; nothing to plan.")
    self._lengths, self._windows, self._seed = lengths, windows, seed
    self._drawn = sampler
    counts = LengthCounts.of(lengths)
    meant = LengthCounts.of(sampler.expected) if sampler else counts
    longest = int(meant.length_C2.max())
    if longest * row_multiple > tokens:
      raise InputError(
        f"config.batch.tokens={tokens} cannot hold {row_multiple} rows of the "
        f"longest side of {longest} subwords; raise it to "
        f"{longest * row_multiple}, or lower config.batch.row_multiple, "
        "config.prepare.max_subwords or config.data.second.longest."
      )

    def rows(s: int, t: int) -> int:
      return max(1, tokens // max(s, t) // row_multiple) * row_multiple

    grid = meant.rounded(length_multiple)
    chosen = (
      by_area(grid.greedy(shapes)) if shapes else choose_shapes(grid, rows)
    )
    self.shapes = []
    for s, t in chosen:
      # Of all that fit, not of those whose cheapest shape it is: what fills no
      # batch of its own shape moves on to larger ones.
      fits_C = (counts.length_C2 <= (s, t)).all(1)
      widest = counts.words_C2[fits_C].max(0, initial=1)
      words = (int(round_up(side, length_multiple)) for side in widest)
      self.shapes.append(Shape(rows(s, t), s, t, *words))
    self._table = ShapeTable.of(self.shapes)

  def _sizes(
    self, id_I: np.ndarray, window: tuple[int, int]
  ) -> Sequence[np.ndarray]:
    """source_I, target_I of examples of a window."""
    if self._drawn:
      return self._drawn.sizes(window, id_I)
    return [side[id_I] for side in self._lengths[:2]]

  def epoch(self, index: int) -> list[PlannedBatch]:
    """The batches of one epoch in order; every pair is in exactly one."""
    return list(self._epoch(index))

  def _epoch(self, index: int) -> Iterator[PlannedBatch]:
    if self._windows is None:
      everything = np.arange(len(self._lengths.source))
      rng = np.random.default_rng([self._seed, index])
      yield from self._shuffled(everything, rng, (index, 0))
      return
    for window, ids in enumerate(self._windows.shuffled(index)):
      rng = np.random.default_rng([self._seed, index, 1 + window])
      yield from self._shuffled(ids, rng, (index, window))

  def _shuffled(
    self, id_I: np.ndarray, rng: np.random.Generator, window: tuple[int, int]
  ) -> list[PlannedBatch]:
    """The batches of a window.

    What does not fill a batch of its own shape moves on to a larger shape, so
    a window has few short batches, usually one.
    """
    source_I, target_I = self._sizes(id_I, window)
    shape_I = self._table(source_I, target_I)
    batches: list[PlannedBatch] = []
    carried = np.empty(0, np.int64)  # places in id_I
    for position, shape in enumerate(self.shapes):
      last = position == len(self.shapes) - 1
      fits = source_I[carried] <= shape.source
      fits &= target_I[carried] <= shape.target
      shuffled = rng.permutation(np.flatnonzero(shape_I == position))
      place = np.concatenate([carried[fits], shuffled])
      carried = carried[~fits]
      full = len(place) if last else len(place) // shape.rows * shape.rows
      batches += [
        PlannedBatch(shape, id_I[place[i : i + shape.rows]], window)
        for i in range(0, full, shape.rows)
      ]
      carried = np.concatenate([carried, place[full:]])
    return [batches[i] for i in rng.permutation(len(batches))]

  def walk(self, start: Position) -> Iterator[tuple[Position, PlannedBatch]]:
    """The batches from a position on, without end, epoch after epoch.

    Yields: the position after the batch (what a checkpoint keeps), the batch.
    """
    for epoch in itertools.count(start.epoch):
      first = start.batch if epoch == start.epoch else 0
      coming = itertools.islice(self._epoch(epoch), first, None)
      planned, i = next(coming, None), first
      while planned:
        following = next(coming, None)
        i += 1
        yield (
          Position(epoch, i) if following else Position(epoch + 1),
          planned,
        )
        planned = following

  def first_used(self, start: Position, batches: int) -> dict[Shape, int]:
    """When each shape comes first, in so many batches from a position on.

    Returns: batches before it, in order. Of those that neither this epoch nor
      the next has, but a later one may, `batches`.
    """
    used: dict[Shape, int] = {}
    coming = itertools.islice(self.walk(start), batches)
    for n, (_, planned) in enumerate(coming):
      if planned.window[0] > start.epoch + 1:
        return used | {s: batches for s in self.shapes if s not in used}
      used.setdefault(planned.shape, n)
      if len(used) == len(self.shapes):
        break
    return used

  def batches(self) -> float:
    """About how many an epoch has; where it is one window, exactly."""
    first = list(
      itertools.takewhile(lambda p: p.window == (0, 0), self._epoch(0))
    )
    if self._windows is None or self._windows.in_memory:
      return len(first)
    count = sum(len(planned.ids) for planned in first)
    return self._windows.examples / count * len(first)

  def subwords(self, planned: PlannedBatch) -> tuple[int, int]:
    """Of a batch, without padding: of the source, of the target."""
    if self._drawn:
      return self._drawn.subwords(planned.window, planned.ids)
    source, target = (
      int(side[planned.ids].sum()) for side in self._lengths[:2]
    )
    return source, target

  def padding(self, epoch: int = 0) -> float:
    """Share of an epoch's positions, both sides, that hold no subword."""
    positions = real = 0
    for planned in self._epoch(epoch):
      positions += planned.shape.positions
      real += sum(self.subwords(planned))
    return 1.0 - real / positions

  def in_order(self) -> list[PlannedBatch]:
    """All pairs once, similar lengths together, longest first: to evaluate.

    Where there are several windows, so in each of them.
    """
    if self._windows is None:
      return self._sorted(np.arange(len(self._lengths.source)), 0)
    windows = enumerate(self._windows.in_order())
    return [p for window, ids in windows for p in self._sorted(ids, window)]

  def _sorted(self, id_I: np.ndarray, window: int) -> list[PlannedBatch]:
    source, target = (side[id_I] for side in self._lengths[:2])
    shape_I = self._table(source, target)
    order = np.lexsort((target, source, shape_I))
    batches = []
    for position in range(len(self.shapes) - 1, -1, -1):
      ids = id_I[order[shape_I[order] == position]]
      shape = self.shapes[position]
      batches += [
        PlannedBatch(shape, ids[i : i + shape.rows], (0, window))
        for i in range(0, len(ids), shape.rows)
      ]
    return batches
