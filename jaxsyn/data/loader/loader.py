"""Data loader that makes NumPy batches from a dataset split.

Training iterates over an infinite stream of batches from a given position;
evaluation makes one pass. The path of a batch:

  prefetch            (loader)         makes batches in a background thread
  DataLoader          (loader)         reads windows of examples, makes batches
  BatchSampler        (batch_sampler)  chooses the examples and shape of a batch
  Split               (store.dataset)  reads and decodes records
  Transform           (transforms)     changes trees, tags, subwords
  collate             (collate)        pads examples

`weight_B` of a batch is 1 for a translation, the weight of the task for an
example of an auxiliary task, and 0 for a row of padding. This package does not
import JAX; the caller passes the rows of its host (`HostShard`).

Letters: U block of records.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import (
  Collection,
  Generator,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.loader.batch_sampler import (
  BatchSampler,
  PlannedBatch,
  Position,
)
from jaxsyn.data.loader.collate import (
  Batch,
  BatchTransform,
  Shape,
  apply_batch_transform,
  collate,
)
from jaxsyn.data.loader.mixture import MixedExamples
from jaxsyn.data.loader.subword_sampling import ResampledSubwords
from jaxsyn.data.loader.transforms import (
  Transform,
  translations,
  with_auxiliary_task,
)
from jaxsyn.data.loader.tree_sampling import resampled_trees
from jaxsyn.data.loader.windows import Windows
from jaxsyn.data.options import Batches, Data
from jaxsyn.data.schema import SPELLING, stored_names
from jaxsyn.data.store.dataset import Examples, Split
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError


class HostShard(NamedTuple):
  """Part of every batch's rows that one host reads.

  Attributes:
    parts: Indices of this host's parts of the rows.
    of: Number of equal parts that the rows of a batch are cut into.
  """

  parts: tuple[int, ...] = (0,)
  of: int = 1

  def rows(self, count: int) -> np.ndarray:
    """Returns this host's row indices in a batch of `count` rows, ascending."""
    rows = np.arange(count).reshape(self.of, -1)
    return rows[list(self.parts)].ravel()


SINGLE_HOST = HostShard()


class TrainBatch(NamedTuple):
  """One host's rows of a training batch, with token counts over all hosts.

  Attributes:
    after: Position after the batch, which a checkpoint stores.
    batch: Arrays with the rows of this host.
    source, target: Numbers of subwords in the rows of all hosts.
    positions: Number of positions in them, both sides, with padding.
    corpora: Number of examples from each corpus of a mixture; None without.
  """

  after: Position
  batch: Batch
  source: int
  target: int
  positions: int
  corpora: Mapping[str, int] | None = None


class LoadedExamples(NamedTuple):
  """Examples in memory, with their ascending indices in the split."""

  rows: Rows
  ids: np.ndarray


T = TypeVar("T")
_END: Any = object()


