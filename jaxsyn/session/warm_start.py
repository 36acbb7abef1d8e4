"""Warm start: initializes a run from another run (config.train.start).

Parameters match by name. Entries of axes of subwords or relations match by label,
so that vocabularies may differ and may be separate or joint. Parameters that the
other run lacks keep their random initial values. The other run may have been
trained on other devices.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.plan import Plan
from jaxsyn.session import parameters, workdir
from jaxsyn.session.matching import MatchedArray, Named, labels, match
from jaxsyn.session.workdir import PathLike
from jaxsyn.storage import files
from jaxsyn.training.options import Start
from jaxsyn.training.step import TrainState

FILE = "start.json"


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """Initial parameters of a run, copied from another run.

  Attributes:
    matched: Parameters from another run, by name.
    origin: Content of FILE.
    messages: Description for the log, in lines.
  """

  matched: dict[str, MatchedArray]
  origin: dict[str, Any]
  messages: tuple[str, ...]

  def __call__(self, state: TrainState) -> TrainState:
    """Returns a train state with the copied parameters, on the same devices."""
    params = jax.tree_util.tree_map_with_path(self._initial, state.params)
    ema = None if state.ema is None else jax.tree.map(jnp.copy, params)
    return dataclasses.replace(state, params=params, ema=ema)

  def _initial(self, path: Any, random: jax.Array) -> jax.Array:
    """Returns the initial value of a parameter: copied, random, or both.

    Args:
      path: Path of the parameter.
      random: Its random value.
    """
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    array = self.matched.get(name)
    if array is None:
      return random
    value = _placed(array.value, random)
    if array.known is None:
      return value
    known = _placed(array.known, random)
    where = jax.jit(jnp.where, out_shardings=random.sharding)
    return where(known, value, random)

  def write(self, folder: PathLike) -> None:
    """Writes the origin of the initial parameters to a run directory."""
    workdir.write_record(files.path_of(folder) / FILE, self.origin)


def read(
  start: Start, plan: Plan, directory: str, folder: PathLike
) -> WarmStart | None:
  """Reads the initial parameters of a run from another run.

  Args:
    start: Options config.train.start.
    plan: Plan of the new run.
    directory: Dataset directory of the new run.
    folder: Directory of the new run, which may not exist yet.

  Returns:
    The parameters; None without a warm start, or if the run has checkpoints.

  Raises:
    InputError: There is no such run or checkpoint, or no parameter matches.
  """
  folder = files.path_of(folder)
  if not start.run or workdir.is_started(folder):
    return None
  if files.absolute(start.run) == files.absolute(folder):
    raise InputError(
      f"config.train.start.run={start.run!r} is the folder of this run itself; "
      "name another run."
    )
  run = workdir.open_run(start.run)
  option = "--config.train.start.checkpoint"
  loaded = parameters.read(run, start.checkpoint, option=option)
  arrays = jax.device_get(arrays_by_name(loaded.params))
  source = Named(arrays, labels(run.plan, run.manifest, run.workdir))
  manifest = manifests.read(directory)
  features = schema.features_for(manifest, plan.translation_features)
  model = Named(
    arrays_by_name(parameters.shapes(plan.recipe, features)),
    labels(plan, manifest, files.path_of(directory)),
  )
  matched, differing = match(model, source, start.unknown)
  if not matched:
    reason = workdir.shortened([*differing.values()])
    raise InputError(
      f"config.train.start.run={start.run!r}: nothing of that run fits. "
      f"{reason or 'No parameter has a name of this model'}."
    )
  origin = {
    "run": os.fspath(start.run),
    "checkpoint": loaded.title,
    "steps": list(loaded.steps),
    "sha256": sha256_of(arrays),
    "system": run.config.system,
    "data": workdir.hashes(run.manifest),
    "taken": sorted(name for name, array in matched.items() if not array.rows),
    "rows": {n: list(array.rows) for n, array in matched.items() if array.rows},
    "fresh": sorted(set(model.arrays) - set(matched)),
    "left": sorted(set(arrays) - set(model.arrays)),
    "differing": differing,
  }
  return WarmStart(matched, origin, _messages(origin, start.unknown))


def sha256_of(arrays: Mapping[str, np.ndarray]) -> str:
  """Returns the SHA-256 of parameters: names, types, shapes and bytes."""
  digest = hashlib.sha256()
  for name, x in sorted(arrays.items()):
    digest.update(f"{name} {x.dtype} {x.shape}\n".encode())
    digest.update(np.ascontiguousarray(x).data)
  return digest.hexdigest()


def _placed(value: np.ndarray, like: jax.Array) -> jax.Array:
  """Places a host array on devices with the sharding of another array."""
  return jax.make_array_from_callback(
    like.shape, like.sharding, lambda index: np.ascontiguousarray(value[index])
  )


def _messages(origin: Mapping[str, Any], unknown: str) -> tuple[str, ...]:
  """Returns log lines on the copied, random and unused parameters."""
  copied, rows, fresh = origin["taken"], origin["rows"], origin["fresh"]
  count = len(copied) + len(rows) + len(fresh)
  lines = [
    f"warm start from {origin['run']} ({origin['checkpoint']}; SHA-256 "
    f"{origin['sha256'][:12]}): {len(copied)} of {count} parameters are copied, "
    f"{len(rows)} entry by entry, {len(fresh)} are random",
  ]
  other = "are random" if unknown == "drawn" else "get the mean"
  for name, (known, size) in rows.items():
    rest = f", the others {other}" if known < size else ""
    lines.append(f"  {name}: {known:,} of {size:,} entries are known{rest}")
  differing = origin["differing"]
  kinds = {
    "random": [name for name in fresh if name not in differing],
    "random, since the shape differs": [*differing.values()],
    "not used, as this model lacks them": origin["left"],
  }
  for kind, names in kinds.items():
    if names:
      lines.append(f"  {kind}: {workdir.shortened(names)}")
  return tuple(lines)
