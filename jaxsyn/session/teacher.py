"""Teachers: trained runs whose predictions or attention another run learns.

A teacher adds features to every batch of training, which the losses of
`jaxsyn.training.distillation` and `word_distillation` read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn.config import Config
from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.loader.collate import Batch, BatchTransform
from jaxsyn.errors import InputError
from jaxsyn.models import contract
from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ROOT, ConfigPath
from jaxsyn.plan import Plan
from jaxsyn.session import parameters, workdir
from jaxsyn.session.workdir import PathLike, Run
from jaxsyn.storage import checksums, files
from jaxsyn.training.distillation import TeacherLoss

FILE = "teachers.json"  # of a run that learns


class Teacher:
  """Function that computes a teacher's predictions or attention for a batch.

  Attributes:
    path: Config path of the loss that learns from it.
    features: Features of the data that the teacher reads.
    message: Description for the log.
    checksum: Checksum of its parameters.
  """

  def __init__(
    self,
    loss: TeacherLoss,
    path: ConfigPath,
    config: Config,
    manifest: Mapping[str, Any],
  ):
    """Opens the teacher's run and reads its parameters.

    Args:
      loss: Loss that learns from the teacher.
      path: Config path of the loss.
      config: Config of the run that learns.
      manifest: Manifest of its data.

    Raises:
      InputError: There is no such run or checkpoint, it is corrupt, or it reads
        other subwords, labels or trees.
    """
    run, spec = _open(loss, path, config, manifest)
    self._sides = tuple(f"{side}_" for side in loss.sides)
    self.features = frozenset(
      name for name in run.plan.model_features if name.startswith(self._sides)
    )
    option = f"--{path / 'checkpoint'}"
    loaded = parameters.read(run, loss.checkpoint, option=option)
    self._params = loaded.params
    self.path = str(path)
    self.message = f"teacher: {loss.teacher}, {loaded.title}"
    leaves = jax.tree.leaves(jax.tree.map(np.asarray, loaded.params))
    self.checksum = checksums.crc32c(
      "".join(map(checksums.crc32c, leaves)).encode()
    )
    model = contract.make(spec)
    self._compute = jax.jit(functools.partial(loss.teacher_features, model))

  def chain(self, transform: BatchTransform | None) -> BatchTransform:
    """Returns a batch transform that also adds the teacher's outputs."""

    def both(batch: Batch) -> Batch:
      batch = batch if transform is None else transform(batch)
      return {**batch, **self(batch)}

    return both

  def __call__(self, batch: Batch) -> dict[str, np.ndarray]:
    inputs = {n: x for n, x in batch.items() if n.startswith(self._sides)}
    features = self._compute(self._params, inputs)
    return {name: np.asarray(x) for name, x in features.items()}


def read(plan: Plan, manifest: Mapping[str, Any]) -> tuple[Teacher, ...]:
  """Opens the teachers of a run, one per distillation loss.

  Args:
    plan: Plan of the run.
    manifest: Manifest of its data.

  Raises:
    InputError: See `Teacher`.
  """
  return tuple(
    Teacher(loss, path, plan.config, manifest) for path, loss in _losses(plan)
  )


def check(
  plan: Plan,
  manifest: Mapping[str, Any],
  but: Callable[[str], bool] = lambda run: False,
) -> None:
  """Raises InputError if a teacher does not fit the run; reads no parameters.

  Args:
    plan, manifest: See `read`.
    but: Function of a run directory: whether its teacher is not checked.
  """
  for path, loss in _losses(plan):
    if not but(loss.teacher):
      _open(loss, path, plan.config, manifest)


def check_same(folder: PathLike, teachers: Sequence[Teacher]) -> None:
  """Raises InputError if the teachers of a resumed run have changed."""
  path = files.path_of(folder) / FILE
  is_resumed = workdir.is_started(path.parent)
  if not (teachers and is_resumed and files.is_file(path)):
    return
  remedy = "Restore it from a copy, or use another --workdir."
  recorded = workdir.read_record(path, remedy)
  for one in teachers:
    if recorded.get(one.path) != one.checksum:
      raise InputError(
        f"{folder} learned from other parameters than {one.path}.teacher has "
        "now: that run was trained on, or again. Name the checkpoint of the "
        f"teacher ({one.path}.checkpoint), or use another --workdir."
      )


