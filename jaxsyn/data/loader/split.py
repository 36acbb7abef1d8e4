"""The door of the loader: a split, opened, gives batches.

Training walks over its batches without end, from any position; evaluation takes
all of them once. A batch passes through `prefetch`, `Split.batches`,
`BatchPlan.walk` (which examples), `Split.batch`, `Columns.batch`, and
`apply_batch_transform`.

`weight_B` of a batch is 1 for a pair, its weight for an example of a second
task, and 0 for a row of padding. No JAX here: arrays are NumPy, on the host, and
who trains says which of several hosts this is.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
)
from typing import NamedTuple, TypeVar

import numpy as np

from jaxsyn.data.loader import examples, mixture, tree_sampling
from jaxsyn.data.loader.batch_plan import BatchPlan, PlannedBatch, Position
from jaxsyn.data.loader.batch_transform import (
  BatchTransform,
  apply_batch_transform,
)
from jaxsyn.data.loader.columns import Batch, Columns
from jaxsyn.data.loader.examples import Blocks, Examples
from jaxsyn.data.loader.loading import load
from jaxsyn.data.loader.mixture import MixedCorpora
from jaxsyn.data.loader.prefetching import prefetch
from jaxsyn.data.loader.sampling import Sampler, needed_features, open_sampler
from jaxsyn.data.loader.tree_sampling import TreeSampler
from jaxsyn.data.loader.windows import Windows
from jaxsyn.data.options import Batches, Data
from jaxsyn.data.schema import SPELLING, origins
from jaxsyn.data.store import manifests
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Example
from jaxsyn.errors import InputError

T = TypeVar("T")


class HostShard(NamedTuple):
  """Which rows of every batch a host takes: some of `of` equal parts, in order.

  Attributes:
    parts: numbers of those that its devices hold.
    of: into how many the rows are cut.
  """

  parts: tuple[int, ...] = (0,)
  of: int = 1

  @functools.lru_cache(64)  # of a shape  # noqa: B019
  def rows(self, count: int) -> np.ndarray:
    """Those of a batch of so many rows, by number, ascending."""
    part = count // self.of
    rows = np.asarray(self.parts)[:, None] * part + np.arange(part)
    return rows.ravel()


SINGLE_HOST = HostShard()


class TrainBatch(NamedTuple):
  """A batch of training, and what it is a part of.

  Attributes:
    after: the position after it, what a checkpoint keeps.
    batch: this host's rows.
    source, target: subwords in all rows, of all hosts.
    positions: of all rows, both sides, padding too.
    corpora: of a mixture, how many examples of all rows are of which corpus.
  """

  after: Position
  batch: Batch
  source: int
  target: int
  positions: int
  corpora: Mapping[str, int] | None = None


class LoadedExamples(NamedTuple):
  """Examples of a batch, and where they are."""

  columns: Columns
  place: np.ndarray


@dataclasses.dataclass(frozen=True)
class LoadedSplit:
  """A split as this host sees it: its rows of every batch.

  Attributes:
    files: All examples.
    features: names of those in a batch.
    plan: which examples form which batch.
    whole: whether all examples are held; else those of a window at a time.
    examples: those of the first task, one by one.
    notes: what was counted while the examples were made.
    second: number of the first example of the second task, and what such an
      example counts in the loss.
    share: this host's of the rows of every batch.
    change: a caller's own function on every batch.
    sampler: draws the subwords of training; None: they are those stored.
    trees: draws the trees of training; None: they are those stored.
  """

  files: Blocks
  features: tuple[str, ...]
  plan: BatchPlan
  in_memory: bool = True
  examples: Iterable[Example] = ()
  counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
  auxiliary: tuple[int, float] | None = None
  shard: HostShard = SINGLE_HOST
  batch_transform: BatchTransform | None = None
  sampler: Sampler | None = None
  trees: TreeSampler | None = None
  # Of the epoch that was drawn last, where all are held.
  _epoch: dict[tuple[int, int], Columns] = dataclasses.field(
    default_factory=dict, init=False, repr=False, compare=False
  )

  def __len__(self) -> int:
    return len(self.files)

  @functools.cached_property
  def all_columns(self) -> Columns:
    """All examples, read when they are first asked for."""
    return load(self.files, self.features)

  def _all_examples(self, window: tuple[int, int], sampled: bool) -> Columns:
    """All examples, as they are stored or as they are drawn in an epoch."""
    if not (sampled and self.sampler):
      return self.all_columns
    if window not in self._epoch:
      self._epoch.clear()
      all_ids = np.arange(len(self))
      self._epoch[window] = self.sampler.put(self.all_columns, window, all_ids)
    return self._epoch[window]

  def batches(self, start: Position) -> Iterator[TrainBatch]:
    """Batches without end, from a position on.

    Raises:
      InputError: A shard is corrupt, when its records are read.
    """
    walk = self.plan.walk(start)
    steps = self._load_windows(walk, lambda step: step[1], sampled=True)
    for (after, planned), loaded in steps:
      source, target = self.plan.subwords(planned)
      batch = self.batch(planned, loaded, sampled=True)
      corpora = None
      if isinstance(self.files, MixedCorpora):
        corpora = self.files.count(planned.ids)
      yield TrainBatch(
        after, batch, source, target, planned.shape.positions, corpora
      )

  def in_order(self) -> Iterator[Batch]:
    """All examples once, in few shapes: to evaluate."""
    planned = iter(self.plan.in_order())
    for one, loaded in self._load_windows(planned, lambda planned: planned):
      yield self.batch(one, loaded)

  def _load_windows(
    self,
    steps: Iterator[T],
    of: Callable[[T], PlannedBatch],
    *,
    sampled: bool = False,
  ) -> Iterator[tuple[T, LoadedExamples | None]]:
    """Each step with where its examples are in memory; None: all are."""
    if self.in_memory:
      for step in steps:
        yield step, None
      return

    last: collections.deque[Columns] = collections.deque()

    def read(window: list[T]) -> list[tuple[T, LoadedExamples]]:
      local_ids = [self._local_ids(of(step))[0] for step in window]
      unique_ids, place = np.unique(
        np.concatenate(local_ids), return_inverse=True
      )
      # The last is about to be used, and the one before it is not any more, as
      # batches are copies.
      buffer = last.popleft() if len(last) == 2 else None
      columns = load(self.files, self.features, unique_ids, buffer)
      last.append(columns)
      if sampled and self.sampler:
        columns = self.sampler.put(columns, of(window[0]).window, unique_ids)
      ends = np.cumsum([len(ids) for ids in local_ids])[:-1]
      loaded = (LoadedExamples(columns, some) for some in np.split(place, ends))
      return list(zip(window, loaded))

    windows = itertools.groupby(steps, lambda step: of(step).window)
    # The next one is planned and read while one is used.
    reading = prefetch((read(list(group)) for _, group in windows), 1)
    with contextlib.closing(reading):
      for window in reading:
        yield from window

  def _local_ids(self, planned: PlannedBatch) -> tuple[np.ndarray, int]:
    """This host's examples of a batch, and how many rows it has."""
    rows = self.shard.rows(planned.shape.rows)
    # Padding is at the end of all rows, and so at the end of these.
    return planned.ids[rows[rows < len(planned.ids)]], len(rows)

  def empty(self) -> list[Batch]:
    """A batch of padding in every shape, to compile with."""
    nobody = np.empty(0, np.int64)
    none = LoadedExamples(Columns.of([], self.features), nobody)
    return [
      self.batch(PlannedBatch(shape, nobody), none)
      for shape in self.plan.shapes
    ]

  def batch(
    self,
    planned: PlannedBatch,
    loaded: LoadedExamples | None = None,
    *,
    sampled: bool = False,
  ) -> Batch:
    """The arrays of a planned batch, or of this host's share of its rows.

    Args:
      planned: the batch.
      loaded: this host's examples of it; None: all are held.
      sampled: with subwords and trees drawn for its epoch, where they are
        drawn.

    Raises:
      ValueError: the shape is too narrow for an example.
    """
    ids, rows = self._local_ids(planned)
    columns, place = loaded or (
      self._all_examples(planned.window, sampled),
      ids,
    )
    if sampled and self.trees:
      columns = self.trees.put(columns, place, planned.window[0], ids=ids)
      place = np.arange(len(ids))
    batch = columns.batch(self.features, place, planned.shape, rows=rows)
    weight_B = batch["weight_B"] = np.zeros(rows, np.float32)
    weight_B[: len(ids)] = 1
    if self.auxiliary:
      first, weight = self.auxiliary
      weight_B[: len(ids)][ids >= first] = weight
    return apply_batch_transform(batch, self.batch_transform)

  @property
  def epoch(self) -> int:
    """How many examples an epoch goes through."""
    if isinstance(self.files, MixedCorpora):
      corpora = zip(self.files.corpora, self.files.rates)
      return round(sum(len(c.files) * rate for c, rate in corpora))
    return len(self)

  @property
  def messages(self) -> list[str]:
    """What became of the pairs, and what is drawn of them, for the reader."""
    summaries = [one.summary for one in (self.sampler, self.trees) if one]
    if isinstance(self.files, MixedCorpora):
      corpora = zip(self.files.corpora, self.files.rates)
      each = [f"{c.name} {len(c.files):,} x {rate:.4g}" for c, rate in corpora]
      mixed = f"examples an epoch: {', '.join(each)}"
      return [mixed, *self.files.messages, *summaries]
    return list(filter(None, [examples.summary(self.counters), *summaries]))


