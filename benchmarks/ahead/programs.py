"""The project's own step and search, compiled for a machine from shapes alone.

Before this file: `machines`. After it: `hlo`, which reads what came out.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from benchmarks.ahead.machines import Machine
from jaxsyn.config import Config
from jaxsyn.data.annotations import ANNOTATIONS, UNKNOWN
from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.loader.collate import Batch, collate, pad
from jaxsyn.data.loader.loader import HostShard, open_loader
from jaxsyn.data.schema import SIDES, origins
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import Rows
from jaxsyn.decode.programs import DecodingPrograms, PoolSize
from jaxsyn.decode.search import DecodeRequest
from jaxsyn.decode.translator import ENCODE_ROWS, ENTERING, max_output_length
from jaxsyn.errors import InputError
from jaxsyn.plan import Plan, resolve
from jaxsyn.training.memory import enough_memory
from jaxsyn.training.mesh import Layout, Program
from jaxsyn.training.start import abstract_state
from jaxsyn.training.step import TrainState, train_step

RELATIONS = 40  # of a side, where no data says; Universal Dependencies has 37
LENGTH = 64  # subwords of a side, where nothing says


@dataclasses.dataclass(frozen=True)
class Task:
  """What a config does on a machine.

  Attributes:
    plan: of the config.
    layout: of the machine.
    batch: a global batch of the loader, all padding.
    state: shapes of the state.
    reads: features of the source side that translating reads.
  """

  plan: Plan
  layout: Layout
  batch: Batch
  state: TrainState
  reads: tuple[str, ...]

  @property
  def step(self) -> Any:
    """(state, batch) -> (state, metrics): the function of `jaxsyn.train`."""
    return functools.partial(train_step, recipe=self.plan.recipe)


def task(
  config: Config,
  machine: Machine,
  *,
  rows: int = 0,
  length: int = 0,
  vocabulary: int = 0,
) -> Task:
  """A config on a machine.

  Where the config's data is prepared, its features and the shape that most of
  its batches have; without it, or with a length, what data of that length has.

  Args:
    config: its config.train.mesh must fit the machine.
    machine: to compile for.
    rows: sentences of a batch on each device; 0: what config.batch.tokens
      holds, all devices together.
    length: subwords of each side, and as many words; 0: see above.
    vocabulary: subwords of each side; 0: of the data, or as it would be.

  Raises:
    InputError: what does not fit.
  """
  if config.train.parallelism == "pmap":
    raise InputError(
      "config.train.parallelism='pmap' compiles for devices that are there; "
      "set it to 'jit'."
    )
  layout = Layout("jit", config.train.mesh, machine.devices)
  folder = pathlib.Path(config.data.directory)
  prepared = (folder / manifests.FILE).exists() and not (length or vocabulary)
  manifest: Mapping[str, Any]
  if prepared:
    records = Dataset(folder).split(config.data.train)
    manifest = records.dataset.manifest
    plan = resolve(config, manifest)
    loader = open_loader(
      records,
      plan.features,
      data=config.data,
      batch=config.batch,
      seed=config.seed,
      shard=HostShard(tuple(range(layout.rows)), layout.rows),  # of all hosts
    )
    shapes = collections.Counter(p.shape for p in loader.batch_sampler.epoch(0))
    ((shape, _),) = shapes.most_common(1)
    if rows:
      shape = dataclasses.replace(shape, rows=rows * layout.rows)
    batch = loader.empty_batch(shape)
  else:
    manifest = _manifest(vocabulary or config.prepare.vocabulary.size)
    plan = resolve(config, manifest)
    features = manifests.features_for(manifest, plan.features)
    length = length or LENGTH
    rows = rows or max(1, config.batch.tokens // length // layout.rows)
    shape = Shape(rows * layout.rows, length, length, length, length)
    batch = _empty(features, shape)
  # The matrix of a caller; what does not read it has no argument for it.
  batch["source_weighting_BSS"] = np.zeros(
    (shape.rows, shape.source, shape.source), np.float32
  )
  # A step counts the devices of the machine on which it is traced.
  logits = plan.recipe.logits * layout.mesh.size // jax.device_count()
  recipe = dataclasses.replace(plan.recipe, logits=logits)
  plan = dataclasses.replace(plan, recipe=recipe)
  state = abstract_state(plan.recipe, layout, batch)
  reads = manifests.features_for(manifest, plan.translation_features)
  reads = tuple(name for name in reads if name.startswith("source"))
  return Task(plan, layout, batch, state, reads)


def compile_step(task: Task) -> Program:
  """The step as training compiles it.

  Raises:
    InputError: it needs more memory than a device has.
  """
  layout, (rows, source) = task.layout, task.batch["source_id_BS"].shape
  target = task.batch["target_id_BT"].shape[1]
  with enough_memory(
    f"training on batches of {rows} sentences of {source} and {target} "
    f"subwords on {layout.mesh.size} devices",
    "--rows or config.batch.tokens, or raise config.train.mesh.fsdp",
  ):
    return layout.compile_train(
      task.step, layout.placed(task.state), layout.placed_rows(task.batch)
    )


def compile_search(task: Task, machine: Machine) -> tuple[Program, Program]:
  """The two programs of a search on one device: reading, and its steps.

  For as many sentences of the batch's length as translating takes together.
  """
  plan, decode = task.plan, task.plan.config.decode
  source = task.batch["source_id_BS"].shape[1]
  length = max_output_length(decode, source)

  def padding_batch(size: PoolSize) -> tuple[Batch, DecodeRequest]:
    batch = pad(
      [],
      task.reads,
      subwords=size.source,
      words=size.words,
      rows=size.encode_rows,
    )
    ones_R: Any = np.ones(size.encode_rows, np.int32)
    return batch, DecodeRequest(ones_R, ones_R)

  one = SingleDeviceSharding(machine.devices[0])
  params = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one),
    task.state.evaluated,
  )
  size = PoolSize(
    source=source,
    words=source,
    length=length,
    slots=decode.sentences,
    cache_length=length,
    encode_rows=ENCODE_ROWS,
    entering=ENTERING,
  )
  programs = DecodingPrograms(plan.recipe.model, decode, padding_batch)
  return programs.compile(size, params)


def _empty(features: tuple[str, ...], shape: Shape) -> Batch:
  """A batch of the loader without examples."""
  none = Rows.of([], origins(features))
  no_ids = np.empty(0, np.int64)
  batch = collate(none, features, no_ids, shape, rows=shape.rows)
  return batch | {"weight_B": np.zeros(shape.rows, np.float32)}


def _manifest(vocabulary: int) -> Mapping[str, Any]:
  """What `resolve` reads of data with everything that can be asked for."""
  labels = [f"label_{number}" for number in range(RELATIONS)]
  opened = [name for name, about in ANNOTATIONS.items() if about.open]
  return {
    "sides": SIDES,
    "vocabulary": {side: {"size": vocabulary, "sha256": ""} for side in SIDES},
    "relations": dict.fromkeys(SIDES, labels),
    "brackets": {"source": labels},
    "alignments": True,
    "annotations": tuple(ANNOTATIONS),
    "labels": {
      side: {name: [UNKNOWN, *labels] for name in opened} for side in SIDES
    },
  }
