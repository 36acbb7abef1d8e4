"""Data loader, which makes batches of a dataset split as NumPy arrays.

Training iterates over an infinite stream of batches from a given position;
evaluation makes one pass. The path of a batch:

  prefetch        (loading)        makes batches in a background thread
  DataLoader      (loader)         reads windows of examples, makes batches
  BatchSampler    (batch_sampler)  chooses the examples and the shape of a batch
  load            (loading)        reads examples into memory
  Transform       (transforms)     changes trees, tags, subwords
  Split           (store.dataset)  reads and decodes records
  collate         (collate)        pads examples

`weight_B` of a batch is 1 for a translation, the weight of the task for an
example of an auxiliary task, and 0 for a row of padding. This package does not
import JAX; the caller passes the rows of its host (`HostShard`).
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
  Iterator,
  Mapping,
  Sequence,
)
from typing import NamedTuple, TypeVar

import numpy as np

from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.loader.batch_sampler import (
  BatchSampler,
  PlannedBatch,
  Position,
  Windows,
)
from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.loader.collate import (
  Batch,
  BatchTransform,
  apply_batch_transform,
  collate,
)
from jaxsyn.data.loader.loading import load, prefetch
from jaxsyn.data.loader.mixture import MixedExamples
from jaxsyn.data.loader.subword_sampling import resampled_subwords
from jaxsyn.data.loader.transforms import (
  Transform,
  Window,
  translations,
  with_auxiliary_task,
)
from jaxsyn.data.loader.tree_sampling import resampled_trees
from jaxsyn.data.options import Batches, Data
from jaxsyn.data.schema import SPELLING, origins
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Examples, Split
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

T = TypeVar("T")


class HostShard(NamedTuple):
  """Rows of every batch that one host reads, as parts of the rows of all hosts.

  Attributes:
    parts: Indices of this host's parts of the rows.
    of: Number of equal parts that the rows of a batch are cut into.
  """

  parts: tuple[int, ...] = (0,)
  of: int = 1

  @functools.lru_cache(64)  # an entry for each shape  # noqa: B019
  def rows(self, count: int) -> np.ndarray:
    """Returns this host's row indices in a batch of `count` rows, ascending."""
    part = count // self.of
    rows = np.asarray(self.parts)[:, None] * part + np.arange(part)
    return rows.ravel()


SINGLE_HOST = HostShard()


class TrainBatch(NamedTuple):
  """A host's rows of a training batch, with token counts over all hosts.

  Attributes:
    after: Position after the batch, which a checkpoint stores.
    batch: Arrays with the rows of this host.
    source, target: Numbers of subwords in the rows of all hosts.
    positions: Number of positions in the rows of all hosts, both sides, with
      padding.
    corpora: Number of examples from each corpus of a mixture; None without.
  """

  after: Position
  batch: Batch
  source: int
  target: int
  positions: int
  corpora: Mapping[str, int] | None = None


class LoadedExamples(NamedTuple):
  """Examples in memory, with the positions of one batch's examples in them.

  Attributes:
    examples: Examples of a shuffling window.
    place: Position in them for each example of the batch.
  """

  examples: Rows
  place: np.ndarray