def open_split(
  records: PreparedSplit,
  required: Collection[str],
  *,
  data: Data,
  batch: Batches,
  seed: int,
  both_tasks: bool = True,
  shard: HostShard = SINGLE_HOST,
  batch_transform: BatchTransform | None = None,
) -> LoadedSplit:
  """Opens a prepared split; examples are read when they are asked for.

  Args:
    records: of the split.
    required: features that parts and losses read, beyond the subwords.
    data: config.data: which trees, which second task.
    batch: config.batch: how large batches are.
    seed: config.seed: of random trees, and of the order.
    both_tasks: whether to train on it: then the examples of a second task, and
      of config.data.mixture, are there as well.
    shard: this host's of the rows of every batch.
    batch_transform: function on every batch (NumPy). Rows and columns of
      padding are in it too.

  Raises:
    InputError: the data lacks what is read, no example is left, one is too
      long for a batch, or the rows of a batch cannot be split over the devices.
  """
  _check_rows(batch.row_multiple, shard.of)
  stored = Examples(records, data, seed, both=both_tasks)
  sampler = trees = None
  if both_tasks:
    trees = tree_sampling.open_sampler(
      data.tree, required, seed, manifest=records.manifest
    )
    required = {*required, *needed_features(data.sampling, required)}
    required |= trees.needed if trees else set()
    sampler = open_sampler(
      records, data.sampling, seed=seed, linked="links" in required
    )
  features = manifests.features_for(records.manifest, required)
  files: Blocks
  files, counters = stored.open(origins(features))
  if both_tasks and data.mixture.folders:
    others = mixture.open_corpora(data.mixture, records.split, required)
    opened = [
      Examples(other, data, seed).open(origins(features))
      for other in others.values()
    ]
    each = [files, *(other for other, _ in opened)]
    counts = (collections.Counter(stored) for _, stored in opened)
    counters = sum(counts, collections.Counter(counters))
    files = mixture.mix(
      records, others, each, mixture=data.mixture, features=features
    )
  # All features, so that all systems get the same batches; but not those that no
  # batch has.
  counted = [name for name in records.features if name not in SPELLING]
  windows = Windows.of(files, counted, memory_gib=batch.memory_gib, seed=seed)
  plan = BatchPlan(
    files.lengths.read_by(features),
    windows
    if isinstance(files, MixedCorpora) or not windows.in_memory
    else None,
    sampler,
    tokens=batch.tokens,
    shapes=batch.shapes,
    seed=seed,
    row_multiple=batch.row_multiple,
    length_multiple=batch.length_multiple,
  )
  return LoadedSplit(
    files,
    features,
    plan,
    in_memory=windows.in_memory,
    examples=stored,
    counters=counters,
    auxiliary=stored.auxiliary(counters),
    shard=shard,
    batch_transform=batch_transform,
    sampler=sampler,
    trees=trees,
  )


def _check_rows(row_multiple: int, devices: int) -> None:
  """Checks that every batch can be split over the devices.

  The plan does not adapt to them: it would be another one on other devices.

  Args:
    row_multiple: config.batch.row_multiple.
    devices: Number of devices that the rows of a batch are split over.

  Raises:
    InputError: The devices do not divide the rows.
  """
  if row_multiple % devices == 0:
    return
  counts = [str(n) for n in range(1, row_multiple + 1) if row_multiple % n == 0]
  usable = " or ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))
  raise InputError(
    f"config.batch.row_multiple={row_multiple} is not a multiple of {devices} "
    "devices (config.train.mesh.data times config.train.mesh.fsdp); set "
    f"--config.batch.row_multiple={math.lcm(row_multiple, devices)} for a new "
    f"run (other batches), or use {usable} devices: a resumed run keeps its "
    "batches."
  )
