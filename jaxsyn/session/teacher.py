"""A run that teaches another: what it makes of every batch of training.

Before this file: `workdir`, `parameters`, and the losses that read what this makes,
`jaxsyn.training.distillation` and `word_distillation`. After it: `train`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn.config import Config
from jaxsyn.data import schema
from jaxsyn.data.loader import mixture, tasks
from jaxsyn.data.loader.collate import Batch, BatchTransform
from jaxsyn.errors import InputError
from jaxsyn.models import contract
from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ROOT, ConfigPath
from jaxsyn.plan import Plan, resolve
from jaxsyn.session import parameters, workdir
from jaxsyn.storage import checksums, files
from jaxsyn.training.distillation import TeacherLoss

FILE = "teachers.json"  # of a run that learns


class Teacher:
  """What is added to batches.

  Attributes:
    at: where the options of the loss stand.
    features: of the data, that the teacher reads.
    told: who teaches, for the log.
    checksum: of its parameters.
  """

  def __init__(
    self,
    loss: TeacherLoss,
    at: ConfigPath,
    config: Config,
    manifest: Mapping[str, Any],
  ):
    """Reads the teacher's parameters.

    Args:
      loss: that says who teaches.
      at: where its options stand.
      config: of the run that learns.
      manifest: of its data.

    Raises:
      InputError: no such run or checkpoint, a corrupt one, or one that reads
        other subwords, labels or trees.
    """
    run, plan, spec = _opened(loss, at, config, manifest)
    model = contract.make(spec)
    sides = tuple(f"{side}_" for side in loss.sides)
    self.features = frozenset(
      name for name in plan.model_features if name.startswith(sides)
    )
    parameters_ = parameters.read(
      run,
      plan,
      schema.features_for(run.manifest, self.features),
      checkpoint=loss.checkpoint,
      option=f"--{at / 'checkpoint'}",
    )
    requested = loss.checkpoint or run.config.decode.checkpoint
    self.told = (
      f"taught by {loss.teacher}, {parameters.title(parameters_, requested)}"
    )
    self._params, self._sides = parameters_.params, sides
    leaves = jax.tree.leaves(jax.tree.map(np.asarray, parameters_.params))
    self.at = str(at)
    self.checksum = checksums.crc32c(
      "".join(map(checksums.crc32c, leaves)).encode()
    )
    self._facts = jax.jit(functools.partial(loss.teacher_features, model))

  def chain(self, transform: BatchTransform | None) -> BatchTransform:
    """A caller's own function on every batch, and then this."""

    def both(batch: Batch) -> Batch:
      batch = batch if transform is None else transform(batch)
      return {**batch, **self(batch)}

    return both

  def __call__(self, batch: Batch) -> dict[str, np.ndarray]:
    """What the teacher makes of a batch: facts of it, by name."""
    read = {n: x for n, x in batch.items() if n.startswith(self._sides)}
    facts = self._facts(self._params, read)
    return {name: np.asarray(x) for name, x in facts.items()}


def read(plan: Plan, manifest: Mapping[str, Any]) -> tuple[Teacher, ...]:
  """Who teaches a run: for each loss that learns from another a teacher.

  Args:
    plan: of the run.
    manifest: of its data.

  Raises:
    InputError: as `Teacher`.
  """
  return tuple(
    Teacher(loss, at, plan.config, manifest) for at, loss in _teachers_of(plan)
  )


def check(
  plan: Plan,
  manifest: Mapping[str, Any],
  but: Callable[[str], bool] = lambda run: False,
) -> None:
  """What `read` would raise, but of parameters; no device is asked.

  Args:
    plan, manifest: as of `read`.
    but: whether the teacher in a folder is not looked at.
  """
  for at, loss in _teachers_of(plan):
    if not but(loss.teacher):
      _opened(loss, at, plan.config, manifest)


def _teachers_of(plan: Plan) -> list[tuple[ConfigPath, TeacherLoss]]:
  """The losses that learn from another run, and where their options stand."""
  return [
    (ROOT / "losses" / name, loss)
    for name, loss in plan.config.losses
    if isinstance(loss, TeacherLoss) and loss.weight
  ]