@dataclasses.dataclass(frozen=True)
class DataLoader:
  """Loader that yields one host's rows of every batch in a split.

  Attributes:
    examples: All examples of the split.
    features: Names of the features in a batch.
    batch_sampler: Sampler of the examples and shapes of batches.
    in_memory: Whether all examples are in memory; otherwise one shuffling
      window of examples at a time.
    messages: Information about the examples, for the log.
    auxiliary: Index of the first example of the auxiliary task, and loss weight
      of its examples.
    shard: Rows of this host.
    batch_transform: User-defined function that changes every batch.
    transforms: Transforms of the examples in training batches.
  """

  examples: Examples
  features: tuple[str, ...]
  batch_sampler: BatchSampler
  in_memory: bool = True
  messages: Sequence[str] = ()
  auxiliary: tuple[int, float] | None = None
  shard: HostShard = SINGLE_HOST
  batch_transform: BatchTransform | None = None
  transforms: Sequence[Transform] = ()

  def __len__(self) -> int:
    return len(self.examples)

  @functools.cached_property
  def all_examples(self) -> Rows:
    """All examples of the split in memory; they are read on first use."""
    return self.examples.load(self.features)

  def batches(self, start: Position) -> Iterator[TrainBatch]:
    """Yields an endless stream of training batches from a given position.

    Raises:
      InputError: A shard is corrupt; raised when its records are read.
    """
    walk = self.batch_sampler.walk(start)
    for planned, loaded in self._with_examples(walk):
      source, target = self.batch_sampler.subwords(planned)
      batch = self.batch(planned, loaded, training=True)
      corpora = None
      if isinstance(self.examples, MixedExamples):
        corpora = self.examples.count(planned.ids)
      yield TrainBatch(
        planned.after, batch, source, target, planned.shape.positions, corpora
      )

  def in_order(self) -> Iterator[Batch]:
    """Yields batches that contain each example once, for evaluation."""
    plan = self.batch_sampler.in_order()
    for planned, loaded in self._with_examples(plan):
      yield self.batch(planned, loaded)

  def empty(self) -> list[Batch]:
    """Returns an all-padding batch of each shape, used for compilation."""
    return [self.empty_batch(shape) for shape in self.batch_sampler.shapes]

  def empty_batch(self, shape: Shape) -> Batch:
    """Returns a batch of the given shape that contains only padding."""
    no_ids = np.empty(0, np.int64)
    none = LoadedExamples(Rows.of([], stored_names(self.features)), no_ids)
    return self.batch(PlannedBatch(shape, no_ids), none)

  def _with_examples(
    self, plan: Iterable[PlannedBatch]
  ) -> Iterator[tuple[PlannedBatch, LoadedExamples | None]]:
    """Yields planned batches with the examples of their shuffling window.

    The examples are None if the complete split is in memory.
    """
    if self.in_memory:
      for planned in plan:
        yield planned, None
      return
    # The next window is planned and read while the current one is used.
    reading = prefetch(self._read_windows(plan), 1)
    with contextlib.closing(reading):
      for window, loaded in reading:
        for planned in window:
          yield planned, loaded

  def _read_windows(
    self, plan: Iterable[PlannedBatch]
  ) -> Iterator[tuple[list[PlannedBatch], LoadedExamples]]:
    buffers = collections.deque[Rows]()
    for _, group in itertools.groupby(plan, lambda planned: planned.window):
      window = list(group)
      ids = [self._local_ids(planned)[0] for planned in window]
      unique = np.unique(np.concatenate(ids))
      # Batches are copies, so the window before the current one is unused.
      buffer = buffers.popleft() if len(buffers) == 2 else None
      buffers.append(self.examples.load(self.features, unique, buffer))
      yield window, LoadedExamples(buffers[-1], unique)

  def _local_ids(self, planned: PlannedBatch) -> tuple[np.ndarray, int]:
    """Returns this host's example indices and number of rows in a batch."""
    rows = self.shard.rows(planned.shape.rows)
    # Padding is at the end of all rows, and so at the end of this host's.
    return planned.ids[rows[rows < len(planned.ids)]], len(rows)

  def batch(
    self,
    planned: PlannedBatch,
    loaded: LoadedExamples | None = None,
    *,
    training: bool = False,
  ) -> Batch:
    """Returns this host's rows of a planned batch as arrays.

    Args:
      planned: Shape and examples of the batch.
      loaded: Examples that include this host's; None for all in memory.
      training: Whether to apply the transforms of training batches.

    Raises:
      ValueError: The shape is too small for an example.
    """
    ids, rows = self._local_ids(planned)
    if loaded is None:
      examples, place = self.all_examples, ids
    else:
      examples, place = loaded.rows, np.searchsorted(loaded.ids, ids)
    if training and self.transforms:
      recomputed = frozenset().union(*(t.recomputed for t in self.transforms))
      read = [name for name in examples.flat if name not in recomputed]
      examples, place = examples.of_features(read).take(place), np.arange(rows)
      for transform in self.transforms:
        examples = transform(examples, ids, planned.window)
    place = place[: len(ids)]
    batch = collate(examples, self.features, place, planned.shape, rows=rows)
    weight_B = batch["weight_B"] = np.zeros(rows, np.float32)
    weight_B[: len(ids)] = 1
    if self.auxiliary:
      first, weight = self.auxiliary
      weight_B[: len(ids)][ids >= first] = weight
    return apply_batch_transform(batch, self.batch_transform)