@dataclasses.dataclass(frozen=True)
class DataLoader:
  """Loader of the batches of a split, which makes the rows of one host.

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
    batch_transform: Function of the caller on every batch.
    transforms: Transforms with the scope "window" or "batch".
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
  # All examples, transformed for the newest epoch.
  _transformed: dict[Window, Rows] = dataclasses.field(
    default_factory=dict, init=False, repr=False, compare=False
  )

  def __len__(self) -> int:
    return len(self.examples)

  @property
  def examples_per_epoch(self) -> int:
    """Number of examples that an epoch reads, with repetitions."""
    if isinstance(self.examples, MixedExamples):
      return self.examples.examples_per_epoch
    return len(self)

  @functools.cached_property
  def all_examples(self) -> Rows:
    """All examples of the split in memory; they are read on first use."""
    return load(self.examples, self.features)

  def batches(self, start: Position) -> Iterator[TrainBatch]:
    """Yields training batches without end, starting at a given position.

    Raises:
      InputError: A shard is corrupt; raised when its records are read.
    """
    walk = self.batch_sampler.walk(start)
    steps = self._load_windows(walk, lambda step: step[1], training=True)
    for (after, planned), loaded in steps:
      source, target = self.batch_sampler.subwords(planned)
      batch = self.batch(planned, loaded, training=True)
      corpora = None
      if isinstance(self.examples, MixedExamples):
        corpora = self.examples.count(planned.ids)
      yield TrainBatch(
        after, batch, source, target, planned.shape.positions, corpora
      )

  def in_order(self) -> Iterator[Batch]:
    """Yields batches that contain each example once, for evaluation."""
    steps = iter(self.batch_sampler.in_order())
    for planned, loaded in self._load_windows(steps, lambda step: step):
      yield self.batch(planned, loaded)

  def empty(self) -> list[Batch]:
    """Returns a batch without examples for every shape, for compilation."""
    return [self.empty_batch(shape) for shape in self.batch_sampler.shapes]

  def empty_batch(self, shape: Shape) -> Batch:
    """Returns a batch of the given shape that contains only padding."""
    no_ids = np.empty(0, np.int64)
    none = LoadedExamples(Rows.of([], origins(self.features)), no_ids)
    return self.batch(PlannedBatch(shape, no_ids), none)

  def _load_windows(
    self,
    steps: Iterator[T],
    planned_of: Callable[[T], PlannedBatch],
    *,
    training: bool = False,
  ) -> Iterator[tuple[T, LoadedExamples | None]]:
    """Yields each planned batch with its examples, read a window at a time.

    Args:
      steps: Planned batches, or objects that contain one.
      planned_of: Function from a step to its planned batch.
      training: Whether to apply the transforms with the scope "window".

    Yields: the step, and its examples; None if the loader has all in memory.
    """
    if self.in_memory:
      for step in steps:
        yield step, None
      return

    buffers: collections.deque[Rows] = collections.deque()

    def read(window: list[T]) -> list[tuple[T, LoadedExamples]]:
      batch_ids = [self._local_ids(planned_of(step))[0] for step in window]
      ids, place = np.unique(np.concatenate(batch_ids), return_inverse=True)
      # Batches are copies, so the window before the current one is unused.
      buffer = buffers.popleft() if len(buffers) == 2 else None
      examples = load(self.examples, self.features, ids, buffer)
      buffers.append(examples)
      if training:
        window_id = planned_of(window[0]).window
        examples = self._transform("window", examples, ids, window_id)
      places = np.split(place, np.cumsum([len(ids) for ids in batch_ids])[:-1])
      loaded = (LoadedExamples(examples, some) for some in places)
      return list(zip(window, loaded))

    windows = itertools.groupby(steps, lambda step: planned_of(step).window)
    # The next window is planned and read while the current one is used.
    reading = prefetch((read(list(group)) for _, group in windows), 1)
    with contextlib.closing(reading):
      for window in reading:
        yield from window

  def _transform(
    self, scope: str, rows: Rows, ids: np.ndarray, window: Window
  ) -> Rows:
    for transform in self.transforms:
      if transform.scope == scope:
        rows = transform(rows, ids, window)
    return rows

  def _all_transformed(self, window: Window) -> Rows:
    """Returns all examples, transformed for the epoch of a shuffling window."""
    if not any(one.scope == "window" for one in self.transforms):
      return self.all_examples
    if window not in self._transformed:
      self._transformed.clear()
      all_ids = np.arange(len(self))
      self._transformed[window] = self._transform(
        "window", self.all_examples, all_ids, window
      )
    return self._transformed[window]

  def _local_ids(self, planned: PlannedBatch) -> tuple[np.ndarray, int]:
    """Returns the example indices and number of rows in this host's batch."""
    rows = self.shard.rows(planned.shape.rows)
    # Padding is at the end of all rows, and so at the end of these.
    return planned.ids[rows[rows < len(planned.ids)]], len(rows)

  def batch(
    self,
    planned: PlannedBatch,
    loaded: LoadedExamples | None = None,
    *,
    training: bool = False,
  ) -> Batch:
    """Returns the arrays of a planned batch, with the rows of this host.

    Args:
      planned: Shape and examples of the batch.
      loaded: Examples of this host's rows; None if all examples are in memory.
      training: Whether to apply the transforms of an epoch.

    Raises:
      ValueError: The shape is too small for an example.
    """
    ids, rows = self._local_ids(planned)
    if loaded:
      examples, place = loaded
    elif training:
      examples, place = self._all_transformed(planned.window), ids
    else:
      examples, place = self.all_examples, ids
    if training and any(one.scope == "batch" for one in self.transforms):
      recomputed = {n for one in self.transforms for n in one.recomputed}
      read = [name for name in examples.flat if name not in recomputed]
      examples = examples.of_features(read).take(place)
      examples = self._transform("batch", examples, ids, planned.window)
      place = np.arange(len(ids))
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
  """Returns a loader for the batches of a split.

  Examples are read when they are first needed.

  Args:
    split: Opened split.
    required: Features that modifiers and losses read, in addition to the
      subwords.
    data: Section config.data.
    batch: Section config.batch.
    seed: Value of config.seed, for random trees and the order.
    training: Whether the batches are for training: with the auxiliary task, the
      mixture and the transforms of an epoch.
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
  trees = subwords = None
  needed = {*required}
  if training:
    subwords = resampled_subwords(
      split, data.sampling, seed=seed, linked="links" in needed
    )
    trees = resampled_trees(data.tree, needed, seed, manifest=manifest)
  transforms: list[Transform] = [one for one in (subwords, trees) if one]
  for transform in transforms:
    needed |= transform.required(required)
  features = manifests.features_for(manifest, needed)
  counts = collections.Counter[str]()
  examples = translations(split, data, seed)
  if has_task:
    examples, counts = with_auxiliary_task(split, data, seed, origins(features))
  if training and data.mixture.folders:
    others = mixture.open_splits(data.mixture, split.name, needed)
    examples = mixture.mix(
      (split, examples), others, data, seed=seed, features=features
    )
  is_mixed = isinstance(examples, MixedExamples)
  # All features that a batch can have, so that systems get the same batches.
  counted = [name for name in split.features if name not in SPELLING]
  windows = Windows.of(
    examples, counted, memory_gib=batch.memory_gib, seed=seed
  )
  sampler = BatchSampler(
    examples.lengths.read_by(features),
    windows if is_mixed or not windows.in_memory else None,
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
    messages=_messages(examples, counts, transforms),
    auxiliary=_auxiliary(data, counts, len(split)) if has_task else None,
    shard=shard,
    batch_transform=batch_transform,
    transforms=transforms,
  )


def _messages(
  examples: Examples,
  counts: Mapping[str, int],
  transforms: Sequence[Transform],
) -> list[str]:
  if isinstance(examples, MixedExamples):
    facts = [examples.summary(), *examples.messages]
  else:
    facts = [tasks.summary(counts)]
  return [text for text in (*facts, *(t.summary for t in transforms)) if text]


def _auxiliary(
  data: Data, counts: Mapping[str, int], pairs: int
) -> tuple[int, float]:
  """Returns the index of the first auxiliary-task example, and the loss weight.

  Raises:
    InputError: The auxiliary task has no example.
  """
  if not counts.get("second", 0):
    raise InputError(
      f"config.data.second: no example is left of {pairs} pairs "
      f"({tasks.summary(counts)}). Raise config.data.second.longest, or look at the "
      f"{tasks.names(data.second)[1]} trees."
    )
  return counts["translations"], data.second.weight


def _check_rows(row_multiple: int, devices: int) -> None:
  """Checks that the rows of every batch can be split over the devices.

  The batches do not adapt to the devices, so they are equal on other devices.

  Args:
    row_multiple: Value of config.batch.row_multiple.
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