def write(folder: PathLike, teachers: Sequence[Teacher]) -> None:
  """Writes the checksums of teachers to a run directory, for `check_same`."""
  if teachers:
    content = {one.path: one.checksum for one in teachers}
    workdir.write_record(files.path_of(folder) / FILE, content)


def _losses(plan: Plan) -> list[tuple[ConfigPath, TeacherLoss]]:
  """Returns the distillation losses of a run, with their config paths."""
  return [
    (ROOT / "losses" / name, loss)
    for name, loss in plan.config.losses
    if isinstance(loss, TeacherLoss) and loss.weight
  ]


def _open(
  loss: TeacherLoss,
  path: ConfigPath,
  config: Config,
  manifest: Mapping[str, Any],
) -> tuple[Run, ModelSpec]:
  """Opens a teacher; returns its run and its model spec for distillation."""
  if not loss.teacher:
    raise (path / "teacher").error(
      "='' names no run: give the run directory of a system that reads trees, "
      f"as in --{path / 'teacher'}=runs/pascal."
    )
  run = workdir.open_run(loss.teacher)
  features = run.plan.model_features
  differences = _differences(loss, config, manifest, run, features)
  difference = next(differences, "")
  if difference:
    raise (path / "teacher").error(f"={loss.teacher!r} {difference}")
  return run, loss.required_maps_of_teacher(path, run.plan.spec)


def _differences(
  loss: TeacherLoss,
  config: Config,
  manifest: Mapping[str, Any],
  run: Run,
  features: Collection[str],
) -> Iterator[str]:
  """Yields messages about differences between the teacher's data and the run's.

  Args:
    loss: Loss that learns from the teacher.
    config, manifest: Config of the run that learns, and manifest of its data.
    run: Teacher.
    features: Features that the teacher reads.
  """
  remedy = f"than {config.data.directory}; train the teacher on the same prepared data."
  hashes, teacher_hashes = map(workdir.hashes, (manifest, run.manifest))
  for side in loss.sides:
    vocabularies = hashes["vocabulary"], teacher_hashes["vocabulary"]
    if vocabularies[0][side] != vocabularies[1][side]:
      yield f"has another vocabulary of the {side} {remedy}"
    if not any(name.startswith(f"{side}_") for name in features):
      continue
    for name in ("relations", "labels"):
      known = (run.manifest.get(name) or {}).get(side)
      if known and known != (manifest.get(name) or {}).get(side):
        yield f"has other {name} of the {side} {remedy}"
    parsers = hashes["parser"], teacher_hashes["parser"]
    if parsers[0].get(side) != parsers[1].get(side):
      yield f"has another parser of the {side} {remedy}"
  if _symbols(config, manifest) != _symbols(run.config, run.manifest):
    yield (
      "has other symbols of tasks or corpora than this run: train it with the "
      "same config.data.second and config.data.mixture."
    )
  tree, teacher_tree = config.data.tree, run.config.data.tree
  reads_trees = features or run.config.data.second.task.any
  is_replaced = tree.replaces or teacher_tree.replaces
  if reads_trees and is_replaced and tree != teacher_tree:
    yield (
      f"was trained with config.data.tree={teacher_tree}, and this run has "
      f"{tree}; set the teacher's."
    )
  seed, teacher_seed = config.seed, run.config.seed
  if teacher_tree.seeded and seed != teacher_seed:
    yield (
      f"was trained on the random trees of config.seed={teacher_seed}, and this "
      f"run has those of {seed}: train one teacher for each seed."
    )


def _symbols(config: Config, manifest: Mapping[str, Any]) -> tuple[Any, Any]:
  return (
    tasks.symbols(config.data.second, manifest),
    mixture.tags(config.data.mixture, manifest),
  )