def open_loader(
  split: Split,
  required: Collection[str],
  *,
  data: Data,
  batch: Batches,
  seed: int,
  training: bool = True,
  shard: HostShard = SINGLE_HOST,
  batch_transform: BatchTransform | None = None,
) -> DataLoader:
  """Returns a loader that makes training or evaluation batches of a split.

  Examples are read when they are first needed.

  Args:
    split: Opened split.
    required: Features that modifiers and losses read, in addition to the
      subwords.
    data: Section config.data.
    batch: Section config.batch.
    seed: Value of config.seed, for random trees and the order.
    training: Whether the batches are for training: with the auxiliary task, the
      mixture, and resampled subwords and trees.
    shard: Rows of this host.
    batch_transform: Function on every batch (NumPy), with its padding.

  Raises:
    InputError: The data lacks a feature, no example is left, an example is too
      long for a batch, or the rows of a batch cannot be split over the devices.
  """
  _check_rows(batch.row_multiple, shard.of)
  manifest = split.dataset.manifest
  has_task = training and data.second.task.any
  if has_task:
    tasks.check(data.second, manifest, split.dataset.directory)
  transforms: list[Transform] = []
  subwords = None
  if training:
    if data.sampling.sides and len(split):
      linked = "links" in required
      subwords = ResampledSubwords(
        split, data.sampling, seed=seed, linked=linked
      )
      transforms.append(subwords)
    trees = resampled_trees(data.tree, required, seed, manifest=manifest)
    if trees:
      transforms.append(trees)
  needed = {*required}.union(*(t.required(required) for t in transforms))
  features = schema.features_for(manifest, needed)

  examples = translations(split, data, seed)
  rate_U, auxiliary, messages = None, None, list[str]()
  if training and data.mixture.folders:
    mixed = mixture.mix(split, data, seed, needed)
    examples, rate_U, messages = mixed, mixed.rate_U, [*mixed.messages]
  elif has_task:
    examples, counts = with_auxiliary_task(
      split, data, seed, stored_names(features)
    )
    auxiliary = counts["translations"], data.second.weight
    messages.append(tasks.summary(counts))
  messages += [t.summary for t in transforms if t.summary]

  # All features that a batch can have, so that systems get the same batches.
  counted = [name for name in split.features if name not in SPELLING]
  windows = Windows.of(
    examples, counted, memory_gib=batch.memory_gib, seed=seed, rate_U=rate_U
  )
  is_plain = windows.in_memory and rate_U is None
  sampler = BatchSampler(
    examples.lengths.read_by(features),
    None if is_plain else windows,
    subwords,
    tokens=batch.tokens,
    shapes=batch.shapes,
    seed=seed,
    row_multiple=batch.row_multiple,
    length_multiple=batch.length_multiple,
  )
  return DataLoader(
    examples,
    features,
    sampler,
    in_memory=windows.in_memory,
    messages=messages,
    auxiliary=auxiliary,
    shard=shard,
    batch_transform=batch_transform,
    transforms=transforms,
  )


def prefetch(items: Iterator[T], depth: int) -> Generator[T, None, None]:
  """Yields items of an iterator that a background thread computes in advance.

  Up to `depth` items are waiting. An exception of the iterator is raised in
  place of its item. Closing the generator ends the thread.
  """
  if depth <= 0:
    yield from items
    return
  pool = ThreadPoolExecutor(1, "batches")
  # A local name, since those of modules may be gone while Python exits.
  exiting = sys.is_finalizing
  try:
    waiting = collections.deque(
      pool.submit(next, items, _END) for _ in range(depth)
    )
    while (item := waiting.popleft().result()) is not _END:
      waiting.append(pool.submit(next, items, _END))
      yield item
  finally:
    if not exiting():  # then the thread has ended
      pool.shutdown(cancel_futures=True)


def _check_rows(row_multiple: int, devices: int) -> None:
  """Raises InputError unless every batch's rows divide evenly among devices.

  Batches do not depend on the number of devices.
  """
  if row_multiple % devices == 0:
    return
  raise InputError(
    f"config.batch.row_multiple={row_multiple} is not a multiple of {devices} "
    "devices that rows are split over; set "
    f"--config.batch.row_multiple={math.lcm(row_multiple, devices)} for a new "
    f"run (other batches), or use a number of devices that divides "
    f"{row_multiple}: a resumed run keeps its batches."
  )