def _opened(
  loss: TeacherLoss, at: ConfigPath, config: Config, manifest: Mapping[str, Any]
) -> tuple[workdir.Run, Plan, ModelSpec]:
  """The run that teaches, its plan, and its model with what is to be learnt."""
  if not loss.teacher:
    raise (at / "teacher").error(
      "='' names nobody: give the folder of a trained run that reads trees, "
      f"as in --{at / 'teacher'}=runs/pascal."
    )
  run = workdir.open_run(loss.teacher)
  plan = resolve(run.config, run.manifest)
  _check_alike(loss, at, config, manifest, run, plan.model_features)
  return run, plan, loss.required_maps_of_teacher(at, plan.spec)


def check_same(
  folder: os.PathLike[str] | str, teachers: Sequence[Teacher]
) -> None:
  """Raises InputError where a run that goes on would learn from others."""
  path = files.path_of(folder) / FILE
  if (
    not teachers
    or not workdir.is_started(path.parent)
    or not files.is_file(path)
  ):
    return
  try:
    were = checksums.verify_checksum(files.read_json(path))
  except (ValueError, OSError) as error:
    raise InputError(
      f"{path} is corrupt ({str(error).rstrip('.')}). Restore it from a copy, "
      "or use another --workdir."
    ) from None
  for one in teachers:
    if were.get(one.at) != one.checksum:
      raise InputError(
        f"{folder} learnt from other parameters than {one.at}.teacher has now: "
        f"that run was trained on, or again. Name the checkpoint that taught "
        f"({one.at}.checkpoint), or use another --workdir."
      )


def write(folder: os.PathLike[str] | str, teachers: Sequence[Teacher]) -> None:
  """Keeps in a run's folder who teaches it, for `check_same`."""
  if teachers:
    content = {one.at: one.checksum for one in teachers}
    files.write_json(
      files.path_of(folder) / FILE, checksums.add_checksum(content)
    )


def _check_alike(
  loss: TeacherLoss,
  at: ConfigPath,
  config: Config,
  manifest: Mapping[str, Any],
  run: workdir.Run,
  required: Collection[str],
) -> None:
  """Raises InputError for a teacher that would read a batch otherwise."""

  def refuse(what: str) -> None:
    raise (at / "teacher").error(
      f"={loss.teacher!r} has {what} than {config.data.directory}; train the "
      "teacher on the same prepared data."
    )

  for side in loss.sides:
    ours, theirs = (
      manifest_["vocabulary"][side]["sha256"]
      for manifest_ in (manifest, run.manifest)
    )
    if ours != theirs:
      refuse(f"another vocabulary of the {side}")
    if not any(name.startswith(f"{side}_") for name in required):
      continue
    for name in ("relations", "labels"):
      ours, theirs = (
        dict(manifest_.get(name) or {}).get(side)
        for manifest_ in (manifest, run.manifest)
      )
      if theirs and ours != theirs:
        refuse(f"other {name} of the {side}")
    ours, theirs = (
      workdir.hashes(manifest_)["parser"].get(side)
      for manifest_ in (manifest, run.manifest)
    )
    if ours != theirs:
      refuse(f"another parser of the {side}")
  ours, theirs = (
    (
      tasks.symbols(of.data.second, manifest_),
      mixture.tags(of.data.mixture, manifest_),
    )
    for of, manifest_ in ((config, manifest), (run.config, run.manifest))
  )
  if ours != theirs:
    raise (at / "teacher").error(
      f"={loss.teacher!r} knows other signs of tasks or corpora than this run "
      "has: train it with the same config.data.second and config.data.mixture."
    )
  trees = run.config.data.tree, config.data.tree
  sees = required or run.config.data.second.task.any
  replaced = sees and any(tree.replaces for tree in trees)
  if replaced and trees[0] != trees[1]:
    raise (at / "teacher").error(
      f"={loss.teacher!r} was trained with config.data.tree="
      f"{run.config.data.tree}, and this run has {config.data.tree}; set it as "
      "the teacher's."
    )
  seeds = run.config.seed, config.seed
  if trees[0].seeded and seeds[0] != seeds[1]:
    raise (at / "teacher").error(
      f"={loss.teacher!r} was trained on the random trees of config.seed="
      f"{seeds[0]}, and this run has those of {seeds[1]}: give each seed a "
      "teacher of its own."
    )
